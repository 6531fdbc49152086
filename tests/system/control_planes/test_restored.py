# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two of three control planes lose their disks after a backup, and the cluster comes back by the commands of the page.

Between backup and loss a worker is revoked: the policy in the backup is older than the one that the survivor has seen.
The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.etcdctl import learners_of
from ansible_collections.attested.kubernetes.tests.support.losing import lose
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_RESTORED_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 2}')
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


@contextmanager
def asking_for_tickets(road: Road) -> Iterator[list[str]]:
    """Let w-1 ask for tickets, one after the other; yield what each of them said, which grows."""
    said: list[str] = []
    ended = threading.Event()
    words = [
        str(road.lab.directory / "podman"),
        "exec",
        "w-1",
        "/opt/attested/venv/bin/attested-agent",
        "renew",
        "--now",
    ]

    def ask() -> None:
        while not ended.is_set():
            said.append(subprocess.run(words, capture_output=True, text=True, check=False).stderr)
            ended.wait(0.5)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield said
    finally:
        ended.set()
        thread.join()


def outcome(said: str) -> str:
    """Return whether a ticket was given, or the code of the refusal."""
    return "given" if "renewed, serial" in said else "rolled back" if "POLICY_ROLLED_BACK" in said else "not reached"


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


def test_two_lose_their_disks_and_one_comes_back_under_the_newer_policy(road: Road, keys: tuple[Path, str]) -> None:
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
    with asking_for_tickets(road) as said:
        done = road.play("restore", *restoring(road, keys), "-e", "confirm_refusals=true")
        wait_for(lambda: outcome(said[-1]) == "given", seconds=SECONDS)
    order = [one for one, _same in itertools.groupby(map(outcome, said)) if one != "not reached"]
    assert order == ["rolled back", "given"], said  # the backup's policy gives no ticket, and was in force meanwhile
    assert "attested.kubernetes.reset -e confirm=cp-2" in done.output
    assert generation(road) > older
    assert keys[0].read_text().strip() not in done.output
    assert set(learners_of(road)) == {"cp-1"}
    found = kubectl(road, "get", "configmaps", "--output=name")
    assert ("configmap/before" in found, "configmap/late" in found) == (True, False)
    assert admission(road, "w-2") == {"Revoked"}
    nodes = kubectl(road, "get", "nodes", "--output=name")
    assert ("node/w-1" in nodes, "node/cp-2" in nodes) == (True, False)


def test_another_control_plane_joins_again(road: Road) -> None:
    road.play("reset", "-e", "confirm=cp-2")
    road.play("node", "--limit=cp-2")
    wait_for(lambda: learners_of(road) == {"cp-1": False, "cp-2": False}, seconds=SECONDS)
