# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S6: another TPM takes the name of a node that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed

THREAT = Threat(
    id="S6",
    title="Identity taken over by registering again",
    case="CVE-2025-13609",
    bed="api",
    stops=(
        ("policy/identity.py", "IDENTITY_AMBIGUOUS"),
        ("policy/identity.py", "EK_ALIAS_TAKEN"),
        ("keyservice/releaser.py", "IDENTITY_NODE_TAKEN"),
        ("keyservice/kubelet.py step 3", "CSR_NAME_MISMATCH"),
    ),
)


def test_a_second_tpm_under_a_name_that_is_taken(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Neither is let in then: which of the two is the node only a person can say."""
    one, two = machines(), machines()
    assert one.ask()
    two.bed.api.kubectl("delete", "nodeidentity", two.identity()["metadata"]["name"])
    two.name = one.name
    two.enroll()
    try:
        assert refused(two.ask, bed)["reason"] == "IDENTITY_AMBIGUOUS"
    finally:
        bed.api.kubectl("delete", "nodeidentity", two.identity()["metadata"]["name"])
    assert one.ask()


def test_a_stranger_that_claims_the_name(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """The endorsement key decides, not the name; who asks for a name that is taken is told apart, for the alarm."""
    one = machines()
    assert one.ask()
    stranger = machines(enroll=False)
    stranger.name = one.name
    assert refused(stranger.ask, bed)["reason"] == "IDENTITY_NODE_TAKEN"


def test_an_enrolled_machine_that_claims_the_name(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    one, two = machines(), machines()
    assert one.ask()
    two.name = one.name
    assert refused(two.ask, bed)["reason"] == "CSR_NAME_MISMATCH"


def test_the_object_of_a_node_takes_no_other_key(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """A board swap is a new identity that a person approves, never a changed one."""
    one = machines()
    document = one.identity()
    patch = f'{{"spec": {{"ekSha256": "{"ab" * 32}"}}}}'
    words = ("patch", "nodeidentity", document["metadata"]["name"], "--type=merge", "-p", patch)
    said = bed.api.kubectl(*words, check=False)
    assert "immutable" in said or "ekSha256" in said
    assert one.identity()["spec"] == document["spec"]


def test_the_names_role_is_not_the_machines_to_choose(exchange: Exchange) -> None:
    other = SoftTpm(exchange.boot.pcrs)
    both = [identity_of(exchange.tpm.ek), identity_of(other.ek, role=Role.CONTROL_PLANE)]
    policy = SitePolicy(profiles=[learned(boots.load("deb13-base"))], identities=both)
    assert exchange.run()
    assert code_of(lambda: exchange.run(policy=policy)) == "IDENTITY_AMBIGUOUS"


def test_another_machines_key_written_down_as_the_second_one(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """Who may write an object does not become the other machine by it: neither is let in until a person decides."""
    one, two = machines(), machines(enroll=False)
    assert one.ask()
    two.enroll(ekAliasSha256=one.identity()["spec"]["ekSha256"])
    try:
        for machine in (one, two):
            assert refused(machine.ask, bed)["reason"] == "EK_ALIAS_TAKEN"
    finally:
        bed.api.kubectl("delete", "nodeidentity", two.identity()["metadata"]["name"])
    assert one.ask()
