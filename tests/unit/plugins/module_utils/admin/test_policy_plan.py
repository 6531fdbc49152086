# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The next policy of a site: its generation, what it signs, and whom it would fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import (
    LastSeen,
    Observed,
    PolicyPlan,
    plan_next,
    read_exceptions,
    reinstated_keys,
    require_accepted,
    require_short,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile, PolicyMark
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
UNTIL = "2026-11-22T12:00:00Z"


def ek(number: int) -> str:
    return f"{number:064x}"


def profile(name: str, value: bytes) -> MeasurementProfile:
    return MeasurementProfile(
        name=name, posture=Posture.BOOT, registers={7: (AllowedValue(value.ljust(32, b"."), "x"),)}
    )


OLD, NEW = profile("old", b"o"), profile("new", b"n")
CP = NodeIdentity(ek_sha256=ek(1), node_name="cp-1", role=Role.CONTROL_PLANE, admission=Admission.APPROVED)
WORKER = NodeIdentity(ek_sha256=ek(2), node_name="w-1", role=Role.WORKER, admission=Admission.APPROVED)
NOTHING = Observed(policy=None, generations=(), revoked=frozenset(), nodes=())


def node(**changes: Any) -> LastSeen:
    seen = LastSeen(
        node_name="w-1",
        ek_sha256=ek(2),
        revoked=False,
        phase="Joined",
        profile="old",
        registers={7: b"o".ljust(32, b".")},
    )
    return replace(seen, **changes)


def plan(mark: PolicyMark | None = None, observed: Observed = NOTHING, **changes: Any) -> PolicyPlan:
    parts = {
        "profiles": (OLD, NEW),
        "identities": (CP, WORKER),
        "exceptions": (),
        "excepted": (),
        "now": NOW,
        **changes,
    }
    return plan_next(mark=mark or PolicyMark(), observed=observed, **parts)


def marked(done: PolicyPlan) -> PolicyMark:
    return PolicyMark(
        generation=done.policy.generation, content_sha256=done.policy.content_sha256, revoked=done.policy.revoked
    )


def test_the_first_policy_is_generation_one() -> None:
    first = plan()
    assert (first.policy.generation, first.changed) == (1, True)


def test_the_same_content_keeps_its_generation() -> None:
    first = plan()
    again = plan(marked(first), replace(NOTHING, policy=first.policy, generations=(1,)))
    assert (again.policy, again.changed) == (first.policy, False)


@pytest.mark.parametrize(
    ("generations", "in_api", "mark", "expected"),
    [
        pytest.param((1,), 1, 1, 2, id="another content"),
        pytest.param((5,), 1, 1, 6, id="a record knows a higher one: the store was put back"),
        pytest.param((1,), 7, 1, 8, id="the API knows a higher one: the site was put back"),
        pytest.param((), None, 4, 5, id="only the site remembers"),
    ],
)
def test_another_content_is_above_all_that_is_known(
    generations: tuple[int, ...], in_api: int | None, mark: int, expected: int
) -> None:
    first = plan()
    policy = None if in_api is None else replace(first.policy, generation=in_api)
    site = replace(marked(first), generation=mark)
    found = plan(site, replace(NOTHING, policy=policy, generations=generations), profiles=(NEW,))
    assert (found.policy.generation, found.changed) == (expected, True)


def test_a_store_that_was_put_back_gets_what_the_site_signed_last() -> None:
    first = plan()
    second = plan(marked(first), replace(NOTHING, policy=first.policy, generations=(1,)), profiles=(NEW,))
    again = plan(marked(second), replace(NOTHING, policy=first.policy, generations=(2,)), profiles=(NEW,))
    assert (again.policy, again.changed) == (second.policy, True)


