# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole exchanges with real TPMs that hold recorded boots: who is let in, who is refused, and by which code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import (
    Answer,
    BindingContext,
    Challenge,
    ChallengeRecord,
    ChallengeRequest,
    Demands,
    EventLogs,
    LockState,
    Purpose,
    VerifiedNode,
    answer,
    issue_doorkeeper,
    new_challenge,
    verify_doorkeeper,
    verify_node,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import MeasurementMismatch, SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.sealing import open_sealed
from ansible_collections.attested.kubernetes.plugins.module_utils.system import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import (
    LoadedKey,
    Tpm,
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, identity_of, learned, logs_of
from ansible_collections.attested.kubernetes.tests.support.replay import replay
from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm, SwtpmFactory

SPKI, NONCE = b"k" * 32, b"n" * 32


@dataclass(slots=True)
class Machine:
    """A real TPM after a boot, its keys, and what it says of the boot."""

    tpm: Tpm
    logs: EventLogs

    @property
    def ek(self) -> LoadedKey:
        return load_endorsement_key(self.tpm)

    @property
    def ak(self) -> LoadedKey:
        return load_attestation_key(self.tpm)

    def context(self, **changes: Any) -> BindingContext:
        context = BindingContext(
            purpose=Purpose.JOIN,
            cluster_id=CLUSTER_ID,
            exporter=b"e" * 32,
            spki_sha256=SPKI,
            request=b"request with " + self.logs.to_bytes(),
        )
        return replace(context, **changes)

    def challenged(self, policy: SitePolicy) -> tuple[Challenge, ChallengeRecord]:
        request = ChallengeRequest(
            ek_public=self.ek.public, ak_public=self.ak.public, ek_certificates=self.ek.certificates
        )
        return new_challenge(request, selection=policy.selection(), random=SystemRandom(), now=datetime.now(UTC))

    def answered(self, challenge: Challenge, **changes: Any) -> Answer:
        return answer(self.tpm, challenge, self.context(**changes), ek=self.ek, ak=self.ak, logs=self.logs)

    def verified(self, given: Answer, record: ChallengeRecord, policy: SitePolicy, **changes: Any) -> VerifiedNode:
        known: dict[str, Any] = {"context": self.context(), "logs": self.logs, "now": datetime.now(UTC), **changes}
        return verify_node(given.bound, record=record, policy=policy, **known)

    def run(self, policy: SitePolicy, **changes: Any) -> VerifiedNode:
        challenge, record = self.challenged(policy)
        return self.verified(self.answered(challenge), record, policy, **changes)


@pytest.fixture
def booted(swtpms: Callable[..., Swtpm], opened: Opened) -> Iterator[Callable[..., Machine]]:
    """Boot machines: ``booted("deb13-base", tpm="a")``; another letter is another TPM."""
    kept = []

    def boot(name: str = "deb13-base", *, tpm: str = "a") -> Machine:
        recorded = boots.load(name)
        context = opened(swtpms(tpm))
        client = context.__enter__()
        kept.append(context)
        replay(client, firmware=recorded.firmware, userspace=recorded.userspace)
        return Machine(tpm=client, logs=logs_of(recorded))

    yield boot
    for context in reversed(kept):
        context.__exit__(None, None, None)


@pytest.fixture
def machine(booted: Callable[..., Machine]) -> Machine:
    return booted()


@pytest.fixture
def policy(machine: Machine) -> SitePolicy:
    """A site that enrolled the machine and learned its boot."""
    return policy_for(machine)


def policy_for(machine: Machine) -> SitePolicy:
    return SitePolicy(profiles=[learned(boots.load("deb13-base"))], identities=[identity_of(machine.ek)])


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


def lock(machine: Machine) -> None:
    machine.tpm.pcr_event(15, CLUSTER_ID)
    content = {"eventType": "nodelock", "version": 1, "clusterId": CLUSTER_ID.hex()}
    digests = [{"hashAlg": "sha256", "digest": hashlib.sha256(CLUSTER_ID).hexdigest()}]
    record = b"\x1e" + json.dumps({"pcr": 15, "digests": digests, "content": content}).encode()
    machine.logs = replace(machine.logs, nodelock=record)


def test_a_real_machine_is_let_in_and_opens_what_is_sealed_to_it(machine: Machine, policy: SitePolicy) -> None:
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    node = machine.verified(given, record, policy)
    assert (node.verdict.profile, node.machine.lock.state) == ("deb13-base", LockState.UNLOCKED)
    box = node.machine.seal(b"disk key")
    opened = open_sealed(box, secret=given.secret, binding=given.binding, one_time_key=given.one_time_key)
    assert opened == b"disk key"


def test_the_certificate_of_a_real_tpm_chains_to_its_root(
    machine: Machine, policy: SitePolicy, manufactured: SwtpmFactory
) -> None:
    root = x509.load_pem_x509_certificate(manufactured.authority.root.read_bytes())
    issuer = x509.load_pem_x509_certificate(manufactured.authority.issuer.read_bytes())
    demands = Demands(ek_roots=(root, issuer))
    assert machine.run(policy, demands=demands).machine.ek_certified


def test_replayed_evidence(machine: Machine, policy: SitePolicy) -> None:
    """S1."""
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    machine.verified(given, record, policy)
    _unused, later = machine.challenged(policy)
    assert code_of(lambda: machine.verified(given, later, policy)) == "CHALLENGE_UNKNOWN"


def test_evidence_over_another_tls_session(machine: Machine, policy: SitePolicy) -> None:
    """S2."""
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge, exporter=b"x" * 32)
    assert code_of(lambda: machine.verified(given, record, policy)) == "BINDING_MISMATCH"


