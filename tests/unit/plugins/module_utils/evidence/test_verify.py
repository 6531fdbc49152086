# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each numbered step of the verification refuses the attack that it is there for: one point of a good case changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    Answer,
    BindingContext,
    ChallengeStore,
    new_challenge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import (
    Demands,
    VerifiedMachine,
    VerifiedNode,
    require_activation,
    shows_activation,
    verify_machine,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import Posture
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA1
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, PcrSelection
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, open_sealed
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import (
    CLUSTER_ID,
    NOW,
    SELECTION,
    Exchange,
    identity_of,
    learned,
    logs_of,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import VerifiedQuote

KUBELET_SPKI = b"k" * 32


@pytest.fixture
def exchange() -> Exchange:
    """A machine, its policy, and a verifier that agree."""
    return Exchange()


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


def forged(exchange: Exchange, given: Answer, change: Callable[[Attest], Attest]) -> Answer:
    """Return the answer with another quote, signed by the same key as no TPM would."""
    attest = change(Attest.parse(given.bound.evidence.quote))
    quote = exchange.tpm.signed(attest)
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    return replace(given, bound=replace(given.bound, evidence=evidence))


def refused_forgery(exchange: Exchange, change: Callable[[Attest], Attest]) -> str:
    challenge, record = exchange.challenged()
    given = forged(exchange, exchange.answered(challenge), change)
    return code_of(lambda: exchange.verified(given, record))


def lock_log(cluster_id: bytes = CLUSTER_ID) -> bytes:
    content = {"eventType": "nodelock", "version": 1, "clusterId": cluster_id.hex()}
    digests = [{"hashAlg": "sha256", "digest": hashlib.sha256(cluster_id).hexdigest()}]
    return b"\x1e" + json.dumps({"pcr": 15, "digests": digests, "content": content}).encode() + b"\n"


def lock(exchange: Exchange, cluster_id: bytes = CLUSTER_ID) -> None:
    """Let the machine lock itself to a cluster and tell so."""
    exchange.tpm.pcr_event(15, cluster_id)
    send_logs(exchange, replace(exchange.logs, nodelock=lock_log(cluster_id)))


def send_logs(exchange: Exchange, logs: EventLogs) -> None:
    """Let the machine send other logs, in the request as well."""
    exchange.logs = logs
    exchange.context = replace(exchange.context, request=b"request with " + logs.to_bytes())


# The good case ---------------------------------------------------------------------------------------------


def test_a_good_machine_is_let_in(exchange: Exchange) -> None:
    node = exchange.run()
    assert (node.identity.node_name, node.verdict.profile, node.verdict.posture) == ("w-1", "deb13-base", Posture.BOOT)
    assert node.machine.quote.pcrs == {pcr: exchange.boot.pcrs[pcr] for pcr in SELECTION}
    assert (node.machine.lock.state, node.machine.ek_certified) == (LockState.UNLOCKED, False)


def test_what_is_sealed_to_a_verified_machine_opens_there_alone(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    box = exchange.verified(given, record).machine.seal(b"disk key")
    known = {"secret": given.secret, "binding": given.binding}
    assert open_sealed(box, **known, one_time_key=given.one_time_key) == b"disk key"
    assert code_of(lambda: open_sealed(box, **known, one_time_key=OneTimeKey.generate())) == "SEAL_UNOPENABLE"


def test_a_machine_without_policy_is_verified_up_to_its_boot(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    known = {"record": record, "context": exchange.context, "logs": exchange.logs, "now": NOW}
    machine = verify_machine(exchange.answered(challenge).bound, **known)
    assert machine.ek_sha256 == exchange.tpm.ek.public.spki_sha256()
    assert machine.purpose is Purpose.JOIN
    assert "kernel command line" in " ".join(event.text for event in machine.events)


def test_a_machine_is_judged_by_the_demands_of_its_verifier(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    known = {"record": record, "context": exchange.context, "logs": exchange.logs, "now": NOW}
    bound = exchange.answered(challenge).bound
    demands = Demands(lock_register=16)
    assert code_of(lambda: verify_machine(bound, **known, demands=demands)) == "NODELOCK_REGISTER_RESETTABLE"


def test_registers_that_were_not_quoted_are_not_read(exchange: Exchange) -> None:
    """Nothing vouches for them."""
    challenge, record = new_challenge(exchange.request(), selection=(0, 4, 15), random=SystemRandom(), now=NOW)
    known = {"record": record, "context": exchange.context, "logs": exchange.logs, "now": NOW}
    machine = verify_machine(exchange.answered(challenge).bound, **known)
    assert {line.pcr for line in machine.read()} == {0, 4, 15}


def test_values_in_another_order_are_the_same_values(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    turned = replace(given.bound.evidence, pcrs=dict(reversed(given.bound.evidence.pcrs.items())))
    assert exchange.verified(given, record, bound=replace(given.bound, evidence=turned)).verdict.profile == "deb13-base"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        pytest.param({}, True, id="the answer to this challenge"),
        pytest.param({"proof": b"p" * 32}, False, id="without the secret"),
        pytest.param({"challenge_id": b"i" * 16}, False, id="to another challenge"),
    ],
)
def test_who_opened_the_challenge_is_no_stranger(exchange: Exchange, changes: dict[str, Any], shown: bool) -> None:
    challenge, record = exchange.challenged()
    bound = replace(exchange.answered(challenge).bound, **changes)
    assert shows_activation(bound, record=record) is shown


@pytest.mark.parametrize(
    ("changes", "seconds", "code"),
    [
        pytest.param({}, 59, "", id="the answer to this challenge"),
        pytest.param({"proof": b"p" * 32}, 0, "ACTIVATION_NOT_PROVEN", id="without the secret"),
        pytest.param({"challenge_id": b"i" * 16}, 0, "CHALLENGE_UNKNOWN", id="to another challenge"),
        pytest.param({}, 60, "CHALLENGE_EXPIRED", id="after its time"),
    ],
)
def test_the_proof_alone_is_checked_first(exchange: Exchange, changes: dict[str, Any], seconds: int, code: str) -> None:
    challenge, record = exchange.challenged()
    bound = replace(exchange.answered(challenge).bound, **changes)
    now = NOW + timedelta(seconds=seconds)
    if code:
        assert code_of(lambda: require_activation(bound, record=record, now=now)) == code
    else:
        assert require_activation(bound, record=record, now=now) == bound.proof


@pytest.mark.parametrize("kind", [VerifiedMachine, VerifiedNode])
def test_nobody_makes_a_verified_object_by_hand(kind: type) -> None:
    fields = {field.name: None for field in dataclasses.fields(kind)}
    with pytest.raises(TypeError, match="made by verification alone"):
        kind(**fields)


def test_a_verified_machine_does_not_show_its_secret(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    node = exchange.verified(given, record)
    assert given.secret.hex() not in repr(node)
    assert repr(given.secret) not in repr(node) + repr(record) + repr(given)


# Step 1: the challenge -------------------------------------------------------------------------------------


def test_replayed_evidence(exchange: Exchange) -> None:
    """S1: the recorded answer to an earlier challenge of the same machine."""
    earlier, _unused = exchange.challenged()
    _unused, record = exchange.challenged()
    given = exchange.answered(earlier)
    assert code_of(lambda: exchange.verified(given, record)) == "CHALLENGE_UNKNOWN"


def test_replayed_evidence_under_the_new_challenges_id(exchange: Exchange) -> None:
    """S1: with the id changed the secret is still the old one."""
    earlier, _unused = exchange.challenged()
    challenge, record = exchange.challenged()
    given = exchange.answered(earlier)
    renamed = replace(given.bound, challenge_id=challenge.id)
    assert code_of(lambda: exchange.verified(given, record, bound=renamed)) == "ACTIVATION_NOT_PROVEN"


def test_the_same_answer_twice(exchange: Exchange) -> None:
    """S1: the store forgets a challenge with its first answer, whatever becomes of it."""
    store = ChallengeStore()
    challenge, record = exchange.challenged()
    store.add(record, now=NOW)
    given = exchange.answered(challenge)
    exchange.verified(given, store.take(given.bound.challenge_id))
    assert code_of(lambda: store.take(given.bound.challenge_id)) == "CHALLENGE_UNKNOWN"


@pytest.mark.parametrize(("seconds", "expired"), [(59, False), (60, True), (3600, True)])
def test_late_evidence(exchange: Exchange, seconds: int, *, expired: bool) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    now = NOW + timedelta(seconds=seconds)
    if expired:
        assert code_of(lambda: exchange.verified(given, record, now=now)) == "CHALLENGE_EXPIRED"
    else:
        assert exchange.verified(given, record, now=now).identity.node_name == "w-1"


# Step 2: activation ----------------------------------------------------------------------------------------


def test_activation_bypass(exchange: Exchange) -> None:
    """S5 (CVE-2023-38201): a wrong proof, and nothing of the right one in the answer."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    wrong = replace(given.bound, proof=bytes(32))
    with pytest.raises(Refusal) as caught:
        exchange.verified(given, record, bound=wrong)
    assert caught.value.code == "ACTIVATION_NOT_PROVEN"
    assert given.bound.proof.hex() not in str(caught.value)


def test_endorsement_key_of_another_machine(exchange: Exchange) -> None:
    """S4: a known EK public is sent by a machine that does not hold it; its TPM opens nothing."""
    stranger = SoftTpm(exchange.boot.pcrs)
    challenge, _unused = exchange.challenged(ak_public=stranger.ak.public)
    code = code_of(lambda: stranger.activate_credential(stranger.ak, stranger.ek, challenge.credential))
    assert code == "TPM_CREDENTIAL_REFUSED"


# Step 3: the attestation key -------------------------------------------------------------------------------


def test_attestation_key_of_another_tpm(exchange: Exchange) -> None:
    """S4 (CVE-2021-3406): good endorsement key and activation, the quote by somebody else's key."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    other = SoftTpm(exchange.boot.pcrs)
    quote = other.quote(other.ak, given.binding, SELECTION)
    evidence = replace(
        given.bound.evidence,
        ak_public=other.ak.public.marshal(),
        quote=quote.attest,
        signature=quote.signature,
    )
    swapped = replace(given.bound, evidence=evidence)
    assert code_of(lambda: exchange.verified(given, record, bound=swapped)) == "AK_MISMATCH"


def test_unrestricted_attestation_key(exchange: Exchange) -> None:
    """S4: such a key signs anything, so no challenge is made for it."""
    unrestricted = replace(exchange.tpm.ak.public, attributes=exchange.tpm.ak.public.attributes & ~(1 << 16))
    assert code_of(lambda: exchange.challenged(ak_public=unrestricted)) == "AK_ATTRIBUTES"


# Step 4: the quote and the exchange ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"exporter": b"x" * 32}, id="evidence over another TLS session"),
        pytest.param({"spki_sha256": b"x" * 32}, id="evidence with another certificate"),
        pytest.param({"cluster_id": b"x" * 32}, id="evidence for another cluster"),
        pytest.param({"purpose": Purpose.INIT}, id="evidence for another purpose"),
        pytest.param({"request": b"request with another byte"}, id="a changed request"),
    ],
)
def test_evidence_for_another_exchange(exchange: Exchange, change: dict[str, Any]) -> None:
    """S2: what the verifier knows of the exchange differs from what the machine quoted."""
    context = replace(exchange.context, **change)
    assert code_of(lambda: exchange.run(context=context)) == "BINDING_MISMATCH"


@pytest.mark.parametrize("position", [0, 17, -1])
def test_a_changed_request_byte(exchange: Exchange, position: int) -> None:
    changed = bytearray(exchange.context.request)
    changed[position] ^= 1
    context = replace(exchange.context, request=bytes(changed))
    assert code_of(lambda: exchange.run(context=context)) == "BINDING_MISMATCH"


def test_relay_by_a_proxy_with_two_sessions(exchange: Exchange) -> None:
    """S2: the proxy hands the nonce on to a genuine machine, whose session with the proxy has another exporter."""
    challenge, record = exchange.challenged()
    at_the_machine = replace(exchange.context, exporter=b"p" * 32)
    given = exchange.answered(challenge, context=at_the_machine)
    assert code_of(lambda: exchange.verified(given, record)) == "BINDING_MISMATCH"


def test_another_one_time_key(exchange: Exchange) -> None:
    """Who swaps the key would get the secrets; the quote names the right one."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    swapped = replace(given.bound, hpke_public=OneTimeKey.generate().public)
    assert code_of(lambda: exchange.verified(given, record, bound=swapped)) == "BINDING_MISMATCH"


def test_evidence_of_another_protocol_version(exchange: Exchange) -> None:
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    newer = replace(record, challenge=replace(challenge, protocol_version=2))
    assert code_of(lambda: exchange.verified(given, newer)) == "BINDING_MISMATCH"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda attest: replace(attest, magic=0), id="no TPM_GENERATED magic (CVE-2024-29038)"),
        pytest.param(lambda attest: replace(attest, type=0x8017, body=b"x"), id="a certification instead of a quote"),
    ],
)
def test_quote_not_made_by_a_tpm(exchange: Exchange, change: Callable[[Attest], Attest]) -> None:
    """S7."""
    assert refused_forgery(exchange, change) == "QUOTE_MALFORMED"


def test_bytes_behind_the_quote(exchange: Exchange) -> None:
    """S7."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    quote = exchange.tpm.signed_bytes(given.bound.evidence.quote + b"\x00")
    evidence = replace(given.bound.evidence, quote=quote.attest, signature=quote.signature)
    longer = replace(given.bound, evidence=evidence)
    assert code_of(lambda: exchange.verified(given, record, bound=longer)) == "QUOTE_MALFORMED"


def test_an_unknown_variant(exchange: Exchange) -> None:
    """Closed by default."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    other = replace(given.bound, evidence=replace(given.bound.evidence, variant="tpm1"))
    assert code_of(lambda: exchange.verified(given, record, bound=other)) == "VARIANT_UNKNOWN"


def test_a_variant_that_admits_nobody(exchange: Exchange) -> None:
    """A known one, whose evidence is bound to no endorsement key."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    other = replace(given.bound, evidence=replace(given.bound.evidence, variant="qemu-vtpm"))
    assert code_of(lambda: exchange.verified(given, record, bound=other)) == "VARIANT_NOT_ADMITTED"


# Step 5: the registers -------------------------------------------------------------------------------------


def test_quote_over_other_pcrs(exchange: Exchange) -> None:
    """S8: a consistent quote, but not over what was asked for; the forbidden register is left out."""
    challenge, record = exchange.challenged()
    asked_for_less = replace(challenge, selection=(0, 7, 9, 11, 15))
    given = exchange.answered(asked_for_less)
    assert code_of(lambda: exchange.verified(given, record)) == "QUOTE_SELECTION"


def test_quote_over_a_resettable_pcr(exchange: Exchange) -> None:
    """S8: PCR 16 was made to hold PCR 4's good value."""
    exchange.tpm.pcrs[16] = exchange.boot.pcrs[4]
    challenge, record = exchange.challenged()
    given = exchange.answered(replace(challenge, selection=(0, 7, 9, 11, 15, 16)))
    assert code_of(lambda: exchange.verified(given, record)) == "QUOTE_SELECTION"


def test_values_that_were_not_quoted(exchange: Exchange) -> None:
    """S8: the machine booted something else and delivers good values beside its true quote."""
    exchange.tpm.pcrs[4] = b"evil" * 8
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    pcrs = {**given.bound.evidence.pcrs, 4: exchange.boot.pcrs[4]}
    lied = replace(given.bound, evidence=replace(given.bound.evidence, pcrs=pcrs))
    assert code_of(lambda: exchange.verified(given, record, bound=lied)) == "QUOTE_DIGEST"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda attest: replace(attest, pcr_selections=()), id="no selection"),
        pytest.param(lambda attest: replace(attest, pcr_selections=attest.pcr_selections * 2), id="one twice"),
        pytest.param(
            lambda attest: replace(attest, pcr_selections=(PcrSelection(ALG_SHA1, SELECTION),)), id="the SHA-1 bank"
        ),
        pytest.param(
            lambda attest: replace(attest, pcr_selections=(*attest.pcr_selections, PcrSelection(ALG_SHA1, (4,)))),
            id="another bank as well",
        ),
    ],
)
def test_selection_confusion(exchange: Exchange, change: Callable[[Attest], Attest]) -> None:
    """S8 (CVE-2024-29039)."""
    assert refused_forgery(exchange, change) == "QUOTE_SELECTION"


