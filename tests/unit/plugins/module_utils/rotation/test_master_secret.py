# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rotation of the master secret: right from every state; wherever a run is killed, any ticket opens any disk."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KeyServiceError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import import_ring
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.master_secret import (
    FoundVersions,
    MasterPhase,
    PlaneVersions,
    plan_rotation,
)
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

MAKE, SHARE, LEAD, REKEY, RETIRE, FORGET = MasterPhase
FIRST = MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32))
SECOND = MasterSecret(key=SecretBytes(b"K" * 32), salt=SecretBytes(b"S" * 32))
BUNDLE = make_bundle(
    master=FIRST,
    measurement_salt=b"m" * 32,
    join_ca_key=SecretBytes(b"ca"),
    join_ca_certificate=b"-----BEGIN CERTIFICATE-----",
    policy_key=POLICY_KEY,
)
OLD = BUNDLE.ring.lead.name
NEW = BUNDLE.ring.with_successor(SECOND).newest.name


class Killed(Exception):
    """The run ends here."""


class Cluster:
    """A site, control planes and nodes with disks, all with the real keys; a run is killed after so many deeds."""

    def __init__(self, planes=2, workers=1):
        self.site = BUNDLE.ring.to_json()
        self.rest = {f"cp-{number}": BUNDLE.to_bytes() for number in range(planes)}
        self.runs = dict(self.rest)
        ids = {node: DiskId.from_random(node.encode().ljust(16, b"x")) for node in (*self.rest, *self.workers(workers))}
        self.ids = ids
        self.slots = {node: {self.key(BUNDLE.ring, node).reveal()} for node in ids}
        self.under = dict.fromkeys(ids, "")
        self.left = None

    @staticmethod
    def workers(count):
        return [f"w-{number}" for number in range(count)]

    def key(self, ring, node, name=None):
        keys = {one.name: one.key for one in ring.disk_keys(self.ids[node])}
        return keys[name or ring.lead.name]

    def deed(self):
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1

    def found(self):
        planes = []
        for name, data in self.rest.items():
            names = KeyBundle.from_bytes(data).ring.names
            planes.append(PlaneVersions(name=name, names=names, taken=self.runs[name] == data))
        nodes = frozenset(self.ids)
        site = import_ring(self.site).names
        return FoundVersions(
            site=site,
            planes=planes,
            members=frozenset(self.rest),
            disks=dict(self.under, bare=None),
            nodes=nodes | {"bare"},
        )

    def bundle(self):
        return replace(BUNDLE, ring=import_ring(self.site))

    def go(self, *, old=OLD, kill_after=None):
        self.left = kill_after
        phases = []
        while (todo := plan_rotation(self.found(), old=old)).phases:
            phases.append(todo.phases[0])
            self.do(todo)
        return phases

    def do(self, todo):
        phase = todo.phases[0]
        ring = import_ring(self.site)
        if phase is MAKE:
            self.deed()
            self.site = ring.with_successor(SECOND).to_json()
        elif phase is FORGET:
            self.deed()
            self.site = ring.ordered((todo.successor,)).to_json()
        elif phase is REKEY:
            self.rekey(todo)
        else:
            self.hand_out(self.bundle().ordered(todo.order).to_bytes())

    def hand_out(self, wanted):
        for name in self.rest:
            if self.rest[name] != wanted:
                self.deed()
                self.rest[name] = wanted
            if self.runs[name] != wanted:
                self.deed()
                self.runs[name] = wanted

    def rekey(self, todo):
        """Change slots by the keys of a ticket, which any of the key services that run may have given."""
        for node in todo.disks:
            for running in map(KeyBundle.from_bytes, self.runs.values()):
                assert self.opens(running.ring, node)
            ring = KeyBundle.from_bytes(next(iter(self.runs.values()))).ring
            new = self.key(ring, node, todo.successor).reveal()
            for slots in ({*self.slots[node], new}, {new}):
                self.deed()
                self.slots[node] = slots
            self.deed()
            self.under[node] = todo.successor

    def opens(self, ring, node):
        return any(one.key.reveal() in self.slots[node] for one in ring.disk_keys(self.ids[node]))

    def require_openable(self):
        """Every key service, and the site, opens every disk: what runs now, and what it would start with."""
        rings = [KeyBundle.from_bytes(data).ring for data in (*self.rest.values(), *self.runs.values())]
        for ring in (*rings, import_ring(self.site)):
            assert ring.carried == BUNDLE.ring.carried
            assert [node for node in self.ids if not self.opens(ring, node)] == []