@pytest.mark.parametrize(
    ("mark", "observed"),
    [
        pytest.param(PolicyMark(generation=1, content_sha256=ek(0), revoked=(ek(2),)), NOTHING, id="the site knows"),
        pytest.param(PolicyMark(), replace(NOTHING, revoked=frozenset({ek(2)})), id="a record knows"),
        pytest.param(PolicyMark(), replace(NOTHING, nodes=(node(revoked=True),)), id="an object says"),
        pytest.param(
            PolicyMark(),
            replace(NOTHING, policy=plan(observed=replace(NOTHING, revoked=frozenset({ek(2)}))).policy),
            id="the policy before says",
        ),
    ],
)
def test_who_was_ever_revoked_is_signed_and_never_approved_again(mark: PolicyMark, observed: Observed) -> None:
    found = plan(mark, observed)
    assert found.policy.revoked == (ek(2),)
    assert [one.admission for one in found.identities] == [Admission.APPROVED, Admission.REVOKED]


def test_a_retirement_names_whom_it_fails() -> None:
    observed = replace(NOTHING, nodes=(node(),))
    assert plan(observed=observed).failing == ()
    found = plan(observed=observed, profiles=(NEW,))
    assert [str(one) for one in found.failing] == ["w-1 would fail: it was attested as old last (nearest new: PCR 7)"]
    require_accepted(found, accepted=True)
    with pytest.raises(AttestedError) as caught:
        require_accepted(found, accepted=False)
    assert caught.value.code == "POLICY_WOULD_REFUSE"


ASSERTING = replace(NEW, name="old", registers=OLD.registers, assertions=Assertions(secure_boot=True))


def test_what_no_record_can_say_is_neither_a_pass_nor_a_refusal() -> None:
    found = plan(observed=replace(NOTHING, nodes=(node(),)), profiles=(ASSERTING,))
    assert found.failing == ()
    assert [one.node_name for one in found.unknown] == ["w-1"]
    require_accepted(found, accepted=True)
    with pytest.raises(AttestedError, match="what an event log proves, and none is at hand") as caught:
        require_accepted(found, accepted=False)
    assert caught.value.code == "POLICY_OUTLOOK_UNKNOWN"


def test_a_policy_that_takes_nothing_away_leaves_nobody_unknown() -> None:
    """More profiles never refuse more: whoever is let in now stays let in, so nobody has to be asked."""
    observed = replace(NOTHING, nodes=(node(),))
    first = plan(observed=observed, profiles=(ASSERTING,))
    again = replace(observed, policy=first.policy)
    assert plan(marked(first), again, profiles=(ASSERTING,)).unknown == ()
    assert plan(marked(first), again, profiles=(ASSERTING, NEW)).unknown == ()
    stricter = replace(ASSERTING, assertions=Assertions(secure_boot=True, firmware_minimum="3"))
    assert [one.node_name for one in plan(marked(first), again, profiles=(stricter,)).unknown] == ["w-1"]


@pytest.mark.parametrize(
    ("seen", "profiles"),
    [
        pytest.param(node(phase="Admitted"), (NEW,), id="not joined"),
        pytest.param(node(revoked=True), (NEW,), id="revoked anyway"),
        pytest.param(node(profile="", registers={}), (NEW,), id="it is making the cluster, under no policy yet"),
        pytest.param(node(profile="other"), (OLD,), id="its values meet another profile"),
    ],
)
def test_who_does_not_fail(seen: LastSeen, profiles: tuple[MeasurementProfile, ...]) -> None:
    assert plan(observed=replace(NOTHING, nodes=(seen,)), profiles=profiles).failing == ()


def test_a_node_of_which_nothing_is_on_record_is_not_passed_over() -> None:
    """A control plane whose first push was never taken may fail the next policy as well as any other."""
    first = plan()
    silent = replace(NOTHING, policy=first.policy, generations=(1,), nodes=(node(profile="", registers={}),))
    assert plan(marked(first), silent).unknown == ()  # nothing is taken away
    found = plan(marked(first), silent, profiles=(NEW,))
    assert (found.failing, [one.node_name for one in found.unknown]) == ((), ["w-1"])
    assert "new asks for PCR 7, of which no value is at hand" in str(found.unknown[0])
    with pytest.raises(AttestedError) as caught:
        require_accepted(found, accepted=False)
    assert caught.value.code == "POLICY_OUTLOOK_UNKNOWN"
    heard = replace(silent, nodes=(node(profile=""),))  # as its fresh evidence says
    failing = plan(marked(first), heard, profiles=(NEW,)).failing
    assert [str(one) for one in failing] == ["w-1 would fail: it was attested as nothing last (nearest new: PCR 7)"]


