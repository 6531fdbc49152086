# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and verify a bundle directory, unpack its files, and cache built parts."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import os
import platform
import shutil
import tempfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..core.files import read_bytes, write_atomic
from ..errors import ComponentError
from ..reasons import Reason
from .manifest import MANIFEST_LIMIT, MANIFEST_NAME, Architecture, Manifest, parse_manifest

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .manifest import Blob, FileEntry


_CHUNK = 1 << 20
_NO_HARD_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
_MACHINES = {"x86_64": Architecture.AMD64, "amd64": Architecture.AMD64, "aarch64": Architecture.ARM64}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle directory and its manifest; ``digest`` is the manifest's SHA-256 in hex."""

    root: Path
    manifest: Manifest
    digest: str

    def path(self, blob: Blob) -> Path:
        """Return the path of ``blob``."""
        return self.root / blob.path


def open_bundle(root: str | Path, *, expected_digest: str | None = None) -> Bundle:
    """Return the bundle at ``root``.

    Raises BUNDLE_INCOMPLETE if the manifest is absent, BUNDLE_HASH_MISMATCH if its SHA-256 is not
    ``expected_digest`` (hex), and then BUNDLE_MALFORMED if it is invalid.
    """
    path = Path(root) / MANIFEST_NAME
    if not path.is_file():
        raise ComponentError(f"expected a bundle manifest at {path}, found none", reason=Reason.BUNDLE_INCOMPLETE)
    data = read_bytes(path, limit=MANIFEST_LIMIT)
    digest = hashlib.sha256(data).hexdigest()
    if expected_digest is not None and digest != expected_digest:
        raise ComponentError(
            f"expected the manifest {path} with sha256 {expected_digest}, got {digest}",
            reason=Reason.BUNDLE_HASH_MISMATCH,
            hint="This is not the bundle of the site: run bundle and prepare again.",
        )
    return Bundle(Path(root), parse_manifest(data), digest)


def verify_blobs(bundle: Bundle, blobs: Iterable[Blob]) -> None:
    """Verify the size and SHA-256 of all ``blobs``; one error has all findings.

    Raises BUNDLE_INCOMPLETE if files are absent, BUNDLE_HASH_MISMATCH if files differ.
    """
    wanted = list(blobs)
    missing = [blob.path for blob in wanted if not bundle.path(blob).is_file()]
    if missing:
        raise ComponentError(
            f"expected {len(wanted)} files in {bundle.root}, missing {', '.join(missing)}",
            reason=Reason.BUNDLE_INCOMPLETE,
        )
    if wrong := [fault for blob in wanted if (fault := blob_fault(bundle.path(blob), blob))]:
        raise ComponentError("; ".join(wrong), reason=Reason.BUNDLE_HASH_MISMATCH)


def blob_fault(path: Path, blob: Blob) -> str | None:
    """Return how the file ``path`` differs from ``blob``, or None."""
    size = path.stat().st_size
    if size != blob.size:
        return f"{path}: expected {blob.size} bytes, got {size}"
    digest = sha256_of(path)
    return None if digest == blob.sha256 else f"{path}: expected sha256 {blob.sha256}, got {digest}"


def holds(path: Path, blob: Blob) -> bool:
    """Return whether the file ``path`` exists and is ``blob``."""
    return path.is_file() and blob_fault(path, blob) is None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def this_architecture(machine: str | None = None) -> Architecture:
    """Return the architecture of this machine (or of ``machine``, as in uname); raises BUNDLE_ARCH_MISMATCH."""
    name = machine or platform.machine()
    if name not in _MACHINES:
        raise ComponentError(
            f"expected a machine of {', '.join(sorted(_MACHINES))}, got {name}", reason=Reason.BUNDLE_ARCH_MISMATCH
        )
    return _MACHINES[name]


def unpack_file(source: Path, entry: FileEntry, target: Path) -> None:
    """Write the program ``entry`` from its stored file ``source`` to ``target``, atomically.

    Raises BUNDLE_HASH_MISMATCH if the content differs.
    """
    with _replacing(target) as fresh, fresh.open("wb") as sink:
        _copy_checked(source, entry, sink)
        os.fchmod(sink.fileno(), entry.mode)
        os.fsync(sink.fileno())


def compress_file(source: Path, target: Path) -> Mapping[str, Any]:
    """Write ``source`` compressed (gzip) and reproducible to ``target``; return no facts."""
    with (
        source.open("rb") as plain,
        target.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed, _CHUNK)
    return {}


