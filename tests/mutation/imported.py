# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin: one module is imported in its changed form, for constants that others copy while being imported."""

from __future__ import annotations

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.mutation.mutants import mutants_of
from ansible_collections.attested.kubernetes.tests.mutation.targets import MUTANT, UTILS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType


class _Changed(SourceFileLoader):
    """Loads a file as its mutant of a number."""

    def __init__(self, fullname: str, path: str, number: int) -> None:
        super().__init__(fullname, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled mutant."""
        return compile(list(mutants_of(Path(self.path).read_text()))[self._number].tree, self.path, "exec")


class _Finder(MetaPathFinder):
    """Finds the one module before anybody else does."""

    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of the changed module, and of no other."""
        if not fullname.endswith(f".{self._path.stem}"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != self._path.resolve():
            return None
        loader: Loader = _Changed(fullname, spec.origin, self._number)
        spec.loader = loader
        return spec


def _install() -> None:
    name, _separator, number = os.environ[MUTANT].partition("#")
    sys.meta_path.insert(0, _Finder(UTILS / name, int(number)))


_install()
