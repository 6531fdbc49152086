# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every exchange: an honest one is accepted, one changed bit refuses where it counts and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import BindingContext
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support.ek import chain_of, der
from ansible_collections.attested.kubernetes.tests.support.exchange import DOOR_NONCE, Exchange, identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Answer, ChallengeRecord
    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode

DIGESTS = st.binary(min_size=32, max_size=32)
BITS = st.integers(min_value=0, max_value=(1 << 20) - 1)
HEADER_BYTES = 8  # of an event: register and type
NO_ACTION = 3
COUNT_BITS = 32

few = settings(max_examples=40)  # each is a whole verification; the mutation run takes them too
EXCHANGE = Exchange()
ROOT, CERTIFICATES = chain_of(EXCHANGE.tpm.ek.public)
DOOR = EXCHANGE.knock()
CHALLENGE, RECORD = EXCHANGE.challenged(ek_certificates=CERTIFICATES)
GIVEN = EXCHANGE.answered(CHALLENGE)


def verified(given: Answer = GIVEN, record: ChallengeRecord = RECORD, *, door: Any = None, **changes: Any) -> Any:
    """Return the judgement of all that may be asked for: ``door`` changes the connection's first evidence."""
    first = {"document": DOOR, **(door or {})}
    earlier = EXCHANGE.opened(first.pop("document"), **first)
    return EXCHANGE.verified(given, record, earlier=earlier, demands=Demands(ek_roots=(ROOT,)), **changes)


GOOD = verified()
GIVEN_CLOCK = GOOD.machine.quote.clock_info.clock
OTHERS = chain_of(SoftTpm().ek.public)