# Step 6: the earlier evidence of the connection ------------------------------------------------------------


def earlier_quote(tpm: SoftTpm) -> VerifiedQuote:
    known = {"spki_sha256": KUBELET_SPKI, "nonce": b"n" * 32}
    return verify_handshake_evidence(issue_handshake_evidence(tpm, tpm.ak, **known, pcrs=(0,)), **known)


def test_both_pieces_of_evidence_of_one_run_are_accepted(exchange: Exchange) -> None:
    earlier = earlier_quote(exchange.tpm)
    assert exchange.run(earlier=earlier).machine.quote.clock_info.clock > earlier.clock_info.clock


def test_two_pieces_of_evidence_within_a_millisecond(exchange: Exchange) -> None:
    earlier = earlier_quote(exchange.tpm)
    same = replace(earlier.clock_info, clock=earlier.clock_info.clock + 1)
    assert exchange.run(earlier=replace(earlier, clock_info=same)).machine.quote.clock_info == same


def test_reset_between_two_pieces_of_evidence(exchange: Exchange) -> None:
    """S11: the same registers after a reset."""
    earlier = earlier_quote(exchange.tpm)
    exchange.tpm.reset()
    assert code_of(lambda: exchange.run(earlier=earlier)) == "TPM_RESET_BETWEEN"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"restart_count": 1}, id="a restart (suspend) in between"),
        pytest.param({"clock": 1}, id="a clock that went back"),
        pytest.param({"reset_count": 1}, id="a reset count that went back"),
    ],
)
def test_a_tpm_that_is_not_the_earlier_one(exchange: Exchange, changes: dict[str, Any]) -> None:
    earlier = earlier_quote(exchange.tpm)
    exchange.tpm.clock_info = replace(exchange.tpm.clock_info, **changes)
    assert code_of(lambda: exchange.run(earlier=earlier)) == "TPM_RESET_BETWEEN"


