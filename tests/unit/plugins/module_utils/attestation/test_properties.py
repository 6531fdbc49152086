# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every exchange: an honest one is accepted, one changed bit refuses where it counts and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import BindingContext, Purpose
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import AllowedValue, SitePolicy
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of, learned
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.attestation import (
        Answer,
        ChallengeRecord,
        VerifiedNode,
    )

DIGESTS = st.binary(min_size=32, max_size=32)
BITS = st.integers(min_value=0, max_value=(1 << 20) - 1)
HEADER_BYTES = 8  # of an event: register and type
NO_ACTION = 3

few = settings(max_examples=40)  # each is a whole verification; the mutation run takes them too
EXCHANGE = Exchange()
CHALLENGE, RECORD = EXCHANGE.challenged()
GIVEN = EXCHANGE.answered(CHALLENGE)
GOOD = EXCHANGE.verified(GIVEN, RECORD)


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
        EXCHANGE.verified(changes.pop("given", GIVEN), changes.pop("record", RECORD), **changes)
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
@given(words=st.text(max_size=20), order=st.booleans(), seconds=st.integers(0, 2**40))
def test_what_only_explains_changes_nothing(words, order, seconds):
    profile = learned(EXCHANGE.boot)
    told = tuple(replace(event, text=words, proven=order, rank=3) for event in profile.reference_events)
    other = replace(profile, name="another", registers={0: (AllowedValue(bytes(32), words),)})
    profiles = [replace(profile, reference_events=told), other]
    policy = _policy(*(profiles if order else reversed(profiles)))
    record = replace(RECORD, challenge=replace(CHALLENGE, server_time_unix_seconds=seconds))
    assert _judged(EXCHANGE.verified(GIVEN, record, policy=policy)) == _judged(GOOD)
