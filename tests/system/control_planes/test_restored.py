# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two of three control planes lose their disks after a backup, and the cluster comes back by the commands of the page.

Between backup and loss a worker is revoked: the policy in the backup is older than the one that the survivor has seen.
The tests are in the order of one lab's life and share it. How long the cluster takes is in the properties of a report
(`--junitxml`).
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.losing import lose
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_RESTORED_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 2}')
ADDRESSES = {"w-1": "10.89.7.21", "w-2": "10.89.7.22"}
SECONDS = 300
CANARY = "never-to-be-seen-8c41fe"


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through(*MADE, of="attested-restored:127.91.0", instead=USED_LAB, words=WORDS) as road:
        yield road


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of an identity and its recipient."""
    identity, recipient = make_identity()
    path = tmp_path_factory.mktemp("keys") / "identity.txt"
    path.write_bytes(identity.reveal() + b"\n")
    return path, recipient


def kubectl(road: Road, *words: str, check: bool = True) -> str:
    """Ask the API server of the first control plane, on it and with its own credential."""
    config = ("--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "--request-timeout=30s")
    return road.inside("cp-1", "kubectl", *config, *words, check=check)


def backups(road: Road) -> list[Path]:
    return sorted((road.site / "backups").glob("etcd-*.age"))


def restoring(road: Road, keys: tuple[Path, str], *words: str) -> tuple[str, ...]:
    return ("-e", "confirm=cp-1", "-e", f"backup={backups(road)[-1]}", "-e", f"kit_identity_file={keys[0]}", *words)


def generation(road: Road) -> int:
    return int(kubectl(road, "get", "attestationpolicy", "cluster", "--output=jsonpath={.spec.generation}"))


def admission(road: Road, node: str) -> set[str]:
    found = json.loads(kubectl(road, "get", "nodeidentities", "--output=json"))["items"]
    return {one["spec"]["admission"] for one in found if one["spec"]["nodeName"] == node}


ASKING = """
import contextlib, select, sys
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import renew, renewal
renewal.ASK_SECONDS = 0.0
while not select.select([sys.stdin], [], [], 0.5)[0]:
    with contextlib.suppress(AttestedError):
        renew.renew("/etc/attested/node.yml", at_once=True)
