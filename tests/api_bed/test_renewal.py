# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's certificate that is about to end, renewed by both real services and taken by a real API server.

The kubelet itself is not here: that a running one reads its new certificate is shown in a cluster of the lab.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import (
    ClusterCa,
    check_kubelet_request,
    load_cluster_ca,
    sign_kubelet_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import KubeconfigNodeReader
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import (
    KubeletCredential,
    Validity,
    place,
    render_kubeconfig,
    validity,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine as KubeadmMachine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeTicket
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renewal import Renewal
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import kubelet_request
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa as OtherCa
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

    Machines = Callable[..., Machine]

IDENTITIES = "nodeidentities.attested-kubernetes.dev"


class Tickets:
    """The join client of a test machine, with a store of the renewal's own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.after: Callable[[], None] = lambda: None

    def fetch(self, *, disk_id: str | None) -> NodeTicket:
        """Ask the real services."""
        material = self.machine.ask(disk_id=disk_id or "")
        self.after()
        public = material.public
        return NodeTicket(
            role=public.role.value,
            disk_id=public.disk_id,
            kubernetes_version=public.kubernetes_version,
            api_endpoint=public.api_endpoint,
            cluster_ca=public.cluster_ca,
            credential=KubeletCredential(certificate=public.kubelet_certificate, key=material.kubelet_key.reveal()),
        )

    def discard(self) -> None:
        """Forget the key."""
        self.machine.store.discard_kubelet_key()

    def pause(self, error: AttestedError) -> float | None:
        """Never: a test waits for nobody."""
        del error


@dataclass(slots=True)
class Node:
    """A joined machine with the files of its kubelet."""

    machine: Machine
    paths: KubernetesPaths
    tickets: Tickets
    renewal: Renewal

    @property
    def found(self) -> Validity:
        """What the kubelet has."""
        found = validity(self.paths)
        assert found is not None
        return found

    def reads_itself(self) -> bool:
        """Ask the API for the Node with what the kubelet has, as a kubelet does."""
        return KubeconfigNodeReader(self.paths.kubelet_config).node(self.machine.name) is not None

    def fails(self) -> str:
        """Renew in vain; return the code."""
        with pytest.raises(AttestedError) as caught:
            self.renewal.run()
        return caught.value.code


def cluster_ca(api: ApiBed) -> ClusterCa:
    return load_cluster_ca((api.directory / "ca.crt").read_bytes(), (api.directory / "ca.key").read_bytes())


def ending(api: ApiBed, machine: Machine, left: timedelta) -> KubeletCredential:
    """Return a credential as a ticket brought it, of the time when that leaves ``left``."""
    key = machine.store.kubelet_key()
    machine.store.discard_kubelet_key()
    request = check_kubelet_request(kubelet_request(key, machine.name), node_name=machine.name)
    name = machine.identity()["metadata"]["name"]
    begun = datetime.now(UTC) + left - timedelta(hours=72)
    certificate = sign_kubelet_certificate(request, node_name=machine.name, machine=name, ca=cluster_ca(api), now=begun)
    return KubeletCredential(certificate=certificate, key=key.reveal())


@pytest.fixture
def nodes(api: ApiBed, machines: Machines, tmp_path: Path) -> Callable[..., Node]:
    """Make a joined node whose certificate has ``left``."""

    def make(left: timedelta = timedelta(hours=1)) -> Node:
        machine = machines()
        ticket = machine.ask()
        machine.lock()
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}})
        wait_for(lambda: machine.identity()["status"]["phase"] == "Joined")
        paths = KubernetesPaths(root=tmp_path / machine.name / "root")
        for directory in (paths.kubernetes, paths.lock_marker.parent):
            directory.mkdir(parents=True)
        paths.lock_marker.write_text("0\n")
        place(ending(api, machine, left), paths, clock=SystemClock())
        server, ca = api.server, (api.directory / "ca.crt").read_bytes()
        paths.kubelet_config.write_bytes(
            render_kubeconfig(
                server=server, ca=ca, cluster_name="bed", user="kubelet", credential=paths.kubelet_credential
            )
        )
        journal = NodeJournal(paths.root / "node.json", clock=SystemClock())
        journal.enter(NodePhase.JOINED, disk_id=ticket.public.disk_id)
        tickets = Tickets(machine)
        local = KubeadmMachine(runner=SystemRunner(), clock=SystemClock(), paths=paths)
        renewal = Renewal(
            machine.name, local, tickets=tickets, journal=journal, directory=paths.root / "run/attested/renewal"
        )
        return Node(machine, paths, tickets, renewal)

    return make


def test_a_certificate_about_to_end_is_renewed_and_the_old_one_is_good_until_then(
    bed: ServiceBed, nodes: Callable[..., Node]
) -> None:
    node = nodes()
    old = node.found
    seen: list[bool] = []
    node.tickets.after = lambda: seen.append(node.reads_itself() and node.found == old)
    done = node.renewal.run()
    assert seen == [True]
    assert done.changed
    assert done.validity == node.found
    assert node.found.serial != old.serial
    assert node.found.ends - datetime.now(UTC) > timedelta(hours=71)
    assert node.reads_itself()
    assert node.renewal.run().changed is False
    released = [line for line in bed.lines("key") if line["event"] == "key_release"]
    assert [line["outcome"] for line in released if line.get("node") == node.machine.name][-1] == "ok"


def test_one_that_has_ended_renews_by_the_same_path(nodes: Callable[..., Node]) -> None:
    node = nodes(timedelta(hours=-5))
    with pytest.raises(AttestedError) as caught:
        node.reads_itself()
    assert caught.value.code == "KUBELET_CREDENTIAL_REFUSED"
    assert node.renewal.run().changed
    assert node.reads_itself()


def test_a_node_in_bad_standing_gets_none_keeps_what_it_has_and_heals(
    api: ApiBed, bed: ServiceBed, nodes: Callable[..., Node]
) -> None:
    node = nodes()
    old = node.found
    name = node.machine.identity()["metadata"]["name"]
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    patch = json.dumps({"status": {"lastAttestation": {"time": yesterday}}})
    api.kubectl("patch", IDENTITIES, name, "--subresource=status", "--type=merge", "-p", patch)
    assert node.fails() == "TICKET_REFUSED"
    assert bed.last_refusal("key")["reason"] == "REATTESTATION_OVERDUE"
    assert node.found == old
    assert node.reads_itself()
    node.machine.reattest()
    assert node.renewal.run().changed


def test_a_revoked_machine_gets_none(bed: ServiceBed, nodes: Callable[..., Node]) -> None:
    node = nodes()
    old = node.found
    node.machine.enroll(admission="Revoked")
    assert node.fails() == "TICKET_REFUSED"
    assert bed.last_refusal("key")["reason"] == "IDENTITY_REVOKED"
    assert node.found == old


def test_a_certificate_of_another_ca_is_refused_by_the_api_and_never_put_in_place(
    nodes: Callable[..., Node], tmp_path: Path
) -> None:
    """As if the key service signed with a CA that this API server does not know."""
    node = nodes()
    old = node.found
    asked = node.tickets.fetch
    root = tmp_path / "other"

    def fetch(*, disk_id: str | None) -> Any:
        ticket = asked(disk_id=disk_id)
        OtherCa(root)
        ca = load_cluster_ca(*((root / "etc/kubernetes/pki" / name).read_bytes() for name in ("ca.crt", "ca.key")))
        key = node.machine.store.kubelet_key()
        request = check_kubelet_request(kubelet_request(key, node.machine.name), node_name=node.machine.name)
        forged = sign_kubelet_certificate(
            request, node_name=node.machine.name, machine="ek-0", ca=ca, now=datetime.now(UTC)
        )
        ticket = NodeTicket(
            **{
                **{name: getattr(ticket, name) for name in ticket.__slots__},
                "credential": KubeletCredential(certificate=forged, key=key.reveal()),
            }
        )
        return ticket

    node.tickets.fetch = fetch  # type: ignore[method-assign]
    assert node.fails() == "KUBELET_CREDENTIAL_REFUSED"
    assert node.found == old
    assert node.reads_itself()


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


def test_killed_between_the_ticket_and_the_rename_nothing_is_lost(nodes: Callable[..., Node]) -> None:
    node = nodes()
    old = node.found

    def die() -> None:
        raise KilledError

    node.tickets.after = die
    with pytest.raises(KilledError):
        node.renewal.run()
    assert node.found == old
    assert node.reads_itself()
    node.tickets.after = lambda: None
    assert node.renewal.run().changed
    assert node.reads_itself()
    assert len(list(node.paths.kubelet_credential.parent.iterdir())) == 2