def test_door_opened_by_another_tpm(exchange: Exchange) -> None:
    """S41: one machine opens the connection, another one answers on it."""
    earlier = earlier_quote(SoftTpm(exchange.boot.pcrs))
    assert code_of(lambda: exchange.run(earlier=earlier)) == "AK_MISMATCH"


def test_handshake_evidence_for_another_key(exchange: Exchange) -> None:
    document = issue_handshake_evidence(
        exchange.tpm, exchange.tpm.ak, spki_sha256=KUBELET_SPKI, nonce=b"n" * 32, pcrs=(0,)
    )
    assert (
        code_of(lambda: verify_handshake_evidence(document, spki_sha256=b"x" * 32, nonce=b"n" * 32))
        == "BINDING_MISMATCH"
    )


def test_bound_evidence_opens_no_door(exchange: Exchange) -> None:
    """E2 cannot serve as E1 of a later connection."""
    challenge, _unused = exchange.challenged()
    document = exchange.answered(challenge).bound.evidence.to_bytes()
    assert (
        code_of(lambda: verify_handshake_evidence(document, spki_sha256=KUBELET_SPKI, nonce=challenge.nonce))
        == "BINDING_MISMATCH"
    )


# Step 7: who it is -----------------------------------------------------------------------------------------


def test_diversion_to_another_genuine_machine(exchange: Exchange) -> None:
    """S3: same boot, genuine TPM, but nobody enrolled it."""
    exchange.tpm = SoftTpm(exchange.boot.pcrs)
    assert code_of(exchange.run) == "IDENTITY_UNKNOWN"


