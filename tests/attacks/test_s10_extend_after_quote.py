# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S10: a machine changes between its quote and the use of what the quote brought."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import seal, unseal
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.support.tpm_machine import SPKI, TpmMachine

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy

THREAT = Threat(
    id="S10",
    title="Extend after the quote",
    case="systemd's phases of PCR 11; time of check and of use",
    bed="swtpm",
    stops=(
        ("evidence/verify.py step 8", "EVENT_LOG_MISMATCH"),
        ("evidence/verify.py step 5", "QUOTE_DIGEST"),
        ("evidence/verify.py step 9", "NODELOCK_FOREIGN"),
        ("evidence/node_lock.py", "NODELOCK_FOREIGN"),
        ("tpm/storage.py", "TPM_POLICY_MISMATCH"),
    ),
)

NONCE = b"n" * 32
JUDGED = (0, 4, 7, 9, 11, 15)


def paths_of(machine: TpmMachine, folder: Path) -> NodeLockPaths:
    """Return where the lock of this machine finds what was measured before it."""
    for name in ("firmware", "userspace"):
        (folder / name).write_bytes(getattr(machine.logs, name))
    return NodeLockPaths(directory=folder / "run", firmware_log=folder / "firmware", userspace_log=folder / "userspace")


@pytest.mark.parametrize("register", [4, 11])
def test_a_change_between_the_two_quotes_of_a_connection(
    machine: TpmMachine, policy: SitePolicy, register: int
) -> None:
    """The first one opened the connection; the second one, made for the key request, is what is judged."""
    document = issue_handshake_evidence(machine.tpm, machine.ak, spki_sha256=SPKI, nonce=NONCE, pcrs=(15,))
    earlier = verify_handshake_evidence(document, spki_sha256=SPKI, nonce=NONCE)
    assert machine.run(policy, earlier=earlier)
    machine.tpm.pcr_event(register, b"something that nobody logged")
    assert code_of(lambda: machine.run(policy, earlier=earlier)) == "EVENT_LOG_MISMATCH"


def test_a_change_of_the_locks_register_between_them(machine: TpmMachine, policy: SitePolicy) -> None:
    assert machine.run(policy)
    machine.tpm.pcr_event(15, b"another cluster")
    assert code_of(lambda: machine.run(policy)) == "NODELOCK_FOREIGN"


def test_values_from_before_the_change_under_the_quote_from_after_it(machine: TpmMachine, policy: SitePolicy) -> None:
    """What is delivered has to be what was quoted: old values do not pass beside the new quote."""
    challenge, record = machine.challenged(policy)
    before = machine.answered(challenge).bound.evidence.pcrs
    machine.tpm.pcr_event(4, b"something that nobody logged")
    after = machine.answered(challenge)
    mixed = replace(after.bound, evidence=replace(after.bound.evidence, pcrs=before))
    assert code_of(lambda: machine.verified(replace(after, bound=mixed), record, policy)) == "QUOTE_DIGEST"


def test_a_machine_that_changed_after_its_quote_is_not_locked(machine: TpmMachine, tmp_path: Path) -> None:
    """The ticket is on its way when somebody extends the lock's register: the lock is not taken on top of that."""
    lock = NodeLock(machine.tpm, paths=paths_of(machine, tmp_path))
    assert lock.read()
    machine.tpm.pcr_event(15, b"something that nobody logged")
    assert code_of(lambda: lock.acquire(CLUSTER_ID)) == "NODELOCK_FOREIGN"


def test_what_was_sealed_to_the_judged_state_opens_no_more_after_the_lock(machine: TpmMachine, tmp_path: Path) -> None:
    """The lock follows the unlocking and is the cap: nobody who comes later on this boot unseals again."""
    kept = seal(machine.tpm, b"k" * 32, machine.tpm.pcr_read(JUDGED))
    assert unseal(machine.tpm, kept) == b"k" * 32
    assert NodeLock(machine.tpm, paths=paths_of(machine, tmp_path)).acquire(CLUSTER_ID).won
    assert code_of(lambda: unseal(machine.tpm, kept)) == "TPM_POLICY_MISMATCH"
