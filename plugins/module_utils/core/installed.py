# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`installed`: the work of a module, done by the wheel in the node's environment (docs/adr/0064).

Ansible ships the files that a module imports by name, so a module that imports little ships little. Everything else is
on the node already: `prepare` installs the wheel of this collection there.
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

VERSION = "0.1.0"
"""Of this collection; a test compares it with galaxy.yml."""

_DISTRIBUTION = "attested-kubernetes"
_NAMESPACE = "ansible_collections"
_UTILS = f"{_NAMESPACE}.attested.kubernetes.plugins.module_utils"


def installed(work: str) -> Run:
    """Return the function ``work`` ("node.rotation:run_info"), which is imported when it is called.

    In Ansible's archive of a module, which lacks the file, it is the function of the installed wheel, and raises
    DEPENDENCY_MISSING without the wheel, COLLECTION_DIFFERS unless it has exactly this version.
    """
    file, _colon, function = work.partition(":")
    name = f"{_UTILS}.{file}"

    def run(params: Mapping[str, Any], check_mode: bool) -> Result:
        if _is_here(name):
            result: Result = getattr(import_module(name), function)(params, check_mode)
            return result
        _leave_archive()
        theirs = import_module(f"{_UTILS}.errors").AttestedError
        try:
            result = getattr(import_module(name), function)(params, check_mode)
        except theirs as error:  # a class of its own, since it comes from another file
            raise AttestedError(error.message, reason=Reason[error.code], hint=error.hint) from error
        return result

    return run


def _is_here(name: str) -> bool:
    """Say whether the tree that this file belongs to has the module ``name``."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def _leave_archive() -> None:
    """Let later imports of this collection come from the wheel; raises DEPENDENCY_MISSING, COLLECTION_DIFFERS."""
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