def test_revoked_machine(exchange: Exchange) -> None:
    """S24."""
    revoked = replace(identity_of(exchange.tpm.ek), admission=Admission.REVOKED)
    policy = SitePolicy(profiles=exchange.policy.profiles(), identities=[revoked])
    assert code_of(lambda: exchange.run(policy=policy)) == "IDENTITY_REVOKED"


def test_identity_takeover_by_a_second_tpm_for_one_name(exchange: Exchange) -> None:
    """S6 (CVE-2025-13609)."""
    identities = [identity_of(exchange.tpm.ek), identity_of(SoftTpm().ek)]
    policy = SitePolicy(profiles=exchange.policy.profiles(), identities=identities)
    assert code_of(lambda: exchange.run(policy=policy)) == "IDENTITY_AMBIGUOUS"


def test_a_strangers_logs_are_not_even_parsed(exchange: Exchange) -> None:
    """Who before what: the same broken log is a finding only for a known machine."""
    send_logs(exchange, replace(exchange.logs, firmware=b"broken"))
    assert code_of(exchange.run) == "EVENT_LOG_MALFORMED"
    exchange.tpm = SoftTpm(exchange.boot.pcrs)
    assert code_of(exchange.run) == "IDENTITY_UNKNOWN"


# Step 8: the logs ------------------------------------------------------------------------------------------


