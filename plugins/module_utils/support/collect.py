# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what the catalogue lists and keeps what it allows. A source that fails is a line, not the end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..errors import AttestedError
from ..kubeadm import Kubectl
from ..system import load_documents
from .catalogue import CommandSource, FileSource, Keep, ListingSource, ObjectSource
from .material import LeftOut, Material, Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..system import Runner
    from .catalogue import Shape, Source
    from .hider import Hider

MAX_TOTAL = 8 << 20
_COMMAND_SECONDS = 10
_KUBECONFIG = Path("etc/kubernetes/admin.conf")
_MAX_ENTRIES = 256
_DIGEST_BYTES = 64 << 20
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Gathers on one machine; ``root`` replaces ``/`` in tests."""

    runner: Runner
    hider: Hider
    root: Path = Path("/")

    def collect(self, sources: Iterable[Source], *, more: Mapping[str, Mapping[str, Any]] | None = None) -> Material:
        """Return what the sources gave, and ``more`` (chosen documents by name); raises nothing of them."""
        pieces: list[Piece] = [
            self._clean(f"{name}.json", "attested", json.dumps(document, indent=1))
            for name, document in (more or {}).items()
        ]
        left_out: list[LeftOut] = []
        room = MAX_TOTAL
        for source in sources:
            try:
                piece = self._read(source)
            except (AttestedError, OSError, ValueError) as error:
                left_out.append(LeftOut(what=source.name, why=self._why(error)))
                continue
            room -= len(piece.content)
            if room < 0:
                left_out.append(
                    LeftOut(what=source.name, why=f"the bundle holds at most {MAX_TOTAL} bytes of a machine")
                )
            else:
                pieces.append(piece)
        return Material(pieces=tuple(pieces), left_out=tuple(left_out))

    def _why(self, error: Exception) -> str:
        told = error.message if isinstance(error, AttestedError) else getattr(error, "strerror", None) or str(error)
        return self.hider.hide(told)[0][:300]

    def _read(self, source: Source) -> Piece:
        if isinstance(source, CommandSource):
            return self._command(source)
        if isinstance(source, ListingSource):
            text = "\n".join(_entries(self._below(source.path)))
            return self._clean(source.name, source.path, text)
        if isinstance(source, ObjectSource):
            return self._objects(source)
        return self._file(source)

    def _command(self, source: CommandSource) -> Piece:
        result = self.runner.run(source.argv, check=False, timeout_seconds=_COMMAND_SECONDS)
        output = result.stdout or result.stderr
        return self._clean(source.name, " ".join(source.argv), *_tail(output, source.limit))

    def _file(self, source: FileSource) -> Piece:
        path = self._below(source.path)
        if source.keep is Keep.DIGEST:
            return Piece(name=source.name, origin=source.path, content=_digest(path))
        data = _regular(path, source.limit)
        if source.keep is Keep.CERTIFICATES:
            found = _CERTIFICATE.findall(data.decode("ascii", "replace"))
            return self._clean(source.name, source.path, "\n".join(found), "certificates only")
        if source.shape is None:
            return self._clean(source.name, source.path, *_head(data, source.limit))
        if len(data) > source.limit:
            raise ValueError(f"expected at most {source.limit} bytes")
        documents = [pick(one, source.shape) for one in load_documents(data.decode())]
        return self._clean(
            source.name, source.path, yaml.safe_dump_all(documents, sort_keys=True), "chosen fields only"
        )

    def _objects(self, source: ObjectSource) -> Piece:
        kubeconfig = self.root / _KUBECONFIG
        if not kubeconfig.exists():
            raise ValueError("this machine holds no kubeconfig of an admin")
        found = Kubectl.of_a_module(str(kubeconfig), self.runner).read([source.kind], *source.options)
        if source.about:
            found = [one for one in found if one.get("involvedObject", {}).get("kind") in source.about]
        rows = [json.dumps(pick(one, source.shape), sort_keys=True) for one in found]
        text, note = _head("\n".join(rows).encode(), source.limit)
        return self._clean(f"objects/{source.name}.jsonl", f"kubectl get {source.kind}", text, note)

    def _clean(self, name: str, origin: str, text: str, note: str = "") -> Piece:
        content, hidden = self.hider.hide(text)
        return Piece(name=name, origin=origin, content=content, hidden=hidden, note=note)

    def _below(self, path: str) -> Path:
        # a source of the site is named by its whole path
        return Path(path) if self.root == Path("/") else self.root / path.lstrip("/")


def pick(document: Any, shape: Shape) -> Any:
    """Return what ``shape`` keeps of ``document``; what has another form than the shape is left out."""
    if shape is True:
        return document
    if isinstance(shape, list):
        return [pick(one, shape[0]) for one in document] if isinstance(document, list) else []
    if not isinstance(shape, dict) or not isinstance(document, dict):
        return None
    return {name: pick(document[name], inner) for name, inner in shape.items() if name in document}


def _regular(path: Path, limit: int) -> bytes:
    """Return the first bytes of a regular file; a link is not followed but where its target lies beside it."""
    target = path.parent / path.readlink() if path.is_symlink() else path
    if target.parent != path.parent:
        raise ValueError("expected a file, found a link that leads elsewhere")
    descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("expected a regular file, found something else")
        return stream.read(limit + 1)


def _digest(path: Path) -> str:
    data = _regular(path, _DIGEST_BYTES)
    return json.dumps({"size": len(data), "sha256": hashlib.sha256(data).hexdigest()})


def _head(data: bytes, limit: int) -> tuple[str, str]:
    note = "" if len(data) <= limit else f"cut after {limit} bytes"
    return data[:limit].decode("utf-8", "replace"), note


def _tail(data: bytes, limit: int) -> tuple[str, str]:
    """Return the last whole lines that fit into ``limit`` bytes."""
    if len(data) <= limit:
        return data.decode("utf-8", "replace"), ""
    return data[-limit:].partition(b"\n")[2].decode("utf-8", "replace"), f"the last {limit} bytes"


def _entries(directory: Path) -> Iterator[str]:
    for _number, path in zip(range(_MAX_ENTRIES), sorted(directory.iterdir()), strict=False):
        state = path.lstat()
        mode = stat.filemode(state.st_mode)
        yield f"{mode} {state.st_uid} {state.st_gid} {state.st_size} {int(state.st_mtime)} {path.name}"
