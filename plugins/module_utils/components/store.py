# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle directory: its manifest, its stored files, and what is wrong with them."""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import ComponentError
from ..reasons import Reason
from ..system import read_bytes
from .manifest import MANIFEST_LIMIT, MANIFEST_NAME, Architecture, Manifest
from .parse import parse_manifest

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterable

    from .manifest import Blob, FileEntry

_CHUNK = 1 << 20
_MACHINES = {"x86_64": Architecture.AMD64, "amd64": Architecture.AMD64, "aarch64": Architecture.ARM64}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle directory whose manifest was read; ``digest`` is the manifest's SHA-256 in hex."""

    root: Path
    manifest: Manifest
    digest: str

    def path(self, blob: Blob) -> Path:
        """Where ``blob`` is stored."""
        return self.root / blob.path


def open_bundle(root: str | Path, *, expected_digest: str | None = None) -> Bundle:
    """Read the manifest of the bundle at ``root``.

    With ``expected_digest`` (hex) any other manifest raises BUNDLE_HASH_MISMATCH before it is parsed; an
    absent one raises BUNDLE_INCOMPLETE, an unreadable one BUNDLE_MALFORMED.
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
            hint="This is another bundle than the one that the site delivers: run bundle and prepare again.",
        )
    return Bundle(Path(root), parse_manifest(data), digest)


def verify_blobs(bundle: Bundle, blobs: Iterable[Blob]) -> None:
    """Hold every stored file of ``blobs`` against the manifest; all findings in one error.

    Raises BUNDLE_INCOMPLETE if files are absent, BUNDLE_HASH_MISMATCH if any differs.
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
    """One sentence on how the file ``path`` differs from ``blob``, or None."""
    size = path.stat().st_size
    if size != blob.size:
        return f"{path}: expected {blob.size} bytes, got {size}"
    digest = sha256_of(path)
    return None if digest == blob.sha256 else f"{path}: expected sha256 {blob.sha256}, got {digest}"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def this_architecture(machine: str | None = None) -> Architecture:
    """Return the architecture of this machine (or of ``machine``, uname's word); raises BUNDLE_ARCH_MISMATCH."""
    name = machine or platform.machine()
    if name not in _MACHINES:
        raise ComponentError(
            f"expected a machine of {', '.join(sorted(_MACHINES))}, got {name}", reason=Reason.BUNDLE_ARCH_MISMATCH
        )
    return _MACHINES[name]


def unpack_file(source: Path, entry: FileEntry, target: Path) -> None:
    """Install the program ``entry`` from its stored file ``source`` as ``target``, whole or not at all.

    What is written is hashed on the way (BUNDLE_HASH_MISMATCH); the target is replaced by rename, so a
    running program keeps its old file.
    """
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as sink:
            _copy_checked(source, entry, sink)
            os.fchmod(sink.fileno(), entry.mode)
            os.fsync(sink.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one regular file out of ``tar``; the extraction filters of newer Pythons are not in Debian 12's."""
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