def test_logs_that_are_not_those_bound(exchange: Exchange) -> None:
    other = replace(exchange.logs, command_line=b"quiet")
    assert code_of(lambda: exchange.run(logs=other)) == "EVENT_LOG_CHANGED"


def test_register_extended_after_the_boot_without_a_log(exchange: Exchange) -> None:
    """S10."""
    exchange.tpm.pcr_event(4, b"evil")
    with pytest.raises(Refusal, match="PCR 4: logs give 66897e8a") as caught:
        exchange.run()
    assert caught.value.code == "EVENT_LOG_MISMATCH"


def test_event_log_of_a_better_boot(exchange: Exchange) -> None:
    """S9: the changed machine sends the log of the good one."""
    exchange.tpm.pcrs = dict(boots.load("deb13-cmdline").pcrs)
    assert code_of(exchange.run) == "EVENT_LOG_MISMATCH"


@pytest.mark.parametrize("field", ["firmware", "userspace", "nodelock"])
def test_a_broken_log_is_a_refusal(exchange: Exchange, field: str) -> None:
    """S25: no error on the way lets anybody in."""
    send_logs(exchange, replace(exchange.logs, **{field: b"broken"}))
    assert code_of(exchange.run) == "EVENT_LOG_MALFORMED"


def test_a_machine_without_logs_is_judged_by_its_values(exchange: Exchange) -> None:
    exchange.tpm.pcrs[15] = bytes(32)
    send_logs(exchange, EventLogs())
    assert exchange.run().verdict.profile == "deb13-base"


