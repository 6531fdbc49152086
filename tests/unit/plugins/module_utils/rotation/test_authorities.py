# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next step of a rotation of authorities: right from every state; wherever a run is stopped, nobody is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    CLUSTER,
    TOKEN_LIFE,
    AuthorityPhase,
    FoundAuthorities,
    KubeletAuthorities,
    PlaneAuthorities,
    plan_authorities,
)

MAKE, SHARE, TRUST, ISSUE, RETIRE, FORGET = AuthorityPhase
NAMES = tuple(one.name for one in AUTHORITIES)
CAS = tuple(one.name for one in CERTIFYING)
OLD = {name: f"old-{name}" for name in NAMES}
NEW = {name: f"new-{name}" for name in NAMES}
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Killed(Exception):
    """The run ends here."""


class Plane:
    """What lies on one control plane, and what its components run with."""

    def __init__(self):
        self.signers = dict(OLD)
        self.trusted = {name: (key,) for name, key in OLD.items()}
        self.issued = {name: OLD[name] for name in CAS}
        self.staged = {}
        self.since = NOW - timedelta(days=1)
        self.runs = None
        self.start_anew()

    def seen(self):
        return (dict(self.signers), dict(self.trusted), dict(self.issued))

    def start_anew(self):
        self.runs = self.seen()

    def found(self, name):
        return PlaneAuthorities(
            name=name,
            signers=dict(self.signers),
            trusted=dict(self.trusted),
            issued={key: frozenset({signer}) for key, signer in self.issued.items()},
            staged=dict(self.staged),
            taken=not self.staged or self.runs == self.seen(),
            since=self.since,
        )


class Cluster:
    """Control planes and workers; each deed counts, and the run is killed after so many."""

    def __init__(self, planes=3, workers=1):
        self.planes = {f"cp-{number}": Plane() for number in range(1, planes + 1)}
        self.kubelets = {
            f"w-{number}": KubeletAuthorities(
                name=f"w-{number}", trusted=frozenset({OLD["cluster"]}), issued=OLD["cluster"]
            )
            for number in range(workers)
        }
        self.now = NOW
        self.left = None

    def found(self):
        return FoundAuthorities(
            planes=[plane.found(name) for name, plane in self.planes.items()],
            kubelets=list(self.kubelets.values()),
            members=frozenset(self.planes),
            nodes=frozenset(self.kubelets),
        )

    def deed(self, change):
        change()
        self.require_nobody_refused()
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1

    def require_nobody_refused(self):
        """What any control plane runs with and shows, and any kubelet shows, everybody who runs believes."""
        for name in NAMES:
            shown = {plane.runs[0][name] for plane in self.planes.values()}
            if name in CAS:
                shown |= {plane.issued[name] for plane in self.planes.values()}
            if name == CLUSTER.name:
                shown |= {one.issued for one in self.kubelets.values()}
                assert all(shown <= one.trusted for one in self.kubelets.values())
            for plane in self.planes.values():
                assert shown <= set(plane.runs[1][name]), (name, shown, plane.runs)

    def run(self, old=OLD["cluster"]):
        seen = []
        for _step in range(60):
            plan = plan_authorities(self.found(), old=old, now=self.now)
            if not plan.phases:
                return seen
            if plan.waits_until:
                assert plan.phases[0] is RETIRE
                self.now = plan.waits_until
                continue
            seen += plan.phases[:1] if seen[-1:] != [plan.phases[0]] else []
            self.do(plan)
        raise AssertionError(seen)

    def do(self, plan):
        phase = plan.phases[0]
        if phase is MAKE:
            self.deed(lambda: self.planes[plan.source].staged.update(NEW))
            return
        for name, bundles in plan.bundles.items():
            getattr(self, f"do_{phase.value}")(self.planes[name], bundles, plan)
        for name in plan.kubelets:
            self.deed(lambda name=name: self.ticket(name))

    def do_share(self, plane, _bundles, plan):
        given = self.planes[plan.source].staged
        assert given == NEW, "who has the successors gives them"
        self.deed(lambda: plane.staged.update(given))

    def do_trust(self, plane, bundles, _plan):
        for name, bundle in bundles.items():
            assert bundle[0] == plane.signers[name]
            self.deed(lambda name=name, bundle=bundle: plane.trusted.update({name: bundle}))
        self.deed(plane.start_anew)

    do_retire = do_trust

    def do_issue(self, plane, bundles, _plan):
        for name, bundle in bundles.items():
            assert bundle[0] == NEW[name] == plane.staged[name]
            self.deed(lambda name=name, bundle=bundle: plane.trusted.update({name: bundle}))
        for name in NAMES:
            self.deed(lambda name=name: plane.signers.update({name: NEW[name]}))
        plane.since = self.now
        for name in CAS:
            self.deed(lambda name=name: plane.issued.update({name: NEW[name]}))
        self.deed(plane.start_anew)

    def do_forget(self, plane, _bundles, _plan):
        self.deed(plane.staged.clear)

    def ticket(self, name):
        """Bring whom the first control plane believes, and a certificate of whoever signs there."""
        plane = self.planes["cp-1"]
        self.kubelets[name] = KubeletAuthorities(
            name=name, trusted=frozenset(plane.trusted["cluster"]), issued=plane.signers["cluster"]
        )


