# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S11 with a real TPM: a reset between two tickets, or an older state put back, with the same registers each time."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import check_continuity
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import TpmRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_attestation_key
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

BOOT = boots.load("deb13-base")
SPKI, NONCE, CLUSTER_ID = b"k" * 32, b"n" * 32, b"c" * 32


@dataclass(frozen=True, slots=True)
class Seen:
    """What one verified quote of the machine says."""

    tpm: TpmRecord
    registers: dict[int, bytes]
    ak_name: bytes


def seen(swtpm: Swtpm, opened: Opened, *, boot: bool = False, lock: bool = False) -> Seen:
    """Quote and verify; ``boot`` replays the recorded boot first, ``lock`` then takes the lock."""
    with opened(swtpm) as tpm:
        if boot:
            replay(tpm, firmware=BOOT.firmware, userspace=BOOT.userspace)
        if lock:
            tpm.pcr_event(15, CLUSTER_ID)
        ak = load_attestation_key(tpm)
        document = issue_handshake_evidence(tpm, ak, spki_sha256=SPKI, nonce=NONCE, pcrs=(0, 4, 7, 9, 11, 15))
    quote = verify_handshake_evidence(document, spki_sha256=SPKI, nonce=NONCE)
    clock = quote.clock_info
    record = TpmRecord(clock=clock.clock, reset_count=clock.reset_count, restart_count=clock.restart_count)
    return Seen(record, dict(quote.pcrs), quote.ak_name)


def code_of(last: Seen, now: Seen, *, locked: bool = False) -> str:
    with pytest.raises(AttestedError) as caught:
        check_continuity(last.tpm, now.tpm, locked=locked)
    return caught.value.code


def test_one_boot_goes_on(swtpm: Swtpm, opened: Opened) -> None:
    first, second = seen(swtpm, opened, boot=True), seen(swtpm, opened, lock=True)
    assert check_continuity(first.tpm, second.tpm, locked=True) is False


def test_a_reset_between_two_quotes_of_one_state_is_seen(swtpm: Swtpm, opened: Opened) -> None:
    """The registers are the same to the bit, as after a glitch on the reset line with the boot's events replayed."""
    first = seen(swtpm, opened, boot=True)
    swtpm.reset()
    second = seen(swtpm, opened, boot=True)
    assert (second.registers, second.ak_name) == (first.registers, first.ak_name)
    assert check_continuity(first.tpm, second.tpm, locked=False) is True


def test_a_lock_that_was_replayed_after_a_reset_is_refused(swtpm: Swtpm, opened: Opened) -> None:
    locked = seen(swtpm, opened, boot=True, lock=True)
    swtpm.reset()
    again = seen(swtpm, opened, boot=True, lock=True)
    assert again.registers == locked.registers
    assert code_of(locked, again, locked=True) == "NODELOCK_NO_TICKET"


def test_an_older_state_that_is_put_back_is_refused(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    """A copy of the TPM's memory from before its last resets has the same keys, and fewer resets."""
    tpm = swtpms("a")
    first = seen(tpm, opened, boot=True)
    tpm.stop()
    kept = tpm.state.with_name("kept")
    shutil.copytree(tpm.state, kept)
    for _unused in range(2):
        tpm = swtpms("a")
        last = seen(tpm, opened, boot=True)
        tpm.stop()
    shutil.rmtree(tpm.state)
    shutil.copytree(kept, tpm.state)
    put_back = seen(swtpms("a"), opened, boot=True)
    assert put_back.ak_name == first.ak_name == last.ak_name
    assert put_back.registers == last.registers
    assert code_of(last, put_back) == "TPM_ROLLED_BACK"


def test_the_keys_of_a_cleared_tpm_are_the_same_and_its_counters_are_not(swtpm: Swtpm, opened: Opened) -> None:
    """TPM2_Clear leaves the endorsement seed: without the counters nobody would see it."""
    last = seen(swtpm, opened, boot=True)
    swtpm.raw(bytes.fromhex("80020000001b000001264000000c00000009400000090000010000"))  # Clear, lockout, no auth
    cleared = seen(swtpm, opened)
    assert cleared.ak_name == last.ak_name
    assert code_of(last, cleared) == "TPM_ROLLED_BACK"
