# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client side of attested TLS: one attested connection for one gRPC channel.

    async with connect("10.0.0.11:9090", pins=pins, cluster_id=cluster_id, issuer=issuer) as connection:
        call = connection.channel().unary_unary("/join.API/IssueJoinTicket")
        answer = await call(request, timeout=30)

`connect` returns once the server has accepted the evidence (an HTTP/2 server sends first). It never reconnects by
itself, so that no retry of a library causes quotes of the TPM unnoticed. A caller that retries checks
`TransportError.retryable`. A refused client gets its channel too, and UNAUTHENTICATED at the first call.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..core.host import Clock, SystemClock
from ..errors import SystemFault, TransportError
from ..reasons import Reason
from .certificate import PinnedService, ServerCheck, decode_authorities, make_certificate, new_key, spki_sha256
from .session import Splice, TlsSession, Wire, client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from .._deps.crypto import x509
    from .._deps.tls import SSL
    from .certificate import Issuer
    from .pins import JoinCaPins


CONNECT_SECONDS = 20.0
"""The time for TCP, TLS, evidence (a hardware TPM needs up to a second) and the server's verification."""

_LINGER_SECONDS = 2.0
_ENDPOINT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")
_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "attested"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),
)


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``address:port`` or ``[address]:port``; raises ENDPOINT_INVALID."""
    found = _ENDPOINT.fullmatch(endpoint)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise TransportError(f"expected host:port, got {endpoint[:100]!r}", reason=Reason.ENDPOINT_INVALID)
    return found["v6"] or found["host"], port


@asynccontextmanager
async def connect(
    endpoint: str,
    *,
    pins: JoinCaPins,
    cluster_id: bytes,
    issuer: Issuer | None,
    timeout_seconds: float = CONNECT_SECONDS,
    clock: Clock | None = None,
) -> AsyncIterator[AttestedConnection]:
    """Connect to the join service of a cluster at ``endpoint`` (host:port) and yield the connection.

    The service's certificate is verified with ``pins`` and the 32-byte ``cluster_id`` before ``issuer`` issues
    evidence. Raises `TransportError`: JOIN_CA_MISMATCH, JOIN_CLUSTER_MISMATCH, JOIN_CERTIFICATE_EXPIRED, CLOCK_SKEW,
    PEER_UNREACHABLE, CONNECTION_CLOSED, CONNECTION_TIMEOUT, TLS_HANDSHAKE_FAILED, NONCE_MALFORMED; and what the
    issuer raises.
    """
    check = PinnedService(pins, cluster_id, clock or SystemClock())
    async with open_connection(
        endpoint, check=check, issuer=issuer, timeout_seconds=timeout_seconds, clock=clock
    ) as connection:
        yield connection


@asynccontextmanager
async def open_connection(
    endpoint: str,
    *,
    check: ServerCheck,
    issuer: Issuer | None,
    timeout_seconds: float = CONNECT_SECONDS,
    clock: Clock | None = None,
) -> AsyncIterator[AttestedConnection]:
    """Connect with any `ServerCheck` and yield the connection; without ``issuer`` the client sends no certificate."""
    host, port = parse_endpoint(endpoint)
    connection = AttestedConnection(check, issuer, clock or SystemClock())
    try:
        try:
            async with asyncio.timeout(timeout_seconds):
                await connection.open(host, port)
        except TimeoutError as error:
            raise TransportError(
                f"expected an attested connection to {endpoint} within {timeout_seconds:g} s",
                reason=Reason.CONNECTION_TIMEOUT,
                retryable=True,
            ) from error
        yield connection
    finally:
        await connection.close()


class AttestedConnection:
    """One connection to one server, attested in its handshake; made by `connect`.

    A bound quote covers ``exporter`` (RFC 9266, 32 bytes) and ``spki_sha256`` (of our key of this connection, 32
    bytes). ``server_certificate`` is the leaf that was checked.
    """

    def __init__(self, check: ServerCheck, issuer: Issuer | None, clock: Clock) -> None:
        """Prepare the connection without sending anything."""
        self._check = check
        self._issuer = issuer
        self._clock = clock
        self._key = new_key()
        self._refusal: Exception | None = None
        self._network: Wire | None = None
        self._session: TlsSession | None = None
        self._splice: Splice | None = None
        self._task: asyncio.Task[None] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._listener: asyncio.Server | None = None
        self._channel: Any = None
        self.server_certificate: x509.Certificate | None = None
        self.spki_sha256 = spki_sha256(self._key.public_key())
        self.exporter = b""

    @property
    def error(self) -> TransportError | None:
        """The error that broke the connection, or None; gRPC only reports UNAVAILABLE."""
        return self._splice.error if self._splice else None

    def channel(self) -> Any:
        """Return the ``grpc.aio`` channel over this connection; always the same channel, which cannot reconnect."""
        if self._channel is None:
            raise TransportError("expected an open connection, it is closed", reason=Reason.CONNECTION_CLOSED)
        return self._channel

    async def open(self, host: str, port: int) -> None:
        """Connect, do the TLS handshake, wait for the server's first bytes, and open the channel."""
        self._network = await _connect(host, port)
        self._session = TlsSession(client_context(self._decide), is_server=False, server_name=self._check.server_name)
        await self._shake_hands(self._network, self._session)
        self.exporter = self._session.exporter()
        greeting = await self._first_bytes(self._network, self._session)
        await self._open_channel(greeting)

    async def close(self) -> None:
        """Close the channel, the connection and the local socket."""
        if self._channel is not None:
            await self._channel.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._network is not None:
            self._network.close(linger_seconds=_LINGER_SECONDS)
            await asyncio.wait((self._network.closed,))
        self._close_listener()
        self._channel = None

    # ---- handshake

    async def _shake_hands(self, network: Wire, session: TlsSession) -> None:
        while not await self._step(network, session):
            session.feed(await network.read())
        shown = session.peer_chain()
        if self.server_certificate is None or not shown or shown[0] != self.server_certificate:
            raise TransportError(
                "expected the server's certificate to be checked, it was not", reason=Reason.TLS_HANDSHAKE_FAILED
            )

    async def _step(self, network: Wire, session: TlsSession) -> bool:
        """Do one step of the handshake in a thread, since it may check the server and issue evidence."""
        try:
            complete = await asyncio.to_thread(session.handshake)
        except TransportError as error:
            network.write(session.outgoing())  # the alert with the cause, for the server
            raise self._refusal or error from error
        network.write(session.outgoing())  # not in a finally: after a cancellation the thread still uses the session
        return complete

    def _decide(self, connection: SSL.Connection, leaf: x509.Certificate) -> bool:
        """Check the server and only then send our certificate; OpenSSL calls this, so errors are kept, not raised."""
        if self.server_certificate is not None:
            return self.server_certificate == leaf
        try:
            self._check.check(leaf)
            if self._issuer is not None:
                self._show_evidence(self._issuer, connection)
        except Exception as error:  # noqa: BLE001 - _step raises it again, outside of OpenSSL
            self._refusal = error
            return False
        self.server_certificate = leaf
        return True

    def _show_evidence(self, issuer: Issuer, connection: SSL.Connection) -> None:
        nonce = decode_authorities(connection.get_client_ca_list(as_cryptography=True))
        evidence = issuer.issue(user_data=self.spki_sha256, nonce=nonce)
        connection.use_certificate(
            make_certificate(self._key, oid=issuer.oid, evidence=evidence, now=self._clock.now())
        )
        connection.use_privatekey(self._key)

    async def _first_bytes(self, network: Wire, session: TlsSession) -> bytes:
        """Wait for the server's first bytes: until then it may still refuse by an alert or by closing."""
        while True:
            data = session.decrypt()
            network.write(session.outgoing())
            if data:
                return data
            if data is None:
                raise TransportError(
                    "expected the server to accept our evidence, it closed the connection",
                    reason=Reason.CONNECTION_CLOSED,
                    retryable=True,
                )
            session.feed(await network.read())

    # ---- the channel

    async def _open_channel(self, greeting: bytes) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="atls-")
        path = Path(self._directory.name) / "channel"
        try:
            self._listener = await asyncio.get_running_loop().create_unix_server(
                lambda: Wire(lambda local: self._enter(local, greeting)), str(path), backlog=1
            )
        except OSError as error:
            raise SystemFault(
                f"cannot make a socket at {path}: {error.strerror or error}", reason=Reason.FILE_UNUSABLE
            ) from error
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=_CHANNEL_OPTIONS)
        self._channel.get_state(try_to_connect=True)

    def _enter(self, local: Wire, greeting: bytes) -> None:
        """Accept one local connection, which must be from this process, and close the listener."""
        if self._task is not None or local.peer_process != os.getpid():
            local.abort()
            return
        self._close_listener()
        self._task = asyncio.get_running_loop().create_task(self._carry(local, greeting))

    async def _carry(self, local: Wire, greeting: bytes) -> None:
        if self._session is None or self._network is None:
            return
        local.write(greeting)
        self._splice = Splice(self._session, self._network, local)
        await self._splice.run(seconds=None, linger_seconds=_LINGER_SECONDS)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._directory is not None:
            self._directory.cleanup()
        self._listener = self._directory = None


async def _connect(host: str, port: int) -> Wire:
    try:
        _unused, wire = await asyncio.get_running_loop().create_connection(Wire, host, port)
    except OSError as error:
        raise TransportError(
            f"expected a service at {host}:{port}, got: {_why(error)}",
            reason=Reason.PEER_UNREACHABLE,
            retryable=True,
        ) from error
    return wire


def _why(error: OSError) -> str:
    """Return the text of the kernel, without asyncio's prefix and the address, or the text of the resolver."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror or error)


# The pause that a service requests, from the trailing metadata of a refusal (RESOURCE_EXHAUSTED).

RETRY_METADATA = "attested-retry-after-milliseconds"
LONGEST_PAUSE_SECONDS = 60.0
"""The longest pause that is accepted, so that an unknown service cannot make a client wait for a day."""

_DIGITS = 9


def requested_pause(trailing: Mapping[str, Any]) -> float:
    """Return the requested pause in seconds; 0 if the field is missing or no number."""
    text = str(trailing.get(RETRY_METADATA, ""))
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return 0.0
    return min(int(text) / 1000, LONGEST_PAUSE_SECONDS)