def is_over(cluster):
    alone = {name: (key,) for name, key in NEW.items()}
    return all(
        plane.signers == NEW and plane.trusted == alone and not plane.staged and plane.runs == plane.seen()
        for plane in cluster.planes.values()
    ) and all(one.trusted == {NEW["cluster"]} for one in cluster.kubelets.values())


def plane_with_both(cluster, *names):
    """Bring control planes to where they sign with the successors and believe both."""
    for plane in map(cluster.planes.get, names):
        plane.signers, plane.issued = dict(NEW), {name: NEW[name] for name in CAS}
        plane.trusted = {name: (NEW[name], OLD[name]) for name in NAMES}
        plane.staged.update(NEW)
        plane.since = NOW
        plane.start_anew()


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_a_whole_rotation_takes_every_phase_once_and_a_second_run_none(planes):
    cluster = Cluster(planes)
    assert plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW).phases == tuple(AuthorityPhase)
    whole = [phase for phase in AuthorityPhase if planes > 1 or phase is not SHARE]
    assert cluster.run() == whole
    assert is_over(cluster)
    assert cluster.run() == []


def test_wherever_a_run_is_killed_the_next_one_ends_it_and_nobody_is_refused():
    killed = 0
    while True:
        cluster = Cluster()
        cluster.left = killed
        try:
            cluster.run()
        except Killed:
            cluster.left = None
            cluster.run()
            assert is_over(cluster), killed
            killed += 1
        else:
            break
    assert killed > 60


@pytest.mark.parametrize("old", [NEW["cluster"], "another"])
def test_what_was_begun_is_ended_whatever_key_is_asked_for(old):
    cluster = Cluster()
    cluster.planes["cp-2"].staged.update(NEW)
    plan = plan_authorities(cluster.found(), old=old, now=NOW)
    assert (plan.phases[0], plan.source) == (SHARE, "cp-2")


def test_a_control_plane_that_joined_in_the_hour_before_retire_gets_the_successors_beside_its_files_too():
    """Without them nothing would say whether its components run with the files."""
    cluster = Cluster()
    plane_with_both(cluster, "cp-1", "cp-2", "cp-3")
    cluster.planes["cp-1"].staged.clear()
    cluster.ticket("w-0")
    plan = plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW + TOKEN_LIFE)
    assert (plan.phases[0], plan.source, list(plan.bundles)) == (SHARE, "cp-2", ["cp-1"])
    cluster.run()
    assert is_over(cluster)


def test_a_kubelet_that_names_an_old_ca_in_one_of_its_files_is_not_through():
    cluster = Cluster()
    cluster.run()
    cluster.planes["cp-1"].staged.update(NEW)
    cluster.kubelets["w-0"] = replace(cluster.kubelets["w-0"], named=frozenset({OLD["cluster"], NEW["cluster"]}))
    plan = plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW + timedelta(days=1))
    assert (plan.phases[0], dict(plan.bundles), plan.kubelets) == (RETIRE, {}, ("w-0",))


