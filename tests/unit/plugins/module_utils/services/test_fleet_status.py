# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status prints: nodes that failed, whom it calls, machines that wait, the policy and its exceptions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.fleet_status import (
    FleetStatus,
    read_fleet,
    render_calls,
    render_html,
    render_json,
    render_policy,
    render_table,
)
from ansible_collections.attested.kubernetes.tests.support.fleet import HOSTILE, PageReader, known, said, status

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
NODE = {"needs_person": False, "to_do": "Nothing.", "phase": "Joined", "reason": None}
REFUSED = {
    "reason": "PCR_MISMATCH",
    "count": 3,
    "last_seen": "2026-11-21T12:00:00Z",
    "command": "policy",
    "message": "expected a boot that a profile allows, got PCR 0: expected a, got b; PCR 0 event 1: expected c, got d",
}
ROWS: list[dict[str, Any]] = [
    {"name": "w-1", "standing": "EvidenceGood", "standing_message": "fine"},
    {"name": "w-2", "standing": "ReattestationFailed", "standing_message": "refused; next: attested explain X"},
    {"name": "w-3", "standing": "ReattestationOverdue", "standing_message": "overdue; next: push"},
    {"name": "w-4", "standing": "", "refused": REFUSED},
]
DOWN = [
    {"name": "w-1", "standing": "EvidenceGood", "registered": True, "ready": False, "ready_message": "no CNI plugin"},
    {"name": "w-2", "standing": "EvidenceGood", "registered": True, "ready": False, "ready_message": ""},
    {"name": "w-3", "standing": "EvidenceGood", "registered": True, "ready": True, "ready_message": ""},
    {"name": "w-4", "standing": "", "registered": False, "ready": False, "ready_message": ""},
]


WAITING = [
    {"identity": "ek-7", "claims": "w-7", "since": "2026-11-20T08:00:00Z"},
    {"identity": "ek-8", "claims": "", "since": "2026-11-21T08:00:00Z"},
]
POLICY = {
    "generation": 7,
    "profiles": ["base", "next"],
    "revoked": 2,
    "seen_by": {"cp-1": 7, "cp-2": 6},
    "exceptions": [
        {"profile": "odd", "nodes": ["w-1", "w-2"], "until": "2999-01-01T00:00:00Z", "why": "firmware of w-1 first"},
        {"profile": "old", "nodes": ["w-3"], "until": "2001-01-01T00:00:00Z", "why": "was in a hurry"},
    ],
}


NOT_IN_FORCE = {
    "none was signed yet": (
        {},
        "POLICY none: every machine is refused. Run ansible-playbook attested.kubernetes.policy",
    ),
    "no control plane has seen it": (
        {**POLICY, "seen_by": {}, "exceptions": []},
        "POLICY generation 7, profiles base, next, 2 revoked, not recorded yet",
    ),
}
UNREADABLE = {**POLICY, "exceptions": [], "unreadable": ["MeasurementProfile odd: expected a list"]}


def fleet(*, node: Any = None, rows: Any = None, planes: tuple[str, ...] = (), **cluster: Any) -> FleetStatus:
    """Return the status of four nodes that say the same of themselves."""
    known = {"nodes": rows or ROWS, **cluster}
    nodes = {row["name"]: {**NODE, **(node or {})} for row in ROWS}
    return read_fleet(nodes, known, control_planes=planes, cluster_name="prod", release="0.2.0", made_at=NOW)


FLEET = fleet(waiting=WAITING, policy=POLICY)
CALLED = fleet(node={"needs_person": True})


def test_the_table_says_how_nodes_stand_and_calls_for_those_that_are_bad() -> None:
    header, *lines = render_table(FLEET)
    start = header.index("ATTESTED")
    table = {line.split()[0]: line[start : start + 8].strip() for line in lines[: len(ROWS)]}
    assert table == {"w-1": "good", "w-2": "failed", "w-3": "overdue", "w-4": "-"}
    assert render_calls(FLEET) == [
        "A person is needed:",
        "w-2: refused; next: attested explain X",
        "w-3: overdue; next: push",
    ]


def test_a_node_that_is_not_ready_and_an_unsigned_revocation_need_a_person() -> None:
    look = "systemctl status kubelet containerd"
    assert render_calls(fleet(rows=DOWN, policy={**POLICY, "revocations_unsigned": ["w-9"]})) == [
        "A person is needed:",
        f"w-1: the Node is not Ready: no CNI plugin; next, on w-1: {look}",
        f"w-2: the Node is not Ready: its kubelet has not reported yet; next, on w-2: {look}",
        "w-9: its revocation is not in the signed policy; next: ansible-playbook attested.kubernetes.policy",
    ]


