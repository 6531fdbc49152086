# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache of verdicts on valid Python files, so that a check reads only files whose verdict may differ.

A verdict depends on the file, on all of the collection that it imports, directly or indirectly, and on the ground: the
tools and their settings. Each change gives another key, so a verdict is never out of date.
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
"""Environment variable: check all files again."""

COLLECTION = ("ansible_collections", "attested", "kubernetes")
_PLUGINS, _LIBRARIES = "plugins/", "plugins/module_utils/_deps/"
_UNSEEN = ("import_module", "__import__", "pkgutil")
"""A plugin with one of these words depends on all files, since its import may run any; `_deps` imports libraries.

Tests are not run here, and static tools see only the names in them.
"""
_KEPT_SECONDS = 30 * 86400


class Sources:
    """The Python files of a tree by relative path, with their imports of the same tree."""

    def __init__(self, root: Path) -> None:
        """Read the files."""
        found = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.py"))}
        self._digests = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
        self._imports = {name: self._imported(name, data) for name, data in found.items()}

    @property
    def names(self) -> Sequence[str]:
        """All paths."""
        return tuple(self._digests)

    def key(self, name: str, *, ground: str) -> str:
        """Return the key of a verdict on one file: the hash of its dependencies."""
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
        """Yield the files that an import of a module of the tree reads: its own, and those of parent packages."""
        for length in range(1, len(parts) + 1):
            stem = "/".join(parts[:length])
            yield from (one for one in (f"{stem}.py", f"{stem}/__init__.py") if one in self._digests)


def _named(tree: ast.AST, here: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the imported modules as parts below the tree; a name may be a module or a name in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (_below(tuple(one.name.split("."))) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            said = tuple((node.module or "").split(".")) if node.module else ()
            base = (*here[: len(here) - node.level + 1], *said) if node.level else _below(said)
            if base or node.level:
                yield from ((*base, one.name) for one in node.names)


def _below(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a module's parts below the collection, empty for other modules."""
    return parts[len(COLLECTION) :] if parts[: len(COLLECTION)] == COLLECTION else ()


class Verdicts:
    """The good files of one check, as empty files named by their keys."""

    def __init__(self, directory: Path, *, environ: Mapping[str, str]) -> None:
        """Use ``directory``; the environment may disable the cache."""
        self._directory = directory
        self._without = WITHOUT in environ

    def left(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """Return the files, given with their keys, without a verdict."""
        if self._without:
            return tuple(keys)
        return tuple(name for name, key in keys.items() if not (self._directory / key).exists())

    def remember(self, keys: Iterable[str]) -> None:
        """Store good verdicts, and remove those that were not used for a month."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for key in keys:
            (self._directory / key).touch()
        oldest = time.time() - _KEPT_SECONDS
        for path in self._directory.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
