# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes said is read back as it was, and a plan says of each node what the first phase changes there."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation import values as module
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    AuthorityPhase,
    KubeletAuthorities,
    PlaneAuthorities,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import PlaneKeys
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAMES = tuple(one.name for one in AUTHORITIES)
OLD, NEW = ({name: f"{age}-{name}" for name in NAMES} for age in ("old", "new"))
BOTH = {name: (NEW[name], OLD[name]) for name in NAMES}
SIGNED = {one.name: frozenset({NEW[one.name]}) for one in CERTIFYING}
BEFORE = PlaneAuthorities(
    name="cp-1",
    signers=OLD,
    trusted={name: (key,) for name, key in OLD.items()},
    issued={one.name: frozenset({OLD[one.name]}) for one in CERTIFYING},
    staged={},
    taken=True,
    since=NOW,
)
WORKER = KubeletAuthorities(
    name="w-1", trusted=frozenset({OLD["cluster"]}), named=frozenset({OLD["cluster"]}), issued=OLD["cluster"]
)
FACTS = module.ClusterFacts(
    nodes=frozenset({"cp-1", "w-1"}), control_planes=frozenset({"cp-1"}), now=NOW, stored={}, versions=()
)
TWO = replace(FACTS, nodes=frozenset({"cp-1", "cp-2", "w-1"}), control_planes=frozenset({"cp-1", "cp-2"}))
FIRST, SECOND = "key-1", "key-2-00000000000000ab"
V1, V2 = "1-" + "ab" * 8, "2-" + "cd" * 8


def carried(value: Any) -> Any:
    """Return plain values as Ansible carries them."""
    return json.loads(json.dumps(value))


def said(plane: PlaneAuthorities | None = None, kubelet: KubeletAuthorities = WORKER) -> dict[str, Any]:
    values: dict[str, Any] = {"plane": {}, "known": {}, "kubelet": module.show_kubelet(kubelet)}
    if plane is not None:
        values |= {"plane": module.show_plane(plane), "known": {OLD["cluster"]: "PEM"}}
    return dict(carried(values))


def everything(*planes: PlaneAuthorities) -> list[dict[str, Any]]:
    return [*(said(plane, replace(WORKER, name=plane.name)) for plane in planes), said()]


def authorities(found: list[Any], facts: module.ClusterFacts = FACTS) -> dict[str, Any]:
    return module.plan_values("authorities", found, facts, old=OLD["cluster"])


def test_what_a_node_said_is_read_back_as_it_was() -> None:
    assert module.parse_plane(said(BEFORE)["plane"]) == BEFORE
    assert module.parse_kubelet(said()["kubelet"]) == WORKER
    keys = PlaneKeys(name="cp-1", keys={"b": "of b", "a": "of a"}, taken=True, clear_first=True)
    assert module.parse_keys(carried(module.show_keys(keys))) == keys
    assert module.show_keys(keys)["in_force"] == "identity"


def test_what_the_cluster_said_is_read_back() -> None:
    told = {"nodes": ["cp-1", "w-1"], "control_planes": ["cp-1"], "now": NOW.isoformat(), "stored": {"key-1": 2}}
    assert module.facts_of(told, versions=[V1]) == replace(FACTS, stored={"key-1": 2}, versions=(V1,))
    for broken in ({}, {**told, "now": "soon"}, {**told, "stored": ["key-1"]}, {**told, "nodes": None}):
        assert code_of(lambda broken=broken: module.facts_of(broken)) == "OPTION_INVALID"


def test_the_whole_way_begins_on_the_source_and_says_whose_ca_is_in_force() -> None:
    plan = authorities(everything(BEFORE))
    assert plan["phases"] == [phase.value for phase in AuthorityPhase]
    assert (plan["in_force"], plan["source"], plan["known"]) == ([OLD["cluster"]], "cp-1", {OLD["cluster"]: "PEM"})
    assert (plan["kubelets"], plan["waits_until"], plan["successor"]) == ([], "", "")
    assert (plan["changes"], plan["receives"]) == ({"cp-1": {}}, {})


def test_successors_are_given_to_the_control_planes_that_lack_them() -> None:
    plan = authorities(everything(replace(BEFORE, staged=NEW, taken=False), replace(BEFORE, name="cp-2")), TWO)
    assert (plan["phases"][0], plan["source"], plan["successor"]) == ("share", "cp-1", NEW["cluster"])
    assert plan["receives"] == {"cp-2": ["cluster", "etcd", "front-proxy", "service-accounts"]}
    assert list(plan["changes"]) == ["cp-2"]