def test_a_revoked_machine_is_to_be_removed_whatever_it_says() -> None:
    revoked = {"name": "w-1", "admission": "Revoked", "registered": False, "ready": False}
    for node in ({}, {"needs_person": True, "reason": "KUBELET_NOT_RUNNING", "to_do": "Look."}):
        found = fleet(node=node, rows=[revoked, *ROWS[1:]])
        (row,) = [one for one in found.rows if one.name == "w-1"]
        assert (row.tone, row.to_do) == ("unsure", "Revoked. Take it off the network, then remove it from hosts.yml.")
        assert [one for one in render_calls(found) if one.startswith("w-1")] == []
    kept = fleet(node={}, rows=[{**revoked, "registered": True}, *ROWS[1:]])  # revoked by kubectl alone: its Node stays
    assert [one for one in render_calls(kept) if one.startswith("w-1: the Node is not Ready")] != []


def test_machines_that_wait_are_told_with_the_command_that_lets_them_in() -> None:
    assert [line for line in render_table(FLEET) if line.startswith("WAITS")] == [
        "WAITS: ek-7 (claims w-7) since 2026-11-20T08:00:00Z: approve -e confirm=ek-7 -e node=NAME",
        "WAITS: ek-8 (claims no name) since 2026-11-21T08:00:00Z: approve -e confirm=ek-8 -e node=NAME",
    ]


def test_a_refused_node_is_told_with_register_and_event() -> None:
    lines = render_table(FLEET)
    at = lines.index("REFUSED w-4: PCR_MISMATCH, 3 times, the last at 2026-11-21T12:00:00Z")
    assert lines[at + 1 : at + 3] == [
        "  expected a boot that a profile allows, got PCR 0: expected a, got b",
        "  PCR 0 event 1: expected c, got d",
    ]


def test_a_refused_node_that_waits_for_a_person_names_the_next_command() -> None:
    said = render_calls(CALLED)
    assert said[-1] == "w-4: the cluster refused it by PCR_MISMATCH, see REFUSED above; next: policy"


def test_an_exception_is_told_until_somebody_takes_it_away() -> None:
    assert render_policy(FLEET) == [
        "POLICY generation 7, profiles base, next, 2 revoked, recorded by cp-1: 7, cp-2: 6",
        "EXCEPTION odd on w-1, w-2 until 2999-01-01T00:00:00Z: firmware of w-1 first",
        "EXCEPTION old on w-3 until 2001-01-01T00:00:00Z (over): was in a hurry",
    ]


@pytest.mark.parametrize("name", NOT_IN_FORCE)
def test_a_policy_that_is_not_in_force_is_told(name: str) -> None:
    policy, line = NOT_IN_FORCE[name]
    assert render_policy(fleet(waiting=[], policy=policy)) == [line]


def test_an_object_that_cannot_be_read_is_named() -> None:
    lines = render_policy(fleet(waiting=[], policy=UNREADABLE))
    assert lines[1:] == ["UNREADABLE, admits no machine: MeasurementProfile odd: expected a list"]


GONE = {"unreachable": True, "msg": "Failed to connect to the host via ssh"}
BROKEN = {"failed": True, "msg": "expected a journal", "reason": "NODE_JOURNAL_MALFORMED", "command": "reset"}
MUTE = {"failed": True, "msg": "no python"}
LOOKED_AFTER = said(needs_person=True, reason="PCR_MISMATCH", message="expected PCR 9", to_do="Look.", phase="Asking")
FRESH = said(needs_person=True, phase="Fresh", to_do="Run init.")
POLICY_BOOK = "ansible-playbook attested.kubernetes.policy"
LOOK = "systemctl status kubelet containerd"
BUSY = said(phase="Asking", to_do="Nothing yet: attested-bootstrapper is at work.")


@pytest.mark.parametrize(
    ("node", "row", "told"),
    [
        pytest.param(said(), {}, "good", id="joined, and nothing is to do"),
        pytest.param(BUSY, {"registered": False}, "in progress", id="on its way by itself"),
        pytest.param(LOOKED_AFTER, {}, "needs a person", id="the node calls"),
        pytest.param(GONE, {}, "needs a person", id="not reachable"),
        pytest.param({}, {}, "needs a person", id="not asked"),
        pytest.param(said(), {"ready": False}, "needs a person", id="its Node is not Ready"),
        pytest.param(said(), {"standing": "ReattestationFailed"}, "needs a person", id="its evidence is refused"),
    ],
)
def test_a_node_is_red_where_a_person_is_needed_and_green_where_nothing_is_to_do(
    node: dict[str, Any], row: dict[str, Any], told: str
) -> None:
    fleet = status({"w-1": node}, known("w-1", **row))
    body = json.loads(render_json(fleet))
    assert body["nodes"][0]["status"] == told
    assert body["counts"] == {"needs a person": 0, "in progress": 0, "good": 0} | {told: 1}
    assert bool(body["needs"]) == bool(render_calls(fleet)) == (told == "needs a person")


