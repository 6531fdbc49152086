# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of a master secret: one file as before until there are two, and what stays is carried along."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    DiskId,
    cluster_id,
    disk_key,
    emergency_ssh_seed,
    measurement_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    MasterSecret,
    SecretBytes,
    import_master_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import (
    MasterRing,
    MasterVersion,
    import_ring,
    require_version_name,
    version_number,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

CANARY = b"canary-canary-canary-canary-0042"
FIRST = MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32))
SECOND = MasterSecret(key=SecretBytes(CANARY), salt=SecretBytes(b"S" * 32))
RING = MasterRing.first(FIRST)
BOTH = RING.with_successor(SECOND)
OLD, NEW = BOTH.names
ALONE = BOTH.ordered((NEW,))
DISK = DiskId("71111111-2222-4333-8444-555555555555")
BUNDLE = make_bundle(
    master=FIRST,
    measurement_salt=b"m" * 32,
    join_ca_key=SecretBytes(b"ca"),
    join_ca_certificate=b"-----BEGIN CERTIFICATE-----",
    policy_key=POLICY_KEY,
)


def test_a_name_is_the_number_and_the_begin_of_the_fingerprint() -> None:
    first = MasterRing.first(FIRST)
    both = first.with_successor(SECOND)
    assert first.names == (f"1-{FIRST.fingerprint()[:16]}",)
    assert both.names == (*first.names, f"2-{SECOND.fingerprint()[:16]}")
    assert [version_number(require_version_name(name)) for name in both.names] == [1, 2]


def test_a_successor_is_newer_than_all_whichever_leads() -> None:
    assert [one.newest.name for one in (RING, BOTH, BOTH.ordered((NEW, OLD)))] == [OLD, NEW, NEW]
    third = ALONE.with_successor(FIRST)
    assert (third.lead.number, third.newest.number) == (2, 3)


@pytest.mark.parametrize(
    "text", ["", "1", "1-", "0-" + "ab" * 8, "1-" + "AB" * 8, "1-" + "ab" * 9, "1234567-" + "ab" * 8, f"{OLD}\n"]
)
def test_what_a_person_gives_for_a_name_is_one(text: str) -> None:
    assert code_of(lambda: require_version_name(text)) == "OPTION_INVALID"
    assert code_of(lambda: version_number(text)) == "OPTION_INVALID"


def test_every_secret_value_is_told_to_who_looks_for_them() -> None:
    told = {one.reveal() for one in BOTH.secrets()}
    own = {part.reveal() for one in (FIRST, SECOND) for part in (one.key, one.salt)}
    assert told == own | {measurement_secret(FIRST).reveal(), emergency_ssh_seed(FIRST).reveal()}


def test_disk_keys_are_those_of_each_version_the_leading_one_first() -> None:
    keys = {one.name: one.key for one in BOTH.ordered((NEW, OLD)).disk_keys(DISK)}
    assert list(keys) == [NEW, OLD]
    assert keys == {NEW: disk_key(SECOND, DISK), OLD: disk_key(FIRST, DISK)}
    assert keys[NEW] != keys[OLD]


def test_what_followed_from_the_first_version_stays() -> None:
    assert ALONE.carried.measurement_secret == measurement_secret(FIRST) != measurement_secret(SECOND)
    assert ALONE.carried.emergency_ssh_seed == emergency_ssh_seed(FIRST) != emergency_ssh_seed(SECOND)
    after = replace(BUNDLE, ring=ALONE)
    after.require_cluster()
    assert cluster_id(after.measurement_secret(), b"m" * 32) == BUNDLE.cluster_id


def test_a_master_secret_that_was_never_rotated_is_the_file_of_before() -> None:
    assert RING.to_json() == FIRST.to_json()
    assert import_ring(FIRST.to_json()) == RING
    assert message_class("attested.v1.InitBundle").FromString(BUNDLE.to_bytes()).version == 2


