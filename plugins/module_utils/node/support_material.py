# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The support material of one machine, and its encoding for the admin's machine: compressed JSON of limited size."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import Refusal
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

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