@pytest.mark.parametrize(
    ("node", "row", "needs"),
    [
        (GONE, {}, [("Not reachable over ssh", "ansible nodes -m ansible.builtin.ping", "")]),
        (BROKEN, {}, [("NODE_JOURNAL_MALFORMED", "reset", "")]),
        (MUTE, {}, [("MODULE_FAILED", "ansible-playbook attested.kubernetes.prepare", "")]),
        (LOOKED_AFTER, {}, [("PCR_MISMATCH", POLICY_BOOK, "")]),
        (FRESH, {}, [("Phase Fresh", "attested status", "on the node")]),
        (said(), {"ready": False}, [("The Node is not Ready", LOOK, "on the node")]),
        (
            said(),
            {"standing": "ReattestationOverdue", "standing_message": "overdue; next: attested explain X"},
            [("Evidence overdue", "attested explain X", "")],
        ),
        (
            LOOKED_AFTER,
            {"refused": REFUSED},
            [("PCR_MISMATCH", POLICY_BOOK, ""), ("Refused: PCR_MISMATCH", "policy", "")],
        ),
    ],
    ids=["unreachable", "failed", "no interpreter", "a code", "a phase", "not Ready", "overdue", "refused"],
)  # fmt: skip
def test_each_need_has_a_next_command(node: dict[str, Any], row: dict[str, Any], needs: list[Any]) -> None:
    fleet = status({"w-1": node}, known("w-1", **row))
    assert [(one.need.what, one.need.command, one.need.place) for one in fleet.calls] == needs
    assert all(one.need.command in PageReader(render_html(fleet)).text for one in fleet.calls)


def test_an_api_that_does_not_answer_names_a_control_plane_that_is_up() -> None:
    nodes = {"cp-1": GONE, "cp-2": said(), "w-1": said()}
    made = {"control_planes": ["cp-1", "cp-2"], "cluster_name": "", "release": "0.2.0", "made_at": NOW}
    fleet = read_fleet(nodes, {"failed": True, "msg": "KUBECTL_FAILED"}, **made)  # type: ignore[arg-type]
    assert render_calls(fleet)[1] == (
        "the cluster: KUBECTL_FAILED; next, on cp-2: attested status; systemctl status kubelet containerd"
    )
    assert render_policy(fleet) == []
    text = PageReader(render_html(fleet)).text
    assert "Status of the cluster" in text
    assert "No API server answered." in text


def test_what_needs_a_person_comes_first_on_the_page() -> None:
    nodes = {"cp-1": said(), "w-1": BUSY, "w-2": GONE}
    fleet = status(nodes, *(known(name) for name in nodes), waiting=WAITING, policy=POLICY)
    assert [one.name for one in fleet.ordered()] == ["w-2", "w-1", "cp-1"]
    text = PageReader(render_html(fleet)).text
    places = [text.index(one) for one in ("What needs a person", "Machines that wait", "Fleet", "Policy in force")]
    assert places == sorted(places)
    assert "ansible-playbook attested.kubernetes.approve -e confirm=ek-7 -e node=NAME" in text


def test_the_page_and_the_document_say_what_the_table_says() -> None:
    node = said(control_plane_expires="2027-11-21T12:00:00+00:00", control_plane_first="apiserver")
    fleet = status({"cp-1": node}, known("cp-1"), policy=POLICY, guards={"pod_security": "privileged"})
    text = PageReader(render_html(fleet)).text
    body = json.loads(render_json(fleet))
    row = [
        "cp-1",
        "control-plane",
        "Joined",
        "yes",
        "yes",
        "v1.35.4",
        known("cp-1")["identity"],
        "r650",
        "boot",
        "good",
    ]
    assert render_table(fleet)[1].split() == [*row, "2026-11-24T12:00:00Z", "Nothing."]
    assert "CONTROL PLANE cp-1: certificates until 2027-11-21T12:00:00Z (apiserver ends first)" in render_table(fleet)
    assert all(one in text for one in (*row, "control plane: 2027-11-21T12:00:00Z (apiserver)", *render_policy(fleet)))
    assert set(row) <= set(body["nodes"][0].values())
    assert body["policy"] == render_policy(fleet)


