# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guarded imports of all third-party libraries.

A missing library is replaced by a `Missing` placeholder, so that every file can be imported (and its documentation
read) anywhere. The first use of the placeholder raises `DependencyError`, which says what to do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, NoReturn

from ..errors import DependencyError
from ..reasons import Reason


class Missing:
    """A placeholder of a library that is not installed; any call raises `DependencyError`."""

    def __init__(self, name: str) -> None:
        """Store the dotted name for the message."""
        self._name = name

    def __getattr__(self, attribute: str) -> Missing:
        """Return a placeholder of the attribute, so that a module body can name it."""
        return Missing(f"{self._name}.{attribute}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Let a class body inherit from a missing class."""
        return ()

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Raise `DependencyError`, since the library is needed now."""
        package = self._name.split(".", maxsplit=1)[0]
        raise DependencyError(
            f"expected the Python package {package} in this interpreter, found none",
            reason=Reason.DEPENDENCY_MISSING,
        )


def optional(name: str) -> Any:
    """Return the module ``name``, or a `Missing` placeholder if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return Missing(name)


def require(*names: str) -> None:
    """Raise `DependencyError` naming every package of ``names`` that this interpreter cannot find."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        raise DependencyError(
            f"expected the Python packages {', '.join(names)} in {sys.executable}, found no {', '.join(absent)}",
            reason=Reason.DEPENDENCY_MISSING,
        )
