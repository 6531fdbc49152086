# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three control planes and a worker get other CAs and another key of service accounts, while somebody writes.

Real kubelets, key services, static pods and two TPMs between which the successors travel. The hour in which pods show
tokens of the old key is made to have passed by the time of a file, from which the plan reads it. The tests are in the
order of one lab's life and share it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.road import Road, road_through
from ansible_collections.attested.kubernetes.tests.support.thief import PKI, Thief
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_AUTHORITIES_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through init and node; it is used and left."""

MADE = ("lab", "init", "node")
PLANES = ("cp-1", "cp-2", "cp-3")
WORDS = ("-e", '{"lab_control_planes": 3, "lab_workers": 1}')
SECONDS = 300


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """The lab with its cluster."""
    with road_through(*MADE, of="attested-authorities:127.71.0", instead=USED_LAB, words=WORDS) as road:
        yield road


def kubectl(road: Road, *words: str, asked: str = "cp-2") -> str:
    """Ask the API server of one control plane, on it; nothing where it refuses."""
    options = ("--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "--request-timeout=30s")
    return road.inside(asked, "kubectl", *options, *words, check=False)


def nodes(road: Road, asked: str = "cp-2") -> list[str]:
    """Return the nodes of the cluster, as a control plane shows them to its own admin."""
    return kubectl(road, "get", "nodes", "--output=name", asked=asked).split()


def confirm(road: Road) -> tuple[str, ...]:
    """Return the words that let the cluster CA of now go."""
    said = road.play("rotate_authorities", *WORDS, "--check").output
    found = re.search(r"-e confirm=([0-9a-f]{16})", said)
    assert found is not None, said
    return ("-e", f"confirm={found[1]}")


@pytest.fixture(scope="module")
def thief(road: Road) -> Thief:
    """With the CA key of before."""
    return Thief.of(road, PLANES[0])


@pytest.fixture(scope="module")
def words(road: Road) -> tuple[str, ...]:
    return (*WORDS, *confirm(road))


def test_the_successors_sign_and_the_first_run_says_when_to_go_on(
    road: Road, words: tuple[str, ...], thief: Thief
) -> None:
    said = road.play("rotate_authorities", *words).output
    assert "Run the same command again at" in said
    assert all(thief.sees(road, name) for name in PLANES), "until the second run the old keys are good"
    again = road.play("rotate_authorities", *words)
    assert "Run the same command again at" in again.output
    assert set(again.changes().values()) == {0}


def test_after_the_second_run_what_the_old_key_signed_is_refused(
    road: Road, words: tuple[str, ...], thief: Thief
) -> None:
    for name in PLANES:
        road.inside(name, "touch", "--date=2 hours ago", f"{PKI}/sa.key")
    road.play("rotate_authorities", *words)
    assert [thief.sees(road, name) for name in PLANES] == [[]] * 3
    for name in PLANES:
        assert {f"node/{plane}" for plane in PLANES} < set(nodes(road, asked=name))
        assert road.inside(name, "ls", "-d", "/etc/kubernetes/attested-authorities", check=False) == ""


def test_every_node_goes_on_and_a_third_run_changes_nothing(road: Road, words: tuple[str, ...]) -> None:
    ready = "--output=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    wait_for(lambda: set(kubectl(road, "get", "nodes", ready).split()) == {"True"}, seconds=SECONDS)
    for name in (one.removeprefix("node/") for one in nodes(road)):
        road.inside(name, "attested", "renew", "--now")
    assert set(road.play("rotate_authorities", *words).changes().values()) == {0}
