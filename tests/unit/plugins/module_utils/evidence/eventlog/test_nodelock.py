# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three readings of the node lock's register."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    DEFAULT_REGISTER,
    LOCK_KIND,
    SOURCE_KIND,
    LockReading,
    LockState,
    read_lock,
    require_lock_register,
    value_before_lock,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import extend, initial_value
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    UserspaceRecord,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA1, ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots

OURS = b"o" * 32
THEIRS = b"t" * 32
BOOT = boots.load("deb13-base")
SYSTEMD = tuple(one for one in parse_records(BOOT.userspace, "log") if one.pcr == DEFAULT_REGISTER)
NO_FIRMWARE = FirmwareLog(events=(), startup_locality=0)


def told(text: str, kind: str = "cryptsetup") -> UserspaceRecord:
    return UserspaceRecord(pcr=15, digests={ALG_SHA256: hashlib.sha256(text.encode()).digest()}, kind=kind, text=text)


def lock(cluster_id: bytes = OURS) -> UserspaceRecord:
    content = {"eventType": LOCK_KIND, "version": 1, "clusterId": cluster_id.hex()}
    digests = [{"hashAlg": "sha256", "digest": hashlib.sha256(cluster_id).hexdigest()}]
    data = b"\x1e" + json.dumps({"pcr": 15, "digests": digests, "content": content}).encode()
    return parse_records(data, "node lock log")[0]


def value_after(*records: UserspaceRecord) -> bytes:
    value = initial_value(15)
    for record in records:
        value = extend(value, record.digests[ALG_SHA256])
    return value


def reading(
    value: bytes,
    *own: UserspaceRecord,
    systemd: tuple[UserspaceRecord, ...] = SYSTEMD,
    firmware: FirmwareLog = NO_FIRMWARE,
) -> LockReading:
    return read_lock(value, register=15, firmware=firmware, userspace=systemd, nodelock=own)


def test_a_recorded_boot_is_unlocked_although_its_register_is_not_zero() -> None:
    assert BOOT.pcrs[15] != bytes(32)
    assert reading(BOOT.pcrs[15]) == LockReading(state=LockState.UNLOCKED)


def test_a_machine_without_any_measurement_there_is_unlocked() -> None:
    assert reading(bytes(32), systemd=()).state is LockState.UNLOCKED


def test_a_lock_names_its_cluster() -> None:
    """Constellation's value: TPM2_PCR_Event of the cluster id."""
    value = extend(BOOT.pcrs[15], hashlib.sha256(OURS).digest())
    assert reading(value, lock()) == LockReading(state=LockState.LOCKED, cluster_id=OURS)


def test_our_configuration_may_be_measured_before_the_lock() -> None:
    node = told("node-configuration:1f", "node-configuration")
    assert reading(value_after(*SYSTEMD, node), node) == LockReading(state=LockState.UNLOCKED)
    assert reading(value_after(*SYSTEMD, node, lock()), node, lock()).state is LockState.LOCKED


def test_systemd_may_measure_a_volume_after_the_lock() -> None:
    late = told("cryptsetup:state:uuid")
    assert reading(value_after(*SYSTEMD, lock(), late), lock(), systemd=(*SYSTEMD, late)).state is LockState.LOCKED


def test_records_of_other_registers_do_not_count() -> None:
    every = parse_records(BOOT.userspace, "log")
    assert reading(BOOT.pcrs[15], systemd=every).state is LockState.UNLOCKED
    value = value_after(*SYSTEMD, lock())
    assert reading(value, replace(told("a"), pcr=11), lock()).state is LockState.LOCKED
    elsewhere = FirmwareEvent(pcr=14, kind=1, digests={ALG_SHA256: bytes(32)}, data=b"")
    firmware = FirmwareLog(events=(elsewhere,), startup_locality=0)
    assert reading(BOOT.pcrs[15], firmware=firmware).state is LockState.UNLOCKED


@pytest.mark.parametrize(
    ("value", "own", "why"),
    [
        pytest.param(value_after(*SYSTEMD, lock()), (), "the logs do not lead to", id="the lock's record is withheld"),
        pytest.param(
            value_after(*SYSTEMD, lock(), lock(THEIRS)), (lock(), lock(THEIRS)), "locked twice", id="two locks"
        ),
        pytest.param(
            value_after(*SYSTEMD, lock(THEIRS)),
            (UserspaceRecord(pcr=15, digests=lock(THEIRS).digests, kind="node-configuration", text="harmless"),),
            "records that do not say what was hashed: node-configuration",
            id="another cluster's lock passed off as configuration",
        ),
        pytest.param(
            value_after(*SYSTEMD, lock(THEIRS)),
            (UserspaceRecord(pcr=15, digests=lock(THEIRS).digests, kind=LOCK_KIND, text=OURS.hex()),),
            "records that do not say what was hashed: nodelock",
            id="another cluster's lock passed off as ours",
        ),
        pytest.param(
            value_after(*SYSTEMD),
            (UserspaceRecord(pcr=15, digests={ALG_SHA256: bytes(32)}, kind=LOCK_KIND, text="no hex"),),
            "records that do not say what was hashed: nodelock",
            id="a lock that names no cluster",
        ),
        pytest.param(
            value_after(*SYSTEMD),
            (UserspaceRecord(pcr=15, digests={ALG_SHA1: bytes(20)}, kind="x", text="x"),),
            "records that do not say what was hashed: x",
            id="a record without the bank",
        ),
        pytest.param(
            value_after(*SYSTEMD), (told("a"), told("b"), told("c")), "1 and 3 records", id="three own records"
        ),
    ],
)
def test_what_cannot_be_explained_is_foreign(value: bytes, own: tuple[UserspaceRecord, ...], why: str) -> None:
    got = reading(value, *own)
    assert (got.state, got.cluster_id) == (LockState.FOREIGN, b"")
    assert why in got.why


