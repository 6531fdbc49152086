# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first control plane is lost, and another machine takes its place by one playbook; then the lost one comes back.

The new machine stands in the rack as w-2 and is cp-1 in the site from then on; the old one keeps its disk and its TPM.
The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.losing import lose
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.thief import PKI, Thief
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_REPLACED_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
OLD, NEW = "cp-1", "w-2"
"""Names in the rack; both are the node cp-1, one after the other."""
PLANES = ("cp-1", "cp-2", "cp-3")
NEW_ADDRESS = "10.89.7.22"
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 1}')
SECONDS = 300


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster, and one more machine that is switched on and nothing else."""
    with road_through(*MADE, of="attested-replaced:127.70.0", instead=USED_LAB, words=WORDS) as road:
        road.play("lab_machine", "-e", f"machine={NEW}")
        yield road


def kubectl(road: Road, *words: str, asked: str = "cp-2", check: bool = True) -> str:
    """Ask the API server of one control plane, on it and with its own credential."""
    config = ("--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "--request-timeout=30s")
    return road.inside(asked, "kubectl", *config, *words, check=check)


def identities(road: Road) -> dict[str, str]:
    """Return the admission of each identity that is or was the node cp-1."""
    found = json.loads(kubectl(road, "get", "nodeidentities", "--output=json"))["items"]
    return {one["metadata"]["name"]: one["spec"]["admission"] for one in found if one["spec"]["nodeName"] == "cp-1"}


class Writer:
    """Writes objects through the third control plane, one after the other; remembers those that were not taken."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.taken = 0
        self.lost: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._ends.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._ends.is_set():
            name = f"written-{self.taken + len(self.lost)}"
            words = ("create", "configmap", name, "--output=name")
            if kubectl(self._road, *words, asked="cp-3", check=False):
                self.taken += 1
            else:
                self.lost.append(name)


def takes_a_write(road: Road) -> bool:
    """Say whether the third control plane takes one: etcd has to choose a leader first where the lost one was it.

    Its API server's word that it is ready may be a second old.
    """
    words = ("annotate", "namespace", "default", f"asked={time.monotonic()}", "--overwrite")
    return bool(kubectl(road, *words, asked="cp-3", check=False))


def put_in_its_place(road: Road) -> None:
    """Let the site's cp-1 be the new machine, as an admin does with an editor."""
    hosts = road.site / "hosts.yml"
    lines = hosts.read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if line.strip().startswith("cp-1:"))
    lines[place] = f"        cp-1: {{ansible_host: {road.lab.loopback}.22, attested_node_ip: {NEW_ADDRESS}}}"
    hosts.write_text("\n".join(lines) + "\n")


def test_the_first_control_plane_is_lost_for_good_and_replaced_and_the_others_never_stop(road: Road) -> None:
    """Two commands, and the machine in its place is a further control plane; every object that was written is there."""
    (before,) = identities(road)
    lose(road, OLD, "ssh")
    wait_for(lambda: takes_a_write(road), seconds=SECONDS)
    put_in_its_place(road)
    with Writer(road) as writer:
        road.play("prepare", "--limit=cp-1")
        said = road.play("replace", "-e", "confirm=cp-1").output
        assert sorted(learners_of(road, "cp-2")) == ["cp-2", "cp-3"]
        road.play("node", "--limit=cp-1")
    assert writer.taken
    assert writer.lost == []
    assert "sign a certificate for any user or node" in said
    wait_for(lambda: learners_of(road, "cp-2") == dict.fromkeys(PLANES, False), seconds=SECONDS)
    address = "--output=jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"
    assert kubectl(road, "get", "node", "cp-1", address) == NEW_ADDRESS
    after = identities(road)
    assert after.pop(before) == "Revoked"
    assert list(after.values()) == ["Approved"]
    assert kubectl(road, "get", "--raw=/readyz", asked=NEW) == "ok"


def test_init_makes_no_second_cluster_of_it(road: Road) -> None:
    run = road.finish("init", road.start("init"))
    assert run.returncode != 0
    assert "CLUSTER_FOUNDER_GONE" in run.output


@pytest.mark.parametrize(
    "playbook", [("replace", "-e", "confirm=cp-1"), ("node",), ("policy",)], ids=lambda one: one[0]
)
def test_a_second_run_changes_nothing(road: Road, playbook: tuple[str, ...]) -> None:
    changes = road.play(*playbook).changes()
    assert set(changes.values()) == {0}, changes


def test_the_lost_one_comes_back_and_gets_nothing(road: Road) -> None:
    """It has its disk, its TPM and its certificates: no ticket, no renewal, and etcd does not take it back."""
    road.inside(OLD, "systemctl", "start", "containerd", "kubelet", check=False)
    said = road.inside(OLD, "sh", "-c", "/opt/attested/venv/bin/attested renew --now 2>&1", check=False)
    assert "TICKET_REFUSED" in said
    log = "cat /var/log/pods/kube-system_etcd-*/etcd/*.log"
    wait_for(lambda: "permanently removed" in road.inside(OLD, "sh", "-c", log, check=False), seconds=SECONDS)
    assert learners_of(road, "cp-2") == dict.fromkeys(PLANES, False)
    reasons = json.loads(kubectl(road, "get", "joinattempts", "--output=json"))["items"]
    assert "IDENTITY_REVOKED" in {one["status"]["reason"] for one in reasons}


def test_a_control_plane_is_removed_and_etcd_has_two(road: Road) -> None:
    """The third one, while it runs: it is fresh afterwards, and the site says so."""
    road.play("remove", "-e", "confirm=cp-3")
    assert learners_of(road, "cp-2") == {"cp-1": False, "cp-2": False}
    assert "node/cp-3" not in kubectl(road, "get", "nodes", "--output=name")
    assert road.inside("cp-3", "find", "/etc/kubernetes", "-type", "f", check=False) == ""
    assert "attested_admission: Refused" in (road.site / "host_vars" / "cp-3" / "identity.yml").read_text()
    for unit in ("attested-key-service", "attested-join-service"):
        assert "NRestarts=0\nActiveState=inactive" in road.inside(
            "cp-3", "systemctl", "show", "-pNRestarts,ActiveState", unit
        )


def test_called_compromised_afterwards_what_it_held_opens_nothing(road: Road) -> None:
    """The certificate that its key signs is good until then; the hour of the pods' tokens is made to have passed."""
    thief, planes = Thief.of(road, OLD), (NEW, "cp-2")
    assert all(thief.sees(road, name) for name in planes)
    compromised = ("replace", "-e", "confirm=cp-1", "-e", "compromised=true")
    assert "Run the same command again at" in road.play(*compromised).output
    for name in planes:
        road.inside(name, "touch", "--date=2 hours ago", f"{PKI}/sa.key")
    road.play(*compromised)
    assert [thief.sees(road, name) for name in planes] == [[], []]
    assert all(kubectl(road, "get", "nodes", "--output=name", asked=name) for name in planes)
