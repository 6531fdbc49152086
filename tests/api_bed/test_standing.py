# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from evidence that was refused or is overdue, at a real API, and that all of it goes away again.

A kubelet is played by its own certificate; that a running one leaves the marks alone is shown in a cluster of the lab.
"""

from __future__ import annotations

import datetime as dt
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.node_conditions import LABELS, TAINT
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.standing import CONDITION
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.service_bed import (
    CHANGED_BOOT,
    GOOD_BOOT,
    Attack,
    ServiceBed,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

    Machines = Callable[..., Machine]

IDENTITIES = "nodeidentities.attested-kubernetes.dev"
OURS = {"key": TAINT, "effect": "NoSchedule"}
OTHER = {"key": "site.example/keep", "value": "yes", "effect": "NoExecute"}
_LOCK = 15


@pytest.fixture(scope="module")
def bed(api: ApiBed) -> Iterator[ServiceBed]:
    """Services of which nobody has to wait until nodes may be overdue; the other control plane of the run sees less."""
    made = ServiceBed(api, name="cp-9")
    path = made.directory / "key.yml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "reattest_grace_seconds": 0}))
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture
def node(api: ApiBed, machines: Machines) -> Machine:
    """A joined machine whose Node has another taint and is marked as good."""
    machine = machines()
    join(api, machine)
    settled(api, machine, lambda found: condition(found).get("status") == "True")
    return machine


def join(api: ApiBed, machine: Machine) -> None:
    """Bring a machine as far as its lock and its Node, and wait until the identity is joined."""
    machine.ask()
    machine.lock()
    spec = {"taints": [OTHER]}
    metadata = {"name": machine.name, "labels": {"kept": "yes"}}
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    wait_for(lambda: machine.identity().get("status", {}).get("phase") == "Joined")


def settled(api: ApiBed, machine: Machine, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the Node once ``done`` holds of it."""
    wait_for(lambda: done(api.get("node", machine.name)))
    return api.get("node", machine.name)


def condition(found: dict[str, Any]) -> dict[str, Any]:
    return next((one for one in found["status"].get("conditions", ()) if one["type"] == CONDITION), {})