"""
"""Renew, again and again until standard input ends, without the pauses of `attested-agent renew`."""


@contextmanager
def asking_for_tickets(road: Road, node: str) -> Iterator[None]:
    """Let a node ask for tickets, one after the other: the older policy counts for seconds only."""
    words = [str(road.lab.directory / "podman"), "exec", "-i", node, "/opt/attested/venv/bin/python", "-c", ASKING]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as asking:
        assert asking.stdin is not None
        try:
            yield
        finally:
            asking.stdin.close()
    assert asking.returncode == 0


def decisions(road: Road, node: str, since: datetime) -> list[str]:
    """Return what the key service of cp-1 decided about a node since then: "given", or the reason of a refusal."""
    words = ("--unit=attested-key-service", "--output=cat", f"--since=@{int(since.timestamp())}")
    lines = road.inside("cp-1", "journalctl", *words).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    asked = [one for one in found if one.get("source") == ADDRESSES[node] and one["event"] != "key_reattest"]
    given = [one for one in asked if one["event"] == "key_release" or one["outcome"] != "ok"]
    return [one.get("reason", "given") for one in given]


def works(road: Road, node: str, since: datetime) -> bool:
    """Whether a Node is ready, and its kubelet has said so after ``since``: what the backup says is of before."""
    ready = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    lease = ("lease", node, "--namespace=kube-node-lease", "--output=jsonpath={.spec.renewTime}")
    if kubectl(road, "get", "node", node, ready, check=False) != "True":
        return False
    renewed = kubectl(road, "get", *lease, check=False)
    return bool(renewed) and datetime.fromisoformat(renewed) > since


def test_a_backup_is_taken_and_nothing_of_it_shows(road: Road, keys: tuple[Path, str]) -> None:
    kubectl(road, "create", "configmap", "before", f"--from-literal=canary={CANARY}")
    recipients = ("-e", json.dumps({"attested_backup_recipients": [keys[1]], "attested_backups_kept": 2}))
    foreseen = road.play("backup", *recipients, "--check")
    assert backups(road) == []
    done = road.play("backup", *recipients)
    (file,) = backups(road)
    needles = spellings(CANARY.encode())
    told = [*(run.output.encode() for run in (foreseen, done)), file.read_bytes()]
    assert [needle for needle in needles if any(needle in one for one in told)] == []
    assert road.inside("cp-1", "find", "/var/lib/etcd", "-maxdepth", "1", "-mindepth", "1") == "/var/lib/etcd/member\n"


def test_a_healthy_cluster_is_not_restored_by_mistake(road: Road, keys: tuple[Path, str]) -> None:
    for words, code in (((), "CONFIRMATION_MISSING"), (restoring(road, keys), "RESTORE_CLUSTER_HEALTHY")):
        run = road.finish("restore", road.start("restore", *words))
        assert run.returncode != 0
        assert code in run.output
    assert set(learners_of(road)) == {"cp-1", "cp-2", "cp-3"}


def test_two_lose_their_disks_and_one_comes_back_under_the_newer_policy(
    road: Road, keys: tuple[Path, str], record_testsuite_property: Callable[[str, object], None]
) -> None:
    kubectl(road, "create", "configmap", "late")
    older = generation(road)
    road.play("revoke", "-e", "confirm=w-2")
    road.play("policy", "-e", "confirm_refusals=true")
    assert generation(road) > older
    lose(road, "cp-2")
    lose(road, "cp-3", "ssh")
    for name in ("cp-2", "cp-3"):
        road.inside(name, "sh", "-c", "rm -rf /var/lib/etcd/member /etc/kubernetes/pki")
    wait_for(lambda: kubectl(road, "get", "--raw=/readyz", check=False) != "ok", seconds=SECONDS)
    road.play("restore", *restoring(road, keys), "--check")
    began = datetime.now(UTC)
    with asking_for_tickets(road, "w-1"):
        done = road.play("restore", *restoring(road, keys))
        ended = datetime.now(UTC)
        for name in ("cp-1", "w-1"):
            wait_for(lambda name=name: works(road, name, ended), seconds=SECONDS)  # type: ignore[misc]
        record_testsuite_property("restore to ready seconds", round((datetime.now(UTC) - began).total_seconds(), 1))
        wait_for(lambda: decisions(road, "w-1", began)[-1:] == ["given"], seconds=SECONDS)
    record_testsuite_property("restore seconds", round((ended - began).total_seconds(), 1))
    decided = [one for one in decisions(road, "w-1", began) if not one.startswith("API_")]
    order = [one for one, _same in itertools.groupby(decided)]
    assert order == ["POLICY_ROLLED_BACK", "given"], decided  # the backup's policy was in force, and gave no ticket
    assert "attested.kubernetes.reset -e confirm=cp-2" in done.output
    assert generation(road) > older
    assert keys[0].read_text().strip() not in done.output
    assert set(learners_of(road)) == {"cp-1"}
    found = kubectl(road, "get", "configmaps", "--output=name")
    assert ("configmap/before" in found, "configmap/late" in found) == (True, False)
    assert admission(road, "w-2") == {"Revoked"}
    assert kubectl(road, "get", "nodes", "--output=name").split() == ["node/cp-1", "node/w-1"]


def test_the_revoked_machine_gets_no_ticket_and_makes_no_node(road: Road) -> None:
    """Its kubelet has run all the time, and its certificate is good for days."""
    began = datetime.now(UTC)
    with asking_for_tickets(road, "w-2"):
        wait_for(lambda: decisions(road, "w-2", began) != [], seconds=SECONDS)
    assert set(decisions(road, "w-2", began)) == {"IDENTITY_REVOKED"}
    road.inside("w-2", "systemctl", "restart", "kubelet")
    log = ("journalctl", "--unit=kubelet", "--output=cat", f"--since=@{int(began.timestamp())}")
    wait_for(lambda: "Unable to register node with API server" in road.inside("w-2", *log), seconds=SECONDS)
    assert "node/w-2" not in kubectl(road, "get", "nodes", "--output=name")


def test_the_other_control_planes_join_again(
    road: Road, record_testsuite_property: Callable[[str, object], None]
) -> None:
    road.inside("cp-3", "systemctl", "start", "ssh")
    for name, members in (("cp-2", ("cp-1", "cp-2")), ("cp-3", ("cp-1", "cp-2", "cp-3"))):
        began, start = datetime.now(UTC), time.monotonic()
        road.play("reset", "-e", f"confirm={name}")
        road.play("node", f"--limit={name}")
        wait_for(lambda members=members: learners_of(road) == dict.fromkeys(members, False), seconds=SECONDS)  # type: ignore[misc]
        wait_for(lambda name=name, began=began: works(road, name, began), seconds=SECONDS)  # type: ignore[misc]
        record_testsuite_property(f"{name} reset to ready seconds", round(time.monotonic() - start, 1))


def test_all_nodes_are_ready_and_status_and_verify_find_nothing_wrong(road: Road) -> None:
    now = datetime.now(UTC)
    nodes = ["cp-1", "cp-2", "cp-3", "w-1"]
    assert kubectl(road, "get", "nodes", "--output=name").split() == [f"node/{name}" for name in nodes]
    for name in nodes:
        wait_for(lambda name=name: works(road, name, now), seconds=SECONDS)  # type: ignore[misc]
    assert "Revoked. Take it off the network" in road.play("status").output
    road.play("verify", "--limit=!w-2")
    assert admission(road, "w-2") == {"Revoked"}
