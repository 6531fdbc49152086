# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next step of a rotation: right from every state; wherever a run is stopped, each Secret stays readable."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.encryption_key import (
    FoundKeys,
    PlaneKeys,
    RotationPhase,
    next_number,
    plan_rotation,
)

MAKE, SHARE, LEAD, REWRITE, RETIRE = RotationPhase
OLD, NEW = "key-1", "key-2-00000000000000ab"
CLEAR = "identity"


class Killed(Exception):
    """The run ends here."""


class Cluster:
    """Files, what the API servers use of them, and Secrets; each deed counts, and the run is killed after so many."""

    def __init__(self, planes=2, *, first=OLD, secrets=5):
        self.files = {f"cp-{number}": (first,) for number in range(1, planes + 1)}
        self.used = dict(self.files)
        self.secrets = [first] * secrets
        self.left = None
        self.made = 0

    def found(self):
        planes = [
            PlaneKeys(
                name=name,
                keys={key: f"print of {key}" for key in order if key != CLEAR},
                taken=self.used[name] == order,
                clear_first=order[:1] == (CLEAR,),
            )
            for name, order in self.files.items()
        ]
        counts = {key: self.secrets.count(key) for key in set(self.secrets)}
        return FoundKeys(planes=planes, members=frozenset(self.files), stored=counts)

    def deed(self, change):
        change()
        self.require_readable()
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1

    def require_readable(self):
        """Whatever etcd has, and whatever any API server writes, every API server can read."""
        written = {order[0] for order in self.used.values()} | set(self.secrets)
        for name, order in self.used.items():
            assert written <= {*order, CLEAR}, (name, order, written)

    def run(self, old=OLD):
        """Run to the end, writing a Secret through every API server between any two deeds; return the phases."""
        seen = []
        for _step in range(12):
            plan = plan_rotation(self.found(), old=old)
            if not plan.phases:
                return seen
            seen.append(plan.phases[0])
            getattr(self, f"do_{plan.phases[0].value}")(plan)
        raise AssertionError(seen)

    def write(self):
        self.secrets += [order[0] for order in self.used.values()]

    def place(self, name, order):
        self.deed(lambda: self.files.update({name: order}))
        self.write()
        self.deed(lambda: self.used.update({name: self.files[name]}))
        self.write()

    def do_make(self, plan):
        number = next_number(key for order in self.files.values() for key in order)
        self.made += 1
        name = f"key-{number}-{self.made:016x}"
        self.deed(lambda: self.files.update({plan.source: (*self.files[plan.source], name)}))

    def do_share(self, plan):
        for name, keys in plan.missing.items():
            assert set(keys) <= set(self.files[plan.source]), (name, plan)
        self.arrange(plan)

    def do_lead(self, plan):
        assert plan.missing == {}
        self.arrange(plan)

    do_retire = do_lead

    def arrange(self, plan):
        for name, order in plan.orders.items():
            self.place(name, order)

    def do_rewrite(self, plan):
        for index, key in enumerate(self.secrets):
            if key != plan.successor:
                self.deed(lambda index=index: self.secrets.__setitem__(index, plan.successor))


def is_over(cluster, *, gone):
    files, stored = set(cluster.files.values()), set(cluster.secrets)
    return cluster.used == cluster.files and files == {tuple(stored)} and gone not in stored


@pytest.mark.parametrize("planes", [1, 2, 3])
@pytest.mark.parametrize(
    ("first", "phases"),
    [
        pytest.param(OLD, [MAKE, SHARE, LEAD, REWRITE, RETIRE], id="the first key"),
        pytest.param("an-admins-own", [MAKE, SHARE, LEAD, REWRITE, RETIRE], id="a key that an admin named"),
        pytest.param(CLEAR, [MAKE, SHARE, LEAD, REWRITE], id="a cluster in clear"),
    ],
)
def test_a_whole_rotation_takes_every_phase_once_and_a_second_run_none(planes, first, phases):
    cluster = Cluster(planes, first=first)
    assert list(plan_rotation(cluster.found(), old=first).phases) == phases
    assert cluster.run(first) == phases
    assert is_over(cluster, gone=first)
    assert cluster.run(first) == []


@pytest.mark.parametrize("first", [OLD, CLEAR])
@pytest.mark.parametrize("planes", [1, 2, 3])
def test_a_run_that_is_killed_anywhere_is_ended_by_the_next(planes, first):
    """Also where the next one is killed too, at every pair of places; Secrets are written all the while."""
    for first_kill, second_kill in itertools.product(range(40), range(0, 20, 6)):
        cluster = Cluster(planes, first=first, secrets=2)
        for left in (first_kill, second_kill):
            cluster.left = left
            try:
                cluster.run(first)
            except Killed:
                continue
        cluster.left = None
        cluster.run(first)
        assert is_over(cluster, gone=first), (first_kill, second_kill)
        assert cluster.made == 1