def test_a_phase_says_whom_each_control_plane_trusts_then_and_nothing_is_given() -> None:
    plan = authorities(everything(replace(BEFORE, staged=NEW)))
    assert (plan["phases"][0], plan["receives"]) == ("trust", {})
    assert plan["changes"] == {"cp-1": {name: [OLD[name], NEW[name]] for name in NAMES}}


def test_a_phase_that_waits_says_until_when() -> None:
    plane = replace(BEFORE, signers=NEW, trusted=BOTH, issued=SIGNED, staged=NEW)
    cluster = frozenset(BOTH["cluster"])
    kubelets = [replace(WORKER, name=name, issued=NEW["cluster"], trusted=cluster) for name in ("cp-1", "w-1")]
    plan = authorities([said(plane, kubelets[0]), said(kubelet=kubelets[1])])
    assert (plan["phases"], plan["waits_until"]) == (["retire", "forget"], "2026-11-22T01:00:00Z")


@pytest.mark.parametrize("nodes", [{"cp-1"}, {"cp-1", "w-1", "w-2"}], ids=["one too many", "one too few"])
def test_nodes_that_the_cluster_does_not_have_or_that_did_not_answer_end_it(nodes: set[str]) -> None:
    facts = replace(FACTS, nodes=frozenset(nodes))
    assert code_of(lambda: authorities(everything(BEFORE), facts)) == "ROTATION_NODES_UNREACHED"


def keys(name: str, *order: str, taken: bool = True) -> dict[str, Any]:
    return module.show_keys(PlaneKeys(name=name, keys={key: f"of {key}" for key in order}, taken=taken))


def of_key(*planes: dict[str, Any], stored: dict[str, int] | None = None, old: str = FIRST) -> dict[str, Any]:
    facts = replace(TWO, stored=stored or {FIRST: 3})
    return dict(carried(module.plan_values("encryption_key", carried(planes), facts, old=old)))


@pytest.mark.parametrize(
    ("planes", "stored", "phase", "changes", "receives"),
    [
        pytest.param([(FIRST,), (FIRST,)], FIRST, "make", {"cp-1": {}}, {}, id="a key is made on the source"),
        pytest.param(
            [(FIRST, SECOND), (FIRST,)],
            FIRST,
            "share",
            {"cp-1": {"keys": [FIRST, SECOND]}, "cp-2": {"keys": [FIRST, SECOND]}},
            {"cp-2": [SECOND]},
            id="who lacks it gets it, and every file is waited for",
        ),
        pytest.param(
            [(FIRST, SECOND), (FIRST, SECOND)],
            FIRST,
            "lead",
            {"cp-1": {"keys": [SECOND, FIRST]}, "cp-2": {"keys": [SECOND, FIRST]}},
            {},
            id="the new key is the first",
        ),
        pytest.param([(SECOND, FIRST), (SECOND, FIRST)], FIRST, "rewrite", {}, {}, id="Secrets, and no file"),
        pytest.param(
            [(SECOND, FIRST), (SECOND, FIRST)],
            SECOND,
            "retire",
            {"cp-1": {"keys": [SECOND]}, "cp-2": {"keys": [SECOND]}},
            {},
            id="the new key alone",
        ),
        pytest.param([(SECOND,), (SECOND,)], SECOND, "", {}, {}, id="nothing is left"),
    ],
)
def test_a_plan_of_the_encryption_key(
    planes: list[tuple[str, ...]], stored: str, phase: str, changes: dict[str, Any], receives: dict[str, Any]
) -> None:
    found = [keys(f"cp-{number}", *order) for number, order in enumerate(planes, 1)]
    plan = of_key(*found, stored={stored: 3})
    assert ("".join(plan["phases"][:1]), plan["changes"], plan["receives"]) == (phase, changes, receives)
    assert plan["stored"] == {stored: 3}
    assert plan["successor"] == (SECOND if SECOND in planes[0] else "")


def versions(name: str, *names: str, disk: str | None = None, taken: bool = True) -> dict[str, Any]:
    return {"node": name, "plane": {"names": list(names), "taken": taken} if names else None, "disk": disk}


def of_secret(*found: dict[str, Any], site: tuple[str, ...] = (V1, V2), old: str = V1) -> dict[str, Any]:
    return dict(module.plan_values("master_secret", found, replace(FACTS, versions=site), old=old))


