# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Store refused evidence of a machine in its identity, until later evidence of the machine is good.

Only evidence that the machine itself sent counts: reasons of the steps that follow the check of the quote's key and
channel. An attacker can name another machine's key, or relay a challenge to that machine's verification service. Both
end with a reason of an earlier step, so they are not stored against the other machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ApiError
from ..policy.identity import Admission, EvidenceRefusal
from ..reasons import Reason
from .live_policy import StatusChange
from .nodes import JOINED

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..errors import AttestedError
    from .live_policy import LivePolicy, Registration, StatusWriter

EVIDENCE_REFUSED = frozenset(
    {
        Reason.AK_NOT_PINNED,
        Reason.BOOT_OPTION_UNKNOWN,
        Reason.EK_CERTIFICATE_EXPIRED,
        Reason.EK_CERTIFICATE_MALFORMED,
        Reason.EK_CERTIFICATE_MISMATCH,
        Reason.EK_CERTIFICATE_MISSING,
        Reason.EK_CERTIFICATE_PROFILE,
        Reason.EK_CERTIFICATE_UNTRUSTED,
        Reason.EVENT_LOG_CHANGED,
        Reason.EVENT_LOG_MALFORMED,
        Reason.EVENT_LOG_MISMATCH,
        Reason.EVENT_LOG_TOO_LARGE,
        Reason.FIRMWARE_TOO_OLD,
        Reason.KERNEL_NOT_ACCEPTED,
        Reason.LOCKDOWN_NOT_PROVEN,
        Reason.NODELOCK_FOREIGN,
        Reason.NODELOCK_NO_TICKET,
        Reason.NODELOCK_OPEN,
        Reason.NODELOCK_OTHER_CLUSTER,
        Reason.NODE_CONFIG_NOT_ACCEPTED,
        Reason.PCR_MISMATCH,
        Reason.PROFILE_EXPIRED,
        Reason.PROFILE_NOT_FOR_MACHINE,
        Reason.SBAT_TOO_OLD,
        Reason.SECURE_BOOT_OFF,
        Reason.SOURCE_NOT_ACCEPTED,
        Reason.SOURCE_TOO_OLD,
        Reason.TPM_ROLLED_BACK,
    }
)
"""Reasons of `evidence.verify.verify_node` after step 6, and of continuity: the machine's own evidence was bad.

Decisions of the admin (IDENTITY_...) and faults of the cluster (POLICY_...) are not in this set.
"""


class RefusalKeeper:
    """Writes refusals into the status of identities; may be used by several threads."""

    def __init__(
        self,
        policy: LivePolicy,
        writer: StatusWriter,
        *,
        kept: Callable[[str], None],
        lost: Callable[[str, str], None],
    ) -> None:
        """Call ``kept`` with the identity's name after each write, ``lost`` with key and code if the API fails."""
        self._policy = policy
        self._writer = writer
        self._kept = kept
        self._lost = lost

    def note(self, error: AttestedError, *, ek_sha256: str, now: datetime) -> None:
        """Store ``error`` in the identity of the node with this proven endorsement key, if it exists.

        Does not raise errors of the API. Repeated refusals with the same code are written once.
        """
        if error.reason not in EVIDENCE_REFUSED:
            return
        try:
            for registration in self._policy.registrations_of(ek_sha256):
                self._write(registration, error, now=now)
        except ApiError as trouble:
            self._lost(ek_sha256, trouble.code)

    def _write(self, registration: Registration, error: AttestedError, *, now: datetime) -> None:
        if not _is_node(registration) or _is_known(registration, error):
            return
        self._writer.write(registration, StatusChange(refusal=EvidenceRefusal(error.code, now)))
        self._kept(registration.identity.name)


def _is_node(registration: Registration) -> bool:
    identity = registration.identity
    return identity.admission is Admission.APPROVED and identity.status.phase == JOINED


def _is_known(registration: Registration, error: AttestedError) -> bool:
    refusal = registration.identity.status.refusal
    return refusal is not None and refusal.code == error.code