def test_a_kill_does_kill():
    """So that the test above is one."""
    cluster = Cluster()
    cluster.left = 3
    with pytest.raises(Killed):
        cluster.run()
    assert not is_over(cluster, gone=OLD)


def plane(name, *order, taken=True, clear_first=False):
    return PlaneKeys(name=name, keys={key: key for key in order}, taken=taken, clear_first=clear_first)


def found(*planes, stored, members=None):
    names = frozenset(one.name for one in planes) if members is None else frozenset(members)
    return FoundKeys(planes=planes, members=names, stored=stored)


@pytest.mark.parametrize(
    ("planes", "stored", "phases"),
    [
        pytest.param([plane("a", OLD)], {OLD: 1}, [MAKE, SHARE, LEAD, REWRITE, RETIRE], id="nothing was done yet"),
        pytest.param(
            [plane("a", OLD, NEW, taken=False), plane("b", OLD)],
            {OLD: 1},
            [SHARE, LEAD, REWRITE, RETIRE],
            id="one has a new key",
        ),
        pytest.param(
            [plane("a", OLD, NEW), plane("b", OLD, NEW, taken=False)],
            {OLD: 1},
            [SHARE, LEAD, REWRITE, RETIRE],
            id="one API server does not use it yet",
        ),
        pytest.param(
            [plane("a", NEW, OLD), plane("b", OLD, NEW)],
            {OLD: 1, NEW: 1},
            [LEAD, REWRITE, RETIRE],
            id="half of them write with it",
        ),
        pytest.param(
            [plane("a", NEW, OLD), plane("b", NEW, OLD, taken=False)],
            {OLD: 1},
            [SHARE, REWRITE, RETIRE],
            id="an API server still writes with the old one, as far as anybody knows",
        ),
        pytest.param([plane("a", NEW, OLD)], {OLD: 1, NEW: 8}, [REWRITE, RETIRE], id="some are to be written again"),
        pytest.param([plane("a", NEW, OLD)], {NEW: 9}, [RETIRE], id="all were written again"),
        pytest.param([plane("a", NEW), plane("b", NEW, OLD)], {NEW: 9}, [RETIRE], id="one has dropped the old one"),
        pytest.param(
            [plane("a", NEW), plane("b", NEW, OLD)],
            {NEW: 9, OLD: 1},
            [SHARE, REWRITE, RETIRE],
            id="one has dropped it and etcd was put back",
        ),
        pytest.param(
            [plane("a", NEW, taken=False)],
            {NEW: 9},
            [SHARE],
            id="all is done but an API server still knows the old one",
        ),
        pytest.param([plane("a", NEW)], {NEW: 9}, [], id="all is done"),
        pytest.param([plane("a", NEW), plane("b", NEW)], {}, [], id="all is done and there is no Secret"),
    ],
)
def test_what_is_left(planes, stored, phases):
    assert list(plan_rotation(found(*planes, stored=stored), old=OLD).phases) == phases


@pytest.mark.parametrize(
    ("planes", "phases"),
    [
        pytest.param([plane("a", clear_first=True)], [MAKE, SHARE, LEAD, REWRITE], id="it has no key at all"),
        pytest.param([plane("a")], [MAKE, SHARE, LEAD, REWRITE], id="it has no file at all"),
        pytest.param([plane("a", NEW, clear_first=True), plane("b", NEW)], [LEAD, RETIRE], id="one of two does"),
        pytest.param([plane("a"), plane("b", NEW)], [SHARE, LEAD, RETIRE], id="one of two has no file"),
        pytest.param([plane("a", NEW), plane("b", NEW)], [], id="none does"),
    ],
)
def test_a_cluster_that_writes_in_clear_and_has_no_secret_yet(planes, phases):
    assert list(plan_rotation(found(*planes, stored={}), old=CLEAR).phases) == phases


def test_a_key_that_is_nowhere_needs_no_successor():
    plan = plan_rotation(found(plane("a", NEW), stored={NEW: 1}), old="key-7-00000000000000ab")
    assert (plan.phases, plan.successor) == ((), NEW)


def test_before_it_is_made_a_successor_has_no_name():
    assert plan_rotation(found(plane("a", OLD), stored={OLD: 1}), old=OLD).successor == ""
    assert next_number([]) == 1


def test_a_key_of_which_no_secret_is_left_is_neither_needed_nor_missed():
    gone = "key-7-aaaaaaaaaaaaaaaa"
    plan = plan_rotation(found(plane("a", NEW, OLD), plane("b", NEW), stored={NEW: 9, gone: 0}), old=OLD)
    assert list(plan.phases) == [RETIRE]


