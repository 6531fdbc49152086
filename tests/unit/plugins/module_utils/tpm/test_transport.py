# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""transport.py: addresses, and peers that misbehave; the real ones are in the component tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.transport import (
    DeviceAddress,
    TcpAddress,
    UnixAddress,
    connect,
    parse_tcti,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.support.tpm import response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = bytes.fromhex("80010000000a00000000")


@pytest.mark.parametrize(
    ("tcti", "address"),
    [
        ("device:/dev/tpmrm0", DeviceAddress("/dev/tpmrm0")),
        ("swtpm:path=/srv/tpm/sock", UnixAddress("/srv/tpm/sock")),
        ("swtpm:host=127.0.0.1,port=2321", TcpAddress("127.0.0.1", 2321)),
        ("swtpm:port=2321,host=::1", TcpAddress("::1", 2321)),
    ],
)
def test_an_address_is_read(tcti: str, address: object) -> None:
    assert parse_tcti(tcti) == address


@pytest.mark.parametrize(
    "tcti",
    [
        pytest.param("", id="nothing"),
        pytest.param("device", id="no path"),
        pytest.param("device:tpm0", id="a relative device"),
        pytest.param("/dev/tpmrm0", id="no kind"),
        pytest.param("mssim:host=h,port=1", id="another kind"),
        pytest.param("swtpm:", id="nothing behind the kind"),
        pytest.param("swtpm:path=sock", id="a relative socket"),
        pytest.param("swtpm:path=/" + "x" * 107, id="a path too long for a socket"),
        pytest.param("swtpm:path=/a,port=1", id="two forms at once"),
        pytest.param("swtpm:host=h", id="no port"),
        pytest.param("swtpm:host=,port=1", id="no host"),
        pytest.param("swtpm:host=h,port=0", id="port 0"),
        pytest.param("swtpm:host=h,port=65536", id="a port too large"),
        pytest.param("swtpm:host=h,port=1x", id="a port that is no number"),
        pytest.param("swtpm:host=h,port=\u0661", id="a port in other digits"),
    ],
)
def test_an_address_that_is_none_of_the_forms_is_refused(tcti: str) -> None:
    with pytest.raises(TpmError) as caught:
        parse_tcti(tcti)
    assert Coded(caught.value) == "OPTION_INVALID: swtpm:path="
    assert "swtpm:path=" in caught.value.message


@contextlib.contextmanager
def _peer(path: Path, *answer: bytes, silent: threading.Event | None = None) -> Iterator[UnixAddress]:
    """Serve one connection: read the command, send the parts, close; ``silent``: not before it is set."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            link, _unused = server.accept()
            with link:
                link.recv(4096)
                for part in answer:
                    link.sendall(part)
                if silent is not None:
                    silent.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield UnixAddress(str(path))
        finally:
            if silent is not None:
                silent.set()
            thread.join()


def _transact(address: UnixAddress | TcpAddress, *, timeout_seconds: float = 10) -> bytes:
    transport = connect(address, timeout_seconds=timeout_seconds, clock=SystemClock())
    return transport.transact(COMMAND, timeout_seconds=timeout_seconds)


def test_a_response_may_come_in_pieces(tmp_path: Path) -> None:
    whole = response(0, b"abcdef")
    with _peer(tmp_path / "s", whole[:3], whole[3:12], whole[12:]) as address:
        assert _transact(address) == whole


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"", Reason.TPM_UNREACHABLE, id="closes without an answer"),
        pytest.param(response(0, b"abc")[:-1], Reason.TPM_UNREACHABLE, id="closes in the middle"),
        pytest.param(bytes.fromhex("80010000000900000000"), Reason.TPM_MALFORMED, id="announces less than a header"),
        pytest.param(bytes.fromhex("80010000100100000000"), Reason.TPM_MALFORMED, id="announces 4097 bytes"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", Reason.TPM_MALFORMED, id="speaks something else"),
    ],
)
def test_a_peer_is_refused_that(answer: bytes, reason: Reason, tmp_path: Path) -> None:
    with _peer(tmp_path / "s", answer) as address, pytest.raises(TpmError) as caught:
        _transact(address)
    assert caught.value.reason is reason


def test_a_peer_that_does_not_answer_is_busy(tmp_path: Path) -> None:
    with _peer(tmp_path / "s", silent=threading.Event()) as address, pytest.raises(TpmError) as caught:
        _transact(address, timeout_seconds=0.1)
    assert caught.value.reason is Reason.TPM_BUSY


def test_a_socket_whose_queue_is_full_is_busy(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        server.bind(path)
        server.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        waiting.connect(path)
        with pytest.raises(TpmError) as caught:
            _transact(UnixAddress(path), timeout_seconds=0.1)
    assert caught.value.reason is Reason.TPM_BUSY


@pytest.mark.parametrize("name", ["absent", "dead"])
def test_a_socket_that_nobody_serves_is_unreachable(name: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(TpmError, match="expected a TPM at") as caught:
        _transact(UnixAddress(str(tmp_path / name)))
    assert caught.value.reason is Reason.TPM_UNREACHABLE


def test_a_port_that_nobody_serves_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = TcpAddress("127.0.0.1", free.getsockname()[1])
        with pytest.raises(TpmError) as caught:
            _transact(address)
    assert caught.value.reason is Reason.TPM_UNREACHABLE


def test_an_absent_device_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(TpmError, match="No such file") as caught:
        connect(DeviceAddress(str(tmp_path / "tpmrm0")), timeout_seconds=1, clock=SystemClock())
    assert caught.value.reason is Reason.TPM_UNREACHABLE


@pytest.mark.parametrize(("name", "managed"), [("tpmrm0", True), ("tpm0", False), ("link", True)])
def test_only_the_kernels_resource_manager_keeps_clients_apart(name: str, managed: bool, tmp_path: Path) -> None:
    for device in ("tpmrm0", "tpm0"):
        (tmp_path / device).touch()
    (tmp_path / "link").symlink_to(tmp_path / "tpmrm0")
    transport = connect(DeviceAddress(str(tmp_path / name)), timeout_seconds=1, clock=SystemClock())
    assert transport.managed is managed
    transport.close()
