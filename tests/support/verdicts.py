# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on Python files that were found good, so that a check looks only at those whose verdict could be another.

A verdict hangs on the file, on all of the collection that it imports, directly or by others, and on the ground: the
tools and their settings. Whatever of these changes is another key, so a verdict is never out of date.
"""

from __future__ import annotations

import ast
import hashlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

WITHOUT = "ATTESTED_WITHOUT_VERDICTS"
"""In the environment: look at every file again."""

COLLECTION = ("ansible_collections", "attested", "kubernetes")
_PLUGINS, _LIBRARIES = "plugins/", "plugins/module_utils/_deps/"
_UNSEEN = ("import_module", "__import__", "pkgutil")
"""A plugin that says one of these hangs on all files, since an import of it may run any; but `_deps` imports libraries.

Of the tests nothing is run here, and what reads them sees no more than what they name.
"""
_KEPT_SECONDS = 30 * 86400


class Sources:
    """The Python files of a tree, by their paths below it, and what each of them imports of the same tree."""

    def __init__(self, root: Path) -> None:
        """Read them."""
        found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.py"))}
        self._digests = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
        self._imports = {name: self._imported(name, data) for name, data in found.items()}

    @property
    def names(self) -> Sequence[str]:
        """All paths."""
        return tuple(self._digests)

    def key(self, name: str, *, ground: str) -> str:
        """Return what a verdict on one file hangs on."""
        parts = [f"{one} {self._digests[one]}" for one in sorted(self._closure(name))]
        return hashlib.sha256("\n".join([ground, name, *parts]).encode()).hexdigest()

    def _closure(self, name: str) -> set[str]:
        seen, waiting = {name}, [name]
        while waiting:
            more = self._imports[waiting.pop()] - seen
            seen |= more
            waiting += more
        return seen

    def _imported(self, name: str, data: bytes) -> set[str]:
        text = data.decode(errors="replace")
        is_seen = not name.startswith(_PLUGINS) or name.startswith(_LIBRARIES)
        if not is_seen and any(word in text for word in _UNSEEN):
            return set(self._digests)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return set()
        here = tuple(name.split("/")[:-1])
        return {one for parts in _named(tree, here) for one in self._files(parts)}

    def _files(self, parts: tuple[str, ...]) -> Iterator[str]:
        """Give the files that are read where a module of the tree is imported: its own, and the packages above it."""
        for length in range(1, len(parts) + 1):
            stem = "/".join(parts[:length])
            yield from (one for one in (f"{stem}.py", f"{stem}/__init__.py") if one in self._digests)


def _named(tree: ast.AST, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give the modules that are imported, as parts below the tree; a name may be a module's or something in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_below(tuple(one.name.split("."))) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            said = tuple((node.module or "").split(".")) if node.module else ()
            base = (*here[: len(here) - node.level + 1], *said) if node.level else _below(said)
            if base or node.level:
                yield from ((*base, one.name) for one in node.names)


def _below(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a module's parts below the collection; one of elsewhere has none."""
    return parts[len(COLLECTION) :] if parts[: len(COLLECTION)] == COLLECTION else ()


class Verdicts:
    """What one check found good, as empty files that are named by the keys."""

    def __init__(self, directory: Path, *, environ: Mapping[str, str]) -> None:
        """Keep them in ``directory``; the environment says whether they count."""
        self._directory = directory
        self._without = WITHOUT in environ

    def left(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """Return of which files, each with its key, no verdict is known."""
        if self._without:
            return tuple(keys)
        return tuple(name for name, key in keys.items() if not (self._directory / key).exists())

    def remember(self, keys: Iterable[str]) -> None:
        """Keep that these are good, and forget what nobody asked for in a month."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for key in keys:
            (self._directory / key).touch()
        oldest = time.time() - _KEPT_SECONDS
        for path in self._directory.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