def flipped(data: bytes, bit: int) -> bytes:
    """Return ``data`` with one bit changed; the number may be larger than it has bits."""
    place = bit % (8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << (place % 8)
    return bytes(changed)


def _bound(**changes: Any) -> Answer:
    return replace(GIVEN, bound=replace(GIVEN.bound, **changes))


def _evidence(**changes: Any) -> Answer:
    return _bound(evidence=replace(GIVEN.bound.evidence, **changes))


def _certified(bit: int, place: int) -> ChallengeRecord:
    """Return the record as if one of the certificates had come with one bit changed."""
    sent = list(CERTIFICATES)
    sent[place] = flipped(sent[place], bit)
    return replace(RECORD, ek_certificates=tuple(sent))


def _saying(**run: Any) -> dict[str, bytes]:
    """Return a first evidence that says this of the TPM's run, under the key's own signature."""
    said = Evidence.parse(DOOR)
    attest = Attest.parse(said.quote)
    quote = EXCHANGE.tpm.signed(replace(attest, clock_info=replace(attest.clock_info, **run)))
    return {"document": replace(said, quote=quote.attest, signature=quote.signature).to_bytes()}


def _counted(field: str, bit: int) -> dict[str, bytes]:
    """Return a first evidence with one bit of the TPM's count of ``field`` changed."""
    known = getattr(Attest.parse(Evidence.parse(DOOR).quote).clock_info, field)
    return _saying(**{field: known ^ 1 << bit % COUNT_BITS})


def _values(bit: int) -> Mapping[int, bytes]:
    pcrs = dict(GIVEN.bound.evidence.pcrs)
    index = sorted(pcrs)[bit % len(pcrs)]
    return {**pcrs, index: flipped(pcrs[index], bit // len(pcrs))}


def _recorded(bit: int, field: str) -> ChallengeRecord:
    """Return the record as if another nonce or secret had been given out."""
    if field == "secret":
        return replace(RECORD, secret=flipped(RECORD.secret, bit))
    return replace(RECORD, challenge=replace(CHALLENGE, nonce=flipped(CHALLENGE.nonce, bit)))


def _context(field: str, bit: int) -> BindingContext:
    return replace(EXCHANGE.context, **{field: flipped(getattr(EXCHANGE.context, field), bit)})


def _allowing(bit: int) -> SitePolicy:
    """Return the policy with one bit of one allowed value changed."""
    profile = learned(EXCHANGE.boot)
    pcr = sorted(profile.registers)[bit % len(profile.registers)]
    (value,) = profile.registers[pcr]
    other = AllowedValue(flipped(value.digest, bit // len(profile.registers)), value.label)
    return _policy(replace(profile, registers={**profile.registers, pcr: (other,)}))


def _policy(*profiles: Any, **identity: Any) -> SitePolicy:
    return SitePolicy(profiles=profiles, identities=[replace(identity_of(EXCHANGE.tpm.ek), **identity)])


def _another_ek(bit: int) -> SitePolicy:
    return _policy(
        learned(EXCHANGE.boot), ek_sha256=flipped(bytes.fromhex(EXCHANGE.tpm.ek.public.spki_sha256()), bit).hex()
    )


COUNTS: list[Any] = [
    pytest.param(
        lambda bit: {"given": _evidence(quote=flipped(GIVEN.bound.evidence.quote, bit))},
        {"QUOTE_MALFORMED", "QUOTE_SIGNATURE"},
        id="the quote",
    ),
    pytest.param(
        lambda bit: {"given": _evidence(signature=flipped(GIVEN.bound.evidence.signature, bit))},
        {"QUOTE_SIGNATURE", "EVIDENCE_MALFORMED"},
        id="its signature",
    ),
    pytest.param(lambda bit: {"given": _evidence(pcrs=_values(bit))}, {"QUOTE_DIGEST"}, id="a delivered value"),
    pytest.param(
        lambda bit: {"given": _evidence(ak_public=flipped(GIVEN.bound.evidence.ak_public, bit))},
        {"AK_MISMATCH"},
        id="the attestation key",
    ),
    pytest.param(
        lambda bit: {"given": _bound(proof=flipped(GIVEN.bound.proof, bit))}, {"ACTIVATION_NOT_PROVEN"}, id="the proof"
    ),
    pytest.param(
        lambda bit: {"given": _bound(hpke_public=flipped(GIVEN.bound.hpke_public, bit))},
        {"BINDING_MISMATCH"},
        id="the one-time key",
    ),
    pytest.param(
        lambda bit: {"given": _bound(challenge_id=flipped(GIVEN.bound.challenge_id, bit))},
        {"CHALLENGE_UNKNOWN"},
        id="the challenge that is answered",
    ),
    pytest.param(
        lambda bit: {"given": _bound(event_logs_sha256=flipped(GIVEN.bound.event_logs_sha256, bit))},
        {"EVENT_LOG_CHANGED"},
        id="the digest of the logs",
    ),
    pytest.param(
        lambda bit: {"logs": replace(EXCHANGE.logs, firmware=flipped(EXCHANGE.logs.firmware, bit))},
        {"EVENT_LOG_CHANGED"},
        id="the logs",
    ),
    pytest.param(lambda bit: {"record": _recorded(bit, "nonce")}, {"ACTIVATION_NOT_PROVEN"}, id="the nonce"),
    pytest.param(lambda bit: {"record": _recorded(bit, "secret")}, {"ACTIVATION_NOT_PROVEN"}, id="the secret"),
    *(
        pytest.param(
            lambda bit, field=field: {"context": _context(field, bit)}, {"BINDING_MISMATCH"}, id=f"the {field}"
        )
        for field in ("exporter", "spki_sha256", "request", "cluster_id")
    ),
    pytest.param(
        lambda bit: {"door": {"document": flipped(DOOR, bit)}},
        {
            "AK_ATTRIBUTES",
            "AK_HIERARCHY",
            "EVIDENCE_MALFORMED",
            "MESSAGE_MALFORMED",
            "QUOTE_DIGEST",
            "QUOTE_MALFORMED",
            "QUOTE_SELECTION",
            "QUOTE_SIGNATURE",
            "VARIANT_UNKNOWN",
        },
        id="the first evidence",
    ),
    pytest.param(
        lambda bit: {"door": {"nonce": flipped(DOOR_NONCE, bit)}}, {"BINDING_MISMATCH"}, id="the nonce of the first"
    ),
    pytest.param(
        lambda bit: {"door": {"spki_sha256": flipped(EXCHANGE.context.spki_sha256, bit)}},
        {"BINDING_MISMATCH"},
        id="the key behind the first",
    ),
    *(
        pytest.param(
            lambda bit, field=field: {"door": _counted(field, bit)}, {"TPM_RESET_BETWEEN"}, id=f"the {field} of before"
        )
        for field in ("reset_count", "restart_count")
    ),
    pytest.param(
        lambda bit: {"record": _certified(bit, 0)},
        {"EK_CERTIFICATE_EXPIRED", "EK_CERTIFICATE_MALFORMED", "EK_CERTIFICATE_PROFILE", "EK_CERTIFICATE_UNTRUSTED"},
        id="the endorsement certificate",
    ),
    pytest.param(
        lambda bit: {"record": _certified(bit, 1)},
        {"EK_CERTIFICATE_MALFORMED", "EK_CERTIFICATE_UNTRUSTED"},
        id="its issuer's certificate",
    ),
    pytest.param(lambda bit: {"policy": _allowing(bit)}, {"PCR_MISMATCH"}, id="an allowed value"),
    pytest.param(lambda bit: {"policy": _another_ek(bit)}, {"IDENTITY_UNKNOWN"}, id="the enrolled key"),
]


@few
@given(exporter=DIGESTS, spki=DIGESTS, cluster=DIGESTS, words=st.binary(max_size=200), purpose=st.sampled_from(Purpose))
def test_whatever_is_issued_is_accepted(exporter, spki, cluster, words, purpose):
    if purpose in (Purpose.SHARE, Purpose.VERIFY):
        purpose = Purpose.JOIN  # a machine that is not locked yet is no node to verify
    context = BindingContext(purpose=purpose, cluster_id=cluster, request=words, exporter=exporter, spki_sha256=spki)
    challenge, record = EXCHANGE.challenged()
    node = EXCHANGE.verified(EXCHANGE.answered(challenge, context=context), record, context=context)
    assert (node.identity.node_name, node.verdict.profile) == ("w-1", "deb13-base")


@pytest.mark.parametrize(("changed", "codes"), COUNTS)
@few
@given(bit=BITS)
def test_one_bit_that_is_signed_hashed_or_compared_refuses(changed: Callable[[int], Any], codes, bit):
    changes = changed(bit)
    with pytest.raises(AttestedError) as caught:
        verified(**changes)
    assert caught.value.code in codes


def _judged(node: VerifiedNode) -> object:
    """Return what a decision consists of: who, which profile, how far, which values."""
    return (
        node.identity.name,
        node.identity.node_name,
        node.verdict.profile,
        node.verdict.posture,
        node.machine.quote.pcrs,
    )


def _event_data(log: bytes) -> list[range]:
    """Return where the data of each measured event lies in a firmware log: the only bytes that no digest covers."""
    at = 32 + int.from_bytes(log[28:32], "little")  # the first event, in the old form
    found = []
    while at < len(log):
        kind = int.from_bytes(log[at + 4 : at + HEADER_BYTES], "little")
        banks, at = int.from_bytes(log[at + 8 : at + 12], "little"), at + 12
        for _unused in range(banks):
            at += 2 + {4: 20, 11: 32, 12: 48, 13: 64}[int.from_bytes(log[at : at + 2], "little")]
        size, at = int.from_bytes(log[at : at + 4], "little"), at + 4
        if kind != NO_ACTION and size:
            found.append(range(at, at + size))
        at += size
    return found


EVENT_DATA = [place for data in _event_data(EXCHANGE.logs.firmware) for place in data]


@few
@given(which=st.integers(0, len(EVENT_DATA) - 1), bit=st.integers(0, 7))
def test_one_bit_of_what_an_event_tells_changes_nothing(which, bit):
    """A machine may say of its events what it likes; it binds that, and the digests decide."""
    firmware = flipped(EXCHANGE.logs.firmware, 8 * EVENT_DATA[which] + bit)
    logs = replace(EXCHANGE.logs, firmware=firmware)
    context = replace(EXCHANGE.context, request=b"request with " + logs.to_bytes())
    challenge, record = EXCHANGE.challenged()
    node = EXCHANGE.verified(
        EXCHANGE.answered(challenge, context=context, logs=logs), record, context=context, logs=logs
    )
    assert _judged(node) == _judged(GOOD)


@few
@given(earlier=st.integers(0, 1000), safe=st.booleans())
def test_a_first_evidence_of_the_same_run_changes_nothing(earlier, safe):
    """Any time before, and what the TPM says of its clock's orderly ends, is the same run."""
    assert _judged(verified(door=_saying(clock=earlier, safe=safe))) == _judged(GOOD)


@few
@given(later=st.integers(1, 1 << 40))
def test_a_first_evidence_of_later_refuses(later):
    clock = GIVEN_CLOCK + later
    with pytest.raises(AttestedError) as caught:
        verified(door=_saying(clock=clock))
    assert caught.value.code == "TPM_RESET_BETWEEN"


@few
@given(sent=st.permutations([CERTIFICATES[1], OTHERS[1][1], der(OTHERS[0]), der(ROOT)]))
def test_issuers_in_any_order_and_those_of_others_change_nothing(sent):
    record = replace(RECORD, ek_certificates=(CERTIFICATES[0], *sent))
    assert _judged(verified(record=record)) == _judged(GOOD)


@few
@given(words=st.text(max_size=20), order=st.booleans(), seconds=st.integers(0, 2**40))
def test_what_only_explains_changes_nothing(words, order, seconds):
    profile = learned(EXCHANGE.boot)
    told = tuple(replace(event, text=words, proven=order, rank=3) for event in profile.reference_events)
    other = replace(profile, name="another", registers={0: (AllowedValue(bytes(32), words),)})
    profiles = [replace(profile, reference_events=told), other]
    policy = _policy(*(profiles if order else reversed(profiles)))
    record = replace(RECORD, challenge=replace(CHALLENGE, server_time_unix_seconds=seconds))
    assert _judged(verified(record=record, policy=policy)) == _judged(GOOD)