def test_a_key_that_nobody_has_needs_nothing():
    assert plan_authorities(Cluster().found(), old="another", now=NOW).phases == ()


def test_the_old_key_of_tokens_is_believed_for_the_life_of_a_token():
    cluster = Cluster()
    plane_with_both(cluster, "cp-1", "cp-2", "cp-3")
    cluster.planes["cp-1"].since = NOW + timedelta(minutes=5)
    cluster.ticket("w-0")
    plan = plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW + timedelta(minutes=6))
    assert (plan.phases[0], plan.waits_until) == (RETIRE, NOW + timedelta(minutes=5) + TOKEN_LIFE)
    assert plan_authorities(cluster.found(), old=OLD["cluster"], now=plan.waits_until).waits_until is None


def test_a_kubelet_alone_holds_the_next_phase_up():
    cluster = Cluster()
    for plane in cluster.planes.values():
        plane.staged.update(NEW)
        plane.trusted = {name: (OLD[name], NEW[name]) for name in NAMES}
        plane.start_anew()
    plan = plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW)
    assert (plan.phases[0], dict(plan.bundles), plan.kubelets) == (TRUST, {}, ("w-0",))


def test_a_kubelet_that_was_not_asked_is_named():
    with pytest.raises(AttestedError, match=r"every kubelet of the cluster has \(w-0\), got that of none"):
        plan_authorities(replace(Cluster().found(), kubelets=[]), old=OLD["cluster"], now=NOW)


def test_four_authorities_go_together():
    assert NAMES == ("cluster", "etcd", "front-proxy", "service-accounts")


def test_tokens_of_pods_live_for_an_hour():
    assert timedelta(hours=1) == TOKEN_LIFE


def test_the_first_control_plane_by_name_makes_the_successors():
    found = Cluster().found()
    plan = plan_authorities(replace(found, planes=found.planes[::-1]), old=OLD["cluster"], now=NOW)
    assert plan.source == "cp-1"


def begun(*, of=1, **changes):
    """Return what is found where everybody signs with the successors and trusts both, but for one control plane."""
    cluster = Cluster()
    plane_with_both(cluster, "cp-1", "cp-2", "cp-3")
    cluster.ticket("w-0")
    found = cluster.found()
    planes = [replace(one, **changes) if at == of else one for at, one in enumerate(found.planes)]
    return replace(found, planes=planes)


def phases_of(found):
    return plan_authorities(found, old=OLD["cluster"], now=NOW + timedelta(days=1)).phases


ALONE = {name: (key,) for name, key in NEW.items()}
SIGNED = {name: frozenset({NEW[name]}) for name in CAS}


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        pytest.param({"staged": {}, "trusted": ALONE, "signers": OLD}, SHARE, id="trusts the new ones, signs with old"),
        pytest.param({"trusted": {**ALONE, "cluster": (OLD["cluster"],)}}, TRUST, id="trusts one of four wrongly"),
        pytest.param({"taken": False}, TRUST, id="runs with other files"),
        pytest.param({"signers": OLD}, ISSUE, id="shows new certificates, signs with the old keys"),
        pytest.param({"issued": {**SIGNED, "etcd": frozenset({OLD["etcd"]})}}, ISSUE, id="one old certificate"),
    ],
)
def test_a_phase_is_done_only_with_all_that_it_is_for(changes, phase):
    assert phases_of(begun(**changes))[0] is phase


def test_files_without_the_old_cas_are_not_enough_to_retire_them():
    """Components still run with the files of before."""
    found = begun()
    planes = [replace(one, trusted=ALONE, taken=one.name != "cp-2") for one in found.planes]
    kubelets = [replace(one, trusted=frozenset(ALONE["cluster"])) for one in found.kubelets]
    assert phases_of(replace(found, planes=planes, kubelets=kubelets)) == (TRUST, RETIRE, FORGET)