def taints(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list(found["spec"].get("taints", ()))


def events(api: ApiBed, machine: Machine) -> dict[str, str]:
    """Return the Events of a Node: reason to type."""
    found = api.get("events", "--namespace=default", f"--field-selector=involvedObject.name={machine.name}")["items"]
    return {one["reason"]: one["type"] for one in found}


def grow_old(api: ApiBed, machine: Machine) -> None:
    """Let the last good evidence be of yesterday."""
    yesterday = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    patch = json.dumps({"status": {"lastAttestation": {"time": yesterday}}})
    name = machine.identity()["metadata"]["name"]
    api.kubectl("patch", IDENTITIES, name, "--subresource=status", "--type=merge", "-p", patch)


def fail(machine: Machine) -> None:
    """Push evidence of a boot that no profile allows, and be again what it was."""
    machine.boot = boots.load(CHANGED_BOOT)
    good = machine.tpm.pcrs
    machine.tpm.pcrs = {**machine.boot.pcrs, _LOCK: good[_LOCK]}
    with pytest.raises(AttestedError):
        machine.reattest()
    machine.boot, machine.tpm.pcrs = boots.load(GOOD_BOOT), good


def renewal(machine: Machine, bed: ServiceBed) -> str:
    """Ask for another certificate in this boot; return the key service's reason, or nothing where it is given."""
    machine.disk_id = machine.identity()["status"]["diskId"]
    try:
        machine.ask()
    except AttestedError as error:
        assert error.code == "TICKET_REFUSED"
        return str(bed.last_refusal("key")["reason"])
    return ""


def is_bad(found: dict[str, Any]) -> bool:
    # taint and condition are two writes
    return OURS in taints(found) and condition(found).get("status", "True") != "True"


def is_good(found: dict[str, Any]) -> bool:
    return OURS not in taints(found) and condition(found).get("status") == "True"


def test_refused_evidence_marks_the_node_and_ends_renewals_until_other_evidence_is_good(
    api: ApiBed, bed: ServiceBed, node: Machine
) -> None:
    assert renewal(node, bed) == ""
    fail(node)
    assert node.identity()["status"]["lastRefusal"]["reason"] == "PCR_MISMATCH"
    found = settled(api, node, is_bad)
    assert (condition(found)["status"], condition(found)["reason"]) == ("False", "ReattestationFailed")
    assert "next: attested explain PCR_MISMATCH" in condition(found)["message"]
    assert OTHER in taints(found)
    assert events(api, node) == {"ReattestationFailed": "Warning"}
    assert renewal(node, bed) == "REATTESTATION_FAILED"
    assert node.identity()["status"]["lastRefusal"]["reason"] == "PCR_MISMATCH"  # asking makes it no worse

    node.reattest()
    found = settled(api, node, is_good)
    assert OTHER in taints(found)
    assert "lastRefusal" not in node.identity()["status"]
    assert events(api, node) == {"ReattestationFailed": "Warning", "EvidenceGood": "Normal"}
    assert renewal(node, bed) == ""


def test_evidence_that_is_overdue_does_the_same(api: ApiBed, bed: ServiceBed, node: Machine) -> None:
    grow_old(api, node)
    found = settled(api, node, is_bad)
    assert (condition(found)["status"], condition(found)["reason"]) == ("Unknown", "ReattestationOverdue")
    assert f"on {node.name}: systemctl start attested-reattest" in condition(found)["message"]
    assert "ReattestationOverdue" in events(api, node)
    assert renewal(node, bed) == "REATTESTATION_OVERDUE"
    node.reattest()
    settled(api, node, is_good)
    assert renewal(node, bed) == ""


def test_a_rejoin_is_evidence_of_a_new_boot_and_heals(api: ApiBed, bed: ServiceBed, node: Machine) -> None:
    fail(node)
    settled(api, node, is_bad)
    node.tpm.reset()
    (node.directory / "nodelock.log").unlink()
    assert renewal(node, bed) == ""
    settled(api, node, is_good)


def test_what_another_one_says_in_its_name_is_not_held_against_a_node(
    api: ApiBed, bed: ServiceBed, node: Machine
) -> None:
    """Its TPM opens the credential, as its verification service does for anybody, but on another channel."""
    del api
    before = len(bed.lines("key"))
    with pytest.raises(AttestedError):
        node.attack(Attack(exporter=b"x" * 32))
    line = next(one for one in bed.lines("key")[before:] if one.get("outcome") == "refused")
    assert (line["reason"], line["proven"]) == ("BINDING_MISMATCH", "yes")
    assert "lastRefusal" not in node.identity()["status"]


def test_rounds_without_a_change_write_nothing(api: ApiBed, node: Machine, machines: Machines) -> None:
    fail(node)
    settled(api, node, is_bad)
    before = api.get("node", node.name)["metadata"]["resourceVersion"]
    other = machines()
    join(api, other)
    fail(other)
    settled(api, other, is_bad)  # its marks are written in a round of all nodes
    assert api.get("node", node.name)["metadata"]["resourceVersion"] == before
    node.reattest()
    settled(api, node, is_good)


def patch(api: ApiBed, user: str, path: str, change: dict[str, Any], kind: str = "merge") -> str:
    """Send a patch and no reading before it, as the kubelet and the key service do; return the answer."""
    context = ssl.create_default_context(cafile=str(api.directory / "ca.crt"))
    context.load_cert_chain(api.directory / f"{user}.crt", api.directory / f"{user}.key")
    sent = urllib.request.Request(f"{api.server}/api/v1/nodes/{path}", json.dumps(change).encode(), method="PATCH")
    sent.add_header("Content-Type", f"application/{kind}-patch+json")
    try:
        with urllib.request.urlopen(sent, context=context, timeout=30) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(json.loads(error.read())["message"])


def reported(kind: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "KubeletReady", "message": "x"}]}}