def test_a_rotation_goes_through_its_phases_and_leaves_nothing_of_the_old_secret() -> None:
    cluster = Cluster()
    assert cluster.go() == [MAKE, SHARE, LEAD, REKEY, RETIRE, FORGET]
    cluster.require_openable()
    alone = BUNDLE.ring.with_successor(SECOND).ordered((NEW,))
    assert import_ring(cluster.site) == alone
    for data in (*cluster.rest.values(), *cluster.runs.values()):
        assert KeyBundle.from_bytes(data) == replace(BUNDLE, ring=alone)
    for node, slots in cluster.slots.items():
        assert slots == {cluster.key(alone, node).reveal()}
    assert cluster.go() == []


def _deeds():
    cluster, count = Cluster(), 0
    while True:
        try:
            cluster = Cluster()
            cluster.go(kill_after=count)
        except Killed:
            count += 1
        else:
            return count


DEEDS = _deeds()


def test_there_is_something_to_kill() -> None:
    assert DEEDS == 2 + 3 * 2 * 2 + 3 * 3


@pytest.mark.parametrize("kill_after", range(DEEDS))
def test_a_run_killed_before_any_deed_is_gone_on_with_and_every_disk_opens_meanwhile(kill_after: int) -> None:
    cluster = Cluster()
    with pytest.raises(Killed):
        cluster.go(kill_after=kill_after)
    cluster.require_openable()
    cluster.go()
    cluster.require_openable()
    assert plan_rotation(cluster.found(), old=OLD).phases == ()
    assert set(cluster.under.values()) == {NEW}


@pytest.mark.parametrize("kill_after", range(1, DEEDS, 4))
def test_key_services_that_start_anew_in_between_change_nothing(kill_after: int) -> None:
    cluster = Cluster()
    with pytest.raises(Killed):
        cluster.go(kill_after=kill_after)
    cluster.runs = dict(cluster.rest)
    cluster.require_openable()
    cluster.go()
    cluster.require_openable()


@cache
def _done():
    cluster = Cluster()
    cluster.go()
    return cluster.found()


def found(**changes):
    return replace(_done(), **changes)


def planes(*names, taken=True):
    return [PlaneVersions(name=f"cp-{number}", names=names, taken=taken) for number in range(2)]


@pytest.mark.parametrize(
    ("seen", "phases", "order"),
    [
        pytest.param(found(), (), (NEW,), id="done"),
        pytest.param(found(planes=planes(NEW, taken=False)), (SHARE,), (NEW,), id="a key service that did not start"),
        pytest.param(
            found(site=(OLD, NEW), planes=planes(NEW, taken=False)),
            (SHARE, FORGET),
            (NEW,),
            id="key services that did not start, and an old one that nothing needs",
        ),
        pytest.param(found(site=(NEW, OLD)), (FORGET,), (NEW,), id="the site alone has the old one"),
        pytest.param(
            found(site=(OLD, NEW), planes=planes(NEW), disks={**found().disks, "w-0": ""}),
            (SHARE, REKEY, FORGET),
            (NEW, OLD),
            id="a disk that says nothing, and nobody who has the old one",
        ),
        pytest.param(
            found(site=(OLD, NEW), planes=planes(NEW), disks={**found().disks, "w-0": OLD}),
            (SHARE, REKEY, FORGET),
            (NEW, OLD),
            id="a disk under the old one, and nobody who has it",
        ),
        pytest.param(
            found(site=(OLD, NEW), planes=planes(NEW, OLD, taken=False), disks={**found().disks, "w-0": OLD}),
            (SHARE, REKEY, RETIRE, FORGET),
            (NEW, OLD),
            id="the new one leads, in key services that did not start",
        ),
        pytest.param(
            found(site=(OLD, NEW), planes=[*planes(NEW, OLD)[:1], *planes(NEW)[1:]]),
            (RETIRE, FORGET),
            (NEW,),
            id="one control plane has retired it",
        ),
        pytest.param(
            found(
                site=(OLD, NEW),
                planes=[*planes(OLD, NEW)[:1], *planes(OLD)[1:]],
                disks=dict.fromkeys(found().disks, OLD),
            ),
            (SHARE, LEAD, REKEY, RETIRE, FORGET),
            (OLD, NEW),
            id="one control plane lacks the new one",
        ),
        pytest.param(
            found(site=(OLD, NEW), planes=[*planes(NEW, OLD)[:1], *planes(OLD, NEW)[1:]]),
            (LEAD, RETIRE, FORGET),
            (NEW, OLD),
            id="the old one leads on one control plane",
        ),
    ],
)
def test_the_next_step_follows_from_what_is_found(seen, phases, order) -> None:
    todo = plan_rotation(seen, old=OLD)
    assert (todo.phases, todo.order, todo.successor) == (phases, order, NEW)


