# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signed policy: what it names counts, everything else does not, and its bytes are one for one meaning."""

from __future__ import annotations

import base64
import copy
import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import cluster
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    ClusterPolicy,
    NamedDigest,
    PolicyException,
    applied_sha256,
    identity_sha256,
    plan_policy,
    profile_sha256,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import CountingProfiles, SignedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import REVOKED_LABEL, render_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.record import (
    Seen,
    adopt,
    follow,
    missing_revocations,
    require_revocations,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import sign_policy, verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import length_prefixed
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CLUSTER = b"c" * 32


def pem(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: Any) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PRIVATE, PUBLIC = pem(KEY), public_pem(KEY)


def ek(number: int) -> str:
    return f"{number:064x}"


def profile(name: str, value: bytes = b"v") -> MeasurementProfile:
    return MeasurementProfile(
        name=name, posture=Posture.BOOT, registers={7: (AllowedValue(value.ljust(32, b"."), "label"),)}
    )


def identity(number: int, role: Role = Role.WORKER, admission: Admission = Admission.APPROVED) -> NodeIdentity:
    return NodeIdentity(ek_sha256=ek(number), node_name=f"n-{number}", role=role, admission=admission)


GLASS = PolicyException(
    profile=NamedDigest("old", profile_sha256(profile("old"))),
    machines=(ek(2),),
    expires=NOW + timedelta(hours=2),
    why="firmware was rolled back by its vendor",
)
PROFILES = (profile("a"), profile("b"))
IDENTITIES = (identity(1, Role.CONTROL_PLANE), identity(2))


def policy(generation: int = 3, **changes: Any) -> ClusterPolicy:
    return plan_policy(
        **{
            "generation": generation,
            "profiles": PROFILES,
            "identities": IDENTITIES,
            "revoked": [ek(9)],
            "exceptions": [GLASS],
            **changes,
        }
    )


def test_a_digest_is_of_the_very_profile_however_many_were_digested_before() -> None:
    first = {number: profile_sha256(profile("a", b"%d" % number)) for number in range(600)}
    assert len(set(first.values())) == 600
    kept = [profile("a", b"%d" % number) for number in range(600)]
    assert [profile_sha256(one) for one in kept] == list(first.values())
    assert [profile_sha256(one) for one in kept] == list(first.values())


def test_each_profile_of_a_cluster_is_digested_once_and_those_of_the_past_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A policy names 256 at most; a ticket asks for the digest of each, several times."""
    digested = []
    render = cluster.render_profile
    monkeypatch.setattr(cluster, "render_profile", lambda one: digested.append(one.name) or render(one))
    monkeypatch.setattr(cluster, "_digests", {})
    profiles = [profile(f"p-{number}") for number in range(256)]
    for _twice in range(2):
        for one in profiles:
            profile_sha256(one)
    assert digested == [one.name for one in profiles]
    profile_sha256(profile("another"))
    assert len(cluster._digests) <= 256


def signed(wanted: ClusterPolicy) -> dict[str, Any]:
    return sign_policy(wanted, private_key=PRIVATE, cluster_id=CLUSTER)


def verified(document: dict[str, Any], **changes: bytes) -> ClusterPolicy:
    return verify_policy(document, **{"public_key": PUBLIC, "cluster_id": CLUSTER, **changes})


def code(action: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        action()
    return caught.value.code


# ---- bytes and signature


def test_what_was_signed_is_read_back_as_an_object_of_a_list() -> None:
    document = signed(policy())
    assert verified(document) == policy()
    listed = {name: value for name, value in document.items() if name not in {"apiVersion", "kind"}}
    listed["metadata"] = {"name": "cluster", "resourceVersion": "7", "uid": "u"}
    assert verified({**listed, "status": {"seenBy": {"cp-1": {"generation": 3}}}}) == policy()


KNOWN_SIGNATURE = "TVf5x+7CA6dJ/aGNRpaqqdmkAEXOjl3TwSCKehVSijtMfQFTBBC0rsPBvsff8Wz0NZKEjCy5EUjvxwjnA7BRCA=="


def test_a_policy_that_was_signed_once_stays_good() -> None:
    """What is signed, and in whose name: another use of the key, or another order, would sign other bytes."""
    assert signed(policy())["spec"]["signature"] == KNOWN_SIGNATURE


def test_a_signature_of_the_same_words_for_another_use_is_none() -> None:
    document = signed(policy())
    words = length_prefixed(CLUSTER, policy().to_bytes())
    document["spec"]["signature"] = base64.b64encode(KEY.sign(words)).decode()
    assert code(lambda: verified(document)) == "POLICY_SIGNATURE"


def named(count: int) -> tuple[NamedDigest, ...]:
    return tuple(NamedDigest(f"n-{number:04}", ek(number)) for number in range(count))


@pytest.mark.parametrize(
    ("most", "sized"),
    [
        pytest.param(2**53 - 1, lambda number: replace(policy(), generation=number), id="its generation"),
        pytest.param(256, lambda count: replace(policy(), profiles=named(count)), id="profiles"),
        pytest.param(64, lambda count: replace(policy(), control_planes=named(count)), id="control planes"),
        pytest.param(8192, lambda count: replace(policy(), revoked=tuple(map(ek, range(count)))), id="revoked keys"),
        pytest.param(
            8192,
            lambda count: replace(policy(), reinstated=tuple(map(ek, range(10, count + 10)))),
            id="keys taken back",
        ),
        pytest.param(64, lambda count: replace(policy(), exceptions=(GLASS,) * count), id="exceptions"),
        pytest.param(
            256,
            lambda count: replace(policy(), exceptions=(replace(GLASS, machines=tuple(map(ek, range(count)))),)),
            id="machines of an exception",
        ),
    ],
)
def test_what_a_policy_holds_is_bounded(most: int, sized: Any) -> None:
    assert verified(signed(sized(most))) == sized(most)
    assert code(lambda: verified(signed(sized(most + 1)))) == "MANIFEST_INVALID"


def test_equal_policies_have_equal_bytes_whatever_the_order() -> None:
    later, other = GLASS.expires + timedelta(hours=1), NamedDigest("x", ek(0))
    exceptions = (
        GLASS,
        replace(GLASS, profile=other),
        replace(GLASS, machines=(ek(3),)),
        replace(GLASS, expires=later),
    )
    many = [ek(number) for number in range(50, 100)]
    given = {
        "profiles": PROFILES,
        "identities": (identity(1, Role.CONTROL_PLANE), identity(3, Role.CONTROL_PLANE)),
        "revoked": many,
        "exceptions": exceptions,
        "reinstated": [ek(number) for number in range(100, 150)],
    }
    first, turned = policy(**given), policy(**{name: tuple(reversed(value)) for name, value in given.items()})
    assert policy(**{**given, "revoked": [*many, *many]}) == first
    assert (turned.to_bytes(), signed(turned)) == (first.to_bytes(), signed(first))
    assert verified(signed(turned)) == first


def test_what_is_signed_is_an_object_of_the_api() -> None:
    document = signed(policy(exceptions=[replace(GLASS, why="größer")]))
    assert (document["apiVersion"], document["kind"]) == ("attested-kubernetes.dev/v1alpha1", "AttestationPolicy")
    assert document["metadata"] == {"name": "cluster"}
    assert verified(document).exceptions[0].why == "größer"
    assert "reinstated" not in document["spec"], "a service of an earlier release reads it, too"
    assert signed(policy(reinstated=[ek(1)]))["spec"]["reinstated"] == [ek(1)]


def test_the_generation_is_no_part_of_the_content() -> None:
    assert policy(3).content_sha256 == policy(4).content_sha256
    assert policy(3).to_bytes() != policy(4).to_bytes()


def walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] if not members else [found for name, inner in members for found in walk(inner, (*path, name))]


def changed(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else ("0" if value[:1] != "0" else "1") + value[1:]


SPEC = signed(policy())["spec"]


@pytest.mark.parametrize("path", [pytest.param(path, id=".".join(map(str, path))) for path in walk(SPEC)])
def test_a_change_anywhere_is_refused(path: tuple[Any, ...]) -> None:
    document = copy.deepcopy(signed(policy()))
    place = document["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = changed(place[path[-1]])
    assert code(lambda: verified(document)) in {"POLICY_SIGNATURE", "MANIFEST_INVALID"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"cluster_id": b"d" * 32}, "POLICY_SIGNATURE", id="for another cluster"),
        pytest.param(
            {"public_key": public_pem(ed25519.Ed25519PrivateKey.generate())}, "POLICY_SIGNATURE", id="another key"
        ),
        pytest.param(
            {"public_key": public_pem(ec.generate_private_key(ec.SECP256R1()))}, "POLICY_KEY_UNUSABLE", id="an EC key"
        ),
        pytest.param({"public_key": b"no PEM"}, "POLICY_KEY_UNUSABLE", id="no key"),
    ],
)
def test_another_cluster_or_key_is_refused(changes: dict[str, bytes], reason: str) -> None:
    assert code(lambda: verified(signed(policy()), **changes)) == reason


def test_another_kind_of_key_signs_nothing() -> None:
    other = pem(ec.generate_private_key(ec.SECP256R1()))
    assert code(lambda: sign_policy(policy(), private_key=other, cluster_id=CLUSTER)) == "POLICY_KEY_UNUSABLE"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda one: one["spec"].update(extra=1), id="an unknown field"),
        pytest.param(lambda one: one.update(extra=1), id="an unknown field beside its spec"),
        pytest.param(lambda one: one["spec"]["exceptions"][0]["profile"].update(extra=1), id="one of a profile"),
        pytest.param(lambda one: one["spec"].pop("revoked"), id="no revocations"),
        pytest.param(lambda one: one["spec"].update(revoked=[ek(1), ek(1)]), id="a revocation twice"),
        pytest.param(lambda one: one["spec"].update(revoked=["EK"]), id="a revocation that is no digest"),
        pytest.param(lambda one: one["spec"].update(reinstated=["EK"]), id="one taken back that is no digest"),
        pytest.param(lambda one: one["spec"].update(reinstated=[ek(9)]), id="one taken back that is in force"),
        pytest.param(lambda one: one["metadata"].update(name="other"), id="another name"),
        pytest.param(lambda one: one.update(kind="NodeIdentity"), id="another kind"),
        pytest.param(lambda one: one["spec"]["exceptions"][0].update(expires="2026-02-30T00:00:00Z"), id="no such day"),
        pytest.param(lambda one: one["spec"].update(generation=1 << 60), id="a generation out of bounds"),
    ],
)
def test_a_malformed_policy_is_refused(change: Any) -> None:
    document = signed(policy())
    change(document)
    assert code(lambda: verified(document)) == "MANIFEST_INVALID"


def test_a_time_of_another_form_is_told_once() -> None:
    document = signed(policy())
    document["spec"]["exceptions"][0]["expires"] = "tomorrow"
    with pytest.raises(PolicyError) as caught:
        verified(document)
    assert str(caught.value).count("expires: expected") == 1


# ---- what it names


def enforced(ek_sha256: str, *, wanted: ClusterPolicy | None = None, **changes: Any) -> SignedPolicy:
    counting = CountingProfiles(wanted or policy(), changes.pop("profiles", (*PROFILES, profile("old"), profile("x"))))
    given = {"revoked": frozenset(), "identities": IDENTITIES, "now": NOW, **changes}
    return SignedPolicy(counting=counting, ek_sha256=ek_sha256, **given)


def names(found: SignedPolicy) -> list[str]:
    return [one.name for one in found.profiles()]


def test_profiles_that_are_not_named_count_for_nothing() -> None:
    assert names(enforced(ek(1))) == ["a", "b"]


def test_a_profile_of_a_known_name_with_another_value_counts_for_nothing() -> None:
    assert names(enforced(ek(1), profiles=(profile("a"), profile("b", b"w")))) == ["a"]


@pytest.mark.parametrize(
    ("machine", "now", "counts"),
    [
        pytest.param(ek(2), NOW, True, id="its machine, in time"),
        pytest.param(ek(1), NOW, False, id="another machine"),
        pytest.param(ek(2), GLASS.expires, False, id="its machine, when it has ended"),
    ],
)
def test_an_exception_counts_for_its_machine_until_it_ends(machine: str, now: datetime, counts: bool) -> None:
    assert ("old" in names(enforced(machine, now=now))) is counts


def test_an_exception_is_of_its_profile_alone() -> None:
    """Whoever may write profiles gets no other one to count by it, nor the same name with other values."""
    for other in (profile("y"), profile("old", b"w")):
        assert names(enforced(ek(2), profiles=(other, profile("old")))) == ["old"]


def test_one_exception_does_not_need_another() -> None:
    second = replace(GLASS, profile=NamedDigest("x", profile_sha256(profile("x"))), machines=(ek(1),))
    wanted = policy(exceptions=[GLASS, second])
    assert names(enforced(ek(2), wanted=wanted)) == ["a", "b", "old"]
    assert names(enforced(ek(1), wanted=wanted)) == ["a", "b", "x"]


def test_a_profile_that_is_named_and_excepted_is_one_profile() -> None:
    named = policy(profiles=[*PROFILES, profile("old")])
    assert names(enforced(ek(2), wanted=named)) == ["a", "b", "old"]


def test_the_registers_to_quote_are_those_of_profiles_that_count_for_some_machine() -> None:
    """Also those of an exception, whatever machine asks; not those of a profile that the policy does not name."""
    by_register = {
        name: MeasurementProfile(
            name=name, posture=Posture.BOOT, registers={pcr: (AllowedValue(b"v".ljust(32, b"."), "label"),)}
        )
        for name, pcr in (("a", 4), ("b", 7), ("old", 8), ("other", 9))
    }
    glass = replace(GLASS, profile=NamedDigest("old", profile_sha256(by_register["old"])))
    wanted = policy(profiles=[by_register["a"], by_register["b"]], exceptions=[glass])
    assert CountingProfiles(wanted, by_register.values()).selection == (4, 7, 8, 15)
    assert CountingProfiles(wanted, by_register.values(), lock_register=14).selection == (4, 7, 8, 14)


def test_a_retired_profile_never_accepts() -> None:
    assert names(enforced(ek(1), wanted=policy(profiles=[profile("b")]))) == ["b"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"wanted": policy(revoked=[ek(2)])}, id="by the policy"),
        pytest.param({"revoked": frozenset({ek(2)})}, id="by what was seen"),
        pytest.param({"revoked": frozenset({ek(2)}), "identities": ()}, id="by what was seen, its object deleted"),
    ],
)
def test_a_revoked_key_counts_even_with_a_new_approved_object(changes: dict[str, Any]) -> None:
    assert code(lambda: enforced(ek(2), **changes).identity_for(ek(2))) == "IDENTITY_REVOKED"


def test_a_control_plane_must_be_signed() -> None:
    assert enforced(ek(1)).identity_for(ek(1)) == IDENTITIES[0]
    for objects in (
        (*IDENTITIES, identity(3, Role.CONTROL_PLANE)),
        (replace(IDENTITIES[0], known_by="somebody"), IDENTITIES[1]),
    ):
        number = 3 if len(objects) == 3 else 1
        found = enforced(ek(number), identities=objects)
        assert code(lambda found=found, number=number: found.identity_for(ek(number))) == "IDENTITY_UNSIGNED"


def test_a_worker_needs_no_signature() -> None:
    assert enforced(ek(4), identities=(*IDENTITIES, identity(4))).identity_for(ek(4)).node_name == "n-4"


def test_a_revoked_control_plane_is_signed_no_more() -> None:
    assert policy(revoked=[ek(1)]).control_planes == ()


def test_revoking_a_control_plane_needs_no_new_signature() -> None:
    banned = replace(IDENTITIES[0], admission=Admission.REVOKED)
    assert identity_sha256(banned) == identity_sha256(IDENTITIES[0])
    assert code(lambda: enforced(ek(1), identities=(banned,)).identity_for(ek(1))) == "IDENTITY_REVOKED"


# ---- the second key of a chip

CHIP = replace(IDENTITIES[0], ek_alias=ek(5))


def test_a_control_plane_is_signed_with_both_of_its_keys() -> None:
    """Who writes objects gives no control plane a second key; without one its digest is what it always was."""
    wanted = policy(identities=(CHIP, IDENTITIES[1]))
    for key in (ek(1), ek(5)):
        assert enforced(key, wanted=wanted, identities=(CHIP,)).identity_for(key) == CHIP
        assert code(lambda key=key: enforced(key, identities=(CHIP,)).identity_for(key)) == "IDENTITY_UNSIGNED"
    assert identity_sha256(CHIP) != identity_sha256(IDENTITIES[0]) == identity_sha256(replace(CHIP, ek_alias=""))


@pytest.mark.parametrize("banned", [ek(1), ek(5)])
def test_a_revocation_of_either_key_is_one_of_the_chip(banned: str) -> None:
    wanted = policy(identities=(CHIP,), revoked=[banned])
    assert wanted.control_planes == ()
    for key in (ek(1), ek(5)):
        assert code(lambda key=key: enforced(key, wanted=wanted, identities=(CHIP,)).identity_for(key)) == (
            "IDENTITY_REVOKED"
        )
        seen_only = enforced(key, revoked=frozenset({banned}), identities=(replace(CHIP, role=Role.WORKER),))
        assert code(lambda key=key, found=seen_only: found.identity_for(key)) == "IDENTITY_REVOKED"


# ---- what was seen


def seen(**changes: Any) -> Seen:
    return replace(Seen.of(policy(3)), **changes)


def test_it_follows_upwards_and_keeps_every_revocation() -> None:
    later = follow(seen(revoked=frozenset({ek(9), ek(8)})), policy(4, revoked=[ek(7)]))
    assert (later.generation, later.revoked) == (4, frozenset({ek(9), ek(8), ek(7)}))
    assert follow(seen(), policy(3)) == seen()


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(policy(2), id="a lower generation"),
        pytest.param(policy(3, profiles=[profile("a")]), id="the same generation with another content"),
    ],
)
def test_a_past_that_comes_back_is_refused(shown: ClusterPolicy) -> None:
    assert code(lambda: follow(seen(), shown)) == "POLICY_ROLLED_BACK"
    assert code(lambda: adopt([seen()], shown)) == "POLICY_ROLLED_BACK"


def test_a_revocation_is_signed_or_among_the_objects_or_was_rolled_back() -> None:
    missing = missing_revocations(seen(revoked=frozenset({ek(9), ek(8)})), policy(4))
    assert missing == {ek(8)}
    require_revocations(missing, [ek(8), ek(1)])
    assert code(lambda: require_revocations(missing, [ek(1)])) == "POLICY_ROLLED_BACK"


def test_the_site_may_give_it_anew_with_all_revocations_only() -> None:
    known = seen(revoked=frozenset({ek(9), ek(8)}))
    assert adopt([known], policy(4, revoked=[ek(9), ek(8)])).generation == 4
    assert adopt([], policy(1)) == Seen.of(policy(1))
    assert code(lambda: adopt([known], policy(4))) == "POLICY_ROLLED_BACK"


def test_what_is_applied_to_an_identity_is_its_spec_and_the_label_of_a_revoked_one() -> None:
    document = render_identity(identity(1))
    stored = {**document, "metadata": {**document["metadata"], "labels": {"team": "a"}, "uid": "u"}, "status": {}}
    revoked = {**document, "metadata": {**document["metadata"], "labels": {REVOKED_LABEL: "true"}}}
    other = {**document, "spec": {**document["spec"], "knownBy": "list"}}
    assert applied_sha256(stored) == applied_sha256(document)
    assert len({applied_sha256(one) for one in (document, revoked, other)}) == 3


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({}, b'{"revoked":"","spec":{"nodeName":"w-1"}}'),
        ({REVOKED_LABEL: "true"}, b'{"revoked":"true","spec":{"nodeName":"w-1"}}'),
    ],
)
def test_releases_of_the_collection_agree_on_what_is_applied(labels: dict[str, str], text: bytes) -> None:
    """A control plane and the admin's machine compute it, and they may have different releases."""
    document = {"metadata": {"labels": labels}, "spec": {"nodeName": "w-1"}}
    assert applied_sha256(document) == hashlib.sha256(text).hexdigest()