def test_too_many_records_are_not_tried() -> None:
    many = tuple(told(f"cryptsetup:{number}") for number in range(17))
    assert "17 and 0 records" in reading(value_after(*many), systemd=many).why
    assert reading(value_after(*many[1:]), systemd=many[1:]).state is LockState.UNLOCKED


def test_a_register_that_the_firmware_extended_is_foreign() -> None:
    event = FirmwareEvent(pcr=15, kind=1, digests={ALG_SHA256: bytes(32)}, data=b"")
    events = (event, replace(event, pcr=14))
    got = reading(bytes(32), systemd=(), firmware=FirmwareLog(events=events, startup_locality=0))
    assert (got.state, got.why) == (LockState.FOREIGN, "the firmware extended it")


def test_a_lock_that_was_recorded_and_then_not_taken_is_none() -> None:
    """The machine died between the record and the extension."""
    assert reading(BOOT.pcrs[15], lock()).state is LockState.UNLOCKED


def test_what_was_recorded_last_alone_may_not_have_happened() -> None:
    node = told("node-configuration:1f", "node-configuration")
    got = reading(value_after(*SYSTEMD, node), node, lock())
    assert (got.state, got.own) == (LockState.UNLOCKED, 1)


def test_the_source_is_what_our_log_says_first() -> None:
    source = told("commit 1f", SOURCE_KIND)
    assert (SOURCE_KIND, DEFAULT_REGISTER) == ("source", 15)
    assert reading(value_after(*SYSTEMD, source), source).source == "commit 1f"
    locked = LockReading(state=LockState.LOCKED, cluster_id=OURS, source="commit 1f")
    assert reading(value_after(*SYSTEMD, source, lock()), source, lock()) == locked
    late = reading(value_after(*SYSTEMD, lock(), source), lock(), source)
    assert late == LockReading(state=LockState.LOCKED, cluster_id=OURS)


def test_a_lock_in_systemds_log_is_a_lock_too() -> None:
    """Which of the two logs says it decides nothing."""
    theirs = (*SYSTEMD, lock())
    assert reading(value_after(*theirs), systemd=theirs).state is LockState.LOCKED
    assert "locked twice" in reading(value_after(*theirs, lock(THEIRS)), lock(THEIRS), systemd=theirs).why
    silent = (*SYSTEMD, replace(told("a"), text="b"))
    assert "cryptsetup" in reading(value_after(*silent), systemd=silent).why


@pytest.mark.parametrize("register", [0, 15])
def test_registers_that_can_hold_a_lock(register: int) -> None:
    require_lock_register(register)


@pytest.mark.parametrize("register", [-1, 16, 23])
def test_registers_that_can_hold_no_lock_are_refused(register: int) -> None:
    with pytest.raises(Refusal, match=f"from 0 to 15 for the node lock, got {register}") as caught:
        require_lock_register(register)
    assert caught.value.code == "NODELOCK_REGISTER_RESETTABLE"


# ---- what the register held before its lock


def before(
    value: bytes, *own: UserspaceRecord, systemd: tuple[UserspaceRecord, ...] = SYSTEMD, register: int = 15
) -> bytes | None:
    return value_before_lock(value, register=register, userspace=systemd, nodelock=own)


def test_a_locked_register_tells_what_it_held_before() -> None:
    """Wherever our records stand among systemd's, and whatever came after the lock."""
    node, late = told("node-configuration:1f", "node-configuration"), told("cryptsetup:state:uuid")
    unlocked = value_after(*SYSTEMD, node)
    assert before(value_after(*SYSTEMD, lock()), lock()) == BOOT.pcrs[15]
    assert before(value_after(*SYSTEMD, node, lock()), node, lock()) == unlocked
    assert before(value_after(*SYSTEMD, node, lock(), late), node, lock(), systemd=(*SYSTEMD, late)) == unlocked
    assert before(value_after(node, *SYSTEMD, lock()), node, lock()) == value_after(node, *SYSTEMD)


def test_records_of_other_registers_do_not_count_before_the_lock() -> None:
    elsewhere = replace(told("a"), pcr=11)
    value = value_after(*SYSTEMD, lock())
    assert before(value, elsewhere, lock(), systemd=(*SYSTEMD, elsewhere)) == BOOT.pcrs[15]


@pytest.mark.parametrize(
    ("value", "own"),
    [
        pytest.param(BOOT.pcrs[15], (), id="not locked"),
        pytest.param(BOOT.pcrs[15], (lock(),), id="a lock that was written and never measured"),
        pytest.param(value_after(*SYSTEMD, lock(THEIRS)), (lock(),), id="another lock"),
        pytest.param(
            value_after(*SYSTEMD, lock(THEIRS)),
            (UserspaceRecord(pcr=15, digests=lock(THEIRS).digests, kind=LOCK_KIND, text=OURS.hex()),),
            id="a record that does not say what was hashed",
        ),
        pytest.param(
            value_after(*SYSTEMD, told("a"), told("b"), lock()), (told("a"), told("b"), lock()), id="too many records"
        ),
    ],
)
def test_a_register_that_is_not_explained_tells_nothing(value: bytes, own: tuple[UserspaceRecord, ...]) -> None:
    assert before(value, *own) is None