@pytest.mark.parametrize("ring", [RING, BOTH, BOTH.ordered((NEW, OLD)), ALONE], ids=["first", "both", "led", "alone"])
def test_file_and_bundle_are_read_as_they_were_written(ring: MasterRing) -> None:
    assert import_ring(ring.to_json()) == ring
    assert list(json.loads(ring.to_json())) == sorted(json.loads(ring.to_json()))
    bundle = replace(BUNDLE, ring=ring)
    assert KeyBundle.from_bytes(bundle.to_bytes()) == bundle


@pytest.mark.parametrize("ring", [BOTH, ALONE], ids=["both", "alone"])
def test_a_rotated_one_is_not_taken_for_a_plain_one(ring: MasterRing) -> None:
    """Its measurement secret would be another one, and so would the cluster."""
    assert code_of(lambda: import_master_secret(ring.to_json())) == "MASTER_SECRET_ROTATED"
    assert code_of(ring.require_first) == "MASTER_SECRET_ROTATED"
    assert RING.require_first() == FIRST


def test_the_record_is_under_the_leading_version_and_taken_under_the_other() -> None:
    before, both = BUNDLE.record_keys(), replace(BUNDLE, ring=BOTH).record_keys()
    after = replace(BUNDLE, ring=ALONE).record_keys()
    assert both == (*before, *after)
    assert replace(BUNDLE, ring=BOTH).ordered((NEW, OLD)).record_keys() == (*after, *before)


def document(**changes: object) -> bytes:
    return json.dumps({**json.loads(BOTH.to_json()), **changes}).encode()


OTHER = json.loads(BOTH.to_json())["others"][0]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"5", id="a number"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(document(more=1), id="another member"),
        pytest.param(document(number=True), id="a truth value"),
        pytest.param(document(number=0), id="number zero"),
        pytest.param(document(number=1.5), id="a fraction"),
        pytest.param(document(number=2), id="a number twice"),
        pytest.param(document(others={}), id="others that are no list"),
        pytest.param(document(others=[{}]), id="another without members"),
        pytest.param(document(others=[1]), id="another that is a number"),
        pytest.param(document(others=[{**OTHER, "more": 1}]), id="another with another member"),
        pytest.param(document(others=json.loads(BOTH.to_json())["others"] * 2), id="three versions"),
        pytest.param(document(key="AAAA"), id="a short key"),
        pytest.param(document(measurement_secret=None), id="nothing carried"),
        pytest.param(document(emergency_ssh_seed="?"), id="no base64"),
        pytest.param(document(emergency_ssh_seed="!" + OTHER["key"]), id="more than base64"),
        pytest.param(document(emergency_ssh_seed="AAAA"), id="a short seed"),
    ],
)
def test_anything_else_is_no_ring(data: bytes) -> None:
    assert code_of(lambda: import_ring(data)) == "SITE_SECRET_MALFORMED: master secret"


@pytest.mark.parametrize("names", [(), (OLD, "3-" + "ab" * 8)], ids=["none", "an unknown one"])
def test_only_versions_that_there_are_can_be_ordered(names: tuple[str, ...]) -> None:
    assert code_of(lambda: BOTH.ordered(names)) == "MASTER_SECRET_UNKNOWN"


def test_a_third_version_is_refused() -> None:
    assert code_of(lambda: BOTH.with_successor(FIRST)) == "SITE_SECRET_MALFORMED: master secret"


def test_nothing_of_a_secret_shows() -> None:
    shown = "".join(
        map(repr, (BOTH, BOTH.versions[1], MasterVersion(number=2, secret=SECOND), BOTH.disk_keys(DISK), BOTH.names))
    )
    needles = [*spellings(CANARY), *spellings(disk_key(SECOND, DISK).reveal())]
    assert [one for one in needles if one in shown.encode()] == []
    assert any(one in BOTH.to_json() for one in spellings(CANARY)), "a planted one is found"
