# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of the verification service: the first byte says which, the witness behind it is the real one."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_front import Proving
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_service import (
    Gate,
    PlainDesk,
    VerificationServiceConfig,
)
from ansible_collections.attested.kubernetes.tests.support.tpm import SteppingClock
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, question
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_verification_service import (
    call,
    come_from,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

NODE = SoftNode()
WITNESS = NODE.witness(clock=SteppingClock(), insecure_constellation_verify=True)
IDENTITY = ChallengeRequest.parse(WITNESS.identity())
MANY = 1 << 40


class Near:
    """The witness without its socket."""

    async def identity(self, *, correlation_id: str) -> bytes:
        del correlation_id
        return WITNESS.identity()

    async def testimony(self, challenge: bytes, *, correlation_id: str, **known: bytes) -> bytes:
        del correlation_id
        return WITNESS.testimony(challenge, **known)

    async def document(self, nonce: bytes, *, correlation_id: str) -> bytes:
        del correlation_id
        return WITNESS.document(nonce)


CONFIG = VerificationServiceConfig(question_burst=MANY, quote_burst=MANY)
GATE = Gate(CONFIG, clock=SteppingClock())
DESK, PLAIN = Proving(Near(), GATE, spki_sha256=b"k" * 32), PlainDesk(Near(), GATE)
CALLS = (DESK.identify, DESK.testify, PLAIN.get_attestation)


def seeds() -> list[bytes]:
    challenge, _record = question(NODE.policy()).challenge(IDENTITY)
    asked = message_class("verify.GetAttestationRequest")(nonce=b"n" * 32).SerializeToString()
    return [b"\0", b"\1" + challenge.to_bytes(), b"\2" + asked]


def one_input(data: bytes) -> None:
    contextvars.copy_context().run(_ask, data)


def _ask(data: bytes) -> None:
    """Ask as a caller whom nobody else is taken for afterwards."""
    come_from("192.0.2.7:4711")
    assert _done(CALLS[data[0] % len(CALLS)](data[1:], call())) if data else True


def _done(asking: Coroutine[Any, Any, bytes]) -> bytes:
    """Return what a coroutine that waits for nothing returns."""
    try:
        asking.send(None)
    except StopIteration as ended:
        return bytes(ended.value)
    raise AssertionError("it waits")
