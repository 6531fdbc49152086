# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from a master secret: the known answers of Constellation, and nothing shown."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import MasterRing
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.values import (
    ClusterValues,
    derive_cluster,
    lock_value,
    parse_state,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

UUID = "00000000-0000-0000-0000-000000000000"
SALT = bytes(range(0x20, 0x40))
CLUSTER = "1f3d87784b0ce2d13d608d8455627a238acf5c96a62164cf02b236877e0bb0d9"
STATE = f"version: v1\nclusterValues:\n  clusterID: {CLUSTER}\n  ownerID: ''\n  measurementSalt: {SALT.hex()}\n"


def master(first: int = 0x40) -> MasterSecret:
    return MasterSecret(
        key=SecretBytes(bytes(range(first, first + 32))), salt=SecretBytes(bytes(range(first + 32, first + 64)))
    )


def test_the_known_answers() -> None:
    secrets = derive_cluster(master(), values=ClusterValues(measurement_salt=SALT))
    expected = "4790578891f3fe6cc22cb661ecdc1b7e33121b1287546a52ba33a9136719c213"
    assert secrets.measurement_secret.reveal().hex() == expected
    assert secrets.public.cluster_id == CLUSTER
    assert secrets.public.ssh_ca == ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL7qm2RSbOr+DBRDDn+qZEhauN1R7MgQZK5cu8ETyVfF")


def test_the_known_answer_of_a_disk() -> None:
    zeros = MasterSecret(key=SecretBytes(bytes(32)), salt=SecretBytes(bytes(32)))
    key = derive_cluster(zeros, disks=(UUID,)).disks[UUID]
    assert key.reveal().hex() == "2b5c829f691bfd4232f8aac464bccc07e605c7c8e82cbca09837e86d0b6d0665"


@pytest.mark.parametrize(
    ("bank", "cluster", "expected"),
    [
        (
            "sha256",
            "128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6",
            "23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f",
        ),
        (
            "sha384",
            "128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6",
            "894927a8d9fda1b23231f7a1a9505fd67f41cfe6b8cb66e7a15fcc04529aeae2708795d00dbfc191bf1b5d88a97f55d9",
        ),
        ("sha256", "02", "07cd877f1286496295abdf54bcec329c4b3df21412c66b4b9b30e36ec204d91d"),
    ],
)
def test_register_15_is_what_a_tpm_had(bank: str, cluster: str, expected: str) -> None:
    assert lock_value(bytes.fromhex(cluster), bank).hex() == expected


def test_without_the_salt_there_is_no_cluster_id_and_no_guess() -> None:
    public = derive_cluster(master()).public
    assert (public.cluster_id, public.pcr15_sha256, public.pcr15_sha384) == ("", "", "")


def test_the_state_file_gives_salt_and_cluster_id() -> None:
    values = parse_state(STATE.encode())
    assert (values.measurement_salt, values.cluster_id.hex()) == (SALT, CLUSTER)
    assert derive_cluster(master(), values=values).public.cluster_id == CLUSTER


def test_the_master_secret_of_another_cluster_is_noticed() -> None:
    values = parse_state(STATE.encode())
    assert code_of(lambda: derive_cluster(master(0x41), values=values)) == "CLUSTER_ID_MISMATCH"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("- 1", id="a list"),
        pytest.param("a: [", id="no YAML"),
        pytest.param("\xff", id="no mapping"),
        pytest.param(STATE.replace("v1", "v2"), id="another version"),
        pytest.param("version: v1", id="no values"),
        pytest.param(STATE.replace(SALT.hex(), SALT.hex()[2:]), id="a short salt"),
        pytest.param(STATE.replace(SALT.hex(), "x" * 64), id="a salt in other digits"),
        pytest.param(STATE.replace(CLUSTER, "abc"), id="a short cluster id"),
        pytest.param(STATE + "---\nversion: v1\n", id="two documents"),
    ],
)
def test_a_state_file_that_says_less_is_refused(text: str) -> None:
    assert code_of(lambda: parse_state(text.encode("latin-1"))) == "RESCUE_FILE_MALFORMED: the state file:"


def test_a_disk_id_is_a_lower_case_uuid() -> None:
    assert code_of(lambda: derive_cluster(master(), disks=("measurementSecret",))) == "DISK_ID_MALFORMED"


def test_secrets_do_not_show_themselves() -> None:
    secrets = derive_cluster(master(), disks=(UUID,))
    shown = repr(secrets)
    assert secrets.public.fingerprint in shown
    for secret in (secrets.disks[UUID], secrets.measurement_secret):
        assert secret.reveal().hex() not in shown
    assert "PRIVATE" not in shown


def test_a_rotated_secret_gives_each_disk_a_key_a_version_and_the_cluster_stays() -> None:
    both = MasterRing.first(master()).with_successor(master(0x41))
    first, rotated = derive_cluster(master(), disks=(UUID,)), derive_cluster(both, disks=(UUID,))
    assert rotated.disks == first.disks
    assert [(one.name, one.key) for one in rotated.others[UUID]] == [
        (both.newest.name, derive_cluster(master(0x41), disks=(UUID,)).disks[UUID])
    ]
    alone = derive_cluster(
        both.ordered((both.newest.name,)), disks=(UUID,), values=ClusterValues(measurement_salt=SALT)
    )
    assert alone.disks[UUID] == rotated.others[UUID][0].key
    assert alone.measurement_secret == first.measurement_secret
    assert (alone.public.cluster_id, alone.public.ssh_ca) == (CLUSTER, first.public.ssh_ca)
