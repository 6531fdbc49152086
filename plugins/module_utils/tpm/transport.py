# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send commands to a TPM through a device file or the data socket of swtpm: bytes in, bytes out."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, TypeVar

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .commands import OUT_OF_SLOTS, RETRYABLE, Command, Reply, ResponseError, decode, encode, response_code
from .structures import malformed, u32

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.host import Clock, Random
    from .structures import Reader


_T = TypeVar("_T")

_HEADER_SIZE = 10
_MAX_UNIX_PATH = 107
_MAX_PORT = 65535
_PAUSE_SECONDS = 0.02


class Transport(Protocol):
    """One TPM. ``managed``: a resource manager gives this client its own handles."""

    @property
    def managed(self) -> bool:
        """Whether commands go through a resource manager."""

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        """Send one command and return its complete response; raises TPM_UNREACHABLE, TPM_BUSY, TPM_MALFORMED."""

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
    """Return the address of ``tcti`` (the notation of tpm2-tools); raises OPTION_INVALID."""
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
        "tcti: expected device:/PATH, swtpm:path=/SOCKET (at most 107 bytes) or swtpm:host=HOST,port=PORT, "
        f"got {tcti[:200]!r}",
        reason=Reason.OPTION_INVALID,
    )


def connect(address: Address, *, timeout_seconds: float, clock: Clock) -> Transport:
    """Return the transport to ``address``; raises TPM_UNREACHABLE or TPM_BUSY after ``timeout_seconds``."""
    if isinstance(address, DeviceAddress):
        return DeviceTransport(address.path, timeout_seconds=timeout_seconds, clock=clock)
    return SocketTransport(address, clock=clock)


class DeviceTransport:
    """``/dev/tpmrm0`` or ``/dev/tpm0``: one write for each command, then reads until the response is complete.

    The kernel has a time limit for commands (tpm(4)), so reads block.
    """

    def __init__(self, path: str, *, timeout_seconds: float, clock: Clock) -> None:
        self._path = path
        self._fd = _until_free(self._open, path, timeout_seconds=timeout_seconds, clock=clock)

    @property
    def managed(self) -> bool:
        """Whether this is the kernel's resource manager."""
        return Path(self._path).resolve().name.startswith("tpmrm")

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:  # noqa: ARG002 - the kernel's time limit applies
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
    """The data channel of swtpm, with one connection for each command.

    swtpm serves one connection at a time, and with ``disconnect`` closes it after each command. So other clients can
    connect between two commands, with and without that option. The control channel is not used.
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
        """Do nothing: no connection is open between two commands."""

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


# The connection to one TPM: it sends commands, waits while the TPM is busy, and flushes all that was loaded.

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5
_SLOW_COMMANDS = {c.CC_CREATE_PRIMARY: 12}
"""Factors of the time limit: the TPM needs long to find the primes of an RSA key."""
_MAX_HANDLES = 256
_LAST_HANDLE = 0xFFFFFFFF
_MAX_PAGES = 4


class Connection:
    """One TPM, for one thread. `close` flushes all that was loaded, also after a failure."""

    def __init__(self, transport: Transport, *, random: Random, clock: Clock, timeout_seconds: float) -> None:
        self._transport = transport
        self.random = random
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._open_handles: list[int] = []

    def close(self) -> None:
        """Flush everything that this client has loaded, then release the transport.

        Errors are ignored: the work is done, and the next client flushes what is left.
        """
        try:
            with contextlib.suppress(TpmError):
                self._flush_all()
        finally:
            self._transport.close()

    def _flush_all(self) -> None:
        for handle in reversed(self._open_handles.copy()):
            with contextlib.suppress(ResponseError):
                self.flush(handle)

    # Sending

    def execute(self, command: Command) -> Reply:
        """Send ``command`` and return its reply; `close` flushes a handle in the reply."""
        reply = decode(command, self._exchange(command))
        if reply.handle:
            self._open_handles.append(reply.handle)
        return reply

    def _exchange(self, command: Command) -> bytes:
        timeout_seconds = self._timeout_seconds * _SLOW_COMMANDS.get(command.code, 1)
        deadline = self._clock.monotonic() + timeout_seconds
        frame, pause, has_room = encode(command), _FIRST_PAUSE_SECONDS, False
        while True:
            response = self._transport.transact(frame, timeout_seconds=timeout_seconds)
            code = response_code(response)
            if code in OUT_OF_SLOTS and not has_room:
                has_room = True
                if self._flush_strays():
                    continue
            if code not in RETRYABLE:
                return response
            if self._clock.monotonic() >= deadline:
                raise ResponseError(code, command.name, reason=Reason.TPM_BUSY)
            self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _flush_strays(self) -> int:
        """Flush the handles of a killed client and return their number; the lock excludes other clients of ours.

        A resource manager shows each client only its own handles, so nothing is flushed then.
        """
        if self._transport.managed:
            return 0
        loaded = (*self.handles(c.FIRST_TRANSIENT), *self.handles(c.FIRST_SESSION))
        strays = [handle for handle in loaded if handle not in self._open_handles]
        for handle in strays:
            self.flush(handle)
        return len(strays)

    def flush(self, handle: int) -> None:
        """Remove a transient object or a session from the TPM."""
        if handle in self._open_handles:
            self._open_handles.remove(handle)
        self.execute(Command(code=c.CC_FLUSH_CONTEXT, parameters=u32(handle)))

    # Capabilities

    def handles(self, first: int) -> tuple[int, ...]:
        """Return the handles in use from ``first`` to the end of its range (its highest byte), at most 1024."""
        found: list[int] = []
        for _unused in range(_MAX_PAGES):
            more, reader = self.capability(c.CAP_HANDLES, found[-1] + 1 if found else first, _MAX_HANDLES)
            page = [reader.u32() for _unused in range(reader.count(_MAX_HANDLES))]
            reader.end()
            found += page
            if not (more and page):
                return tuple(found)
            if page[-1] >= _LAST_HANDLE:
                raise malformed("the last handle without more after it", f"{page[-1]:#010x} and more")
        raise malformed(f"at most {_MAX_PAGES} pages of handles", "more")

    def property(self, tag: int) -> int:
        """Return one TPM_PT property, 0 if the TPM does not have it."""
        return self.property_range(tag, 1).get(tag, 0)

    def property_range(self, first: int, count: int) -> dict[int, int]:
        """Return the TPM's properties from ``first`` on, at most ``count``."""
        _unused, reader = self.capability(c.CAP_TPM_PROPERTIES, first, count)
        return {reader.u32(): reader.u32() for _unused in range(reader.count(_MAX_HANDLES))}

    def capability(self, capability: int, first: int, count: int) -> tuple[bool, Reader]:
        """Return whether there is more data, and a reader over the TPM's list for ``capability``."""
        parameters = u32(capability) + u32(first) + u32(count)
        reader = self.execute(Command(code=c.CC_GET_CAPABILITY, parameters=parameters)).parameters
        more, found = bool(reader.u8()), reader.u32()
        if found != capability:
            raise malformed(f"capability {capability}", f"{found}")
        return more, reader