OPEN = "PODS are not restricted: a user who can create a Pod can take over its node (attested_pod_security)"
ADDRESSES = (
    "SERVICES can take over any port of any node with externalIPs. Run ansible-playbook attested.kubernetes.node"
)
KUBELETS = (
    "KUBELETS serve with certificates that are not verified (attested_kubelet_serving_certificates): "
    "a machine with the address of a node can read kubectl exec"
)
FOREIGN = "PODS are restricted by an admission configuration that this collection did not write"
CHECKED = {"external_ips_denied": True, "kubelets_checked": True}


@pytest.mark.parametrize(
    ("guards", "lines"),
    [
        pytest.param({"pod_security": "privileged"}, [OPEN, ADDRESSES, KUBELETS], id="to nothing"),
        pytest.param({"pod_security": "", **CHECKED}, [FOREIGN], id="by another"),
        pytest.param(
            {"pod_security": "baseline", "exempt_namespaces": ["a", "b"], **CHECKED},
            ["PODS are held to baseline, except in a, b"],
            id="to a level",
        ),
    ],
)
def test_it_says_what_pods_services_and_kubelets_are_held_to(guards: dict[str, Any], lines: list[str]) -> None:
    fleet = status({}, policy={**POLICY, "exceptions": []}, secrets_written_with="identity", guards=guards)
    assert render_policy(fleet)[1:] == ["SECRETS are written in clear", *lines]


def test_a_weakness_of_the_policy_and_the_key_of_secrets_are_told() -> None:
    policy = {**POLICY, "exceptions": [], "weaknesses": ["profile base: any kernel"]}
    fleet = status({}, policy=policy, secrets_written_with="key-2")
    assert render_policy(fleet)[1:] == ["WEAK profile base: any kernel", "SECRETS are written with key-2"]


def hostile(text: str) -> FleetStatus:
    """Return a status with ``text`` wherever a machine, or who writes objects, can put one."""
    node = said(needs_person=True, phase=f"x{text}", to_do=text, reason=text, message=text, locked=text)
    plane = said(certificate_expires=text, control_plane_expires=f"x{text}", control_plane_first=text)
    refusal = {**REFUSED, "message": text.replace("; ", ";"), "command": text, "last_seen": text, "count": text}
    return status(
        {"w-1": node, "cp-1": plane, text: {"unreachable": True, "msg": text}, "w-2": said(phase={text: [text]})},
        known("w-1", refused=refusal, ready=False, ready_message=text, role=text, version=text),
        known("cp-1", refused=refusal, identity=text, profile=text),
        next_boots={"w-1": {"verdict": f"x{text}", "why": text}},
        waiting=[{"identity": text, "claims": text, "since": text}],
        policy={**POLICY, "weaknesses": [text], "unreadable": [text]},
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_text_wherever_it_stands(text: str) -> None:
    page, harmless = PageReader(render_html(hostile(text))), PageReader(render_html(hostile("z-harmless")))
    assert sorted(tag for tag, _attributes in page.tags) == sorted(tag for tag, _attributes in harmless.tags)
    assert [letter for letter in page.text if not letter.isprintable() and letter != "\n"] == []
    lines = [*render_table(hostile(text)), *render_calls(hostile(text)), *render_policy(hostile(text))]
    assert all(line.isprintable() for line in lines)
    assert text in [one["name"] for one in json.loads(render_json(hostile(text)))["nodes"]]


@pytest.mark.parametrize(
    ("judged", "told"),
    [
        pytest.param({"verdict": "refused", "why": "a.efi: no profile"}, "refused: a.efi: no profile", id="refused"),
        pytest.param({"verdict": "unknown", "why": "vmlinuz: new"}, "unknown: vmlinuz: new", id="unknown"),
        pytest.param({"verdict": "allowed", "profile": "r650", "why": ""}, "", id="allowed"),
        pytest.param({}, "", id="not read"),
    ],
)
def test_a_next_boot_that_the_policy_does_not_allow_is_told_and_needs_nobody(judged: dict[str, str], told: str) -> None:
    found = status({"w-1": said()}, known("w-1"), next_boots={"w-1": judged})
    (row,) = json.loads(render_json(found))["nodes"]
    assert (row["next_boot"], row["status"], render_calls(found)) == (told, "good", [])
    assert [line for line in render_table(found) if "NEXT BOOT" in line] == ([f"NEXT BOOT w-1: {told}"] if told else [])
    assert (f"next boot {told}" in PageReader(render_html(found)).text) is bool(told)
