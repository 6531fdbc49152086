# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a further control plane gets: files that are whole, and a policy that this record vouches for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.control_plane import (
    KUBERNETES,
    OwnControlPlane,
    check_files,
    read_files,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import (
    ADMISSION_FILE,
    AUDIT_WEBHOOK_FILE,
    AUTHENTICATION_FILE,
    CONTROL_PLANE_FILES,
    ENCRYPTION_FILE,
    MAX_FILE_BYTES,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import render_encryption
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import admission_file
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import (
    audit_webhook_file,
    authentication_file,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import PodSecurity
from ansible_collections.attested.kubernetes.tests.support.control_plane import ENCRYPTION, shared_files, write_files
from ansible_collections.attested.kubernetes.tests.support.keys_of_no_use import encrypted_key, unknown_key
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import (
    MemoryCounter,
    PolicySite,
    authority_of,
    record_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER = b"c" * 32
EK = "a" * 64
CERTIFICATES = ("pki/ca.crt", "pki/etcd/ca.crt", "pki/front-proxy-ca.crt")


def code(action: Callable[[], Any]) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


# ---- files


def test_whole_files_are_read_as_secrets(tmp_path: Path) -> None:
    write_files(tmp_path, shared_files())
    checked = check_files(read_files(tmp_path))
    assert {name: data.reveal() for name, data in checked.items()} == shared_files()
    assert set(checked) == set(CONTROL_PLANE_FILES)


def test_what_encrypts_at_rest_is_brought_where_it_is(tmp_path: Path) -> None:
    write_files(tmp_path, {**shared_files(), ENCRYPTION_FILE: ENCRYPTION})
    assert check_files(read_files(tmp_path))[ENCRYPTION_FILE].reveal() == ENCRYPTION


def test_what_init_makes_to_encrypt_at_rest_is_good() -> None:
    made = {**shared_files(), ENCRYPTION_FILE: render_encryption(b"k" * 32)}
    assert set(check_files(made)) == {*CONTROL_PLANE_FILES, ENCRYPTION_FILE}


def test_what_pods_are_held_to_is_brought_where_it_is(tmp_path: Path) -> None:
    write_files(tmp_path, {**shared_files(), ADMISSION_FILE: admission_file(PodSecurity())})
    assert check_files(read_files(tmp_path))[ADMISSION_FILE].reveal() == admission_file(PodSecurity())


@pytest.mark.parametrize("data", [b"", b"[]", ENCRYPTION, admission_file(PodSecurity()) * 2])
def test_what_does_not_say_what_pods_are_held_to_is_refused(data: bytes) -> None:
    assert code(lambda: check_files({**shared_files(), ADMISSION_FILE: data})) == "CONTROL_PLANE_FILES_UNUSABLE"


def test_issuers_and_the_audit_webhook_are_brought_where_they_are(tmp_path: Path) -> None:
    """Without issuers each control plane writes the same file itself."""
    issuers, webhook = authentication_file([{"issuer": {"url": "https://a"}}]), audit_webhook_file({"url": "https://a"})
    given = {**shared_files(), AUTHENTICATION_FILE: issuers, AUDIT_WEBHOOK_FILE: webhook}
    write_files(tmp_path, given)
    assert {name: data.reveal() for name, data in check_files(read_files(tmp_path)).items()} == given
    assert AUTHENTICATION_FILE not in check_files({**given, AUTHENTICATION_FILE: authentication_file([])})


@pytest.mark.parametrize("name", [AUTHENTICATION_FILE, AUDIT_WEBHOOK_FILE])
@pytest.mark.parametrize("data", [b"", b"[]", ENCRYPTION])
def test_files_of_another_kind_are_refused(name: str, data: bytes) -> None:
    assert code(lambda: check_files({**shared_files(), name: data})) == "CONTROL_PLANE_FILES_UNUSABLE"


@pytest.mark.parametrize("name", CONTROL_PLANE_FILES)
def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {**shared_files(), name: b"x" * (MAX_FILE_BYTES + 1)})
    assert code(lambda: read_files(tmp_path)) == "CONTROL_PLANE_FILES_UNUSABLE"
    (tmp_path / name).unlink()
    assert code(lambda: read_files(tmp_path)) == "CONTROL_PLANE_FILES_UNUSABLE"


@pytest.mark.parametrize("name", CONTROL_PLANE_FILES)
def test_a_file_that_is_not_what_it_must_be_is_refused_by_its_name_alone(name: str) -> None:
    with pytest.raises(AttestedError) as caught:
        check_files({**shared_files(), name: b"canary that is no PEM"})
    assert caught.value.code == "CONTROL_PLANE_FILES_UNUSABLE"
    assert name in caught.value.message
    assert "canary" not in caught.value.message


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_of_another_key_is_refused(name: str) -> None:
    other = next(one for one in CERTIFICATES if one != name)
    mixed = {**shared_files(), name: shared_files()[other]}
    assert code(lambda: check_files(mixed)) == "CONTROL_PLANE_FILES_UNUSABLE"


def test_halves_of_two_keys_are_refused() -> None:
    mixed = {**shared_files(), "pki/sa.key": shared_files()["pki/ca.key"]}
    assert code(lambda: check_files(mixed)) == "CONTROL_PLANE_FILES_UNUSABLE"


@pytest.mark.parametrize("name", ["pki/ca.key", "pki/sa.key"])
@pytest.mark.parametrize("key", [encrypted_key, unknown_key])
def test_a_key_that_nobody_here_can_use_is_refused(name: str, key: Callable[[], bytes]) -> None:
    unusable = {**shared_files(), name: key()}
    assert code(lambda: check_files(unusable)) == "CONTROL_PLANE_FILES_UNUSABLE"


def test_the_files_lie_where_kubeadm_puts_them() -> None:
    assert Path("/etc/kubernetes") == KUBERNETES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"{", id="no YAML"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"kind: Secret", id="another kind"),
        pytest.param(ENCRYPTION + b"---\n" + ENCRYPTION, id="two of them"),
        pytest.param(ENCRYPTION + b"---\n[]\n", id="something behind it"),
    ],
)
def test_what_does_not_say_how_to_encrypt_is_refused(data: bytes) -> None:
    assert code(lambda: check_files({**shared_files(), ENCRYPTION_FILE: data})) == "CONTROL_PLANE_FILES_UNUSABLE"


