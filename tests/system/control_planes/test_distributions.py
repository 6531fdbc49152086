# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster of Debian 12 and Debian 13, a control plane and a worker of each; Debian 13 makes the cluster.

One bundle has the wheels of both Pythons. The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support import web_pods
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_DISTRIBUTIONS_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through `lab`; it is used and left."""

DEBIAN = {"cp-1": 13, "cp-2": 12, "w-1": 12, "w-2": 13}
PYTHON = {12: "3.11", 13: "3.13"}
WORDS = (
    "-e",
    '{"lab_control_planes": 2, "lab_workers": 2, "lab_suites": {"cp-1": "trixie", "w-2": "trixie"}}',
)
SECONDS = 900.0


@pytest.fixture(scope="module")
def prepared() -> Iterator[Road]:
    """Machines of both kinds with what their own Python needs, and no cluster."""
    with road_through("lab", of="attested-debians:127.82.0", instead=USED_LAB, words=WORDS) as road:
        yield road


def test_each_machine_has_an_environment_of_its_own_python(prepared: Road) -> None:
    for node, debian in DEBIAN.items():
        assert prepared.inside(node, "cat", "/etc/debian_version").startswith(f"{debian}.")
        said = prepared.inside(node, "/opt/attested/venv/bin/python", "--version")
        assert said.startswith(f"Python {PYTHON[debian]}.")


def test_preflight_names_the_machines_whose_python_the_site_does_not(prepared: Road) -> None:
    prepared.play("preflight", *WORDS)
    words = (*WORDS, "-e", "attested_python_version=3.11")
    wrong = prepared.finish("preflight", prepared.start("preflight", *words))
    assert wrong.returncode != 0
    assert "NODE_PREREQUISITES_MISSING: cp-1, w-2 cannot be nodes yet" in wrong.output
    assert "expected Python 3.11, got 3.13" in wrong.output


def test_a_bundle_without_the_wheels_of_a_machine_is_refused_and_leaves_the_machine_as_it_is(prepared: Road) -> None:
    """The next `bundle` brings them back out of the cache."""
    look = ("sh", "-c", "readlink -f /opt/attested/venv; ls /opt/attested; sha256sum /etc/attested/node.yml")
    before = prepared.inside("w-2", *look)
    prepared.play("bundle", *WORDS, "-e", "attested_python_version=3.11")
    try:
        refused = prepared.finish("prepare", prepared.start("prepare", *WORDS, "--limit=w-2"))
        assert refused.returncode != 0
        assert "expected wheels for Python 3.13 on amd64 in the bundle, it has 3.11/amd64" in refused.output
        assert "BUNDLE_INCOMPLETE" in refused.output
        assert prepared.inside("w-2", *look) == before
    finally:
        prepared.play("bundle", *WORDS)
    assert set(prepared.play("prepare", *WORDS).changes().values()) == {0}


def test_one_init_and_all_are_ready(prepared: Road) -> None:
    prepared.play("init", *WORDS)
    prepared.play("node", *WORDS)
    for node, debian in DEBIAN.items():
        prepared.wait_until_ready(node, boot_id=prepared.boot_id(node), seconds=SECONDS)
        assert_one_lock_event(prepared, node)
        system = prepared.kubectl("get", "node", node, "--output=jsonpath={.status.nodeInfo.osImage}")
        assert system.startswith(f"Debian GNU/Linux {debian} ")


def test_the_evidence_of_each_is_accepted_and_no_unit_has_failed(prepared: Road) -> None:
    prepared.play("verify", *WORDS)
    for node in DEBIAN:
        assert prepared.inside(node, "systemctl", "--failed", "--no-legend", "--plain") == ""


def test_pods_of_each_reach_those_of_the_others(prepared: Road) -> None:
    addresses = web_pods.start(prepared, DEBIAN)
    assert set(addresses) == set(DEBIAN)
    for asking in DEBIAN:
        for node, (address,) in addresses.items():
            web_pods.wait_for_answer(prepared, asking, address, node, seconds=SECONDS)


def test_the_playbooks_find_nothing_to_do(prepared: Road) -> None:
    prepared.play("node", *WORDS)  # writes down the disks that were assigned
    for playbook in ("prepare", "init", "node"):
        changes = prepared.play(playbook, *WORDS).changes()
        assert set(changes.values()) == {0}, changes


@pytest.mark.parametrize("node", ["w-2", "w-1", "cp-1"])
def test_a_reboot_and_the_machine_is_ready_by_itself(prepared: Road, node: str) -> None:
    """A worker asks either control plane for its ticket; a control plane opens its own keys."""
    boot = prepared.reboot(node)
    prepared.wait_until_ready(node, boot_id=boot, seconds=SECONDS)
    assert_one_lock_event(prepared, node)


def test_the_evidence_of_the_new_boots_is_accepted(prepared: Road) -> None:
    wait_for(lambda: all_attested(prepared), seconds=SECONDS)
    prepared.play("verify", *WORDS)


def all_attested(road: Road) -> bool:
    """Return whether each Node has the condition that its evidence is good."""
    shown = "{range .items[*]}{.status.conditions[?(@.type=='Attested')].status} {end}"
    return road.kubectl("get", "nodes", f"--output=jsonpath={shown}").split() == ["True"] * len(DEBIAN)
