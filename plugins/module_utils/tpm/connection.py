# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to one TPM: sends commands, waits while it is occupied, and flushes what was loaded."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .commands import Command, Reply, decode, encode, response_code
from .marshal import malformed, u32
from .responses import OUT_OF_SLOTS, RETRYABLE, ResponseError

if TYPE_CHECKING:
    from ..system import Clock, Random
    from .marshal import Reader
    from .transport import Transport

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.5
_SLOW_COMMANDS = {c.CC_CREATE_PRIMARY: 12}
"""Factor on the timeout: searching the primes of an RSA key takes long."""
_MAX_HANDLES = 256
_LAST_HANDLE = 0xFFFFFFFF
_MAX_PAGES = 4


class Connection:
    """One TPM, for one thread. What it loads is flushed by `close`, also after a failure."""

    def __init__(self, transport: Transport, *, random: Random, clock: Clock, timeout_seconds: float) -> None:
        self._transport = transport
        self.random = random
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._open_handles: list[int] = []

    def close(self) -> None:
        """Flush everything that this client has loaded, then release the transport.

        Errors end here: what the client was used for is over, and the next one flushes what is left.
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
        """Send ``command`` and return its reply; a handle that comes back is flushed by `close`."""
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
        """Flush what a killed client has left; the lock says that no other client of ours is alive.

        Not behind a resource manager, where each client sees only its own handles.
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
                raise malformed("the last handle without more behind it", f"{page[-1]:#010x} and more")
        raise malformed(f"at most {_MAX_PAGES} pages of handles", "more")

    def property(self, tag: int) -> int:
        """Return one TPM_PT property, 0 when the TPM does not have it."""
        return self.property_range(tag, 1).get(tag, 0)

    def property_range(self, first: int, count: int) -> dict[int, int]:
        """Return the properties that the TPM has from ``first`` on, at most ``count``."""
        _unused, reader = self.capability(c.CAP_TPM_PROPERTIES, first, count)
        return {reader.u32(): reader.u32() for _unused in range(reader.count(_MAX_HANDLES))}

    def capability(self, capability: int, first: int, count: int) -> tuple[bool, Reader]:
        """Return whether there is more, and a reader over the list that the TPM answered for ``capability``."""
        parameters = u32(capability) + u32(first) + u32(count)
        reader = self.execute(Command(code=c.CC_GET_CAPABILITY, parameters=parameters)).parameters
        more, found = bool(reader.u8()), reader.u32()
        if found != capability:
            raise malformed(f"capability {capability}", f"{found}")
        return more, reader
