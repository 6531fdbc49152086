# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Master secret, key bundle and the types that hold them."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    DiskKey,
    MasterSecret,
    SecretBytes,
    generate_master_secret,
    generate_measurement_salt,
    import_master_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

CANARY = b"canary-canary-canary-canary-0001"
MASTER = MasterSecret(key=SecretBytes(CANARY), salt=SecretBytes(b"s" * 32))


@pytest.fixture
def bundle() -> KeyBundle:
    return make_bundle(
        master=MASTER,
        measurement_salt=b"m" * 32,
        join_ca_key=SecretBytes(CANARY),
        join_ca_certificate=b"-----BEGIN CERTIFICATE-----",
        policy_key=POLICY_KEY,
    )


def test_a_generated_secret_has_the_lengths_and_is_new_each_time() -> None:
    first, second = (generate_master_secret(SystemRandom()) for _unused in range(2))
    assert (len(first.key), len(first.salt), len(generate_measurement_salt(SystemRandom()))) == (32, 32, 32)
    assert first.key != second.key
    assert first.key != first.salt


def test_constellations_file_is_imported_and_written_back() -> None:
    document = json.dumps({"key": base64.b64encode(CANARY).decode(), "salt": base64.b64encode(b"s" * 32).decode()})
    imported = import_master_secret(document.encode())
    assert imported == MASTER
    assert json.loads(imported.to_json()) == json.loads(document)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"key": "AA=="}', id="no salt"),
        pytest.param(b'{"key": "AA==", "salt": "AA=="}', id="one byte each"),
        pytest.param(b'{"key": 1, "salt": 2}', id="numbers"),
        pytest.param(b'{"key": "***", "salt": "AA=="}', id="no base64"),
    ],
)
def test_a_malformed_master_secret_is_refused_without_its_text(document: bytes) -> None:
    with pytest.raises(KeyServiceError) as caught:
        import_master_secret(document)
    assert Coded(caught.value) == "SITE_SECRET_MALFORMED: master secret"
    assert caught.value.__cause__ is None


def test_the_fingerprint_names_the_secret() -> None:
    other = MasterSecret(key=SecretBytes(b"x" * 32), salt=MASTER.salt)
    assert MASTER.fingerprint() == MasterSecret(key=SecretBytes(CANARY), salt=SecretBytes(b"s" * 32)).fingerprint()
    assert MASTER.fingerprint() != other.fingerprint()
    assert MASTER.fingerprint() != MasterSecret(key=MASTER.key, salt=SecretBytes(b"t" * 32)).fingerprint()
    assert len(MASTER.fingerprint()) == 32


def test_no_repr_holds_a_secret(bundle: KeyBundle) -> None:
    for thing in (MASTER, MASTER.key, bundle, DiskKey(CANARY)):
        assert "canary" not in f"{thing!r} {thing!s} {[thing]}"


def test_a_secret_cannot_be_pickled_or_hashed() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(DiskKey(CANARY))
    with pytest.raises(TypeError):
        hash(DiskKey(CANARY))


def test_secrets_of_two_types_are_never_equal() -> None:
    assert DiskKey(CANARY) != SecretBytes(CANARY)
    assert DiskKey(CANARY) == DiskKey(CANARY)


def test_a_bundle_survives_the_wire(bundle: KeyBundle) -> None:
    assert KeyBundle.from_bytes(bundle.to_bytes()) == bundle


def test_a_bundle_of_another_version_is_refused(bundle: KeyBundle) -> None:
    message = message_class("attested.v1.InitBundle").FromString(bundle.to_bytes())
    message.version = 1
    with pytest.raises(KeyServiceError) as caught:
        KeyBundle.from_bytes(message.SerializeToString())
    assert Coded(caught.value) == "FILE_VERSION_UNKNOWN: a key bundle of version"


def test_a_bundle_whose_secrets_derive_another_cluster_is_refused(bundle: KeyBundle) -> None:
    foreign = dataclasses.replace(bundle, cluster_id=b"\x01" * 32)
    with pytest.raises(AttestedError) as caught:
        KeyBundle.from_bytes(foreign.to_bytes())
    assert caught.value.code == "CLUSTER_ID_MISMATCH"
