# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a command reaches a TPM: a device file or the data socket of swtpm. Bytes in, bytes out."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, TypeVar

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..system import Clock

_T = TypeVar("_T")

_HEADER_SIZE = 10
_MAX_UNIX_PATH = 107
_MAX_PORT = 65535
_PAUSE_SECONDS = 0.02


class Transport(Protocol):
    """One TPM. ``managed`` says that a resource manager gives this client handles of its own."""

    @property
    def managed(self) -> bool:
        """Whether a resource manager stands in front of the TPM."""

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        """Send one whole command and return its whole response; raises TPM_UNREACHABLE, TPM_BUSY, TPM_MALFORMED."""

    def close(self) -> None:
        """Release the TPM."""


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """A character device of the kernel, ``device:/dev/tpmrm0``."""

    path: str


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The data socket of swtpm as a file, ``swtpm:path=SOCKET``."""

    path: str


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """The data socket of swtpm on TCP, ``swtpm:host=HOST,port=PORT``."""

    host: str
    port: int


Address: TypeAlias = DeviceAddress | UnixAddress | TcpAddress


def parse_tcti(tcti: str) -> Address:
    """Return the address that ``tcti`` (the notation of tpm2-tools) means; raises TPM_TCTI_INVALID."""
    kind, _unused, rest = tcti.partition(":")
    if kind == "device" and rest.startswith("/"):
        return DeviceAddress(rest)
    options = dict(part.partition("=")[::2] for part in rest.split(",")) if kind == "swtpm" else {}
    if set(options) == {"path"}:
        return _unix_address(tcti, options["path"])
    if set(options) == {"host", "port"}:
        return _tcp_address(tcti, options["host"], options["port"])
    return _refuse_tcti(tcti)


def _unix_address(tcti: str, path: str) -> UnixAddress:
    if not path.startswith("/") or len(path.encode()) > _MAX_UNIX_PATH:
        _refuse_tcti(tcti)
    return UnixAddress(path)


def _tcp_address(tcti: str, host: str, port: str) -> TcpAddress:
    if not (host and port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _MAX_PORT):
        _refuse_tcti(tcti)
    return TcpAddress(host, int(port))


def _refuse_tcti(tcti: str) -> NoReturn:
    raise TpmError(
        "expected device:/PATH, swtpm:path=/SOCKET (at most 107 bytes) or swtpm:host=HOST,port=PORT, "
        f"got {tcti[:200]!r}",
        reason=Reason.TPM_TCTI_INVALID,
    )


def connect(address: Address, *, timeout_seconds: float, clock: Clock) -> Transport:
    """Return the transport to ``address``; raises TPM_UNREACHABLE or TPM_BUSY after ``timeout_seconds``."""
    if isinstance(address, DeviceAddress):
        return DeviceTransport(address.path, timeout_seconds=timeout_seconds, clock=clock)
    return SocketTransport(address, clock=clock)


class DeviceTransport:
    """``/dev/tpmrm0`` or ``/dev/tpm0``: one write a command, then reads until the response is whole.

    The kernel ends a command that takes too long by itself (tpm(4)), so reads block.
    """

    def __init__(self, path: str, *, timeout_seconds: float, clock: Clock) -> None:
        self._path = path
        self._fd = _until_free(self._open, path, timeout_seconds=timeout_seconds, clock=clock)

    @property
    def managed(self) -> bool:
        """Whether this is the kernel's resource manager."""
        return Path(self._path).resolve().name.startswith("tpmrm")

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:  # noqa: ARG002 - the kernel's own applies
        """Send ``command`` and return the response."""
        try:
            os.write(self._fd, command)
            return _read_response(lambda _unused: os.read(self._fd, c.MAX_COMMAND), self._path)
        except OSError as error:
            raise _unreachable(self._path, error) from error

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise BlockingIOError(error.errno, "the device is open elsewhere") from error
            raise _unreachable(self._path, error) from error


class SocketTransport:
    """The data channel of swtpm, one connection a command.

    swtpm serves one connection at a time and with ``disconnect`` closes it after each command: this way others get
    their turn and both forms work. The control channel is not used.
    """

    def __init__(self, address: UnixAddress | TcpAddress, *, clock: Clock) -> None:
        self._address = address
        self._clock = clock

    @property
    def managed(self) -> bool:
        """Whether there is a resource manager: swtpm has no resource manager."""
        return False

    @property
    def _label(self) -> str:
        address = self._address
        return address.path if isinstance(address, UnixAddress) else f"{address.host}:{address.port}"

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        """Send ``command`` and return the response."""
        try:
            link = _until_free(
                lambda: self._connect(timeout_seconds),
                self._label,
                timeout_seconds=timeout_seconds,
                clock=self._clock,
            )
            with link:
                link.sendall(command)
                return _read_response(link.recv, self._label)
        except TimeoutError as error:
            raise _busy(self._label, timeout_seconds) from error
        except OSError as error:
            raise _unreachable(self._label, error) from error

    def close(self) -> None:
        """Nothing is open between two commands."""

    def _connect(self, timeout_seconds: float) -> socket.socket:
        address = self._address
        if isinstance(address, TcpAddress):
            return socket.create_connection((address.host, address.port), timeout=timeout_seconds)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.settimeout(timeout_seconds)
            link.connect(address.path)
        except BaseException:
            link.close()
            raise
        return link


def _until_free(attempt: Callable[[], _T], label: str, *, timeout_seconds: float, clock: Clock) -> _T:
    deadline = clock.monotonic() + timeout_seconds
    while True:
        try:
            return attempt()
        except BlockingIOError as error:
            if clock.monotonic() >= deadline:
                raise _busy(label, timeout_seconds) from error
            clock.sleep(_PAUSE_SECONDS)


def _read_response(read: Callable[[int], bytes], label: str) -> bytes:
    data, wanted = b"", _HEADER_SIZE
    while len(data) < wanted:
        part = read(wanted - len(data))
        if not part:
            raise TpmError(
                f"expected a response from {label}, got {len(data)} bytes and the end of the connection",
                reason=Reason.TPM_UNREACHABLE,
            )
        data += part
        if len(data) >= _HEADER_SIZE:
            wanted = _announced_size(data, label)
    return data


def _announced_size(data: bytes, label: str) -> int:
    size = int.from_bytes(data[2:6], "big")
    if not _HEADER_SIZE <= size <= c.MAX_COMMAND:
        raise TpmError(
            f"expected a response of {_HEADER_SIZE} to {c.MAX_COMMAND} bytes from {label}, got {size}",
            reason=Reason.TPM_MALFORMED,
        )
    return size


def _unreachable(label: str, error: OSError) -> TpmError:
    return TpmError(f"expected a TPM at {label}, got: {error.strerror or error}", reason=Reason.TPM_UNREACHABLE)


def _busy(label: str, timeout_seconds: float) -> TpmError:
    return TpmError(
        f"expected the TPM at {label} to be free within {timeout_seconds:g} s, it was not", reason=Reason.TPM_BUSY
    )