def test_changed_values_under_the_same_name_fail() -> None:
    changed = replace(NEW, name="old")
    assert plan(observed=replace(NOTHING, nodes=(node(),)), profiles=(changed,)).failing


# ---- exceptions

GOOD = {"profile": "old", "nodes": ["w-1"], "until": UNTIL, "why": "firmware was taken back"}
KNOWN = {"profiles": {"old": OLD, "new": NEW}, "keys": {"w-1": (ek(2),)}}


def test_an_exception_spares_its_node() -> None:
    exceptions = read_exceptions([GOOD], **KNOWN)
    found = plan(observed=replace(NOTHING, nodes=(node(),)), profiles=(NEW,), exceptions=exceptions, excepted=(OLD,))
    assert found.failing == ()
    assert found.policy.exceptions == exceptions
    require_short(exceptions, now=NOW)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"profile": "none"}, "expected a profile", id="no such profile"),
        pytest.param({"nodes": ["w-9"]}, "expected an enrolled node", id="no such node"),
        pytest.param({"nodes": []}, "at least one node", id="nobody"),
        pytest.param({"until": "tomorrow"}, "expected until", id="no time"),
        pytest.param({"until": "2026-11-22T12:00:00"}, "expected until", id="a time of no zone"),
        pytest.param({"why": ""}, "expected why", id="no reason"),
        pytest.param({"extra": 1}, "unknown field", id="something else"),
    ],
)
def test_a_wrong_exception_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(AttestedError, match=text) as caught:
        read_exceptions([{**GOOD, **changes}], **KNOWN)
    assert caught.value.code == "SITE_POLICY_EXCEPTION"


def test_an_exception_is_short() -> None:
    exceptions = read_exceptions([{**GOOD, "until": (NOW + timedelta(days=15)).isoformat()}], **KNOWN)
    with pytest.raises(AttestedError) as caught:
        require_short(exceptions, now=NOW)
    assert caught.value.code == "SITE_POLICY_EXCEPTION"


# ---- what the site remembers

FACTS = ClusterFile(
    cluster_id=b"c" * 32, measurement_salt=b"m" * 32, join_ca=b"-----BEGIN C", policy_key=b"-----BEGIN P"
)


def test_the_site_remembers_what_it_signed() -> None:
    assert site_directory.parse(site_directory.render(FACTS)).policy == PolicyMark()
    facts = replace(FACTS, policy=PolicyMark(generation=3, content_sha256=ek(5), revoked=(ek(2),)))
    assert site_directory.parse(site_directory.render(facts)) == facts


@pytest.mark.parametrize(
    "text", ["policy: 3", "policy: {generation: 0, content_sha256: x, revoked: []}", "policy: {generation: 1}"]
)
def test_a_memory_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(AttestedError) as caught:
        site_directory.parse(site_directory.render(FACTS) + text.encode() + b"\n")
    assert caught.value.code == "SITE_CLUSTER_FILE"


# ---- the second key of a chip

CHIP = replace(WORKER, ek_alias=ek(7))


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(replace(NOTHING, revoked=frozenset({ek(2)})), id="a record knows the machine"),
        pytest.param(replace(NOTHING, revoked=frozenset({ek(7)})), id="a record knows its second key"),
        pytest.param(replace(NOTHING, nodes=(node(revoked=True),)), id="an object says so"),
    ],
)
def test_a_revocation_is_signed_for_every_key_of_the_chip(observed: Observed) -> None:
    found = plan(observed=observed, identities=(CP, CHIP))
    assert found.policy.revoked == (ek(2), ek(7))
    assert {one.node_name: one.admission for one in found.identities} == {
        "cp-1": Admission.APPROVED,
        "w-1": Admission.REVOKED,
    }


