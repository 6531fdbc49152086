# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real TPM (swtpm) with a recorded boot, and its side of an exchange with a verifier."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import verify_node
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

SPKI = b"k" * 32


@dataclass(slots=True)
class TpmMachine:
    """A real TPM after a boot, with its keys and its claims about the boot."""

    tpm: Tpm
    logs: EventLogs

    @property
    def ek(self) -> LoadedKey:
        """Its endorsement key."""
        return load_endorsement_key(self.tpm)

    @property
    def ak(self) -> LoadedKey:
        """Its attestation key."""
        return load_attestation_key(self.tpm)

    def context(self, **changes: Any) -> BindingContext:
        """Return its own data of the exchange."""
        context = BindingContext(
            purpose=Purpose.JOIN,
            cluster_id=CLUSTER_ID,
            exporter=b"e" * 32,
            spki_sha256=SPKI,
            request=b"request with " + self.logs.to_bytes(),
        )
        return replace(context, **changes)

    def policy(self, boot: str = "deb13-base") -> SitePolicy:
        """Return the policy of a site that enrolled this machine and learned a boot."""
        return SitePolicy(profiles=[learned(boots.load(boot))], identities=[identity_of(self.ek)])

    def challenged(self, policy: SitePolicy) -> tuple[Challenge, ChallengeRecord]:
        """Return a challenge for this machine with the verifier's record of it."""
        request = ChallengeRequest(
            ek_public=self.ek.public, ak_public=self.ak.public, ek_certificates=self.ek.certificates
        )
        return new_challenge(request, selection=policy.selection(), random=SystemRandom(), now=datetime.now(UTC))

    def answered(self, challenge: Challenge, **changes: Any) -> Answer:
        """Return its answer; ``changes`` are of its context."""
        return answer(self.tpm, challenge, self.context(**changes), ek=self.ek, ak=self.ak, logs=self.logs)

    def verified(self, given: Answer, record: ChallengeRecord, policy: SitePolicy, **changes: Any) -> VerifiedNode:
        """Return the verifier's result; ``changes`` replace facts of the verifier."""
        known: dict[str, Any] = {"context": self.context(), "logs": self.logs, "now": datetime.now(UTC), **changes}
        return verify_node(given.bound, record=record, policy=policy, **known)

    def run(self, policy: SitePolicy, **changes: Any) -> VerifiedNode:
        """Run the whole exchange."""
        challenge, record = self.challenged(policy)
        return self.verified(self.answered(challenge), record, policy, **changes)

    def lock(self) -> None:
        """Take the node lock and write its log."""
        self.tpm.pcr_event(15, CLUSTER_ID)
        content = {"eventType": "nodelock", "version": 1, "clusterId": CLUSTER_ID.hex()}
        digests = [{"hashAlg": "sha256", "digest": hashlib.sha256(CLUSTER_ID).hexdigest()}]
        record = b"\x1e" + json.dumps({"pcr": 15, "digests": digests, "content": content}).encode()
        self.logs = replace(self.logs, nodelock=record)


def booted_machine(tpm: Tpm, name: str = "deb13-base") -> TpmMachine:
    """Extend an opened TPM by the measurements of a recorded boot."""
    recorded = boots.load(name)
    replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
    return TpmMachine(tpm=tpm, logs=logs_of(recorded))


class Boots:
    """Boots machines: ``boots("deb13-base", tpm="a")``; another letter is another TPM. Closed by the fixture."""

    def __init__(self, swtpms: Callable[..., Swtpm], opened: Opened) -> None:
        """Start TPMs with ``swtpms`` and access them with ``opened``."""
        self._swtpms = swtpms
        self._opened = opened
        self.stack = ExitStack()

    def __call__(self, name: str = "deb13-base", *, tpm: str = "a") -> TpmMachine:
        """Return a machine after that boot."""
        return booted_machine(self.stack.enter_context(self._opened(self._swtpms(tpm))), name)
