# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`installed`: run the work of a module by the wheel in the node's environment (docs/adr/0064).

Ansible ships the files that a module imports by name, so a module with few imports ships few files. The node has the
other files already, since `prepare` installs the wheel of this collection there.
"""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, DependencyError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..result import Result
    from .module import Run

VERSION = "0.2.0"
"""The version of this collection; a test compares it with galaxy.yml."""

_DISTRIBUTION = "attested-kubernetes"
_NAMESPACE = "ansible_collections"
_UTILS = f"{_NAMESPACE}.attested.kubernetes.plugins.module_utils"


def installed(work: str) -> Run:
    """Return the function ``work`` ("node.rotation:run_info"), which is imported when it is called.

    If the file is missing, as in Ansible's archive of a module, the function of the installed wheel runs. It raises
    DEPENDENCY_MISSING without the wheel, and COLLECTION_DIFFERS if the wheel has another version.
    """
    file, _colon, function = work.partition(":")
    name = f"{_UTILS}.{file}"

    def run(params: Mapping[str, Any], check_mode: bool) -> Result:
        if _has_module(name):
            result: Result = getattr(import_module(name), function)(params, check_mode)
            return result
        _leave_archive()
        wheel_error = import_module(f"{_UTILS}.errors").AttestedError
        try:
            result = getattr(import_module(name), function)(params, check_mode)
        except wheel_error as error:  # not our class, since it is imported from another file
            raise AttestedError(error.message, reason=Reason[error.code], hint=error.hint) from error
        return result

    return run


def _has_module(name: str) -> bool:
    """Return whether the tree of this file has the module ``name``."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing too
        return False


def _leave_archive() -> None:
    """Make later imports of this collection use the wheel; raises DEPENDENCY_MISSING, COLLECTION_DIFFERS."""
    try:
        found = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise DependencyError(
            f"expected {_DISTRIBUTION} {VERSION} in {sys.executable}, found none", reason=Reason.DEPENDENCY_MISSING
        ) from None
    if found != VERSION:
        raise DependencyError(
            f"expected {_DISTRIBUTION} {VERSION} in {sys.executable}, found {found}", reason=Reason.COLLECTION_DIFFERS
        )
    archive = str(Path(__file__).parents[6])
    sys.path[:] = [entry for entry in sys.path if entry != archive]
    for name in [one for one in sys.modules if one.partition(".")[0] == _NAMESPACE]:
        del sys.modules[name]
