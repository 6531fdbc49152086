# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joined sockets: backpressure, endings, and who may come in."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import PinnedService
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import AttestedConnection, connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import Splice, TlsSession, Wire
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    HashIssuer,
    call,
    connected_sessions,
    running_bed,
    service_credentials,
    settled,
)

if TYPE_CHECKING:
    from cryptography import x509

MEGABYTE = bytes(1 << 20)


async def wired() -> tuple[Wire, socket.socket]:
    """Return a wire and the other end of its socket."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _unused, wire = await asyncio.get_running_loop().create_connection(Wire, sock=ours)
    return wire, theirs


async def pushed(end: socket.socket, megabytes: int) -> int:
    """Send until ``megabytes`` have gone or nothing moves for half a second; return the bytes that went."""
    sent = 0
    try:
        while sent < megabytes << 20:
            async with asyncio.timeout(0.5):
                await asyncio.get_running_loop().sock_sendall(end, MEGABYTE[:65_536])
            sent += 65_536
    except TimeoutError:
        pass
    return sent


@pytest.mark.parametrize("towards_network", [True, False], ids=["a peer that does not read", "a service that is busy"])
async def test_who_does_not_read_stops_the_sender(towards_network: bool) -> None:
    """Fifty megabytes are offered; a few buffers of them are taken, nothing grows."""
    server, client = connected_sessions()
    network, outside = await wired()
    local, service = await wired()
    joined = asyncio.create_task(Splice(server, network, local).run(seconds=None, linger_seconds=0))
    await asyncio.sleep(0)
    if towards_network:
        taken = await pushed(service, 50)
    else:
        taken = 0
        for _unused in range(800):
            piece = client.encrypt(MEGABYTE[:65_536])
            try:
                async with asyncio.timeout(0.5):
                    await asyncio.get_running_loop().sock_sendall(outside, piece)
            except TimeoutError:
                break
            taken += len(piece)
    assert taken < 4 << 20
    joined.cancel()
    outside.close()
    service.close()


async def test_a_peer_that_takes_nothing_is_cut_off() -> None:
    """Its connection ends with its time, although there is something left to send and the service has gone."""
    server, _unused = connected_sessions()
    network, outside = await wired()
    local, service = await wired()
    joined = asyncio.create_task(Splice(server, network, local).run(seconds=1, linger_seconds=0.1))
    await asyncio.sleep(0)
    await pushed(service, 50)
    service.close()
    await asyncio.wait_for(joined, 30)
    await asyncio.wait_for(network.closed, 30)
    outside.close()


async def test_bytes_that_are_no_tls_end_both_sides() -> None:
    """The service's side is closed, and the cause is kept."""
    server, _unused = connected_sessions()
    network, outside = await wired()
    local, service = await wired()
    splice = Splice(server, network, local)
    joined = asyncio.create_task(splice.run(seconds=None, linger_seconds=0))
    await asyncio.get_running_loop().sock_sendall(outside, b"\x17\x03\x03\x00\x20" + bytes(32))
    await asyncio.wait_for(joined, 30)
    await asyncio.wait_for(local.closed, 30)
    assert splice.error is not None
    assert splice.error.code == "TLS_BROKEN"
    outside.close()
    service.close()


async def test_reading_a_closed_wire_says_so() -> None:
    """Worth another try."""
    wire, other = await wired()
    other.close()
    with pytest.raises(TransportError) as caught:
        await wire.read()
    assert (caught.value.code, caught.value.retryable) == ("CONNECTION_CLOSED", True)


async def test_the_process_behind_a_local_connection_is_known(tmp_path: Path) -> None:
    """The client's door opens for this process only: another one of the same user is another process."""
    wires: list[Wire] = []
    path = str(tmp_path / "door")
    door = await asyncio.get_running_loop().create_unix_server(lambda: Wire(wires.append), path)
    program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.recv(1)"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await settled(lambda: wires)
    assert wires[0].peer_process == other.pid != os.getpid()
    door.close()
    wires[0].abort()
    await other.wait()


async def test_another_process_is_not_let_in(tmp_path: Path) -> None:
    """It is cut off, and the door stays open for the channel."""
    pins = JoinCaPins.from_pem(make_join_ca("test", now=SystemClock().now()).certificate)
    connection = AttestedConnection(PinnedService(pins, CLUSTER_ID, SystemClock()), None, SystemClock())
    entered: list[Wire] = []

    def enter(wire: Wire) -> None:
        connection._enter(wire, b"greeting of the server")
        entered.append(wire)

    path = str(tmp_path / "door")
    door = await asyncio.get_running_loop().create_unix_server(lambda: Wire(enter), path)
    program = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); print(s.recv(99))"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    said, _unused = await asyncio.wait_for(other.communicate(), 10)
    door.close()
    assert (said.strip(), len(entered), connection._task) == (b"b''", 1, None)


class OtherLeaf(TlsSession):
    """A session that has another certificate after the handshake than the one that was checked in it."""

    def __init__(self) -> None:
        self.leaf = service_credentials(make_join_ca("other", now=SystemClock().now())).chain[0]

    def handshake(self) -> bool:
        return True

    def outgoing(self) -> bytes:
        return b""

    def peer_chain(self) -> tuple[x509.Certificate, ...]:
        return (self.leaf,)


@pytest.mark.parametrize("checked", [True, False], ids=["another one was checked", "none was checked"])
async def test_the_certificate_that_counts_is_the_one_that_was_checked(checked: bool) -> None:
    """Whatever OpenSSL calls back or does not, no connection goes on with a server nobody has judged."""
    ca = make_join_ca("test", now=SystemClock().now())
    check = PinnedService(JoinCaPins.from_pem(ca.certificate), CLUSTER_ID, SystemClock())
    connection = AttestedConnection(check, None, SystemClock())
    connection.server_certificate = service_credentials(ca).chain[0] if checked else None
    network, other = await wired()
    with pytest.raises(TransportError, match="TLS_HANDSHAKE_FAILED"):
        await connection._shake_hands(network, OtherLeaf())
    network.abort()
    other.close()


def files_in(directory: str) -> list[str]:
    """Return the names in a directory."""
    return [entry.name for entry in Path(directory).iterdir()]


async def test_the_client_leaves_no_file_and_dials_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its local socket is gone as soon as the channel is in, and a lost connection costs no second quote."""
    issuer = HashIssuer()
    async with running_bed() as bed:
        with tempfile.TemporaryDirectory() as own:
            monkeypatch.setattr(tempfile, "tempdir", own)
            async with connect(bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=issuer) as connection:
                await call(connection.channel())
                assert files_in(own) == []
                await bed.listener.stop()
                for _unused in range(3):
                    with pytest.raises(grpc.aio.AioRpcError):
                        await call(connection.channel(), seconds=1)
            assert files_in(own) == []
    assert len(issuer.calls) == 1


async def test_a_directory_that_cannot_hold_a_socket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By reason code, before the first call."""
    async with running_bed() as bed:
        with tempfile.TemporaryDirectory() as own:
            deep = tempfile.mkdtemp(prefix="x" * 100, dir=own)
            monkeypatch.setattr(tempfile, "tempdir", deep)
            with pytest.raises(SystemFault, match="FILE_UNUSABLE"):
                await bed.say()
            assert files_in(deep) == []
