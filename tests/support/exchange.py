# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One whole exchange between a test attester and a verifier, valid unless a test changes one part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    Answer,
    BindingContext,
    Challenge,
    ChallengeRecord,
    ChallengeRequest,
    answer,
    new_challenge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import verify_node
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import learn_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import VerifiedQuote
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
CLUSTER_ID = b"c" * 32
SELECTION = (0, 4, 7, 9, 11, 15)
DOOR_NONCE = b"n" * 32


def logs_of(boot: boots.Boot, *, nodelock: bytes = b"") -> EventLogs:
    """Return the logs of a machine with this boot."""
    return EventLogs(
        firmware=boot.firmware, userspace=boot.userspace, nodelock=nodelock, command_line=boot.command_line
    )


def learned(boot: boots.Boot) -> MeasurementProfile:
    """Return the profile of this boot."""
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    events = describe(firmware, userspace, command_line=boot.command_line)
    return learn_profile(boot.name, pcrs=boot.pcrs, events=events)


def identity_of(ek: LoadedKey, name: str = "w-1", role: Role = Role.WORKER) -> NodeIdentity:
    """Return the approved identity of a TPM."""
    return NodeIdentity(ek_sha256=ek.public.spki_sha256(), node_name=name, role=role, admission=Admission.APPROVED)


@dataclass(slots=True)
class Exchange:
    """A machine with a recorded boot, and a policy that accepts it; ``run`` runs and verifies the exchange."""

    boot: boots.Boot = field(default_factory=lambda: boots.load("deb13-base"))
    tpm: SoftTpm = field(init=False)
    context: BindingContext = field(init=False)
    logs: EventLogs = field(init=False)
    policy: SitePolicy = field(init=False)

    def __post_init__(self) -> None:
        """Boot the machine and enroll it."""
        self.tpm = SoftTpm(self.boot.pcrs)
        self.logs = logs_of(self.boot)
        self.context = BindingContext(
            purpose=Purpose.JOIN,
            cluster_id=CLUSTER_ID,
            exporter=b"e" * 32,
            spki_sha256=b"k" * 32,
            request=b"request with " + self.logs.to_bytes(),
        )
        self.policy = SitePolicy(profiles=[learned(self.boot)], identities=[identity_of(self.tpm.ek)])

    def request(self, **changes: Any) -> ChallengeRequest:
        """Return the first message of the machine."""
        request = ChallengeRequest(ek_public=self.tpm.ek.public, ak_public=self.tpm.ak.public)
        return replace(request, **changes)

    def knock(self) -> bytes:
        """Return the machine's first evidence on this connection, over the other side's `DOOR_NONCE`."""
        return issue_handshake_evidence(
            self.tpm, self.tpm.ak, spki_sha256=self.context.spki_sha256, nonce=DOOR_NONCE, pcrs=(15,)
        )

    def opened(self, document: bytes, **changes: bytes) -> VerifiedQuote:
        """Return the verifier's result for the first evidence."""
        known = {"spki_sha256": self.context.spki_sha256, "nonce": DOOR_NONCE, **changes}
        return verify_handshake_evidence(document, **known)

    def challenged(self, **changes: Any) -> tuple[Challenge, ChallengeRecord]:
        """Return a challenge for this machine."""
        return new_challenge(self.request(**changes), selection=SELECTION, random=SystemRandom(), now=NOW)

    def answered(self, challenge: Challenge, **changes: Any) -> Answer:
        """Return the machine's answer."""
        given = {"ek": self.tpm.ek, "ak": self.tpm.ak, "logs": self.logs, **changes}
        return answer(self.tpm, challenge, given.pop("context", self.context), **given)

    def verified(self, given: Answer, record: ChallengeRecord, **changes: Any) -> VerifiedNode:
        """Return the verifier's result for an answer, one second later."""
        known: dict[str, Any] = {
            "record": record,
            "context": self.context,
            "logs": self.logs,
            "policy": self.policy,
            "now": NOW + timedelta(seconds=1),
            "bound": given.bound,
            **changes,
        }
        return verify_node(known.pop("bound"), **known)

    def run(self, **changes: Any) -> VerifiedNode:
        """Run the whole exchange; ``changes`` replace facts of the verifier."""
        challenge, record = self.challenged()
        return self.verified(self.answered(challenge), record, **changes)
