# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proxy of a worker before control planes that die, are silent, come back or change: real sockets, TLS behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import (
    Choice,
    parse_list,
    render_list,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service import Dialler, Limits, Proxy
from ansible_collections.attested.kubernetes.tests.support.endpoint_bed import (
    CHUNK,
    NAME,
    ControlPlane,
    Credentials,
    black_hole,
    echo,
    program,
    says,
)
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]

POWER_CUT = "ansible_collections.attested.kubernetes.tests.support.endpoint_power_cut"
SEARCHED = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PATIENT = Limits(connect_seconds=60.0, hello_seconds=60.0, answer_seconds=60.0, linger_seconds=60.0)
"""Of tests that are not about a limit: a machine that is busy must not make one fail."""
BIG = 32 << 20
MANY = 1000


class Told:
    """Keeps what the proxy tells."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Keep the name and the control plane."""
        self.events.append(f"{name} {fields.get('control_plane') or ''}".strip())


class Bed:
    """A proxy in this process, with limits of a test."""

    def __init__(self, *addresses: str, limits: Limits = PATIENT, names: tuple[str, ...] = ()) -> None:
        self.told = Told()
        self.choice = Choice(addresses)
        self.dialler = Dialler(self.choice, log=self.told, limits=limits)
        self.dialler.names = names
        self.proxy = Proxy(self.choice, self.dialler, log=self.told, limits=limits)
        self.port = 0

    async def __aenter__(self) -> Self:
        self.port = self.proxy.start(0)
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self.proxy.stop()


@pytest.fixture
async def first() -> AsyncIterator[ControlPlane]:
    async for one in served(ControlPlane(says(b"first"))):
        yield one


@pytest.fixture
async def second() -> AsyncIterator[ControlPlane]:
    async for one in served(ControlPlane(says(b"second"))):
        yield one


async def served(one: ControlPlane) -> AsyncIterator[ControlPlane]:
    await one.start()
    yield one
    await one.die()


async def opened(port: int, tls: ssl.SSLContext | None = None) -> Opened:
    return await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=NAME if tls else None)


async def ask(connection: Opened, line: bytes = b"who\n") -> bytes:
    """Send a line and return the answer; nothing where the connection ended or broke."""
    reader, writer = connection
    try:
        writer.write(line)
        await writer.drain()
        return await asyncio.wait_for(reader.readline(), 60)
    except ConnectionError:
        return b""


async def who(port: int) -> bytes:
    """Return who answers a new connection."""
    connection = await opened(port)
    try:
        return (await ask(connection)).partition(b" ")[0]
    finally:
        connection[1].close()


async def test_a_connection_goes_to_the_one_that_answered_last(first: ControlPlane, second: ControlPlane) -> None:
    async with Bed(first.address, second.address) as bed:
        bed.choice.answered(second.address)
        assert [await who(bed.port) for _time in range(3)] == [b"second"] * 3


async def answered(port: int) -> Opened:
    """Return a stream that was answered; who is cut off before that dials again, as a kubelet does."""
    while True:
        connection = await opened(port)
        if await ask(connection):
            return connection
        connection[1].close()


async def test_one_that_dies_in_a_stream_breaks_it_and_the_next_goes_elsewhere(
    first: ControlPlane, second: ControlPlane
) -> None:
    """A client must see a break: an end that looks well-mannered could cut an answer short."""
    async with Bed(first.address, second.address) as bed:
        reader, writer = stream = await opened(bed.port)
        assert await ask(stream) == b"first who\n"
        await first.die()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        assert await who(bed.port) == b"second"
        assert f"control_plane_failed {first.address}" in bed.told.events
        assert bed.choice.latest == second.address


async def test_one_that_comes_back_is_used_when_the_other_dies(first: ControlPlane, second: ControlPlane) -> None:
    async with Bed(first.address, second.address) as bed:
        await first.die()
        assert await who(bed.port) == b"second"
        await first.start()
        assert await who(bed.port) == b"second"
        await second.die()
        assert await who(bed.port) == b"first"


async def test_one_that_drops_every_request_for_a_connection_costs_one_wait(second: ControlPlane) -> None:
    """The next client does not wait for it any more."""
    with black_hole() as dead:
        async with Bed(dead, second.address, limits=replace(PATIENT, connect_seconds=2.0)) as bed:
            assert await who(bed.port) == b"second"
            assert await who(bed.port) == b"second"
            assert bed.told.events.count(f"control_plane_failed {dead}") == 1


