# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S11: the TPM is reset and the same values are measured again: the counters of the TPM tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.support.tpm_machine import SPKI, TpmMachine, booted_machine

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

THREAT = Threat(
    id="S11",
    title="TPM reset, measurements replayed",
    case="reset line glitch, TPMs Hate Him (2024)",
    bed="swtpm",
    stops=(
        ("evidence/verify.py step 6", "TPM_RESET_BETWEEN"),
        ("evidence/verify.py step 9", "NODELOCK_OPEN"),
        ("evidence/verify.py step 9", "NODELOCK_FOREIGN"),
    ),
)

NONCE = b"n" * 32


def test_a_reset_between_two_pieces_of_evidence(swtpm: Swtpm, opened: Opened) -> None:
    """The machine reboots into the very same registers while its connection lives on."""
    with opened(swtpm) as tpm:
        machine = booted_machine(tpm)
        policy = machine.policy()
        document = issue_handshake_evidence(tpm, machine.ak, spki_sha256=SPKI, nonce=NONCE, pcrs=(15,))
        earlier = verify_handshake_evidence(document, spki_sha256=SPKI, nonce=NONCE)
        assert machine.run(policy, earlier=earlier)
        before = tpm.pcr_read(range(24))
    swtpm.reset()
    with opened(swtpm) as tpm:
        again = booted_machine(tpm)
        assert tpm.pcr_read(range(24)) == before
        assert code_of(lambda: again.run(policy, earlier=earlier)) == "TPM_RESET_BETWEEN"


def test_a_rebooted_machine_is_unlocked_whatever_its_logs_say(swtpm: Swtpm, opened: Opened) -> None:
    """The lock is in the register alone: after a reset the kept log of the lock does not pass for one."""
    with opened(swtpm) as tpm:
        machine = booted_machine(tpm)
        policy = machine.policy()
        machine.lock()
        assert verified_as_member(machine, policy).machine.lock.state is LockState.LOCKED
        kept = machine.logs
    swtpm.reset()
    with opened(swtpm) as tpm:
        again = booted_machine(tpm)
        again.logs = kept
        assert code_of(lambda: verified_as_member(again, policy)) == "NODELOCK_OPEN"


def test_a_lock_that_is_not_told(machine: TpmMachine, policy: SitePolicy) -> None:
    assert machine.run(policy)
    machine.tpm.pcr_event(15, CLUSTER_ID)
    assert code_of(lambda: machine.run(policy)) == "NODELOCK_FOREIGN"


def verified_as_member(machine: TpmMachine, policy: SitePolicy) -> VerifiedNode:
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge, purpose=Purpose.VERIFY)
    return machine.verified(given, record, policy, context=machine.context(purpose=Purpose.VERIFY))
