# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a TPM, and the auth values of its hierarchies for this machine's programs.

The auth values are in one root-only file on tmpfs for each TPM, next to the TPM's lock file. The file is read only if a
hierarchy has a password, and a reboot removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import make_directory, read_bytes, remove, require_no_swap, require_tmpfs, write_atomic
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ..core.host import Clock


# One client at a time for each TPM, by a lock file, because neither swtpm nor /dev/tpm0 separates clients.

DEFAULT_DIRECTORY = "/run/attested"
_PAUSE_SECONDS = 0.01


def file_of(tcti: str, directory: str | Path, ending: str) -> Path:
    """Return the path of a file with the ``ending`` for the TPM ``tcti`` only."""
    return Path(directory) / f"tpm-{hashlib.sha256(tcti.encode()).hexdigest()[:16]}.{ending}"


@contextlib.contextmanager
def tpm_lock(tcti: str, directory: str | Path, *, timeout_seconds: float, clock: Clock) -> Iterator[None]:
    """Hold the lock of the TPM ``tcti``, which excludes other threads too.

    The lock is flock(2) on a file in ``directory`` (made with mode 0700 if it is missing), so the kernel frees it if a
    client is killed. Raises TPM_BUSY, and TPM_UNREACHABLE if the file cannot be opened.
    """
    path = file_of(tcti, directory, "lock")
    descriptor = _open(path)
    try:
        _acquire(descriptor, path, timeout_seconds, clock)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise TpmError(
            f"cannot open the lock file {path}: {error.strerror}",
            reason=Reason.TPM_UNREACHABLE,
            hint="Run as root: the TPM is used by one client at a time, under this lock.",
        ) from error


def _acquire(descriptor: int, path: Path, timeout_seconds: float, clock: Clock) -> None:
    deadline = clock.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if clock.monotonic() >= deadline:
                raise TpmError(
                    f"expected the TPM's lock {path} to be free within {timeout_seconds:g} s, another client holds it",
                    reason=Reason.TPM_BUSY,
                ) from error
            clock.sleep(_PAUSE_SECONDS)
        else:
            return


HIERARCHY_NAMES = {c.RH_ENDORSEMENT: "endorsement", c.RH_OWNER: "owner"}
MAX_AUTH_BYTES = 64
"""The size of TPM2B_AUTH, a digest of the largest hash."""

_LIMIT = 4096
_VERSION = 1
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class HierarchyAuths(Protocol):
    """The source of auth values for the client; a mapping implements it."""

    def get(self, hierarchy: int, /) -> bytes | None:
        """Return the value of a hierarchy (RH_OWNER, RH_ENDORSEMENT), None if it is unknown."""


def in_memory(directory: Path) -> None:
    """Raise NOT_TMPFS or SWAP_ACTIVE unless files in ``directory`` stay in memory."""
    require_tmpfs(directory)
    require_no_swap()


class HeldAuths:
    """The file with the auth values of one TPM; also `HierarchyAuths`."""

    def __init__(
        self,
        tcti: str,
        directory: str | Path = DEFAULT_DIRECTORY,
        *,
        require_memory: Callable[[Path], None] = in_memory,
    ) -> None:
        """Use the file of ``tcti`` in ``directory``; ``require_memory`` raises unless it is tmpfs without swap."""
        self._path = file_of(tcti, directory, "auth")
        self._require_memory = require_memory

    def get(self, hierarchy: int, /) -> bytes | None:
        """Return the stored value of a hierarchy; raises TPM_HIERARCHY_AUTH if other users can read the file."""
        return self.read().get(hierarchy)

    def read(self) -> dict[int, bytes]:
        """Return all stored values, empty without a file; raises TPM_HIERARCHY_AUTH for an unusable file."""
        try:
            known = self._path.lstat()
        except FileNotFoundError:
            return {}
        if not stat.S_ISREG(known.st_mode) or known.st_uid not in {0, os.geteuid()} or known.st_mode & _OTHERS:
            raise _unusable(f"a file that only root can access at {self._path}, it has another owner or mode")
        return _parse(read_bytes(self._path, limit=_LIMIT))

    def write(self, auths: Mapping[int, bytes]) -> bool:
        """Store exactly ``auths``; return whether that is a change. Raises NOT_TMPFS, SWAP_ACTIVE."""
        if self.read() == dict(auths):
            return False
        if not auths:
            remove(self._path)
            return True
        make_directory(self._path.parent, mode=0o700)
        self._require_memory(self._path.parent)
        values = {HIERARCHY_NAMES[hierarchy]: value.hex() for hierarchy, value in auths.items()}
        document = json.dumps({"version": _VERSION, "auths": values}, sort_keys=True)
        return write_atomic(self._path, document.encode("ascii"), mode=0o600)


def _parse(data: bytes) -> dict[int, bytes]:
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise ValueError
        held = document["auths"]
        return {number: bytes.fromhex(held[name]) for number, name in HIERARCHY_NAMES.items() if name in held}
    except (ValueError, KeyError, TypeError, AttributeError):
        found = _unusable("auth values as this release writes them, found something else")
    raise found  # outside of the handler: a cause would carry the text, which is secret


def _unusable(expected: str) -> TpmError:
    return TpmError(f"expected {expected}", reason=Reason.TPM_HIERARCHY_AUTH)