async def test_one_that_takes_connections_and_says_nothing_is_left(second: ControlPlane) -> None:
    async def mute(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(CHUNK)
        await reader.read(CHUNK)

    silent = ControlPlane(mute)
    await silent.start()
    limits = replace(PATIENT, answer_seconds=0.2)
    async with Bed(silent.address, second.address, limits=limits) as bed:
        _reader, writer = await opened(bed.port)
        writer.write(b"hello\n")
        await asyncio.to_thread(wait_for, lambda: silent.taken == 1)
        await asyncio.sleep(limits.answer_seconds * 2)  # a client that gives up, as a handshake does
        writer.close()
        await asyncio.to_thread(wait_for, lambda: f"control_plane_failed {silent.address}" in bed.told.events)
        assert await who(bed.port) == b"second"
    await silent.die()


async def test_one_that_closes_at_once_is_left(second: ControlPlane) -> None:
    async def shut(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    closing = ControlPlane(shut)
    await closing.start()
    async with Bed(closing.address, second.address) as bed:
        assert await who(bed.port) == b""
        assert await who(bed.port) == b"second"
    await closing.die()


async def test_a_client_that_goes_at_once_says_nothing_of_a_control_plane(second: ControlPlane) -> None:
    """A local user cannot talk the proxy out of a good one by closing early."""

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(60)
        writer.write(b"late\n")

    late = ControlPlane(slow)
    await late.start()
    async with Bed(late.address, second.address, limits=replace(PATIENT, linger_seconds=0.3)) as bed:
        _reader, writer = await opened(bed.port)
        writer.write(b"hello\n")
        await asyncio.to_thread(wait_for, lambda: late.taken == 1)
        writer.close()
        await asyncio.to_thread(wait_for, lambda: bed.proxy.streams == 0)
        assert bed.told.events == []
        assert bed.choice.order(asyncio.get_running_loop().time())[0] == late.address
    await late.die()


async def test_where_nobody_answers_the_client_is_told_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    async with Bed(nobody) as bed:
        assert await who(bed.port) == b""
        assert "no_control_plane" in bed.told.events


async def test_a_name_stands_for_further_control_planes(second: ControlPlane) -> None:
    """It is asked when no address of the list is good, and what was found is the first choice from then on."""
    nobody = f"127.0.0.1:{free_port()}"
    async with Bed(nobody, names=(f"localhost:{second.port}",)) as bed:
        assert await who(bed.port) == b"second"
        assert bed.choice.order(asyncio.get_running_loop().time())[0] == second.address


async def test_it_never_dials_itself() -> None:
    """A name that leads back to this port would go round for ever."""
    async with Bed("127.0.0.1:1") as bed:
        bed.dialler.names = (f"localhost:{bed.port}",)
        bed.choice.replace((f"127.0.0.1:{bed.port}",))
        assert await who(bed.port) == b""
        assert bed.told.events == ["no_control_plane"]


async def test_a_client_that_says_nothing_costs_no_control_plane_anything(first: ControlPlane) -> None:
    async with Bed(first.address, limits=replace(PATIENT, hello_seconds=0.3)) as bed:
        reader, writer = await opened(bed.port)
        assert await reader.read() == b""
        writer.close()
        assert first.taken == 0


async def test_more_clients_than_streams_wait_for_their_turn(first: ControlPlane) -> None:
    async with Bed(first.address, limits=replace(PATIENT, streams=2)) as bed:
        one, two = await opened(bed.port), await opened(bed.port)
        assert [await ask(one), await ask(two)] == [b"first who\n"] * 2
        third = await opened(bed.port)
        waiting = asyncio.create_task(ask(third))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert first.taken == 2
        one[1].close()
        assert await waiting == b"first who\n"
        two[1].close()
        third[1].close()


async def test_an_end_of_one_direction_is_passed_on_and_the_other_goes_on() -> None:
    """The server answers only after the client has said that it ends."""

    async def after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read()
        writer.write(hashlib.sha256(sent).digest() + os.urandom(1 << 20))
        writer.write_eof()
        await reader.read()

    server = ControlPlane(after_the_end)
    await server.start()
    async with Bed(server.address) as bed:
        reader, writer = await opened(bed.port)
        sent = os.urandom(1 << 20)
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
        answer = await reader.read()
        assert (answer[:32], len(answer)) == (hashlib.sha256(sent).digest(), 32 + (1 << 20))
        writer.close()
    await server.die()


async def test_a_half_closed_stream_that_stands_still_ends() -> None:
    async def goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await reader.read()
        await asyncio.sleep(3600)

    server = ControlPlane(goes_on)
    await server.start()
    async with Bed(server.address, limits=replace(PATIENT, linger_seconds=0.3)) as bed:
        reader, writer = stream = await opened(bed.port)
        assert await ask(stream) == b"who\n"
        writer.write_eof()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await asyncio.to_thread(wait_for, lambda: bed.proxy.streams == 0)
    await server.die()


async def test_an_open_stream_may_stand_still(first: ControlPlane) -> None:
    """A watch is silent for minutes; only who said nothing at first, or has ended one direction, is hurried."""
    limits = replace(PATIENT, hello_seconds=2.0, linger_seconds=0.3)
    async with Bed(first.address, limits=limits) as bed:
        stream = await opened(bed.port)
        assert await ask(stream) == b"first who\n"
        await asyncio.sleep(limits.hello_seconds + 1)
        assert await ask(stream) == b"first who\n"
        stream[1].close()


async def test_a_client_that_does_not_read_holds_its_server_back() -> None:
    """Nothing is kept for it: what the server has sent stays far below what it wants to send."""
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readline()
        for _piece in range(BIG // CHUNK):
            writer.write(bytes(CHUNK))
            await writer.drain()
            sent += CHUNK

    server = ControlPlane(pours)
    await server.start()
    async with Bed(server.address) as bed:
        with socket.create_connection(("127.0.0.1", bed.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
            client.sendall(b"go\n")
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.5)
            assert 0 < sent < BIG
        await asyncio.to_thread(wait_for, lambda: bed.proxy.streams == 0)
    await server.die()


async def test_the_kernel_watches_over_a_connection_to_a_control_plane(first: ControlPlane) -> None:
    """What a machine without power leaves behind is a connection without an end; these settings end it."""
    dialler = Dialler(Choice((first.address,)), log=Told(), limits=Limits())
    made, _address = await dialler.connect()
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        found = [
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        ]
        assert found == [5, 2, 3, 10_000]


def test_a_control_plane_without_power_breaks_a_stream_that_stands_still() -> None:
    """In a network of its own, where every packet from and to it is dropped from then on."""
    alone = ["unshare", "--map-root-user", "--net"]
    missing = [name for name in ("unshare", "nft", "ip") if shutil.which(name, path=SEARCHED) is None]
    if missing or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"no network namespaces here for this user ({', '.join(missing) or 'not allowed'})")
    argv = [*alone, sys.executable, "-m", POWER_CUT]
    done = subprocess.run(argv, env={**os.environ, "PATH": SEARCHED}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["first", "broken", "second"], done.stderr


# ---- the program ------------------------------------------------------------------------------------------


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    (tmp_path / "pki").mkdir()
    return Credentials(tmp_path / "pki")


@pytest.fixture
async def echoing(credentials: Credentials) -> AsyncIterator[ControlPlane]:
    async for one in served(ControlPlane(echo, tls=credentials.server)):
        yield one


async def test_tls_goes_through_to_a_server_that_proves_the_endpoints_name(
    tmp_path: Path, echoing: ControlPlane, credentials: Credentials
) -> None:
    """The client expects the name of the endpoint, wherever it dials; under another name it refuses."""
    async with program(tmp_path, [echoing.address]) as proxy:
        stream = await opened(proxy.port, credentials.client)
        assert await ask(stream) == b"who\n"
        stream[1].close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1", proxy.port, ssl=credentials.client, server_hostname="other.example"
            )


async def test_big_transfers_in_both_directions_are_the_same_to_the_byte(
    tmp_path: Path, echoing: ControlPlane, credentials: Credentials
) -> None:
    async with program(tmp_path, [echoing.address]) as proxy:
        reader, writer = await opened(proxy.port, credentials.client)
        sent, received = hashlib.sha256(), hashlib.sha256()

        async def send() -> None:
            for _piece in range(BIG // CHUNK):
                piece = os.urandom(CHUNK)
                sent.update(piece)
                writer.write(piece)
                await writer.drain()

        async def receive() -> None:
            left = BIG
            while left:
                piece = await reader.read(min(left, CHUNK))
                assert piece
                received.update(piece)
                left -= len(piece)

        await asyncio.gather(send(), receive())
        assert sent.digest() == received.digest()
        writer.close()


async def test_a_thousand_connections_at_once_are_all_served(tmp_path: Path, first: ControlPlane) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MANY
    if hard < wanted:
        pytest.skip(f"a process may have only {hard} descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    async with program(tmp_path, [first.address]) as proxy:
        streams = await asyncio.gather(*(answered(proxy.port) for _one in range(MANY)))
        answers = await asyncio.gather(*(ask(one, b"%d\n" % number) for number, one in enumerate(streams)))
        assert answers == [b"first %d\n" % number for number in range(MANY)]
        for _reader, writer in streams:
            writer.close()


async def test_a_reload_keeps_open_streams_and_leads_new_ones_elsewhere(
    tmp_path: Path, first: ControlPlane, second: ControlPlane
) -> None:
    async with program(tmp_path, [first.address]) as proxy:
        stream = await opened(proxy.port)
        assert await ask(stream) == b"first who\n"
        proxy.configure(control_planes=[second.address])
        proxy.process.send_signal(signal.SIGHUP)
        await proxy.wait_for("reloaded")
        assert await who(proxy.port) == b"second"
        assert await ask(stream, b"still\n") == b"first still\n"
        stream[1].close()


async def test_a_broken_configuration_is_refused_and_the_last_good_one_stays(
    tmp_path: Path, first: ControlPlane
) -> None:
    async with program(tmp_path, [first.address]) as proxy:
        for broken in ({"control_planes": []}, {"control_planes": ["nonsense"]}, {"control_planes": 7}):
            proxy.configure(**broken)
            before = proxy.told("reload_refused")
            proxy.process.send_signal(signal.SIGHUP)
            await proxy.wait_for("reload_refused", times=before + 1)
            assert await who(proxy.port) == b"first"
        said = proxy.log.read_text()
        assert "CONFIG_INVALID" in said
        assert "ENDPOINT_INVALID" in said


async def test_a_list_of_the_cluster_is_read_when_it_changes_without_a_signal(
    tmp_path: Path, first: ControlPlane
) -> None:
    """A broken one changes nothing; addresses of a list are hosts, so it is the log that shows it here."""
    async with program(tmp_path, [first.address]) as proxy:
        proxy.list.write_bytes(b"nonsense")
        assert await who(proxy.port) == b"first"
        assert proxy.told("list_refused") == 1
        proxy.list.with_suffix(".new").write_bytes(render_list(["192.0.2.1:6443"]))
        assert parse_list(proxy.list.with_suffix(".new").read_bytes()) == ("192.0.2.1:6443",)
        proxy.list.with_suffix(".new").replace(proxy.list)
        assert await who(proxy.port) == b"first"
        assert proxy.told("reloaded") == 2


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param({}, "CONFIG_INVALID", id="nobody to dial"),
        pytest.param({"control_planes": ["10.0.0.11"]}, "ENDPOINT_INVALID", id="an address without a port"),
        pytest.param({"control_planes": ["10.0.0.11:6443"], "listen_host": "0.0.0.0"}, "CONFIG_INVALID", id="a host"),
    ],
)
async def test_it_does_not_start_with_a_wrong_configuration(
    tmp_path: Path, config: dict[str, object], reason: str
) -> None:
    with pytest.raises(AssertionError, match=f"attested-api-endpoint: {reason}"):
        async with program(tmp_path, **{"control_planes": [], **config}):  # type: ignore[arg-type]
            pass


async def test_a_port_that_is_taken_is_named(tmp_path: Path, first: ControlPlane) -> None:
    with pytest.raises(AssertionError, match="attested-api-endpoint: PORT_UNAVAILABLE"):
        async with program(tmp_path, [first.address], listen_port=first.port):
            pass


async def test_systemd_hears_that_it_listens_and_whom_it_uses(
    tmp_path: Path, first: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with program(tmp_path, [first.address], endpoint=f"{NAME}:6443") as proxy:
            heard = await asyncio.to_thread(_hear, systemd, "READY=1")
            assert f"none has answered yet; known: {first.address}, {NAME}:6443" in heard
            assert await who(proxy.port) == b"first"
            await asyncio.to_thread(_hear, systemd, f"STATUS={first.address} answered last; known: ")


def _hear(systemd: socket.socket, wanted: str) -> str:
    while wanted not in (heard := systemd.recv(4096).decode()):
        pass
    return heard
