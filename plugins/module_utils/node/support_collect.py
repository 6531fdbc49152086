# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the sources of the catalogue and keeps the allowed fields. A failed source is listed and ends nothing."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.yaml import yaml
from ..core.command import SystemRunner
from ..core.documents import load_documents
from ..core.files import read_bytes
from ..core.host import SystemClock
from ..core.logs import HIDDEN, hide
from ..errors import AttestedError
from ..keyservice.key_bundle import KeyBundle, KeyPaths
from ..kubeadm.kubectl import Kubectl
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..result import Result
from ..tpm.client import open_tpm
from ..tpm.constants import PCR_COUNT
from .journal import NodeJournal
from .status import read_status
from .support_bundle import LeftOut, Material, Piece, render_material
from .support_catalogue import CommandSource, FileSource, Keep, ListingSource, ObjectSource, node_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..core.command import Runner
    from .support_catalogue import Shape, Source


MAX_TOTAL = 8 << 20
_COMMAND_SECONDS = 10
_KUBECONFIG = Path("etc/kubernetes/admin.conf")
_MAX_ENTRIES = 256
_DIGEST_BYTES = 64 << 20
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Collects the material of one machine; ``root`` replaces ``/`` in tests."""

    runner: Runner
    hider: Hider
    root: Path = Path("/")

    def collect(self, sources: Iterable[Source], *, more: Mapping[str, Mapping[str, Any]] | None = None) -> Material:
        """Return the content of the sources, and ``more`` (documents by name).

        Errors of sources are not raised.
        """
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
        text = error.message if isinstance(error, AttestedError) else getattr(error, "strerror", None) or str(error)
        return self.hider.hide(text)[0][:300]

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
            raise ValueError("this machine has no kubeconfig of an admin")
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
        # a source of the site has an absolute path, which is not below another root
        return Path(path) if self.root == Path("/") else self.root / path.lstrip("/")


def pick(document: Any, shape: Shape) -> Any:
    """Return the fields of ``document`` that ``shape`` selects.

    Values that do not match the shape are left out.
    """
    if shape is True:
        return document
    if isinstance(shape, list):
        return [pick(one, shape[0]) for one in document] if isinstance(document, list) else []
    if not isinstance(shape, dict) or not isinstance(document, dict):
        return None
    return {name: pick(document[name], inner) for name, inner in shape.items() if name in document}


def _regular(path: Path, limit: int) -> bytes:
    """Return the first bytes of a regular file; a link is followed only to a target in the same directory."""
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


# The last safeguard: the machine's own secrets are redacted in every usual encoding, and also what looks like a secret.
#
# For this, root reads the machine's own keys into memory; they are only compared and never stored.

_LIMIT = 64 << 10
_OPENED_LIMIT = 1 << 20
_MAX_FILES = 512
_PLACES = ("etc/kubernetes", "run/attested/tickets", "var/lib/kubelet/pki")
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s(.*?)-----END", re.DOTALL)
_DATA = re.compile(rb"client-key-data[\"']?:\s*[\"']?([A-Za-z0-9+/=]+)")
_SECRET = re.compile(rb"\bsecret:\s*[\"']?([A-Za-z0-9+/=]{16,})")
_LONG_LINE = 32
_MIDDLE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Hider:
    """Redacts ``secrets`` (bytes, in every usual encoding) and ``words`` (literally)."""

    secrets: frozenset[bytes] = field(default=frozenset(), repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)

    def hide(self, text: str) -> tuple[str, int]:
        """Return ``text`` without secrets and what looks like a secret, and the number of redactions."""
        clean = hide(text, secrets=self.secrets, words=self.words)
        return clean, max(clean.count(HIDDEN) - text.count(HIDDEN), int(clean != text))

    def clean(self, piece: Piece) -> Piece:
        """Return ``piece`` with its content redacted once more."""
        content, hidden = self.hide(piece.content)
        return replace(piece, content=content, hidden=piece.hidden + hidden)


def secrets_of_machine(root: Path = Path("/")) -> Hider:
    """Return a `Hider` for this machine's secrets: private keys, and the opened keys of a key service."""
    secrets: set[bytes] = set(_opened(root))
    words: set[str] = set()
    for data in _files(root):
        keys = [data, *(_decoded(found) for found in _DATA.findall(data))]
        words |= {found.decode("ascii") for found in (*_DATA.findall(data), *_SECRET.findall(data))}
        secrets |= {_decoded(found) for found in _SECRET.findall(data)}
        for body in (found for one in keys for found in _KEY.findall(one)):
            lines, middle = _of_key(body)
            words |= lines
            secrets |= middle
    return Hider(secrets=frozenset(secrets - {b""}), words=frozenset(words))