def test_whoever_signs_is_trusted_though_nobody_shows_it_yet():
    found = begun(of=0, signers=OLD)
    planes = [found.planes[0], *(replace(one, trusted=ALONE) for one in found.planes[1:])]
    assert phases_of(replace(found, planes=planes))[0] is TRUST


def test_a_kubelets_certificate_is_trusted_by_every_control_plane():
    found = begun(trusted=ALONE)
    assert phases_of(found)[0] is RETIRE
    kubelets = [replace(one, issued=OLD["cluster"]) for one in found.kubelets]
    assert phases_of(replace(found, kubelets=kubelets))[0] is TRUST


def test_a_signer_that_a_control_plane_does_not_know_need_not_be_trusted():
    found = begun(issued={**SIGNED, "etcd": frozenset({""})})
    assert phases_of(found)[0] is ISSUE


def test_a_bundle_keeps_its_order_and_gets_what_is_missing_by_name():
    found = begun(trusted={**ALONE, "cluster": ("z", NEW["cluster"], "y")})
    first, names = found.kubelets[0], "fabdce"
    kubelets = [replace(first, name=name, issued=name) for name in names]
    found = replace(found, kubelets=kubelets, nodes=frozenset(names))
    plan = plan_authorities(found, old=OLD["cluster"], now=NOW)
    assert plan.phases[0] is TRUST
    assert plan.bundles["cp-2"]["cluster"] == (NEW["cluster"], "z", "y", *"abcdef")


def test_one_set_of_successors_is_one_in_any_order():
    cluster = Cluster()
    cluster.planes["cp-1"].staged.update(NEW)
    cluster.planes["cp-2"].staged.update(dict(reversed(NEW.items())))
    assert plan_authorities(cluster.found(), old=OLD["cluster"], now=NOW).phases[0] is SHARE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(
            lambda found: replace(found, planes=found.planes[:2]), "ROTATION_NODES_UNREACHED", id="one does not answer"
        ),
        pytest.param(
            lambda found: replace(found, members=frozenset({"cp-1", "cp-2"})),
            "ROTATION_NODES_UNREACHED",
            id="one is not of the cluster",
        ),
        pytest.param(
            lambda found: replace(found, kubelets=[]), "ROTATION_NODES_UNREACHED", id="a kubelet is not asked"
        ),
        pytest.param(
            lambda found: replace(found, planes=[], members=frozenset()),
            "ROTATION_NODES_UNREACHED",
            id="no control plane",
        ),
        pytest.param(
            lambda found: replace(
                found, planes=[replace(found.planes[0], signers={**OLD, "etcd": "x"}), *found.planes[1:]]
            ),
            "AUTHORITIES_DIFFER",
            id="one signs with another key",
        ),
        pytest.param(
            lambda found: replace(
                found, planes=[found.planes[0], replace(found.planes[1], signers={**OLD, "etcd": "x"}), found.planes[2]]
            ),
            "AUTHORITIES_DIFFER",
            id="another one signs with another key, and trusts as the others do",
        ),
        pytest.param(
            lambda found: replace(
                found,
                planes=[
                    *found.planes[:2],
                    replace(found.planes[2], trusted={**found.planes[2].trusted, "cluster": (OLD["cluster"], "x")}),
                ],
            ),
            "AUTHORITIES_DIFFER",
            id="one believes somebody else too",
        ),
        pytest.param(
            lambda found: replace(
                found,
                planes=[
                    replace(found.planes[0], staged=NEW),
                    replace(found.planes[1], staged={**NEW, "etcd": "x"}),
                    found.planes[2],
                ],
            ),
            "AUTHORITIES_DIFFER",
            id="two sets of successors",
        ),
        pytest.param(
            lambda found: replace(
                found, planes=[replace(found.planes[0], staged={"cluster": NEW["cluster"]}), *found.planes[1:]]
            ),
            "AUTHORITIES_DIFFER",
            id="a part of a set",
        ),
    ],
)
def test_what_cannot_be_rotated_is_refused_before_anything_is_made(change, code):
    with pytest.raises(AttestedError) as caught:
        plan_authorities(change(Cluster().found()), old=OLD["cluster"], now=NOW)
    assert caught.value.code == code