def test_a_changed_request_byte(machine: Machine, policy: SitePolicy) -> None:
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    changed = machine.context(request=b"R" + machine.context().request[1:])
    assert code_of(lambda: machine.verified(given, record, policy, context=changed)) == "BINDING_MISMATCH"


def test_attestation_key_of_another_tpm(machine: Machine, policy: SitePolicy, booted: Callable[..., Machine]) -> None:
    """S4: the machine opens the challenge, another TPM with the same boot quotes."""
    other = booted(tpm="b")
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    quote = other.tpm.quote(other.ak, given.binding, challenge.selection)
    evidence = replace(
        given.bound.evidence, ak_public=other.ak.public.marshal(), quote=quote.attest, signature=quote.signature
    )
    swapped = replace(given, bound=replace(given.bound, evidence=evidence))
    assert code_of(lambda: machine.verified(swapped, record, policy)) == "AK_MISMATCH"


def test_a_challenge_for_another_tpm_is_not_opened(
    machine: Machine, policy: SitePolicy, booted: Callable[..., Machine]
) -> None:
    """S4, S41."""
    challenge, _unused = machine.challenged(policy)
    other = booted(tpm="b")
    assert code_of(lambda: other.answered(challenge)) == "TPM_CREDENTIAL_REFUSED"


def test_quote_over_other_pcrs(machine: Machine, policy: SitePolicy) -> None:
    """S8."""
    challenge, record = machine.challenged(policy)
    given = machine.answered(replace(challenge, selection=(0, 7, 15)))
    assert code_of(lambda: machine.verified(given, record, policy)) == "QUOTE_SELECTION"


def test_an_unknown_tpm_with_a_good_boot(policy: SitePolicy, booted: Callable[..., Machine]) -> None:
    """S3."""
    assert code_of(lambda: booted(tpm="b").run(policy)) == "IDENTITY_UNKNOWN"


def test_a_register_extended_after_the_boot(machine: Machine, policy: SitePolicy) -> None:
    """S10."""
    machine.tpm.pcr_event(9, b"evil")
    assert code_of(lambda: machine.run(policy)) == "EVENT_LOG_MISMATCH"


def test_a_changed_command_line(booted: Callable[..., Machine]) -> None:
    machine = booted("deb13-cmdline")
    with pytest.raises(
        MeasurementMismatch, match=r"expected 'kernel command line .* got 'kernel command line .*tampered"
    ):
        machine.run(policy_for(machine))


def test_a_locked_machine_may_ask_again_and_is_a_good_node(machine: Machine, policy: SitePolicy) -> None:
    lock(machine)
    assert machine.run(policy).machine.lock.state is LockState.LOCKED
    other_cluster = {"context": machine.context(cluster_id=b"o" * 32)}
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge, cluster_id=b"o" * 32)
    assert code_of(lambda: machine.verified(given, record, policy, **other_cluster)) == "NODELOCK_OTHER_CLUSTER"


def test_a_lock_that_is_not_told(machine: Machine, policy: SitePolicy) -> None:
    machine.tpm.pcr_event(15, CLUSTER_ID)
    assert code_of(lambda: machine.run(policy)) == "NODELOCK_FOREIGN"


def test_late_evidence(machine: Machine, policy: SitePolicy) -> None:
    late = datetime.now(UTC) + timedelta(seconds=61)
    assert code_of(lambda: machine.run(policy, now=late)) == "CHALLENGE_EXPIRED"


def test_a_reset_between_two_pieces_of_evidence(swtpm: Swtpm, opened: Opened) -> None:
    """S11: the machine reboots into the same state while its connection lives on."""
    recorded = boots.load("deb13-base")
    with opened(swtpm) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        machine = Machine(tpm=tpm, logs=logs_of(recorded))
        policy = policy_for(machine)
        document = issue_doorkeeper(tpm, machine.ak, spki_sha256=SPKI, nonce=NONCE, pcrs=(15,))
        earlier = verify_doorkeeper(document, spki_sha256=SPKI, nonce=NONCE)
        assert (
            machine.run(policy, earlier=earlier).machine.quote.clock_info.reset_count == earlier.clock_info.reset_count
        )
    swtpm.reset()
    with opened(swtpm) as tpm:
        replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        rebooted = Machine(tpm=tpm, logs=logs_of(recorded))
        assert code_of(lambda: rebooted.run(policy, earlier=earlier)) == "TPM_RESET_BETWEEN"


def test_recorded_ticket_on_the_right_machine_after_another_boot(swtpm: Swtpm, opened: Opened) -> None:
    """The credential opens on its machine whatever that machine booted; the box does not."""
    good, changed = boots.load("deb13-base"), boots.load("deb13-cmdline")
    with opened(swtpm) as tpm:
        replay(tpm, firmware=good.firmware, userspace=good.userspace)
        machine = Machine(tpm=tpm, logs=logs_of(good))
        policy = policy_for(machine)
        challenge, record = machine.challenged(policy)
        given = machine.answered(challenge)
        box = machine.verified(given, record, policy).machine.seal(b"disk key")
    swtpm.reset()
    with opened(swtpm) as tpm:
        replay(tpm, firmware=changed.firmware, userspace=changed.userspace)
        again = Machine(tpm=tpm, logs=logs_of(changed)).answered(challenge)
    assert again.secret == given.secret
    known = {"secret": again.secret, "one_time_key": again.one_time_key}
    for binding in (given.binding, again.binding):
        assert code_of(lambda binding=binding: open_sealed(box, binding=binding, **known)) == "SEAL_UNOPENABLE"
