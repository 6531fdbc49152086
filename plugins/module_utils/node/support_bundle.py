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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .support_catalogue import LEFT_OUT
from .support_material import LeftOut, Material

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from .support_material import Piece

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