def _of_key(body: bytes) -> tuple[set[str], set[bytes]]:
    """Return the lines of a PEM body without the first, which all keys of a type share, and bytes of its middle."""
    lines = [line.decode("ascii", "replace") for line in body.split() if len(line) >= _LONG_LINE]
    der = _decoded(b"".join(body.split()))
    middle = der[len(der) // 3 : len(der) // 3 + _MIDDLE]
    return set(lines[1:] or lines), {middle} - {b""}


def _files(root: Path) -> Iterator[bytes]:
    paths = (path for place in _PLACES for path in sorted((root / place).rglob("*")))
    for _number, path in zip(range(_MAX_FILES), paths, strict=False):
        with contextlib.suppress(AttestedError, OSError):
            if path.is_file():
                yield read_bytes(path, limit=_LIMIT)


def _opened(root: Path) -> Iterator[bytes]:
    """Yield the opened keys of the key service, if they exist and the libraries to read them are installed."""
    path = KeyPaths(opened=root / KeyPaths().opened.relative_to("/")).opened_file
    with contextlib.suppress(AttestedError):
        if path.exists():
            bundle = KeyBundle.from_bytes(read_bytes(path, limit=_OPENED_LIMIT))
            yield from (one.reveal() for one in bundle.ring.secrets())
            for body in _KEY.findall(bundle.join_ca_key.reveal()):
                yield _decoded(b"".join(body.split()))[-_MIDDLE:]


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


# The work of the module `support_material_info`.


def run_material(
    params: Mapping[str, Any], _check_mode: bool, *, runner: Runner | None = None, root: Path = Path("/")
) -> Result:
    """Collect the material that may leave this machine.

    Changes nothing, and does not fail if a source fails.
    """
    running = runner or SystemRunner()
    collector = Collector(runner=running, hider=secrets_of_machine(root), root=root)
    documents: dict[str, Mapping[str, Any]] = {}
    failed: list[LeftOut] = []
    readers: dict[str, Callable[[], Mapping[str, Any]]] = {
        "status": lambda: _status(running, root),
        "registers": lambda: _registers(params["tcti"], root),
    }
    for name, read in readers.items():
        try:
            documents[name] = read()
        except (AttestedError, OSError) as error:
            why = error.message if isinstance(error, AttestedError) else str(error)
            failed.append(LeftOut(what=name, why=why[:300]))
    sources = node_sources(firmware_log=params["firmware_log"], userspace_log=params["userspace_log"])
    gathered = collector.collect(sources, more=documents)
    material = Material(pieces=gathered.pieces, left_out=(*failed, *gathered.left_out))
    return Result(
        values={
            "material": base64.b64encode(render_material(material)).decode("ascii"),
            "collected": len(material.pieces),
            "left_out": [f"{one.what}: {one.why}" for one in material.left_out],
            "hidden": sum(piece.hidden for piece in material.pieces),
        }
    )


def _status(runner: Runner, root: Path) -> Mapping[str, Any]:
    clock = SystemClock()
    machine = Machine(runner=runner, clock=clock, paths=KubernetesPaths(root=root))
    return read_status(machine, NodeJournal(root / "var/lib/attested/node.json", clock=clock)).as_result()


def _registers(tcti: str, root: Path) -> Mapping[str, Any]:
    with open_tpm(tcti, lock_directory=root / "run/attested") as tpm:
        properties = tpm.properties()
        registers = tpm.pcr_read(range(PCR_COUNT))
    maker = f"{properties.manufacturer} {properties.vendor}".strip()
    return {"tpm": maker, "registers": {str(index): value.hex() for index, value in registers.items()}}
