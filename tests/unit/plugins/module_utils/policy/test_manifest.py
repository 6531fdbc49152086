# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests: read strictly, every problem in one error, written back as they were."""

from __future__ import annotations

import copy
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Loader, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    IdentityStatus,
    NodeIdentity,
    Role,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    Manifests,
    parse_documents,
    parse_objects,
    render_document,
    render_identity,
    render_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasuredEvent,
    MeasurementProfile,
    Posture,
)
from hypothesis import given
from hypothesis import strategies as st

EK = "a1" * 32
DIGEST = b"\xd1" * 32

PROFILE = MeasurementProfile(
    name="r650-debian13",
    posture=Posture.BOOT,
    registers={0: (AllowedValue(DIGEST, "13.6"), AllowedValue(bytes(32), "13.7")), 4: (AllowedValue(DIGEST, "ü"),)},
    reference_events=(MeasuredEvent(pcr=4, digest=DIGEST, text="kernel command line: quiet", proven=True),),
)
IDENTITY = NodeIdentity(
    ek_sha256=EK,
    node_name="cp-1.example",
    role=Role.CONTROL_PLANE,
    admission=Admission.APPROVED,
    known_by="enrolled by ops",
)


def changed(manifest: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy with the member at a path like spec/registers/0/pcr set, or removed for ...."""
    document = copy.deepcopy(manifest)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    target: Any = document
    for part in parents:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return document


def problems_of(*documents: object) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_objects(("site.yml", document) for document in documents)
    assert caught.value.code == "MANIFEST_INVALID"
    return caught.value.message


def yaml_problem(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_documents([("site.yml", text)])
    assert caught.value.code == "MANIFEST_INVALID"
    return caught.value.message


def test_what_is_written_is_read_back() -> None:
    texts = [("p.yml", render_document(render_profile(PROFILE))), ("i.yml", render_document(render_identity(IDENTITY)))]
    assert parse_documents(texts) == Manifests((PROFILE,), (IDENTITY,))


def test_a_digest_of_digits_only_survives_yaml() -> None:
    number = MeasurementProfile(name="x", posture=Posture.BOOT, registers={4: (AllowedValue(b"\x11" * 32, "1e5"),)})
    assert parse_documents([("p.yml", render_document(render_profile(number)))]).profiles == (number,)


def test_several_documents_in_one_text_are_read_and_empty_ones_skipped() -> None:
    text = "---\n" + render_document(render_profile(PROFILE)) + render_document(render_identity(IDENTITY)) + "---\n"
    assert parse_documents([("all.yml", text)]) == Manifests((PROFILE,), (IDENTITY,))
    assert parse_documents([("none.yml", "# nothing\n")]) == Manifests((), ())


def test_an_object_of_the_api_carries_more_metadata_and_a_status() -> None:
    live = changed(render_identity(IDENTITY), "metadata/resourceVersion", "17")
    live["status"] = {"phase": "Joined", "diskId": "d", "akName": "000b", "clock": 7, "conditions": []}
    (identity,) = parse_objects([("api", live)]).identities
    assert identity.status == IdentityStatus(phase="Joined", disk_id="d", ak_name="000b")


@pytest.mark.parametrize("status", [None, "Joined", [], {"phase": 7}])
def test_a_status_is_never_a_problem(status: object) -> None:
    live = {**render_identity(IDENTITY), "status": status}
    assert parse_objects([("api", live)]).identities == (IDENTITY,)


@pytest.mark.parametrize("tpm", ["x", [], {"clock": "7"}, {"clock": 1.5}, {"resetCount": True}])
def test_what_was_remembered_of_a_tpm_is_never_forgotten_for_its_form(tpm: object) -> None:
    live = {**render_identity(IDENTITY), "status": {"tpm": tpm}}
    assert "status.tpm: expected whole numbers" in problems_of(live)


@pytest.mark.parametrize(
    ("told", "read"),
    [
        pytest.param("2026-11-21T12:00:00Z", datetime(2026, 11, 21, 12, tzinfo=UTC), id="a time"),
        pytest.param("2026-11-21T12:00:00", datetime(2026, 11, 21, 12, tzinfo=UTC), id="a time without a zone"),
        pytest.param("9999-12-31T23:59:59-14:00", None, id="a time that no zone can hold"),
        pytest.param("0001-01-01T00:00:00Z", None, id="a time before all zones"),
        pytest.param(7, None, id="a number"),
    ],
)
def test_a_time_in_a_status_is_one_or_none(told: object, read: datetime | None) -> None:
    live = {**render_identity(IDENTITY), "status": {"lastAttestation": {"time": told}}}
    (identity,) = parse_objects([("api", live)]).identities
    assert identity.status.attested_at == read


@pytest.mark.parametrize(
    ("told", "read"),
    [
        pytest.param({"profile": "p", "posture": "boot"}, ("p", "boot"), id="both"),
        pytest.param({"profile": 7, "posture": ["boot"]}, ("", ""), id="no texts"),
        pytest.param({}, ("", ""), id="neither"),
        pytest.param("p", ("", ""), id="another kind"),
        pytest.param(None, ("", ""), id="nothing"),
    ],
)
def test_by_what_evidence_was_good_is_two_words_or_none(told: object, read: tuple[str, str]) -> None:
    live = {**render_identity(IDENTITY), "status": {"lastAttestation": told}}
    (identity,) = parse_objects([("api", live)]).identities
    assert (identity.status.profile, identity.status.posture) == read


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z"])
def test_a_date_out_of_range_is_a_problem_and_no_traceback(date: str) -> None:
    problem = f"spec: expires: expected a time such as 2027-01-31T12:00:00Z, got '{date}'"
    assert problem in problems_of(changed(render_profile(PROFILE), "spec/expires", date))
    assert problem in yaml_problem(render_document(render_profile(PROFILE)) + f"  expires: {date}\n")


def test_a_message_lists_twenty_problems_and_counts_the_rest() -> None:
    many = {**render_profile(PROFILE), **{f"odd-{number}": 1 for number in range(50)}}
    assert problems_of(many).endswith("; and 30 more")


def test_assertions_expiry_and_retirement_are_written_and_read_back() -> None:
    whole = dataclasses.replace(
        PROFILE,
        assertions=Assertions(
            secure_boot=True,
            lockdown=Lockdown.CONFIDENTIALITY,
            boot_options=("root=*", "quiet"),
            firmware_minimum="2025.02",
            kernels=("6.12.117+deb13-cloud-amd64",),
            sbat_minimum={"sbat": 2025021800, "shim": 4},
            source_signers=("SHA256:admin",),
            source_minimum=7,
            node_configs=("ab" * 32,),
        ),
        loader=Loader.GRUB,
        expires=datetime(2027, 1, 31, 12, tzinfo=UTC),
        retired=True,
        roles=(Role.CONTROL_PLANE, Role.WORKER),
        machines=("1" * 64, "2" * 64),
    )
    text = render_document(render_profile(whole))
    assert parse_documents([("p.yml", text)]).profiles == (whole,)
    assert "expires: '2027-01-31T12:00:00Z'" in text


def test_an_expiry_without_quotes_is_read_as_the_same_time() -> None:
    """YAML has times of its own."""
    text = render_document(render_profile(PROFILE)) + "  expires: 2027-01-31T13:00:00+01:00\n"
    assert parse_documents([("p.yml", text)]).profiles[0].expires == datetime(2027, 1, 31, 12, tzinfo=UTC)


def test_no_option_at_all_is_a_demand_that_is_kept() -> None:
    """An empty list is another profile than no list."""
    strict = dataclasses.replace(PROFILE, assertions=Assertions(boot_options=()))
    assert parse_objects([("p", render_profile(strict))]).profiles == (strict,)
    assert "assertions" not in render_profile(PROFILE)["spec"]


def test_an_empty_profile_can_be_read_and_accepts_nobody() -> None:
    hollow = changed(render_profile(PROFILE), "spec/registers", [])
    assert parse_objects([("p.yml", hollow)]).profiles[0].accepts_no_machine


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("apiVersion", "v1", "site.yml: apiVersion: expected attested-kubernetes.dev/v1alpha1, got 'v1'"),
        ("kind", "Pod", "site.yml: kind: expected MeasurementProfile or NodeIdentity, got 'Pod'"),
        ("kind", ..., "kind: expected MeasurementProfile or NodeIdentity, got None"),
        ("data", {}, "site.yml: 'data': unknown field"),
        ("metadata", ..., "site.yml.metadata: expected a mapping, got nothing"),
        ("metadata/name", "Upper", "metadata: name: expected a DNS name in lower case, got 'Upper'"),
        ("metadata/name", "../x", "name: expected a DNS name in lower case, got '../x'"),
        ("metadata/name", "x" * 254, "name: expected a DNS name"),
        ("spec", ..., "site.yml.spec: expected a mapping, got nothing"),
        ("spec", {7: 8}, "site.yml.spec: expected a mapping, got a dict"),
        ("spec/assertion", [], "site.yml.spec: 'assertion': unknown field"),
        ("spec/posture", "all", "posture: expected one of keys, boot, root, runtime, got 'all'"),
        ("spec/posture", ..., "posture: expected one of keys, boot, root, runtime, got nothing"),
        ("spec/registers", ..., "registers: expected a list of at most 16 entries, got nothing"),
        ("spec/registers", {}, "registers: expected a list of at most 16 entries, got a dict"),
        ("spec/registers", [{}] * 17, "registers: expected a list of at most 16 entries, got a list"),
        ("spec/registers/0", "4", "site.yml.spec.registers[0]: expected a mapping, got '4'"),
        ("spec/registers/0/pcr", 16, "registers[0]: pcr: expected a number from 0 to 15, got 16"),
        ("spec/registers/0/pcr", -1, "pcr: expected a number from 0 to 15, got -1"),
        ("spec/registers/0/pcr", True, "pcr: expected a number from 0 to 15, got True"),
        ("spec/registers/0/pcr", "4", "pcr: expected a number from 0 to 15, got '4'"),
        ("spec/registers/1/pcr", 0, "site.yml.spec.registers[1]: pcr: 0 is listed twice"),
        ("spec/registers/0/bank", "sha1", "site.yml.spec.registers[0]: 'bank': unknown field"),
        ("spec/registers/0/values", ..., "values: expected a list of at most 64 entries, got nothing"),
        ("spec/registers/0/values/0/sha256", "D1" * 32, "sha256: expected 64 lower-case hex digits, got 'D1D1"),
        ("spec/registers/0/values/0/sha256", 17, "sha256: expected 64 lower-case hex digits, got 17"),
        ("spec/registers/0/values/0/sha256", "d1" * 31, "sha256: expected 64 lower-case hex digits"),
        ("spec/registers/0/values/0/label", ..., "values[0]: label: expected a text on one line of at most 128"),
        ("spec/registers/0/values/0/label", "", "label: expected a text on one line"),
        ("spec/registers/0/values/0/label", "a\nb", "label: expected a text on one line"),
        ("spec/registers/0/values/0/label", "x" * 129, "label: expected a text on one line"),
        (
            "spec/registers/0/values/0/label",
            13.7,
            "label: expected a text on one line of at most 128 characters, got 13.7",
        ),
        ("spec/registers/0/values/0/note", "x", "values[0]: 'note': unknown field"),
        ("spec/referenceEvents", "x", "referenceEvents: expected a list of at most 1024 entries, got 'x'"),
        ("spec/referenceEvents/0/rank", 0, "referenceEvents[0]: 'rank': unknown field"),
        ("spec/referenceEvents/0/type", 4, "referenceEvents[0]: type: expected a text"),
        ("spec/assertions", [], "site.yml.spec.assertions: expected a mapping, got a list"),
        ("spec/assertions", {"secureboot": True}, "assertions: 'secureboot': unknown field"),
        ("spec/assertions", {"secureBoot": "yes"}, "assertions: secureBoot: expected true or false, got 'yes'"),
        ("spec/assertions", {"lockdown": "none"}, "lockdown: expected one of integrity, confidentiality, got 'none'"),
        ("spec/assertions", {"bootOptions": "quiet"}, "bootOptions: expected a list of at most 128 texts"),
        ("spec/assertions", {"bootOptions": ["a"] * 129}, "bootOptions: expected a list of at most 128 texts"),
        ("spec/assertions", {"bootOptions": [""]}, "bootOptions: expected a list of at most 128 texts"),
        ("spec/assertions", {"kernels": [6.12]}, "kernels: expected a list of at most 64 texts"),
        ("spec/assertions", {"firmwareMinimum": "new"}, "firmwareMinimum: expected a version with a number in it"),
        (
            "spec/assertions",
            {"sbatMinimum": [{"component": "shim", "generation": 4}, {"component": "shim", "generation": 1}]},
            "sbatMinimum[1]: component: shim is listed twice",
        ),
        ("spec/assertions", {"nodeConfigs": ["AB" * 32]}, "nodeConfigs: expected 64 lower-case hex digits"),
        ("spec/expires", "tomorrow", "expires: expected a time such as 2027-01-31T12:00:00Z, got 'tomorrow'"),
        ("spec/expires", "2027-01-31T12:00:00", "expires: expected a time such as"),
        ("spec/loader", "lilo", "loader: expected one of grub, image, kernel, got 'lilo'"),
        ("spec/loader", ["grub"], "loader: expected one of grub, image, kernel, got"),
        ("spec/retired", 1, "retired: expected true or false, got 1"),
        ("spec/roles", None, "spec: 'roles': unknown field"),
        ("spec/roles", [], "roles: expected one or more of control-plane, worker, each once"),
        ("spec/roles", ["root"], "roles: expected one or more of control-plane, worker, each once"),
        ("spec/roles", ["worker", "worker"], "roles: expected one or more of control-plane, worker, each once"),
        ("spec/roles", "worker", "roles: expected a list of at most 2 texts"),
        ("spec/machines", None, "spec: 'machines': unknown field"),
        ("spec/machines", [], "machines: expected the SHA-256 of one or more endorsement keys"),
        ("spec/machines", ["w-1"], "machines: expected 64 lower-case hex digits, got 'w-1'"),
        ("spec/machines", ["1" * 64] * 2, "machines: expected each digest once"),
        ("spec/machines", ["1" * 64] * 257, "machines: expected a list of at most 256 entries, got a list"),
    ],
)
def test_a_malformed_profile_is_refused(path: str, value: object, problem: str) -> None:
    assert problem in problems_of(changed(render_profile(PROFILE), path, value))


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata/name", "ek-b2", "metadata.name: expected ek-a1a1a1a1a1a1a1a1a1a1, which the endorsement key gives"),
        ("spec/ekSha256", ..., "ekSha256: expected 64 lower-case hex digits, got nothing"),
        ("spec/ekSha256", f"sha256:{EK}", "ekSha256: expected 64 lower-case hex digits, got 'sha256:a1"),
        ("spec/nodeName", "Node_1", "nodeName: expected a node name (DNS, lower case), got 'Node_1'"),
        ("spec/nodeName", "a.-b", "nodeName: expected a node name (DNS, lower case), got 'a.-b'"),
        ("spec/nodeName", "x" * 64, "nodeName: expected a node name (DNS, lower case)"),
        ("spec/role", "master", "role: expected one of control-plane, worker, got 'master'"),
        (
            "spec/admission",
            "approved",
            "admission: expected one of Approved, Pending, Refused, Revoked, got 'approved'",
        ),
        ("spec/knownBy", "x" * 257, "knownBy: expected a text on one line of at most 256 characters"),
        ("spec/diskId", "x", "site.yml.spec: 'diskId': unknown field"),
        ("spec/ekAliasSha256", "B2" * 32, "ekAliasSha256: expected 64 lower-case hex digits, got 'B2"),
        ("spec/ekAliasSha256", "", "ekAliasSha256: expected 64 lower-case hex digits, got ''"),
        ("spec/ekAliasSha256", EK, "spec.ekAliasSha256: expected another key than spec.ekSha256, got the same"),
        ("spec/addresses", "10.0.0.21", "addresses: expected a list of at most 8 texts of at most 45 characters"),
        ("spec/addresses", ["10.0.0.21"] * 9, "addresses: expected a list of at most 8 texts"),
        ("spec/addresses", ["10.0.0.21"] * 2, "addresses: expected IP addresses, each in its shortest form and once"),
        ("spec/addresses", ["w-1"], "addresses: expected IP addresses, each in its shortest form and once"),
        ("spec/addresses", ["10.0.0.021"], "addresses: expected IP addresses, each in its shortest form and once"),
        ("spec/addresses", ["FD00::1"], "addresses: expected IP addresses, each in its shortest form and once"),
        ("spec/addresses", ["fe80::1%eth0"], "addresses: expected IP addresses, each in its shortest form and once"),
        ("spec/addresses", ["::ffff:10.0.0.1"], "addresses: expected IP addresses, each in its shortest form and once"),
    ],
)
def test_a_malformed_identity_is_refused(path: str, value: object, problem: str) -> None:
    assert problem in problems_of(changed(render_identity(IDENTITY), path, value))


def test_the_second_key_of_a_chip_is_read_back_and_left_out_where_there_is_none() -> None:
    chip = dataclasses.replace(IDENTITY, ek_alias="b2" * 32)
    assert parse_objects([("i.yml", render_identity(chip))]).identities == (chip,)
    assert "ekAliasSha256" not in render_identity(IDENTITY)["spec"]


def test_addresses_are_read_back_and_left_out_where_there_are_none() -> None:
    node = dataclasses.replace(IDENTITY, addresses=("10.0.0.21", "fd00::21"))
    assert parse_objects([("i.yml", render_identity(node))]).identities == (node,)
    assert "addresses" not in render_identity(IDENTITY)["spec"]


def test_an_identity_need_not_say_how_it_became_known() -> None:
    (identity,) = parse_objects([("i.yml", changed(render_identity(IDENTITY), "spec/knownBy", ...))]).identities
    assert identity.known_by == ""


def test_a_profile_need_not_have_reference_events() -> None:
    (profile,) = parse_objects([("p.yml", changed(render_profile(PROFILE), "spec/referenceEvents", ...))]).profiles
    assert profile.reference_events == ()
    assert "referenceEvents" not in render_profile(profile)["spec"]


def test_all_problems_of_all_documents_come_at_once() -> None:
    message = problems_of(
        changed(render_profile(PROFILE), "spec/posture", "all"),
        changed(render_identity(IDENTITY), "spec/role", "master"),
        ["no mapping"],
    )
    assert all(part in message for part in ("'all'", "'master'", "expected a mapping, got a list"))


def test_two_profiles_of_one_name_are_refused() -> None:
    message = problems_of(render_profile(PROFILE), render_profile(PROFILE))
    assert "r650-debian13 is the name of another profile as well" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "expected YAML, got site.yml: did not find", id="no YAML"),
        pytest.param("a: &x [1]\nb: *x\n", "an alias, which is not allowed here", id="an alias"),
        pytest.param("a: 1\na: 2\n", "a key twice in one mapping", id="a key twice"),
        pytest.param("!!python/object/apply:os.getcwd []\n", "a tag, which is not allowed here", id="a tag of code"),
        pytest.param("[" * 5000, "expected YAML", id="five thousand lists in each other"),
        pytest.param("a: " + "9" * 5000, "expected YAML", id="a number of five thousand digits"),
        pytest.param("x" * (1 << 20) + "x", "a text of more than 1048576 bytes", id="a text that is too large"),
        pytest.param("just text\n", "site.yml: expected a mapping, got 'just text'", id="a text alone"),
        pytest.param("---\na\n---\nb\n", "site.yml[1]: expected a mapping, got 'b'", id="two texts"),
    ],
)
def test_malformed_yaml_is_refused(text: str, problem: str) -> None:
    assert problem in yaml_problem(text)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    path=st.sampled_from(
        ["spec", "spec/registers", "spec/registers/0", "spec/registers/0/values", "spec/registers/0/values/0/sha256"]
    ),
    value=PLAIN,
)
def test_any_value_anywhere_is_read_or_refused(path: str, value: object) -> None:
    try:
        manifests = parse_objects([("p.yml", changed(render_profile(PROFILE), path, value))])
    except PolicyError as error:
        assert error.code == "MANIFEST_INVALID"
    else:
        assert len(manifests.profiles) == 1