# ---- policy


class Bed:
    """A control plane with a record and an API in memory."""

    def __init__(self, directory: Path) -> None:
        self.site = PolicySite(CLUSTER)
        self.counter = MemoryCounter()
        self.state = directory / "state"
        self.state.mkdir()
        self.record = record_in(self.state, self.counter, cluster_id=CLUSTER)
        self.authority = authority_of(self.record, cluster_id=CLUSTER)
        self.policy = self.site.sign([])
        self.gateway = FakeGateway(self.policy)
        self.authority.adopt(self.policy)
        write_files(directory / "kubernetes", shared_files())
        self.source = OwnControlPlane(self.gateway, self.authority, directory=directory / "kubernetes")

    def apply(self, policy: dict[str, Any]) -> None:
        self.gateway.apply(policy)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_the_policy_begins_the_record_of_another_control_plane(bed: Bed, tmp_path: Path) -> None:
    told = json.loads(bed.source.read().policy.reveal())
    other = record_in(tmp_path / "other", MemoryCounter(), cluster_id=CLUSTER, node="cp-2")
    assert authority_of(other, cluster_id=CLUSTER).adopt(told) == bed.authority.seen()


def test_a_newer_policy_of_the_api_is_recorded_before_it_is_given(bed: Bed) -> None:
    bed.apply(bed.site.sign([]))
    assert json.loads(bed.source.read().policy.reveal())["spec"]["generation"] == 2
    assert bed.authority.seen().generation == 2


def test_an_older_policy_is_not_given(bed: Bed) -> None:
    bed.authority.adopt(bed.site.sign([]))
    assert code(bed.source.read) == "POLICY_ROLLED_BACK"


def test_without_a_policy_there_is_nothing_to_give(bed: Bed) -> None:
    bed.gateway.delete("attestationpolicies", "cluster")
    assert code(bed.source.read) == "POLICY_ABSENT"


def test_a_revocation_that_the_site_has_not_signed_would_be_unknown_to_the_new_one(bed: Bed) -> None:
    bed.authority.note_revoked([EK])
    with pytest.raises(AttestedError) as caught:
        bed.source.read()
    assert caught.value.code == "REVOCATION_UNSIGNED"
    assert EK in caught.value.message
    bed.apply(bed.site.sign([], revoked=[EK]))
    assert bed.source.read()


def test_a_record_that_was_put_back_is_found_before_anything_is_given(bed: Bed) -> None:
    """Disk and memory agree, the counter does not: somebody put an older disk under a service that runs."""
    bed.counter.increment()
    assert code(bed.source.read) == "POLICY_ROLLED_BACK"
    assert code(bed.record.current) == "POLICY_ROLLED_BACK"


def test_a_record_whose_file_is_gone_vouches_for_nothing(bed: Bed) -> None:
    (bed.state / "policy-record.json").unlink()
    assert code(bed.source.read) == "POLICY_ROLLED_BACK"


def test_a_control_plane_without_a_record_vouches_for_nothing(bed: Bed, tmp_path: Path) -> None:
    fresh = record_in(tmp_path / "fresh", MemoryCounter(), cluster_id=CLUSTER)
    source = OwnControlPlane(bed.gateway, authority_of(fresh, cluster_id=CLUSTER), directory=tmp_path / "kubernetes")
    assert code(source.read) == "POLICY_NOT_ADOPTED"


def test_an_intact_record_is_what_was_adopted(bed: Bed) -> None:
    assert bed.record.require_intact() == bed.record.current()