def test_no_old_name_ends_what_was_begun_and_begins_nothing() -> None:
    assert plan_rotation(Cluster().found(), old="").phases == (REKEY,)
    assert plan_rotation(found(), old="").phases == ()
    assert plan_rotation(found(site=(NEW, OLD)), old="").phases == (FORGET,)


def test_the_newest_version_goes_by_a_rotation_of_its_own() -> None:
    todo = plan_rotation(found(disks={**found().disks, "w-0": ""}), old=NEW)
    assert todo.phases == (MAKE, SHARE, LEAD, REKEY, RETIRE, FORGET)
    assert (todo.successor, todo.order) == ("", ())
    assert todo.disks == tuple(sorted(found().nodes - {"bare"}))


def test_disks_are_told_by_the_names_of_their_nodes() -> None:
    seen = found(site=(OLD, NEW), disks=dict.fromkeys(sorted(found().nodes, reverse=True), OLD))
    assert plan_rotation(seen, old=OLD).disks == tuple(sorted(found().nodes))


def test_who_has_what_the_site_lacks_is_named() -> None:
    strange = [f"{number}-{'ab' * 8}" for number in (7, 8, 9)]
    disks = {**found().disks, "cp-0": strange[2], "w-0": strange[1]}
    seen = found(planes=[*planes(NEW)[:1], *planes(NEW, strange[0])[1:]], disks=disks)
    with pytest.raises(KeyServiceError) as caught:
        plan_rotation(seen, old=OLD)
    assert caught.value.code == "MASTER_SECRETS_DIFFER"
    assert f"cp-1 has {strange[0]}, w-0 has {strange[1]}, cp-0 has {strange[2]}" in caught.value.message


def test_strange_versions_are_named_in_order() -> None:
    strange = [f"{number}-{'ab' * 8}" for number in range(10, 19)]
    with pytest.raises(KeyServiceError) as caught:
        plan_rotation(found(planes=[*planes(NEW)[:1], *planes(NEW, *reversed(strange))[1:]]), old=OLD)
    assert ", ".join(f"cp-1 has {name}" for name in strange) in caught.value.message


def test_nodes_that_did_not_answer_are_missed() -> None:
    with pytest.raises(KubeadmError, match=r"every node of the cluster has \(bare, cp-0, cp-1, w-0\), got that of w-0"):
        plan_rotation(found(disks={"w-0": NEW}), old=OLD)


@pytest.mark.parametrize(
    ("changes", "old", "code"),
    [
        pytest.param({"planes": planes(NEW)[1:]}, OLD, "ROTATION_NODES_UNREACHED", id="a control plane is missing"),
        pytest.param({"planes": planes()}, OLD, "ROTATION_NODES_UNREACHED", id="no control plane has one"),
        pytest.param(
            {"planes": [*planes(NEW)[:1], *planes()[1:]]},
            OLD,
            "ROTATION_NODES_UNREACHED",
            id="a control plane has none",
        ),
        pytest.param(
            {"planes": [], "members": frozenset()}, OLD, "ROTATION_NODES_UNREACHED", id="there is no control plane"
        ),
        pytest.param({"disks": {"w-0": NEW}}, OLD, "ROTATION_NODES_UNREACHED", id="a node is missing"),
        pytest.param({"nodes": frozenset()}, OLD, "ROTATION_NODES_UNREACHED", id="a node too many"),
        pytest.param({"site": (OLD,)}, OLD, "MASTER_SECRETS_DIFFER", id="the site is older than the cluster"),
        pytest.param({}, "3-" + "ab" * 8, "MASTER_SECRET_UNKNOWN", id="a version that is not there yet"),
        pytest.param({}, "2-" + "ab" * 8, "MASTER_SECRET_UNKNOWN", id="another one of the newest number"),
        pytest.param({}, "master", "OPTION_INVALID", id="no name"),
    ],
)
def test_what_cannot_go_on_is_refused(changes, old, code) -> None:
    assert code_of(lambda: plan_rotation(found(**changes), old=old)) == code
