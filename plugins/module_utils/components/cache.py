# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's cache of built parts: each lies under the hash of what it was made from.

A part is one file and one small JSON record beside it. The record is written last, so a part that was cut off
is simply absent; the file's own hash is in the record, so a damaged one is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system import write_atomic
from .store import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RECORD = "part.json"
_KEPT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One cached file: its hash (hex), its size in bytes, and facts its maker noted."""

    path: Path
    sha256: str
    size: int
    facts: Mapping[str, Any]


class PartCache:
    """Parts below one directory, for example `~/.cache/attested-kubernetes`."""

    def __init__(self, root: Path) -> None:
        """Keep the directory; it is made when the first part is."""
        self.root = root

    def find(self, kind: str, key: str) -> Part | None:
        """Return the part made from ``key``, or None if it is absent or damaged."""
        record = self._folder(kind, key) / _RECORD
        try:
            noted = json.loads(record.read_bytes())
            path = record.with_name(noted["name"])
            part = Part(path=path, sha256=noted["sha256"], size=noted["size"], facts=noted["facts"])
            return part if path.stat().st_size == part.size and sha256_of(path) == part.sha256 else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def make(self, kind: str, key: str, name: str, maker: Callable[[Path], Mapping[str, Any]]) -> Part:
        """Let ``maker`` write the file ``name`` of a new part and return it; its facts go into the record.

        Two runs at once make a part once; of parts with one name the newest few are kept.
        """
        folder = self._folder(kind, key)
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with (folder.parent / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if part := self.find(kind, key):
                return part
            part = self._make(folder, name, maker)
            _prune(folder.parent, name)
            return part

    @staticmethod
    def _make(folder: Path, name: str, maker: Callable[[Path], Mapping[str, Any]]) -> Part:
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
            made = Path(scratch) / name
            facts = dict(maker(made))
            noted: dict[str, Any] = {
                "name": name,
                "sha256": sha256_of(made),
                "size": made.stat().st_size,
                "facts": facts,
            }
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o755)
            made.replace(folder / name)
        write_atomic(folder / _RECORD, json.dumps(noted, sort_keys=True).encode() + b"\n", mode=0o644)
        return Part(path=folder / name, sha256=noted["sha256"], size=noted["size"], facts=facts)

    def _folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key


def _prune(kind: Path, name: str) -> None:
    known = sorted(kind.glob(f"*/{name}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in known[_KEPT:]:
        shutil.rmtree(old.parent, ignore_errors=True)


def key_of(**inputs: object) -> str:
    """Return the hash of everything that a part is made from; values must be plain."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def tree_digest(root: Path, names: tuple[str, ...]) -> str:
    """Return one hash over the files ``names`` (files or directories) below ``root``, without compiled Python."""
    digest = hashlib.sha256()
    for name in names:
        start = root / name
        found = [start] if start.is_file() else sorted(start.rglob("*"))
        for path in found:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0{path.stat().st_mode & 0o111}\0".encode())
                digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()
