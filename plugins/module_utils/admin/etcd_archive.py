# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup of etcd as a file: a manifest, then the snapshot, encrypted to recipients of age.

    file = age(manifest as one line of JSON ‖ newline ‖ snapshot)

`age -d` decrypts it without this program. A snapshot need not fit into memory: it is processed in pieces.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import AttestedError, KeyServiceError, SystemFault
from ..reasons import Reason
from .age_file import close_stream, make_identity, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..keyservice.master import SecretBytes

FORMAT = "attested-etcd-backup/v1"

_FAMILY = "attested-etcd-backup/v"
_MAX_LINE_BYTES = 16384
_MAX_NUMBER = 1 << 63
_PIECE = 1 << 16
_FILE = re.compile(r"etcd-[0-9]{8}T[0-9]{6}Z\.age")
_TIME = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")
_TEXTS = {
    "taken": _TIME,
    "node": re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"),
    "cluster_id": re.compile(r"[0-9a-f]{64}"),
    "kubernetes_version": re.compile(r"1\.[0-9]{1,3}\.[0-9]{1,3}"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
_NUMBERS = ("policy_generation", "revision", "size")
_AUTHORITY = re.compile(r"[a-z-]{1,32}")
_KEY_NAME = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of a backup; nothing in it is secret.

    ``policy_generation`` is that of the policy in the snapshot. ``authorities``: the names of the CA keys that the
    control plane trusted then. ``size`` and ``sha256`` are those of the snapshot.
    """

    taken: str
    node: str
    cluster_id: str
    policy_generation: int
    revision: int
    kubernetes_version: str
    authorities: Mapping[str, Sequence[str]]
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the backup's file; names sort by time."""
        return f"etcd-{self.taken.replace('-', '').replace(':', '')}.age"

    def values(self) -> dict[str, Any]:
        """Return the fields as `parse_manifest` reads them."""
        return {"format": FORMAT, **asdict(self)}

    def to_line(self) -> bytes:
        """Return the first line of the content."""
        return json.dumps(self.values(), sort_keys=True).encode("ascii") + b"\n"

    def require_cluster(self, cluster_id: bytes, authorities: Mapping[str, Sequence[str]] | None = None) -> None:
        """Raise BACKUP_OTHER_CLUSTER with all findings unless it is of this cluster and, if given, of these CAs.

        A CA matches if one of its keys does, because during a rotation there are two.
        """
        wrong = []
        if self.cluster_id != cluster_id.hex():
            wrong.append(f"expected cluster {cluster_id.hex()}, got {self.cluster_id}")
        for name, keys in sorted((authorities or {}).items()):
            known = self.authorities.get(name, ())
            if not set(keys) & set(known):
                wrong.append(f"expected the {name} {', '.join(keys)}, got {', '.join(known) or 'none'}")
        if wrong:
            raise KeyServiceError(f"backup: {'; '.join(wrong)}", reason=Reason.BACKUP_OTHER_CLUSTER)


def parse_manifest(line: bytes) -> Manifest:
    """Return the manifest; raises FILE_VERSION_UNKNOWN for another version, else BACKUP_DAMAGED."""
    try:
        document = load_json(line, limit=_MAX_LINE_BYTES)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _damaged("a manifest as its first line")
    kind = document.pop("format", None)
    if kind != FORMAT:
        if isinstance(kind, str) and kind.startswith(_FAMILY):
            raise KeyServiceError(f"expected a backup {FORMAT}, got {kind[:64]!r}", reason=Reason.FILE_VERSION_UNKNOWN)
        raise _damaged(f"the format {FORMAT} in its manifest")
    names = {*_TEXTS, *_NUMBERS, "authorities"}
    wrong = sorted(names ^ set(document)) or [name for name in sorted(names) if not _is_good(name, document[name])]
    if wrong:
        raise _damaged("a manifest with its fields", f"none or another {', '.join(wrong)[:200]}")
    return Manifest(**document)


def pack(manifest: Manifest, snapshot: Path, target: Path, recipients: Sequence[str]) -> str:
    """Write the backup to ``target`` and return its SHA-256; raises KIT_KEY_UNUSABLE, FILE_UNUSABLE."""
    try:
        with snapshot.open("rb") as content, target.open("wb") as out:
            close_stream(_Joined(manifest.to_line(), content), out, recipients)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise _unusable(target, error) from error
    return digest_of(target)


def unpack(
    path: Path, target: IO[bytes] | None, identities: Sequence[SecretBytes], *, begin: Callable[[Manifest], None]
) -> Manifest:
    """Write the snapshot of the backup ``path`` to ``target``, if given, and return the manifest.

    ``begin`` receives the manifest before any byte of the snapshot is written, and may refuse it. Raises as
    `open_stream` and `parse_manifest` do, BACKUP_DAMAGED for another snapshot than the manifest's, FILE_UNUSABLE.
    """
    sink = OpenedBackup(target, begin)
    try:
        with path.open("rb") as source:
            open_stream(source, sink, identities)
    except OSError as error:
        raise _unusable(path, error) from error
    except KeyServiceError:
        if sink.error is not None:
            raise sink.error from None
        raise
    return sink.finish()


def hand_on(
    path: Path, target: Path, identities: Sequence[SecretBytes], *, begin: Callable[[Manifest], None]
) -> tuple[Manifest, SecretBytes]:
    """Encrypt the backup ``path`` again, to a new identity, as the file ``target``; return that identity.

    So the identity of the recovery kit stays on this machine, and the content is in clear only in memory, piece by
    piece. Raises as `unpack` does.
    """
    identity, recipient = make_identity()
    read_end, write_end = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(_close_pipe, read_end, target, recipient)
        try:
            with os.fdopen(write_end, "wb") as pipe:

                def forward(manifest: Manifest) -> None:
                    begin(manifest)
                    pipe.write(manifest.to_line())

                manifest = unpack(path, pipe, identities, begin=forward)
        except (OSError, SystemFault):
            closing.result()  # raises the cause if it is at the other end of the pipe
            raise
        closing.result()
    return manifest, identity


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; raises FILE_UNUSABLE."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise _unusable(path, error) from error


def surplus(names: Iterable[str], *, keep: int, pattern: re.Pattern[str] = _FILE) -> tuple[str, ...]:
    """Return the backups to remove, so that the ``keep`` newest stay; files with other names are ignored."""
    ours = sorted(name for name in names if pattern.fullmatch(name))
    return tuple(ours[: max(0, len(ours) - keep)])


class _Joined:
    """One source made of a line and a file."""

    def __init__(self, line: bytes, rest: IO[bytes]) -> None:
        self._pieces = self._of(line, rest)
        self._left = b""

    def read(self, size: int = -1, /) -> bytes:
        if not self._left:
            self._left = next(self._pieces, b"")
        size = len(self._left) if size < 0 else size
        given, self._left = self._left[:size], self._left[size:]
        return given

    @staticmethod
    def _of(line: bytes, rest: IO[bytes]) -> Iterator[bytes]:
        yield line
        while piece := rest.read(_PIECE):
            yield piece


class OpenedBackup:
    """The sink of a decrypted backup; it stores the first error, drops what follows, and raises at the end."""

    def __init__(self, out: IO[bytes] | None, begin: Callable[[Manifest], None]) -> None:
        """Write the snapshot to ``out``, after ``begin`` received the manifest."""
        self._out = out
        self._begin = begin
        self._line = b""
        self._manifest: Manifest | None = None
        self._digest = hashlib.sha256()
        self._size = 0
        self.error: AttestedError | None = None

    def write(self, data: bytes, /) -> int:
        """Process the next piece, which may end anywhere."""
        if self.error is None:
            try:
                self._take(bytes(data))
            except AttestedError as error:
                self.error = error
            except OSError as error:
                self.error = SystemFault(f"cannot write the snapshot: {error.strerror}", reason=Reason.FILE_UNUSABLE)
        return len(data)

    def flush(self) -> None:
        """Do nothing: no data is buffered."""

    def finish(self) -> Manifest:
        """Return the manifest after the whole snapshot was written; raises the stored error."""
        if self.error is not None:
            raise self.error
        if self._manifest is None:
            raise _damaged("a manifest as its first line")
        if (self._size, self._digest.hexdigest()) != (self._manifest.size, self._manifest.sha256):
            raise _damaged(f"a snapshot of {self._manifest.size} bytes with the digest of its manifest")
        return self._manifest

    def _take(self, data: bytes) -> None:
        if self._manifest is None:
            self._line += data
            line, newline, data = self._line.partition(b"\n")
            if not newline and len(line) < _MAX_LINE_BYTES:
                return
            manifest = parse_manifest(line)
            self._begin(manifest)
            self._manifest, self._line = manifest, b""
        self._digest.update(data)
        self._size += len(data)
        if self._out is not None:
            self._out.write(data)


def _close_pipe(read_end: int, target: Path, recipient: str) -> None:
    try:
        with os.fdopen(read_end, "rb") as source, target.open("wb") as out:
            close_stream(source, out, [recipient])
    except OSError as error:
        raise _unusable(target, error) from error


def _is_good(name: str, value: Any) -> bool:
    if name in _TEXTS:
        return isinstance(value, str) and _TEXTS[name].fullmatch(value) is not None
    if name in _NUMBERS:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER
    return isinstance(value, dict) and all(
        _AUTHORITY.fullmatch(authority)
        and isinstance(keys, list)
        and all(isinstance(key, str) and _KEY_NAME.fullmatch(key) for key in keys)
        for authority, keys in value.items()
    )


def _damaged(expected: str, got: str = "something else") -> KeyServiceError:
    return KeyServiceError(f"backup: expected {expected}, got {got}", reason=Reason.BACKUP_DAMAGED)


def _unusable(path: Path, error: OSError) -> SystemFault:
    return SystemFault(f"cannot use {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE)
