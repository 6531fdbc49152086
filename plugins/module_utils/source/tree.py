# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a git tree as files, and refuse it before any file is written. Pure.

Every object is read by its hash, beginning at the signed commit, so the files are those that were signed. Git's
attributes, filters, hooks and submodules are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_ENTRIES = 8192
MAX_DEPTH = 24
MAX_BYTES = 32 << 20
"""The limits of a site; thirty machines with their profiles are about 200 files of 2 kB."""

_ID_BYTES = 20
_MAX_NAME = 255
_MAX_TARGET = 1024


class FileKind(Enum):
    """The allowed kinds of files, by git's mode."""

    PLAIN = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


_FOLDER, _SUBMODULE = "40000", "160000"


class Objects(Protocol):
    """Reads objects; `Staging` implements it."""

    def read(self, kind: str, ids: Iterable[str], *, limit: int) -> Mapping[str, bytes]:
        """Return the objects of ``kind`` by id after their hashes were checked; at most ``limit`` bytes in total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """A file of the site: its ``path`` from the root, with slashes, and its content (the target of a link)."""

    path: str
    kind: FileKind
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str
    mode: str
    object_id: str


def read_files(objects: Objects, tree: str) -> tuple[SiteFile, ...]:
    """Return every file below ``tree``, sorted by path.

    Raises SOURCE_TREE_REFUSED, and what ``objects`` raises.
    """
    entries = _walk(objects, tree)
    contents = objects.read("blob", {entry.object_id for entry in entries}, limit=MAX_BYTES)
    total = sum(len(contents[entry.object_id]) for entry in entries)
    if total > MAX_BYTES:
        raise too_large(f"{total} bytes of files")
    files = (
        SiteFile(path=entry.path, kind=FileKind(entry.mode), content=contents[entry.object_id]) for entry in entries
    )
    return tuple(_checked(file) for file in sorted(files, key=lambda file: file.path))


def too_large(got: str) -> Refusal:
    """Return the refusal SOURCE_TREE_REFUSED of a repository that is too large."""
    return Refusal(
        f"expected a site of at most {MAX_ENTRIES} files and {MAX_BYTES} bytes, got {got}",
        reason=Reason.SOURCE_TREE_REFUSED,
    )


def _walk(objects: Objects, tree: str) -> list[_Entry]:
    found: list[_Entry] = []
    level, seen = [_Entry(path="", mode=_FOLDER, object_id=tree)], 0
    for _depth in range(MAX_DEPTH):
        contents = objects.read("tree", {folder.object_id for folder in level}, limit=MAX_BYTES)
        # The same small tree may be in many folders, so each occurrence counts.
        below = []
        for folder in level:
            entries = _entries(contents[folder.object_id], folder.path)
            seen += len(entries)
            if seen > MAX_ENTRIES:
                raise too_large("more files")
            below += entries
        found += [entry for entry in below if entry.mode != _FOLDER]
        level = [entry for entry in below if entry.mode == _FOLDER]
        if not level:
            return found
    raise too_large(f"more than {MAX_DEPTH} nested folders")


def _entries(content: bytes, folder: str) -> list[_Entry]:
    entries: list[_Entry] = []
    at = 0
    while at < len(content):
        if len(entries) == MAX_ENTRIES:
            raise too_large("more files")
        zero = content.find(b"\0", at)
        end = zero + 1 + _ID_BYTES
        if zero < 0 or end > len(content):
            raise hostile(folder, "an incomplete entry")
        mode, _space, name = content[at:zero].partition(b" ")
        entries.append(_entry(mode, name, content[zero + 1 : end].hex(), folder=folder))
        at = end
    if len({entry.path for entry in entries}) != len(entries):
        raise hostile(folder, "a name twice")
    return entries


def _entry(mode: bytes, name: bytes, object_id: str, *, folder: str) -> _Entry:
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise hostile(folder, "a name that is not UTF-8") from error
    if text in {"", ".", ".."} or "/" in text or len(name) > _MAX_NAME or not text.isprintable():
        raise hostile(folder, f"the name {text!r:.60}")
    if text.lower() == ".git":
        raise hostile(folder, "a repository in the site")
    path = f"{folder}/{text}" if folder else text
    kind = mode.decode("ascii", errors="replace")
    if kind == _SUBMODULE:
        raise Refusal(f"expected files and folders, got the submodule {path}", reason=Reason.SOURCE_TREE_REFUSED)
    if kind != _FOLDER and kind not in {one.value for one in FileKind}:
        raise hostile(folder, f"mode {kind!r:.20} of {path}")
    return _Entry(path=path, mode=kind, object_id=object_id)


def _checked(file: SiteFile) -> SiteFile:
    """Return ``file``, or refuse a link out of the site: ``..`` may only be at the beginning of its target."""
    if file.kind is not FileKind.LINK:
        return file
    parts = file.content[: _MAX_TARGET + 1].decode(errors="replace").split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    outside = ups > file.path.count("/") or not parts[0] or ".." in parts[ups:]
    if outside or not file.content or b"\0" in file.content or len(file.content) > _MAX_TARGET:
        raise Refusal(
            f"expected the link {file.path} to stay in the site, it leads to {file.content[:80]!r}",
            reason=Reason.SOURCE_TREE_REFUSED,
        )
    return file


def hostile(folder: str, got: str) -> Refusal:
    """Return the refusal SOURCE_TREE_REFUSED of a tree that git itself would not create."""
    return Refusal(
        f"expected names and kinds of a plain site in /{folder}, got {got}", reason=Reason.SOURCE_TREE_REFUSED
    )
