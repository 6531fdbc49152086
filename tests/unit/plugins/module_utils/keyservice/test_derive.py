# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's derivation: its known-answer vectors and what an id may be."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    CLUSTER_ID_BYTES,
    KEY_BYTES,
    DiskId,
    cluster_id,
    disk_key,
    emergency_ssh_seed,
    measurement_secret,
    policy_record_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    MasterSecret,
    MeasurementSecret,
    SecretBytes,
)


def _master(key: bytes, salt: bytes) -> MasterSecret:
    return MasterSecret(key=SecretBytes(key), salt=SecretBytes(salt))


def _row(first: int) -> bytes:
    return bytes(range(first, first + 32))


UNIT = _master(_row(0x40), _row(0x60))


@pytest.mark.parametrize(
    ("fill", "uuid", "expected"),
    [
        pytest.param(
            b"\x00",
            "00000000-0000-0000-0000-000000000000",
            "2b5c829f691bfd4232f8aac464bccc07e605c7c8e82cbca09837e86d0b6d0665",
            id="all zero",
        ),
        pytest.param(
            b"\xff",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "1484aa39d3415e906e07940ff215d8b1eee705d3027dba93306af4abff4f70be",
            id="all ones",
        ),
    ],
)
def test_disk_key_is_constellations(fill: bytes, uuid: str, expected: str) -> None:
    assert disk_key(_master(fill * 32, fill * 32), DiskId(uuid)).reveal().hex() == expected


def test_measurement_secret_is_constellations() -> None:
    expected = "4790578891f3fe6cc22cb661ecdc1b7e33121b1287546a52ba33a9136719c213"
    assert measurement_secret(UNIT).reveal().hex() == expected


def test_cluster_id_is_constellations() -> None:
    expected = "128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6"
    assert cluster_id(MeasurementSecret(_row(0)), _row(0x20)).hex() == expected


def test_cluster_id_of_the_derived_measurement_secret() -> None:
    expected = "1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9"
    assert cluster_id(measurement_secret(UNIT), _row(0x20)).hex() == expected


def test_emergency_ssh_seed_is_constellations() -> None:
    expected = "fa46e4673f1b438bf3dae6f29e7fe02000665d09622a10a0578b4f831663f382"
    assert emergency_ssh_seed(UNIT).reveal().hex() == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="an empty id"),
        pytest.param("00000000-0000-0000-0000-00000000000A", id="an upper-case digit"),
        pytest.param("{00000000-0000-0000-0000-000000000000}", id="braces around it"),
        pytest.param("00000000000000000000000000000000", id="no hyphens"),
        pytest.param("00000000-0000-0000-0000-000000000000\n", id="a newline behind it"),
        pytest.param("measurementSecret", id="the name of another class of id"),
        pytest.param("clusterID", id="the info of the cluster id"),
        pytest.param("\u06600000000-0000-0000-0000-000000000000", id="a digit of another script"),
    ],
)
def test_a_disk_id_that_is_no_lower_case_uuid_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        DiskId(text)
    assert caught.value.code == "DISK_ID_MALFORMED"


def test_a_new_disk_id_is_a_version_4_uuid() -> None:
    assert DiskId.from_random(b"\xff" * 16).uuid == "ffffffff-ffff-4fff-bfff-ffffffffffff"
    assert DiskId.from_random(bytes(16)).uuid == "00000000-0000-4000-8000-000000000000"
    counting = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert DiskId.from_random(counting).uuid == "00112233-4455-4677-8899-aabbccddeeff"


def test_keys_and_cluster_ids_are_as_long_as_they_are_said_to_be() -> None:
    """What takes a cluster id apart counts by this number."""
    assert len(cluster_id(MeasurementSecret(_row(0)), _row(0x20))) == CLUSTER_ID_BYTES
    assert len(emergency_ssh_seed(UNIT).reveal()) == KEY_BYTES


def test_the_key_of_the_record_is_what_it_was() -> None:
    """HKDF by its definition (RFC 5869): another key, and no control plane finds its own record whole any more."""
    use, cluster = b"attested.kubernetes/policy-record-key/v1", b"c" * 32
    info = b"".join(len(part).to_bytes(8, "big") + part for part in (use, cluster))
    extracted = hmac.digest(_row(0x60), _row(0x40), hashlib.sha256)
    expanded = hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    assert policy_record_key(UNIT, cluster).reveal() == expanded