# Step 9: the node lock -------------------------------------------------------------------------------------


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_machine_locked_to_this_cluster_is_let_in_for_every_purpose(exchange: Exchange, purpose: Purpose) -> None:
    lock(exchange)
    exchange.context = replace(exchange.context, purpose=purpose)
    assert exchange.run().machine.lock.state is LockState.LOCKED


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_machine_locked_to_another_cluster_is_let_in_for_none(exchange: Exchange, purpose: Purpose) -> None:
    lock(exchange, b"o" * 32)
    exchange.context = replace(exchange.context, purpose=purpose)
    assert code_of(exchange.run) == "NODELOCK_OTHER_CLUSTER"


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_lock_that_is_not_told_is_foreign(exchange: Exchange, purpose: Purpose) -> None:
    exchange.tpm.pcr_event(15, CLUSTER_ID)
    exchange.context = replace(exchange.context, purpose=purpose)
    assert code_of(exchange.run) == "NODELOCK_FOREIGN"


@pytest.mark.parametrize("purpose", [Purpose.ENROLL, Purpose.INIT, Purpose.JOIN, Purpose.RECOVER])
def test_an_unlocked_machine_may_join_or_come_back(exchange: Exchange, purpose: Purpose) -> None:
    exchange.context = replace(exchange.context, purpose=purpose)
    assert exchange.run().machine.lock.state is LockState.UNLOCKED


@pytest.mark.parametrize("purpose", [Purpose.SHARE, Purpose.VERIFY])
def test_an_unlocked_machine_is_no_good_node(exchange: Exchange, purpose: Purpose) -> None:
    """Since its reset it has not locked itself: nothing that it runs is a node of this cluster."""
    exchange.context = replace(exchange.context, purpose=purpose)
    assert code_of(exchange.run) == "NODELOCK_OPEN"
    challenge, record = exchange.challenged()
    known = {"record": record, "context": exchange.context, "logs": exchange.logs, "now": NOW}
    assert code_of(lambda: verify_machine(exchange.answered(challenge).bound, **known)) == "NODELOCK_OPEN"


