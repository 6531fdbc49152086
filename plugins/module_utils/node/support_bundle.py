# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the support bundle, a tar.gz of the machines' material, with a manifest.

The manifest lists origin and hash of each file, and what is missing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import Refusal
from ..reasons import Reason
from .support_catalogue import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime


# The support material of one machine, and its encoding for the admin's machine: compressed JSON of limited size.

VERSION = 1
MAX_MATERIAL = 24 << 20
MAX_PIECES = 512
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*(/[A-Za-z0-9_][A-Za-z0-9_.@:-]*)*")
_MAX_NAME = 200
_MAX_TEXT = 2000
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file of the bundle: name, origin, content, number of redactions, and a note on what was cut off."""

    name: str
    origin: str
    content: str
    hidden: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A source that is not in the bundle, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything that one machine gathered."""

    pieces: tuple[Piece, ...]
    left_out: tuple[LeftOut, ...]


def render_material(material: Material) -> bytes:
    """Return the material as gzip of JSON; the same material gives the same bytes."""
    document = {"version": VERSION, **asdict(material)}
    return gzip.compress(json.dumps(document, sort_keys=True).encode(), mtime=0)


def parse_material(data: bytes) -> Material:
    """Return the material in ``data``, which a machine sent; raises `Refusal` SUPPORT_MATERIAL_MALFORMED.

    At most `MAX_MATERIAL` bytes are unpacked, and a name cannot leave its own directory.
    """
    try:
        document = load_json(_unpacked(data), limit=MAX_MATERIAL)
        if document["version"] != VERSION:
            raise _malformed(f"version {VERSION}", repr(document["version"])[:40])
        pieces = tuple(_piece(one) for one in _rows(document["pieces"]))
        left_out = tuple(LeftOut(what=_text(one["what"]), why=_text(one["why"])) for one in _rows(document["left_out"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed("a list of pieces", type(error).__name__) from error
    if len({piece.name for piece in pieces}) != len(pieces):
        raise _malformed("each name once", "one twice")
    return Material(pieces=pieces, left_out=left_out)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        content = unpacker.decompress(data, MAX_MATERIAL + 1)
    except zlib.error as error:
        raise _malformed("gzip", str(error)) from error
    if len(content) > MAX_MATERIAL or not unpacker.eof:
        raise _malformed(f"at most {MAX_MATERIAL} bytes, whole", "more, or less than announced")
    return content


def _rows(found: Any) -> Sequence[Any]:
    if not isinstance(found, list) or len(found) > MAX_PIECES:
        raise _malformed(f"a list of at most {MAX_PIECES}", type(found).__name__)
    return found


def _piece(row: Any) -> Piece:
    name, content, hidden = row["name"], row["content"], row["hidden"]
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise _malformed("a plain name", repr(name)[:80])
    if not isinstance(content, str) or not isinstance(hidden, int):
        raise _malformed(f"text in {name}", type(content).__name__)
    return Piece(name=name, origin=_text(row["origin"]), content=content, hidden=hidden, note=_text(row["note"]))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise _malformed("text", type(found).__name__)
    return found[:_MAX_TEXT]


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(
        f"expected {expected} in what a machine gathered, got {got}", reason=Reason.SUPPORT_MATERIAL_MALFORMED
    )


MAX_BUNDLE = 256 << 20
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The material of one machine or of the site; ``place`` is its directory in the bundle."""

    place: str
    material: Material

    @classmethod
    def of_node(cls, name: str, material: Material) -> Part:
        """Return the part of a node; its name comes from an inventory, so it may contain any character."""
        return cls(place=f"nodes/{_PLAIN.sub('_', name).lstrip('.') or '_'}", material=material)

    @classmethod
    def failed(cls, name: str, why: str) -> Part:
        """Return the part of a node that delivered nothing."""
        return cls.of_node(name, Material(pieces=(), left_out=(LeftOut(what="everything", why=why[:300]),)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the bundle and its row of the manifest."""

    path: str
    piece: Piece

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self.piece.content.encode("utf-8", "replace")

    def as_row(self) -> dict[str, Any]:
        """Return its row of the manifest."""
        digest = hashlib.sha256(self.data).hexdigest()
        row = {"path": self.path, "sha256": digest, "size": len(self.data), "origin": self.piece.origin}
        optional = {"hidden": self.piece.hidden, "note": self.piece.note}
        return row | {name: value for name, value in optional.items() if value}


def render_bundle(
    name: str, parts: Sequence[Part], *, made_at: datetime, facts: Mapping[str, str]
) -> tuple[bytes, dict[str, Any]]:
    """Return the tar.gz, whose only directory is ``name``, and its manifest.

    ``facts`` are versions of the admin's side. The manifest names the files that do not fit into `MAX_BUNDLE` bytes.
    """
    entries, left_out = _fitting(parts)
    manifest = {
        "version": 1,
        "made_at": made_at.isoformat(timespec="seconds"),
        "facts": dict(facts),
        "files": [entry.as_row() for entry in entries],
        "left_out": left_out,
        "never_collected": [{"what": what, "why": why} for what, why in LEFT_OUT.items()],
    }
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        _add(tar, f"{name}/manifest.json", json.dumps(manifest, indent=1).encode(), made_at)
        for entry in entries:
            _add(tar, f"{name}/{entry.path}", entry.data, made_at)
    return buffer.getvalue(), manifest


def _fitting(parts: Sequence[Part]) -> tuple[list[Entry], list[dict[str, str]]]:
    entries: list[Entry] = []
    left_out: list[dict[str, str]] = []
    room = MAX_BUNDLE
    for part in parts:
        for entry in _entries(part):
            room -= len(entry.data)
            if room < 0:
                left_out.append(
                    {"part": part.place, "what": entry.piece.name, "why": f"a bundle holds {MAX_BUNDLE} bytes"}
                )
            else:
                entries.append(entry)
        left_out += [{"part": part.place, "what": one.what, "why": one.why} for one in part.material.left_out]
    return entries, left_out


def _entries(part: Part) -> Iterator[Entry]:
    return (Entry(path=f"{part.place}/{piece.name}", piece=piece) for piece in part.material.pieces)


def _add(tar: tarfile.TarFile, path: str, data: bytes, made_at: datetime) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.mtime = len(data), _MODE, int(made_at.timestamp())
    tar.addfile(member, io.BytesIO(data))
