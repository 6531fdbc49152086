# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`installed`: run the work of a module by the wheel in the node's environment (docs/adr/0064).

Ansible ships the files that a module imports by name, and the node compiles them again in each task. The node has them
already, since `prepare` installs the wheel of this collection there. A module ships its work too, by an import for
types only, if it has to run where the wheel has another version or is missing.
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

    In Ansible's archive of a module, the function of the installed wheel runs if that has the same version, else that
    of the archive. If the archive has none, DEPENDENCY_MISSING is raised without the wheel, and COLLECTION_DIFFERS if
    the wheel has another version.
    """
    file, _colon, function = work.partition(":")
    name = f"{_UTILS}.{file}"

    def run(params: Mapping[str, Any], check_mode: bool) -> Result:
        if _has_module(name) and (Path(__file__).is_file() or _version_of_wheel() != VERSION):
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


def _version_of_wheel() -> str:
    """Return the version of the wheel that the running interpreter has, empty without one."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def _leave_archive() -> None:
    """Make later imports of this collection use the wheel; raises DEPENDENCY_MISSING, COLLECTION_DIFFERS."""
    found = _version_of_wheel()
    if found != VERSION:
        raise DependencyError(
            f"expected {_DISTRIBUTION} {VERSION} in {sys.executable}, found {found or 'none'}",
            reason=Reason.COLLECTION_DIFFERS if found else Reason.DEPENDENCY_MISSING,
        )
    archive = str(Path(__file__).parents[6])
    sys.path[:] = [entry for entry in sys.path if entry != archive]
    for name in [one for one in sys.modules if one.partition(".")[0] == _NAMESPACE]:
        del sys.modules[name]