def test_a_kubelet_reports_as_ever_and_cannot_take_its_marks_away(api: ApiBed, node: Machine) -> None:
    fail(node)
    settled(api, node, is_bad)
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{node.name}")]
    api.ca.issue(node.name, names=names)
    status = f"{node.name}/status"
    assert patch(api, node.name, status, reported("Ready"), "strategic-merge") == "200"
    assert "does not say of itself" in patch(api, node.name, status, reported(CONDITION), "strategic-merge")
    assert "does not say of itself" in patch(api, node.name, status, reported("Ready"))  # which drops all others
    assert "not allowed to modify taints" in patch(api, node.name, node.name, {"spec": {"taints": [OTHER]}})
    assert "orbidden" in api.kubectl("delete", "node", node.name, user=node.name, check=False)
    found = api.get("node", node.name)
    assert is_bad(found)
    assert {one["type"]: one["status"] for one in found["status"]["conditions"]}["Ready"] == "True"
    node.reattest()
    settled(api, node, is_good)


def test_a_kubelet_makes_no_node_that_is_attested_already(api: ApiBed, machines: Machines) -> None:
    machine = machines()
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{machine.name}")]
    api.ca.issue(machine.name, names=names)
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}}
    said = api.kubectl(
        "create", "-f", "-", user=machine.name, stdin=json.dumps({**made, **reported(CONDITION)}), check=False
    )
    assert "does not say of itself" in said
    assert "created" in api.kubectl(
        "create", "-f", "-", user=machine.name, stdin=json.dumps({**made, **reported("Ready")}), check=False
    )


def labels(found: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in found["metadata"]["labels"].items() if name in LABELS}


def test_schedulers_see_what_a_node_proved_as_long_as_it_is_good(api: ApiBed, node: Machine) -> None:
    last = node.identity()["status"]["lastAttestation"]
    shown = {LABELS[0]: last["time"][:13], LABELS[1]: last["posture"], LABELS[2]: last["profile"]}
    assert all(shown.values())
    assert labels(settled(api, node, lambda found: bool(labels(found)))) == shown
    fail(node)
    found = settled(api, node, lambda found: is_bad(found) and not labels(found))
    assert found["metadata"]["labels"] == {"kept": "yes"}
    node.reattest()
    settled(api, node, lambda found: is_good(found) and labels(found).keys() == shown.keys())


@pytest.mark.parametrize("change", [{LABELS[2]: "better"}, {LABELS[1]: None}])
def test_a_node_does_not_change_what_it_proved(api: ApiBed, node: Machine, change: dict[str, str | None]) -> None:
    settled(api, node, lambda found: bool(labels(found)))
    names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{node.name}")]
    api.ca.issue(node.name, names=names)
    said = patch(api, node.name, node.name, {"metadata": {"labels": change}})
    assert "no label and no annotation on itself that speaks of attestation" in said


@pytest.mark.parametrize(
    ("change", "subresource"),
    [
        pytest.param({"spec": {"taints": []}}, "", id="somebody else's taint"),
        pytest.param({"spec": {"taints": [OTHER, {**OURS, "effect": "NoExecute"}]}}, "", id="pods that run"),
        pytest.param({"spec": {"unschedulable": True}}, "", id="a cordon"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, "", id="labels"),
        pytest.param({"metadata": {"labels": {"kept": "other"}}}, "", id="the value of a label"),
        pytest.param({"metadata": {"labels": {"kept": None}}}, "", id="a label that was there"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, "", id="annotations"),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "/status", id="another condition"
        ),
    ],
)
def test_what_the_key_service_may_not_touch_of_a_node(
    api: ApiBed, node: Machine, change: dict[str, Any], subresource: str
) -> None:
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    said = patch(api, "key-service", f"{node.name}{subresource}", change, "strategic-merge")
    assert "attested-marks-nodes" in said