@pytest.mark.parametrize("purpose", [Purpose.SHARE, Purpose.VERIFY])
def test_of_an_unlocked_machine_with_another_boot_the_boot_is_told(exchange: Exchange, purpose: Purpose) -> None:
    """It got no ticket and could not lock itself: that it is open is what follows, not what is wrong."""
    exchange.context = replace(exchange.context, purpose=purpose)
    other = SitePolicy(profiles=[learned(boots.load("deb13-cmdline"))], identities=[identity_of(exchange.tpm.ek)])
    assert code_of(lambda: exchange.run(policy=other)) == "PCR_MISMATCH"


def test_a_lock_in_a_register_that_can_be_reset(exchange: Exchange) -> None:
    assert code_of(lambda: exchange.run(demands=Demands(lock_register=16))) == "NODELOCK_REGISTER_RESETTABLE"


def test_a_lock_in_a_register_that_was_not_quoted(exchange: Exchange) -> None:
    assert code_of(lambda: exchange.run(demands=Demands(lock_register=14))) == "QUOTE_SELECTION"


def test_a_lock_in_a_register_that_a_profile_pins(exchange: Exchange) -> None:
    profile = exchange.policy.profiles()[0]
    pinned = replace(profile, registers={**profile.registers, 15: profile.registers[4]})
    policy = SitePolicy(profiles=[pinned], identities=[identity_of(exchange.tpm.ek)])
    assert code_of(lambda: exchange.run(policy=policy)) == "NODELOCK_REGISTER_PINNED"


# Step 10: what it booted -----------------------------------------------------------------------------------


def test_changed_command_line(exchange: Exchange) -> None:
    """The refusal of the lab tour, end to end."""
    changed = Exchange(boots.load("deb13-cmdline"))
    policy = SitePolicy(profiles=[learned(exchange.boot)], identities=[identity_of(changed.tpm.ek)])
    with pytest.raises(MeasurementMismatch, match=r"attested\.tampered=1") as caught:
        changed.run(policy=policy)
    assert [one.pcr for one in caught.value.registers] == [4, 9, 11]


def test_empty_policy(exchange: Exchange) -> None:
    """S13."""
    policy = SitePolicy(profiles=[], identities=[identity_of(exchange.tpm.ek)])
    assert code_of(lambda: exchange.run(policy=policy)) == "POLICY_EMPTY"


def test_a_policy_that_cannot_answer_lets_nobody_in(exchange: Exchange) -> None:
    """S25: whatever breaks, the verdict is never yes."""

    class Broken(SitePolicy):
        def profiles(self) -> tuple[Any, ...]:
            raise OSError("no connection")

    policy = Broken(profiles=[], identities=[identity_of(exchange.tpm.ek)])
    with pytest.raises(OSError, match="no connection"):
        exchange.run(policy=policy)


# Control planes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role)
def test_what_control_planes_share_is_for_them_alone(exchange: Exchange, role: Role) -> None:
    identity = identity_of(exchange.tpm.ek, role=role)
    verified = exchange.run(policy=SitePolicy(profiles=exchange.policy.profiles(), identities=[identity]))
    if role is Role.CONTROL_PLANE:
        verified.require_control_plane()
        return
    with pytest.raises(Refusal, match="expected a control plane, the identity of w-1 says worker") as caught:
        verified.require_control_plane()
    assert caught.value.code == "ROLE_NOT_REGISTERED"


# Over ssh --------------------------------------------------------------------------------------------------


def test_over_ssh_the_logs_are_the_request(exchange: Exchange) -> None:
    logs = logs_of(exchange.boot)
    exchange.context = BindingContext(purpose=Purpose.ENROLL, cluster_id=b"", request=logs.to_bytes())
    assert exchange.run().machine.purpose is Purpose.ENROLL


def test_the_challenges_registers_are_those_of_the_policy(exchange: Exchange) -> None:
    challenge, _unused = new_challenge(
        exchange.request(), selection=exchange.policy.selection(), random=SystemRandom(), now=NOW
    )
    assert challenge.selection == SELECTION