def put_file(source: Path, target: Path) -> None:
    """Replace ``target`` atomically by a hard link to ``source``, or by a copy.

    A running program keeps its old file.
    """
    with _replacing(target) as fresh:
        fresh.unlink()
        try:
            fresh.hardlink_to(source)
        except OSError as error:
            if error.errno not in _NO_HARD_LINK:
                raise
            shutil.copy(source, fresh)
            with fresh.open("rb") as stream:
                os.fsync(stream.fileno())


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``target``, which replaces it when the block succeeds."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(descriptor)
    try:
        yield Path(name)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)


def unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one regular file from ``tar``; Python of Debian 12 has no extraction filters."""
    stream = tar.extractfile(member)
    if stream is None:
        raise ComponentError(f"expected a file, got {member.name}", reason=Reason.BUNDLE_HASH_MISMATCH)
    with stream, target.open("wb") as sink:
        shutil.copyfileobj(stream, sink, _CHUNK)


def _copy_checked(source: Path, entry: FileEntry, sink: IO[bytes]) -> None:
    digest = hashlib.sha256()
    size = 0
    with source.open("rb") as raw, gzip.open(raw) if entry.compression == "gzip" else raw as stream:
        try:
            while size <= entry.content_size and (chunk := stream.read(_CHUNK)):
                size += len(chunk)
                digest.update(chunk)
                sink.write(chunk)
        except (EOFError, OSError, zlib.error) as error:
            raise ComponentError(
                f"{source}: expected gzip data, got {error}", reason=Reason.BUNDLE_HASH_MISMATCH
            ) from error
    sink.flush()
    if size != entry.content_size or digest.hexdigest() != entry.content_sha256:
        raise ComponentError(
            f"{source}: expected {entry.content_size} bytes with sha256 {entry.content_sha256} inside, "
            f"got {size} bytes with {digest.hexdigest()}",
            reason=Reason.BUNDLE_HASH_MISMATCH,
        )


# The cache of built parts on the admin's machine, by the hash of their inputs.
#
# A part is one file and one JSON record. The record is written last, so an incomplete part counts as absent. The record
# has the hash of the file, so a damaged part is built again.

_RECORD = "part.json"
_KEPT = 8  # for each name: four releases, each for two architectures


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One cached file: SHA-256 (hex), size in bytes, and facts from its maker."""

    path: Path
    sha256: str
    size: int
    facts: Mapping[str, Any]


class PartCache:
    """Parts below one directory, for example `~/.cache/attested-kubernetes`."""

    def __init__(self, root: Path) -> None:
        """Set the directory; it is created with the first part."""
        self.root = root

    def find(self, kind: str, key: str) -> Part | None:
        """Return the part with ``key``, or None if it is absent or damaged."""
        record = self._folder(kind, key) / _RECORD
        try:
            noted = json.loads(record.read_bytes())
            path = record.with_name(noted["name"])
            part = Part(path=path, sha256=noted["sha256"], size=noted["size"], facts=noted["facts"])
            return part if path.stat().st_size == part.size and sha256_of(path) == part.sha256 else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def make(self, kind: str, key: str, name: str, maker: Callable[[Path], Mapping[str, Any]]) -> Part:
        """Return a new part: ``maker`` writes its file ``name`` and returns its facts.

        A lock prevents concurrent builds of a part. The newest `_KEPT` parts of each name are kept.
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

    @contextmanager
    def in_use(self, name: str) -> Iterator[None]:
        """Keep `drop` from removing the directory ``name`` while the block runs; blocks do not exclude each other."""
        with self._lock_file(name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    def drop(self, name: str) -> None:
        """Remove the directory ``name``, unless a process runs a block of `in_use`."""
        with self._lock_file(name).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            shutil.rmtree(self.root / name, ignore_errors=True)

    def _lock_file(self, name: str) -> Path:
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        return self.root / f".{name}.lock"

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
    """Return the SHA-256 (hex) over ``inputs``, which are JSON values."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def tree_digest(root: Path, names: tuple[str, ...]) -> str:
    """Return the SHA-256 (hex) over ``names`` (files or directories) below ``root``, without `__pycache__`."""
    digest = hashlib.sha256()
    for name in names:
        start = root / name
        found = [start] if start.is_file() else sorted(start.rglob("*"))
        for path in found:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0{path.stat().st_mode & 0o111}\0".encode())
                digest.update(bytes.fromhex(sha256_of(path)))
    return digest.hexdigest()
