# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S24: a machine was revoked through one control plane and asks another, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of, refused
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import Attack, Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable


THREAT = Threat(
    id="S24",
    title="Stale revocation",
    case="bans that reach one replica only",
    bed="api",
    stops=(
        ("policy/identity.py", "IDENTITY_REVOKED"),
        ("policy/identity.py", "IDENTITY_REFUSED"),
    ),
)


def test_the_next_call_at_the_other_replica(
    bed: ServiceBed, replica: ServiceBed, machines: Callable[..., Machine]
) -> None:
    """No cache is waited for, also with the ticket that it holds still alive there; and nothing brings it back."""
    machine = machines()
    assert machine.ask()
    machine.bed = replica
    assert machine.ask()
    machine.enroll(admission="Revoked")
    assert refused(machine.ask, replica)["reason"] == "IDENTITY_REVOKED"
    name = machine.identity()["metadata"]["name"]
    assert "cannot be deleted" in bed.api.kubectl("delete", "nodeidentity", name, check=False)
    back = ("patch", "nodeidentity", name, "--type=merge", "-p", '{"spec": {"admission": "Approved"}}')
    assert "stays revoked" in bed.api.kubectl(*back, check=False)
    assert refused(machine.ask, replica)["reason"] == "IDENTITY_REVOKED"


def test_a_revocation_between_challenge_and_ticket(bed: ServiceBed, machines: Callable[..., Machine]) -> None:
    """The policy is read with the decision, not with the challenge."""
    assert machines().attack(Attack()).response
    machine = machines()

    def meanwhile(challenge):
        machine.enroll(admission="Revoked")
        return challenge

    assert refused(lambda: machine.attack(Attack(challenge=meanwhile)), bed)["reason"] == "IDENTITY_REVOKED"


@pytest.mark.parametrize(("admission", "code"), [("Revoked", "IDENTITY_REVOKED"), ("Refused", "IDENTITY_REFUSED")])
def test_a_change_between_decision_and_write(admission: str, code: str) -> None:
    """The write is a compare-and-set on what was judged, so the change wins and nothing was given out."""
    bed = Bed()
    document = render_identity(bed.identity)
    document["spec"]["admission"] = admission
    bed.gateway.before_write = lambda: bed.gateway.apply(document)
    assert code_of(bed.release) == code
    assert bed.status() == {}
    assert Bed().release().node_name == "w-1"