def test_what_one_still_writes_with_is_needed_by_all():
    """Before its first Secret is there: it may be written any moment."""
    plan = plan_rotation(found(plane("a", OLD, NEW), plane("b", NEW), stored={}), old=OLD)
    assert (plan.phases[0], dict(plan.missing)) == (SHARE, {"b": (OLD,)})


def test_only_what_is_needed_is_given_on():
    stale = "key-0-00000000000000ab"
    plan = plan_rotation(found(plane("a", OLD, NEW, stale), plane("b", OLD), stored={OLD: 1}), old=OLD)
    assert (plan.source, dict(plan.missing)) == ("a", {"b": (NEW,)})


def test_among_equals_the_first_by_name_is_the_source():
    plan = plan_rotation(found(plane("b", OLD), plane("a", OLD), stored={OLD: 1}), old=OLD)
    assert plan.source == "a"


@pytest.mark.parametrize("several", [(9, 10), (2,) * 30, (3, 20, 100) * 10], ids=["by number", "by name", "by both"])
def test_of_several_new_keys_all_runs_take_the_same_newest(several):
    """Two runs at once may have made one each; the others are kept as long as something is written with them."""
    made = [f"key-{number}-{index:016x}" for index, number in enumerate(several)]
    newest_first = sorted(made, key=lambda name: (int(name.split("-")[1]), name), reverse=True)
    stored = dict.fromkeys(made, 1)
    plan = plan_rotation(found(plane("a", OLD, *made), stored=stored), old=OLD)
    assert (plan.phases[0], plan.successor) == (LEAD, newest_first[0])
    assert plan.orders == {"a": (*newest_first, OLD)}
    plan = plan_rotation(found(plane("a", OLD, *made), plane("b", OLD), stored=stored), old=OLD)
    assert (plan.phases[0], plan.missing) == (SHARE, {"b": tuple(reversed(newest_first))})


def test_all_keys_that_are_lost_are_told_by_name():
    stored = {f"key-{number}-aaaaaaaaaaaaaaaa": 1 for number in (9, 8, 7)}
    with pytest.raises(KubeadmError) as caught:
        plan_rotation(found(plane("a", OLD), stored=stored), old=OLD)
    assert f"{', '.join(sorted(stored))} is on no control plane" in caught.value.message


def test_an_older_key_that_was_left_is_never_the_new_one():
    """A rotation of key-1 was stopped before its end, and then key-2 shall go: to a third one, not back."""
    plan = plan_rotation(found(plane("a", NEW, OLD), stored={NEW: 3}), old=NEW)
    assert plan.phases[0] is MAKE
    assert next_number([NEW, OLD]) == 3


def test_who_lacks_a_key_gets_it_of_one_that_has_it():
    plan = plan_rotation(found(plane("a", OLD), plane("b", OLD, NEW), plane("c", OLD), stored={OLD: 1}), old=OLD)
    assert (plan.source, dict(plan.missing)) == ("b", {"a": (NEW,), "c": (NEW,)})
    assert set(plan.orders.values()) == {(OLD, NEW)}


def test_a_control_plane_whose_file_is_lost_gets_what_the_others_have():
    plan = plan_rotation(found(plane("a", NEW, OLD), plane("b", taken=False), stored={OLD: 1}), old=OLD)
    assert (plan.source, dict(plan.missing)) == ("a", {"b": (OLD, NEW)})


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param(
            found(plane("a", OLD), stored={}, members=["a", "b"]), "ROTATION_NODES_UNREACHED", id="one is missing"
        ),
        pytest.param(
            found(plane("a", OLD), plane("b", OLD), stored={}, members=["a"]),
            "ROTATION_NODES_UNREACHED",
            id="one is no control plane of this cluster",
        ),
        pytest.param(found(stored={}), "ROTATION_NODES_UNREACHED", id="none answered"),
        pytest.param(
            found(
                plane("a", OLD), PlaneKeys(name="b", keys={OLD: "another"}, taken=True), stored={}, members=["a", "b"]
            ),
            "ENCRYPTION_KEYS_DIFFER",
            id="one name is two keys",
        ),
        pytest.param(
            found(plane("a", OLD), stored={"key-7-aaaaaaaaaaaaaaaa": 1}),
            "ENCRYPTION_KEY_LOST",
            id="Secrets are closed with a key that nobody has",
        ),
    ],
)
def test_what_stops_a_rotation_before_it_begins(given, code):
    with pytest.raises(KubeadmError) as caught:
        plan_rotation(given, old=OLD)
    assert caught.value.code == code
