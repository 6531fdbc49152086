# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server behind the proxy of a worker: client-go and our own reader, by the kubelet.conf that we write."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import KubeconfigNodeReader
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import KubeletCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import parse_list
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_list import learn
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node import JoinMaterial, Worker
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.endpoint_bed import NAME, Program
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODE = "w-1"
ADVERTISED = "192.0.2.1"


class Relay:
    """One address of the API server: a control plane that can be switched off."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def on(self) -> None:
        """Listen."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def off(self) -> None:
        """Break every connection and take no more."""
        assert self._listener is not None
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _peer = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_move, args=(source, sink), daemon=True).start()


def _move(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """The API server for the endpoint's name alone, two addresses of it, the proxy, and a worker's files."""

    api: ApiBed
    relays: tuple[Relay, Relay]
    proxy: Program
    paths: KubernetesPaths

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask as the kubelet does: by its kubeconfig, through client-go."""
        argv = [str(binaries() / "kubectl"), f"--kubeconfig={self.paths.kubelet_config}", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    def reader(self) -> KubeconfigNodeReader:
        """Our own reader, as renewals and joins use it."""
        return KubeconfigNodeReader(self.paths.kubelet_config)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(reason)
    directory, work = tmp_path_factory.mktemp("endpoint-api"), tmp_path_factory.mktemp("endpoint")
    arguments = {"endpoint-reconciler-type": "lease", "advertise-address": ADVERTISED}
    with api_bed(directory, arguments=arguments, dns=(NAME,)) as api:
        relays = (Relay(api.port), Relay(api.port))
        for relay in relays:
            relay.on()
        proxy = Program(work, control_planes=[relay.address for relay in relays])
        asyncio.run(proxy.wait_for("listening"))
        try:
            yield Bed(api=api, relays=relays, proxy=proxy, paths=joined(work / "worker", api, proxy.port))
        finally:
            assert proxy.stop() == 0
            for relay in relays:
                relay.off()


def joined(root: Path, api: ApiBed, port: int) -> KubernetesPaths:
    """Write the files of a worker as a ticket makes `Worker` write them, with the proxy in them."""
    api.ca.issue(
        NODE, names=[(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{NODE}")]
    )
    pair = {stem: (api.directory / f"{NODE}.{stem}").read_bytes() for stem in ("crt", "key")}
    paths = KubernetesPaths(root=root)
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=paths)
    node = NodeSpec(name=NODE, node_ip="10.0.0.21", api_proxy=f"127.0.0.1:{port}")
    material = JoinMaterial(
        cluster_name="prod",
        api_endpoint=f"{NAME}:6443",
        ca=(api.directory / "ca.crt").read_bytes(),
        credential=KubeletCredential(certificate=pair["crt"], key=pair["key"]),
    )
    Worker(node, machine).write(material)
    return paths


def test_client_go_and_our_reader_prove_the_endpoints_name_behind_loopback(bed: Bed) -> None:
    """The server has a certificate for that name and for no address."""
    assert bed.kubectl("get", "--raw=/readyz").stdout == "ok"
    assert bed.reader().node(NODE) is None
    direct = bed.kubectl("get", "--raw=/readyz", "--tls-server-name=127.0.0.1")
    assert "x509: " in direct.stderr


def test_whoever_is_asked_knows_the_kubelet_by_its_certificate(bed: Bed) -> None:
    whoami = bed.kubectl("auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
    assert whoami.stdout == f"system:node:{NODE}", whoami.stderr


@pytest.mark.parametrize("lost", [pytest.param(0, id="the first"), pytest.param(1, id="the second")])
def test_with_either_address_lost_the_next_request_succeeds(bed: Bed, lost: int) -> None:
    bed.relays[lost].off()
    try:
        done = bed.kubectl("get", "--raw=/readyz")
        assert done.stdout == "ok", done.stderr
        assert bed.reader().node(NODE) is None
    finally:
        bed.relays[lost].on()


def test_a_kubelet_may_read_where_the_api_servers_are_and_nothing_like_it(bed: Bed, tmp_path: Path) -> None:
    """By its own rights alone: no role is added for it."""
    wait_for(lambda: bed.reader().api_servers() != ())
    assert learn(bed.reader(), tmp_path / "list.json") == (f"{ADVERTISED}:{bed.api.port}",)
    assert parse_list((tmp_path / "list.json").read_bytes()) == (f"{ADVERTISED}:{bed.api.port}",)
    for more in (("endpoints", "--all-namespaces"), ("endpointslices", "--namespace=default"), ("secrets",)):
        assert "forbidden" in bed.kubectl("get", *more).stderr


def test_a_cluster_that_is_away_leaves_the_list(bed: Bed, tmp_path: Path) -> None:
    learn(bed.reader(), tmp_path / "list.json")
    before = (tmp_path / "list.json").read_bytes()
    for relay in bed.relays:
        relay.off()
    try:
        with pytest.raises(KubeadmError) as caught:
            learn(bed.reader(), tmp_path / "list.json")
    finally:
        for relay in bed.relays:
            relay.on()
    assert caught.value.reason is Reason.API_UNREACHABLE
    assert (tmp_path / "list.json").read_bytes() == before
