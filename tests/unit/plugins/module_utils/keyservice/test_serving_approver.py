# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of requests for serving certificates: of whose machine, when, and by which control plane."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.core.rate import TokenBuckets
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import (
    REFUSALS,
    AuditPlace,
    AuditTrail,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.serving_approver import (
    COMING,
    DENIED,
    ServingApprover,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Coarse, Reason
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy
from ansible_collections.attested.kubernetes.tests.support.release_bed import NOW, StandingClock
from ansible_collections.attested.kubernetes.tests.support.serving_requests import (
    ADDRESS,
    MACHINE,
    NODE,
    Requests,
    Wanted,
    spec_of,
    weak_key,
)

if TYPE_CHECKING:
    from pathlib import Path

EK, OTHER = "ab" * 32, "cd" * 32
OVERDUE = dt.timedelta(hours=3)
BURST = 5
APPROVED = [("Approved", "Attested")]
GOOD = {"phase": "Joined", "lastAttestation": {"time": "2026-11-21T11:00:00Z"}}


def identity(ek: str = EK, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {
            "ekSha256": ek,
            "nodeName": NODE,
            "role": "worker",
            "admission": "Approved",
            "addresses": [ADDRESS],
            **spec,
        },
    }


class Cluster:
    """Identities and requests, and control planes that look at them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = StandingClock()
        self.gateway = FakeGateway(identity())
        self.stand(GOOD)
        self.requests = Requests(made=NOW)
        self.printed = io.StringIO()
        self.planes: dict[str, AuditTrail] = {}

    def stand(self, status: dict[str, Any], ek: str = EK) -> None:
        name = f"ek-{ek[:20]}"
        revision = self.gateway.object(IDENTITIES, name)["metadata"]["resourceVersion"]  # type: ignore[index]
        self.gateway.patch_status(IDENTITIES, name, status=status, revision=revision)

    def plane(self, name: str = "cp-1") -> ServingApprover:
        place = AuditPlace(directory=self.directory / name)
        self.planes[name] = AuditTrail(place, node=name, clock=self.clock, random=SystemRandom())
        return ServingApprover(
            self.requests,
            LivePolicy(self.gateway, GivenPolicy(identity()), clock=self.clock),
            audit=self.planes[name],
            log=Log(self.printed, as_json=True, clock=self.clock),
            clock=self.clock,
            rate=TokenBuckets(rate=0.5, burst=BURST, clock=self.clock, reason=Reason.IDENTITY_RATE, what="a second"),
            overdue_after=OVERDUE,
        )

    def decisions(self, name: str = "cp-1") -> list[dict[str, Any]]:
        places = [AuditPlace(directory=self.directory / name, stem=stem) for stem in ("audit", REFUSALS)]
        files = [path for place in places for path in place.existing()]
        records = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [one for one in records if one["event"] == "serving_certificate"]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.printed.getvalue().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_node_in_good_standing_gets_its_certificate(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of())
    cluster.plane().run_once()
    assert cluster.requests.condition("csr-1") == {
        "type": "Approved",
        "status": "True",
        "reason": "Attested",
        "message": f"the evidence of {MACHINE} is good and recent",
    }
    (recorded,) = cluster.decisions()
    told = {name: recorded[name] for name in ("outcome", "request", "user", "identity", "node")}
    assert told == {
        "outcome": "given",
        "request": "csr-1",
        "user": f"system:node:{NODE}",
        "identity": MACHINE,
        "node": NODE,
    }
    (line,) = cluster.lines()
    assert (line["event"], line["outcome"], line["node"]) == ("serving_certificate", "given", NODE)


def test_a_denial_says_its_code_to_the_node_and_its_cause_to_us(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of(Wanted(addresses=("10.0.0.99",))))
    cluster.plane().run_once()
    condition = cluster.requests.condition("csr-1")
    assert (condition["type"], condition["status"], condition["reason"]) == ("Denied", "True", "SERVING_SAN_REFUSED")
    assert condition["message"].endswith("Next: attested explain SERVING_SAN_REFUSED")
    assert ADDRESS not in condition["message"]
    (recorded,) = cluster.decisions()
    assert (recorded["outcome"], recorded["reason"]) == ("refused", "SERVING_SAN_REFUSED")
    assert "10.0.0.99" in recorded["detail"]
    (line,) = cluster.lines()
    assert (line["outcome"], line["reason"], line["detail"]) == ("refused", "SERVING_SAN_REFUSED", recorded["detail"])


def refused(cluster: Cluster, spec: dict[str, Any]) -> str:
    """Return what a request is denied with."""
    cluster.requests.add("csr-1", spec)
    cluster.plane().run_once()
    ((kind, code),) = cluster.requests.conditions("csr-1")
    assert kind == "Denied"
    return code


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        pytest.param(spec_of(request="!"), "CSR_MALFORMED", id="no request"),
        pytest.param(spec_of(Wanted(key=weak_key())), "CSR_KEY_UNSUPPORTED", id="a weak key"),
        pytest.param(spec_of(Wanted(names=(), addresses=())), "SERVING_EXTENSION_REFUSED", id="no extension"),
        pytest.param(spec_of(usages=["client auth"]), "SERVING_USAGE_REFUSED", id="another usage"),
    ],
)
def test_a_request_that_is_none_of_a_kubelet_is_denied_at_once(
    cluster: Cluster, spec: dict[str, Any], code: str
) -> None:
    assert refused(cluster, spec) == code


def test_a_machine_one_of_whose_keys_is_another_ones_is_denied(cluster: Cluster) -> None:
    cluster.gateway.apply(identity(OTHER, nodeName="w-2", ekAliasSha256=EK))
    assert refused(cluster, spec_of()) == "EK_ALIAS_TAKEN"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"admission": "Revoked"}, "IDENTITY_REVOKED", id="revoked"),
        pytest.param({"admission": "Refused"}, "IDENTITY_REFUSED", id="refused"),
        pytest.param({"admission": "Pending"}, "IDENTITY_PENDING", id="waiting"),
        pytest.param({"addresses": ["10.0.0.22"]}, "SERVING_SAN_REFUSED", id="of another address"),
    ],
)
def test_the_identity_as_it_is_now_decides(cluster: Cluster, change: dict[str, Any], code: str) -> None:
    cluster.gateway.apply(identity(**change))
    assert refused(cluster, spec_of()) == code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param({"lastAttestation": {"time": "2026-11-21T09:00:00Z"}}, "REATTESTATION_OVERDUE", id="overdue"),
        pytest.param(
            {"lastRefusal": {"time": "2026-11-21T11:30:00Z", "reason": "PCR_MISMATCH"}},
            "REATTESTATION_FAILED",
            id="refused",
        ),
    ],
)
def test_bad_evidence_denies_at_once(cluster: Cluster, status: dict[str, Any], code: str) -> None:
    cluster.stand(status)
    assert refused(cluster, spec_of()) == code


def test_the_machine_that_was_this_node_before_gets_nothing(cluster: Cluster) -> None:
    groups = ["system:nodes", f"attested:ek-{OTHER[:20]}", "system:authenticated"]
    cluster.gateway.apply(identity(OTHER, admission="Revoked"))
    assert refused(cluster, spec_of(groups=groups)) == "SERVING_REQUESTER_REFUSED"


def test_a_revoked_machine_beside_does_not_hide_the_one_that_is_this_node(cluster: Cluster) -> None:
    cluster.gateway.apply(identity("11" * 32, admission="Revoked"))
    cluster.requests.add("csr-1", spec_of())
    cluster.plane().run_once()
    assert cluster.requests.conditions("csr-1") == APPROVED


def test_two_machines_of_one_name_get_nothing(cluster: Cluster) -> None:
    cluster.gateway.apply(identity(OTHER))
    assert refused(cluster, spec_of()) == "IDENTITY_AMBIGUOUS"


def test_a_control_plane_that_the_site_did_not_sign_waits_and_is_denied(cluster: Cluster) -> None:
    cluster.gateway.apply(identity(role="control-plane"))
    waits_then(cluster, "IDENTITY_UNSIGNED")


def waits_then(cluster: Cluster, code: str) -> None:
    """Assert that a request waits as long as it may, and is denied then."""
    cluster.requests.add("csr-1", spec_of())
    plane = cluster.plane()
    plane.run_once()
    cluster.clock.moment = NOW + dt.timedelta(minutes=10, seconds=-1)
    plane.run_once()
    assert (cluster.requests.conditions("csr-1"), cluster.decisions()) == ([], [])
    cluster.clock.moment = NOW + dt.timedelta(minutes=10)
    plane.run_once()
    assert cluster.requests.conditions("csr-1") == [("Denied", code)]


def test_a_node_without_an_identity_waits_for_the_policy_and_is_denied(cluster: Cluster) -> None:
    cluster.gateway.delete(IDENTITIES, MACHINE)
    waits_then(cluster, "IDENTITY_UNKNOWN")


def test_a_machine_that_has_not_joined_waits_and_is_denied(cluster: Cluster) -> None:
    cluster.stand({"phase": "Admitted"})
    waits_then(cluster, "SERVING_NOT_JOINED")


def test_a_machine_that_proved_nothing_waits_and_is_denied(cluster: Cluster) -> None:
    cluster.stand({"lastAttestation": None})
    waits_then(cluster, "SERVING_NOT_PROVEN")


def test_what_waited_is_approved_as_soon_as_the_machine_is_ready(cluster: Cluster) -> None:
    cluster.stand({"phase": "Admitted"})
    cluster.requests.add("csr-1", spec_of())
    plane = cluster.plane()
    plane.run_once()
    cluster.stand(GOOD)
    plane.run_once()
    assert cluster.requests.conditions("csr-1") == APPROVED


# ---- what is let be


@pytest.mark.parametrize("kind", ["Approved", "Denied", "Failed"])
def test_what_is_decided_stays_so(cluster: Cluster, kind: str) -> None:
    cluster.requests.add("csr-1", spec_of())
    (found,) = cluster.requests.serving_requests(1)
    cluster.requests.conclude_request(
        "csr-1", {"type": kind, "reason": "Somebody"}, revision=found["metadata"]["resourceVersion"]
    )
    cluster.plane().run_once()
    assert (cluster.requests.conditions("csr-1"), cluster.requests.writes) == ([(kind, "Somebody")], 1)
    assert cluster.decisions() == []


def test_a_request_of_another_signer_is_nobodys_business_here(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of(signerName="kubernetes.io/kube-apiserver-client-kubelet"))
    cluster.plane().run_once()
    assert (cluster.requests.conditions("csr-1"), cluster.decisions()) == ([], [])


# ---- several control planes, and trouble


def test_of_two_control_planes_at_once_one_writes_and_the_other_leaves_it(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of())
    first, second = cluster.plane("cp-1"), cluster.plane("cp-2")
    cluster.requests.before_write = second.run_once  # between the first one's reading and its write
    first.run_once()
    assert (cluster.requests.conditions("csr-1"), cluster.requests.writes) == (APPROVED, 1)
    assert len(cluster.lines()) == 1
    first.run_once()
    second.run_once()
    assert cluster.requests.writes == 1


def test_no_decision_without_its_record(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of())
    plane = cluster.plane()
    cluster.planes["cp-1"].close()
    with pytest.raises(AttestedError) as caught:
        plane.run_once()
    assert caught.value.code == "AUDIT_UNWRITABLE"
    assert cluster.requests.conditions("csr-1") == []


def test_trouble_with_one_request_leaves_no_other_undecided(cluster: Cluster) -> None:
    cluster.gateway.apply({**identity(OTHER), "spec": {**identity(OTHER)["spec"], "nodeName": "w-2", "role": "king"}})
    cluster.requests.add("csr-1", spec_of(Wanted(node="w-2", names=("w-2",)), username="system:node:w-2"))
    cluster.requests.add("csr-2", spec_of())
    with pytest.raises(AttestedError) as caught:
        cluster.plane().run_once()
    assert caught.value.code == "MANIFEST_INVALID"
    assert cluster.requests.watched == [10]
    assert (cluster.requests.conditions("csr-1"), cluster.requests.conditions("csr-2")) == ([], APPROVED)


def test_the_first_of_two_troubles_is_told(cluster: Cluster) -> None:
    cluster.gateway.apply({**identity(OTHER), "spec": {**identity(OTHER)["spec"], "nodeName": "w-2", "role": "king"}})
    broken = spec_of(Wanted(node="w-2", names=("w-2",)), username="system:node:w-2")
    for number in range(BURST + 1):
        cluster.requests.add(f"csr-{number}", broken)
    with pytest.raises(AttestedError) as caught:
        cluster.plane().run_once()
    assert caught.value.code == "MANIFEST_INVALID"


def test_while_the_api_is_away_nothing_is_decided(cluster: Cluster) -> None:
    cluster.requests.add("csr-1", spec_of())
    cluster.gateway.down = True
    with pytest.raises(AttestedError) as caught:
        cluster.plane().run_once()
    assert caught.value.code == "API_UNAVAILABLE"
    assert cluster.requests.conditions("csr-1") == []


def test_a_write_that_fails_is_trouble_and_is_tried_again(cluster: Cluster) -> None:
    def away() -> None:
        raise ApiError("could not write: connection refused", reason=Reason.API_UNAVAILABLE)

    cluster.requests.add("csr-1", spec_of())
    cluster.requests.before_write = away
    plane = cluster.plane()
    with pytest.raises(ApiError) as caught:
        plane.run_once()
    assert (caught.value.code, cluster.lines()) == ("API_UNAVAILABLE", [])
    plane.run_once()
    assert cluster.requests.conditions("csr-1") == APPROVED


def test_who_asks_too_often_waits_and_nobody_waits_for_him(cluster: Cluster) -> None:
    for number in range(BURST + 1):
        cluster.requests.add(f"csr-{number}", spec_of(username="system:node:w-9"))
    cluster.requests.add("csr-good", spec_of())
    plane = cluster.plane()
    with pytest.raises(AttestedError) as caught:
        plane.run_once()
    assert caught.value.code == "IDENTITY_RATE"
    assert cluster.requests.conditions("csr-good") == APPROVED
    assert cluster.requests.conditions(f"csr-{BURST}") == []
    cluster.clock.moment += dt.timedelta(seconds=2)
    plane.run_once()
    assert cluster.requests.conditions(f"csr-{BURST}") == [("Denied", "CSR_NAME_MISMATCH")]


def test_only_what_is_about_the_machine_is_told_to_it() -> None:
    """Trouble of our own, and of the policy, decides nothing: the request waits until it is over."""
    assert {reason.value.coarse for reason in DENIED} <= {Coarse.REFUSED, Coarse.INVALID}
    assert not any(reason.name.startswith(("POLICY_", "API_", "TPM_")) for reason in DENIED)
    assert COMING < DENIED