def test_a_second_key_that_only_the_cluster_knows_is_signed_too() -> None:
    found = plan(observed=replace(NOTHING, nodes=(node(revoked=True, ek_alias=ek(8)),)))
    assert found.policy.revoked == (ek(2), ek(8))


# ---- a revocation that was a mistake

BANNED = replace(NOTHING, policy=plan(observed=replace(NOTHING, revoked=frozenset({ek(2)}))).policy, generations=(1,))


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param(BANNED, id="that the site signed"),
        pytest.param(replace(NOTHING, revoked=frozenset({ek(2)})), id="that a record knows"),
        pytest.param(replace(NOTHING, nodes=(node(revoked=True),)), id="that an object says"),
    ],
)
def test_a_revocation_is_taken_back_by_name(observed: Observed) -> None:
    found = plan(observed=observed, reinstate=frozenset({ek(2)}))
    assert (found.policy.revoked, found.policy.reinstated) == ((), (ek(2),))
    applied = (*found.identities, *found.returning)
    assert {one.node_name: one.admission for one in applied} == dict.fromkeys(("cp-1", "w-1"), Admission.APPROVED)
    assert found.policy.generation > max((0, *observed.generations))


def test_an_object_that_says_revoked_comes_back_after_the_policy() -> None:
    found = plan(observed=replace(BANNED, nodes=(node(revoked=True),)), reinstate=frozenset({ek(2)}))
    assert [one.node_name for one in found.returning] == ["w-1"]
    assert [one.node_name for one in found.identities] == ["cp-1"]


def test_all_keys_of_the_chip_come_back() -> None:
    found = plan(observed=replace(NOTHING, nodes=(node(revoked=True, ek_alias=ek(8)),)), reinstate=frozenset({ek(2)}))
    assert (found.policy.revoked, found.policy.reinstated) == ((), (ek(2), ek(8)))


def test_what_was_taken_back_stays_so_whatever_an_older_record_says() -> None:
    """A control plane that was off still knows the revocation."""
    first = plan(observed=BANNED, reinstate=frozenset({ek(2)}))
    late = replace(NOTHING, policy=first.policy, generations=(1, 2), revoked=frozenset({ek(2)}), nodes=(node(),))
    again = plan(marked(first), late)
    assert again.policy == first.policy
    assert not again.changed


def test_who_is_revoked_again_is_revoked() -> None:
    first = plan(observed=BANNED, reinstate=frozenset({ek(2)}))
    for observed, identities in (
        (replace(NOTHING, policy=first.policy, nodes=(node(revoked=True),)), (CP, WORKER)),
        (replace(NOTHING, policy=first.policy), (CP, replace(WORKER, admission=Admission.REVOKED))),
    ):
        found = plan(marked(first), observed, identities=identities)
        assert (found.policy.revoked, found.policy.reinstated) == ((ek(2),), ())
        assert found.returning == ()


def test_who_was_never_revoked_is_not_taken_back() -> None:
    assert plan(reinstate=frozenset({ek(2)})).policy == plan().policy


def test_whom_the_site_revokes_is_not_taken_back() -> None:
    assert reinstated_keys(["w-1"], [CP, CHIP]) == {ek(2), ek(7)}
    assert reinstated_keys([], []) == frozenset()
    for identities in ([CP], [CP, replace(WORKER, admission=Admission.REVOKED)]):
        with pytest.raises(AttestedError, match=r"attested_admission .* got w-1") as caught:
            reinstated_keys(["w-1"], identities)
        assert caught.value.code == "SITE_INVENTORY"


def test_an_exception_names_every_key_of_its_machine() -> None:
    (one,) = read_exceptions([GOOD], **{**KNOWN, "keys": {"w-1": CHIP.keys}})
    assert one.machines == (ek(2), ek(7))