@pytest.mark.parametrize(
    ("found", "site", "phase", "changes"),
    [
        pytest.param([versions("cp-1", V1), versions("w-1", disk=V1)], (V1,), "make", {}, id="made in the site"),
        pytest.param(
            [versions("cp-1", V1), versions("w-1", disk=V1)],
            (V1, V2),
            "share",
            {"cp-1": {"names": [V1, V2]}},
            id="key services hold both",
        ),
        pytest.param(
            [versions("cp-1", V1, V2), versions("w-1", disk=V1)],
            (V1, V2),
            "lead",
            {"cp-1": {"names": [V2, V1]}},
            id="the new one is the first",
        ),
        pytest.param(
            [versions("cp-1", V2, V1), versions("w-1", disk=V1)],
            (V1, V2),
            "rekey",
            {"w-1": {"names": [V2]}},
            id="disks, and no key service",
        ),
        pytest.param(
            [versions("cp-1", V2, V1), versions("w-1", disk=V2)],
            (V1, V2),
            "retire",
            {"cp-1": {"names": [V2]}},
            id="the new one alone",
        ),
        pytest.param([versions("cp-1", V2), versions("w-1", disk=V2)], (V1, V2), "forget", {}, id="the site forgets"),
        pytest.param([versions("cp-1", V2), versions("w-1", disk=V2)], (V2,), "", {}, id="nothing is left"),
    ],
)
def test_a_plan_of_the_master_secret(
    found: list[dict[str, Any]], site: tuple[str, ...], phase: str, changes: dict[str, Any]
) -> None:
    plan = of_secret(*found, site=site)
    assert ("".join(plan["phases"][:1]), plan["changes"], plan["receives"]) == (phase, changes, {})
    assert plan["versions"] == list(site)
    assert plan["disks"] == (["w-1"] if found[1]["disk"] != V2 else [])


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        pytest.param("authorities", [{}], id="nothing"),
        pytest.param("authorities", [{"plane": {"name": 1}, "kubelet": {}, "known": {}}], id="a part of it"),
        pytest.param("authorities", [7], id="a number"),
        pytest.param("encryption_key", [{}], id="no keys"),
        pytest.param("encryption_key", [{**keys("cp-1", FIRST), "keys": [1]}], id="keys without names"),
        pytest.param("encryption_key", [{**keys("cp-1", FIRST), "keys": None}], id="keys that are none"),
        pytest.param("master_secret", [{}], id="no versions"),
        pytest.param("master_secret", [{"node": "cp-1", "plane": [], "disk": None}], id="a list as control plane"),
        pytest.param(
            "master_secret", [{"node": "cp-1", "plane": {"names": None, "taken": True}, "disk": None}], id="no names"
        ),
    ],
)
def test_what_no_node_said_is_refused(kind: str, found: list[Any]) -> None:
    assert code_of(lambda: module.plan_values(kind, found, FACTS, old="")) == "OPTION_INVALID"


PLAN: dict[str, Any] = {
    "kind": "encryption_key",
    "phases": ["lead", "rewrite"],
    "changes": {"cp-1": {"keys": ["b", "a"]}, "cp-2": {}},
}


def step_of(plan: dict[str, Any], node: str) -> module.Step:
    return module.Step.of(plan, node, kind="encryption_key")


def test_a_node_takes_its_part() -> None:
    step = step_of({**PLAN, "known": {"b": "PEM"}}, "cp-1")
    assert (step.node, step.phase, step.change) == ("cp-1", "lead", {"keys": ["b", "a"]})
    assert step.known == {"b": "PEM"}
    assert step_of(PLAN, "cp-2").known == {}


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        pytest.param(PLAN, "cp-3", id="another node"),
        pytest.param({**PLAN, "phases": []}, "cp-1", id="nothing is left"),
        pytest.param({"kind": "encryption_key", "phases": ["lead"]}, "cp-1", id="no changes"),
        pytest.param({**PLAN, "kind": "authorities"}, "cp-1", id="of another rotation"),
        pytest.param({name: PLAN[name] for name in ("phases", "changes")}, "cp-1", id="of no kind"),
        pytest.param({**PLAN, "changes": {"cp-1": 7}}, "cp-1", id="a change that is none"),
        pytest.param({**PLAN, "known": ["PEM"]}, "cp-1", id="public halves without names"),
    ],
)
def test_a_plan_that_leaves_the_node_as_it_is_is_refused(plan: dict[str, Any], node: str) -> None:
    assert code_of(lambda: step_of(plan, node)) == "OPTION_INVALID"
