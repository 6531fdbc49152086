# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules of a rotation of authorities decide themselves: what nodes said read back, and what is left."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.node import ca_rotation as module
from ansible_collections.attested.kubernetes.plugins.module_utils.node.key_share import ShareOrder
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    AuthorityPhase,
    KubeletAuthorities,
    PlaneAuthorities,
)

MAKE, SHARE, TRUST, ISSUE, RETIRE, FORGET = AuthorityPhase
NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAMES = tuple(one.name for one in AUTHORITIES)
OLD, NEW = ({name: f"{age}-{name}" for name in NAMES} for age in ("old", "new"))
BOTH = {name: (NEW[name], OLD[name]) for name in NAMES}

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
NODES = [
    {"metadata": {"name": "cp-1", "labels": {"node-role.kubernetes.io/control-plane": ""}}},
    {"metadata": {"name": "w-1"}},
]


def said(plane=None, kubelet=WORKER):
    """Return what `authority_info` returns on a node, through JSON as Ansible carries it."""
    values = {"plane": {}, "known": {}, "kubelet": module.show_kubelet(kubelet)}
    if plane is not None:
        values |= {"plane": module.show_plane(plane), "known": {OLD["cluster"]: "PEM"}}
    return json.loads(json.dumps(values))


def everything(plane=BEFORE):
    return [said(plane, replace(WORKER, name="cp-1")), said()]


def test_what_a_node_said_is_read_back_as_it_was():
    assert module.parse_plane(said(BEFORE)["plane"]) == BEFORE
    assert module.parse_kubelet(said()["kubelet"]) == WORKER


def test_the_plan_is_of_every_node_and_says_whose_ca_is_in_force():
    plan = module.plan_of(everything(), NODES, old=OLD["cluster"], now=NOW)
    assert plan["phases"] == [phase.value for phase in AuthorityPhase]
    assert (plan["in_force"], plan["source"], plan["known"]) == ([OLD["cluster"]], "cp-1", {OLD["cluster"]: "PEM"})
    assert (plan["kubelets"], plan["waits_until"]) == ([], "")


def test_a_phase_that_waits_says_until_when():
    plane = replace(
        BEFORE,
        signers=NEW,
        trusted=BOTH,
        issued={one.name: frozenset({NEW[one.name]}) for one in CERTIFYING},
        staged=NEW,
    )
    kubelets = [
        replace(WORKER, name=name, issued=NEW["cluster"], trusted=frozenset(BOTH["cluster"]))
        for name in ("cp-1", "w-1")
    ]
    found = [said(plane, kubelets[0]), said(kubelet=kubelets[1])]
    plan = module.plan_of(found, NODES, old=OLD["cluster"], now=NOW)
    assert (plan["phases"], plan["waits_until"]) == (["retire", "forget"], "2026-11-22T01:00:00Z")


@pytest.mark.parametrize(
    "nodes", [NODES[:1], [*NODES, {"metadata": {"name": "w-2"}}]], ids=["one too many", "one too few"]
)
def test_nodes_that_the_cluster_does_not_have_or_that_did_not_answer_end_it(nodes):
    with pytest.raises(AttestedError) as caught:
        module.plan_of(everything(), nodes, old=OLD["cluster"], now=NOW)
    assert caught.value.code == "AUTHORITIES_UNREACHED"


@pytest.mark.parametrize("found", [[{}], [{"plane": {"name": 1}, "kubelet": {}, "known": {}}], [7]])
def test_what_no_node_said_is_refused(found):
    with pytest.raises(AttestedError) as caught:
        module.plan_of(found, NODES, old=OLD["cluster"], now=NOW)
    assert caught.value.code == "OPTION_INVALID"


AFTER = {
    MAKE: replace(BEFORE, staged=NEW, taken=False),
    SHARE: replace(BEFORE, staged=NEW, taken=False),
    TRUST: replace(BEFORE, staged=NEW, trusted=BOTH),
    ISSUE: replace(
        BEFORE,
        staged=NEW,
        signers=NEW,
        trusted=BOTH,
        issued={one.name: frozenset({NEW[one.name]}) for one in CERTIFYING},
    ),
    RETIRE: replace(BEFORE, staged=NEW, signers=NEW, trusted={name: (key,) for name, key in NEW.items()}),
    FORGET: BEFORE,
}


@pytest.mark.parametrize("phase", AuthorityPhase)
def test_a_phase_that_is_done_is_not_left(phase):
    before = replace(BEFORE, staged=NEW) if phase is FORGET else BEFORE
    bundles = AFTER[phase].trusted
    assert module.is_left(before, phase, bundles) or phase is FORGET
    assert not module.is_left(AFTER[phase], phase, bundles)


@pytest.mark.parametrize("phase", [TRUST, ISSUE, RETIRE])
def test_files_that_nothing_runs_with_yet_are_left(phase):
    assert module.is_left(replace(AFTER[phase], taken=False), phase, AFTER[phase].trusted)


@pytest.mark.parametrize(
    "names", [(), ("cluster",), (*NAMES, "key-1"), ("key-1",)], ids=["nothing", "one", "more", "a key of Secrets"]
)
def test_an_order_is_of_all_authorities_and_of_nothing_else(names):
    order = ShareOrder(names=names, secret=b"s", binding=b"b", recipient=b"r")
    with pytest.raises(AttestedError) as caught:
        module.require_authorities(order)
    assert caught.value.code == "OPTION_INVALID"
    module.require_authorities(replace(order, names=NAMES[::-1]))


class Machine:
    """A machine whose kubelet is only told."""

    def __init__(self, paths):
        self.paths = paths
        self.told = []
        self.kubelet = self
        self.runner = self

    def restart(self):
        self.told.append("kubelet")

    def run(self, argv, **_options):
        self.told.append(argv[-1])


@pytest.mark.parametrize("plane", [False, True], ids=["a worker", "a control plane"])
def test_a_control_plane_takes_the_cas_of_no_ticket(tmp_path, monkeypatch, plane):
    """They are in its files, and what its components run with would look different."""
    machine, taken = Machine(module.KubernetesPaths(root=tmp_path)), []
    monkeypatch.setattr(module, "forget_serving", lambda *_arguments: False)
    monkeypatch.setattr(
        module,
        "believe_as_kubelet",
        lambda _paths, authorities, *, restart: taken.append(authorities) or restart() or True,
    )
    if plane:
        machine.paths.ca.parent.mkdir(parents=True)
        machine.paths.ca.with_suffix(".key").write_bytes(b"key")
    module.believer(machine)(b"both")
    assert (taken, machine.told) == ([] if plane else [b"both"], ["kubelet"])


def test_a_kubelet_with_another_certificate_is_started_anew_though_it_believes_whom_it_did(tmp_path, monkeypatch):
    machine = Machine(module.KubernetesPaths(root=tmp_path))
    monkeypatch.setattr(module, "forget_serving", lambda *_arguments: True)
    monkeypatch.setattr(module, "believe_as_kubelet", lambda *_arguments, **_options: False)
    module.believer(machine)(b"both")
    assert machine.told == ["kubelet"]


def test_kubelet_and_key_service_are_started_anew():
    machine = Machine(None)
    module.OwnServices(machine).restart()
    assert machine.told == ["kubelet", "attested-key-service.service"]
