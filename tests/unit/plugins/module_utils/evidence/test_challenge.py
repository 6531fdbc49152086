# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Challenge and answer: forms on the wire, versions, and the store of open challenges."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    Challenge,
    ChallengeRequest,
    ChallengeStore,
    agreed_version,
    answer,
    new_challenge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import (
    BoundEvidence,
    EventLogs,
    Evidence,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
from ansible_collections.attested.kubernetes.tests.support.exchange import NOW, SELECTION, Exchange
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

EXCHANGE = Exchange()
CHALLENGE, RECORD = EXCHANGE.challenged()
ANSWER = EXCHANGE.answered(CHALLENGE)
REQUEST = replace(EXCHANGE.request(), ek_certificates=(b"leaf", b"issuer"))


def changed(name: str, data: bytes, **fields: Any) -> bytes:
    """Return a serialised message with some fields replaced."""
    message = message_class(f"attested.v1.{name}").FromString(data)
    for field, value in fields.items():
        if isinstance(value, list):
            del getattr(message, field)[:]
            getattr(message, field).extend(value)
        else:
            setattr(message, field, value)
    return bytes(message.SerializeToString())


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(REQUEST, id="request"),
        pytest.param(CHALLENGE, id="challenge"),
        pytest.param(ANSWER.bound, id="bound evidence"),
        pytest.param(ANSWER.bound.evidence, id="evidence"),
        pytest.param(EXCHANGE.logs, id="event logs"),
    ],
)
def test_what_is_sent_is_what_arrives(thing: Any) -> None:
    assert type(thing).parse(thing.to_bytes()) == thing


def test_a_challenge_tells_the_verifiers_time_and_life() -> None:
    assert CHALLENGE.server_time_unix_seconds == int(NOW.timestamp())
    assert RECORD.expires == NOW + timedelta(seconds=60)


def test_two_challenges_share_nothing() -> None:
    other, record = EXCHANGE.challenged()
    assert {other.id, other.nonce, record.secret}.isdisjoint({CHALLENGE.id, CHALLENGE.nonce, RECORD.secret})


def test_a_selection_is_put_in_order() -> None:
    challenge, _unused = new_challenge(EXCHANGE.request(), selection=(15, 9, 4, 4), random=SystemRandom(), now=NOW)
    assert challenge.selection == (4, 9, 15)
    assert Challenge.parse(challenge.to_bytes()).selection == (4, 9, 15)


def test_the_last_register_may_be_asked_for() -> None:
    data = changed("ChallengeResponse", CHALLENGE.to_bytes(), pcr_selection=[0, 23])
    assert Challenge.parse(data).selection == (0, 23)


def filled(make: Callable[[int], bytes], size: int) -> bytes:
    """Return what ``make`` gives for a filling that makes it of this size."""
    data = make(size // 2 + size - len(make(size // 2)))
    assert len(data) == size
    return data


def request_of(size: int) -> bytes:
    return filled(lambda n: changed("ChallengeRequest", REQUEST.to_bytes(), ek_certificates=[b"x" * n]), size)


def challenge_of(size: int) -> bytes:
    return filled(lambda n: changed("ChallengeResponse", CHALLENGE.to_bytes(), credential_blob=b"x" * n), size)


def test_messages_may_be_of_the_largest_size_and_no_larger() -> None:
    """Two keys of 1 KiB and seventeen certificates of 4 KiB; four structures of 1 KiB."""
    assert ChallengeRequest.parse(request_of(71_680))
    assert Challenge.parse(challenge_of(4096))
    assert code_of(lambda: ChallengeRequest.parse(request_of(71_681))) == "MESSAGE_TOO_LARGE"
    assert code_of(lambda: Challenge.parse(challenge_of(4097))) == "MESSAGE_TOO_LARGE"


def test_seventeen_certificates_may_come() -> None:
    data = changed("ChallengeRequest", REQUEST.to_bytes(), ek_certificates=[b"x"] * 17)
    assert len(ChallengeRequest.parse(data).ek_certificates) == 17


def test_a_key_that_could_sign_anything_is_not_challenged() -> None:
    unrestricted = Public.parse(public_area("ek"))
    assert code_of(lambda: EXCHANGE.challenged(ak_public=unrestricted)) == "AK_ATTRIBUTES"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"ek_public": b"x"}, "EVIDENCE_MALFORMED", id="an endorsement key that is none"),
        pytest.param({"ak_public": b""}, "EVIDENCE_MALFORMED", id="no attestation key"),
        pytest.param({"ek_certificates": [b"x"] * 18}, "EVIDENCE_MALFORMED", id="eighteen certificates"),
        pytest.param({"ek_certificates": [b"x" * 80_000]}, "MESSAGE_TOO_LARGE", id="a huge certificate"),
    ],
)
def test_a_malformed_request_is_refused(fields: dict[str, Any], code: str) -> None:
    data = changed("ChallengeRequest", REQUEST.to_bytes(), **fields)
    assert code_of(lambda: ChallengeRequest.parse(data)) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"pcr_selection": []}, "EVIDENCE_MALFORMED", id="no register"),
        pytest.param({"pcr_selection": [4, 4]}, "EVIDENCE_MALFORMED", id="a register twice"),
        pytest.param({"pcr_selection": [7, 4]}, "EVIDENCE_MALFORMED", id="registers out of order"),
        pytest.param({"pcr_selection": [24]}, "EVIDENCE_MALFORMED", id="a register that does not exist"),
        pytest.param({"nonce": b"n" * 31}, "EVIDENCE_MALFORMED", id="a short nonce"),
        pytest.param({"challenge_id": b""}, "EVIDENCE_MALFORMED", id="no id"),
        pytest.param({"credential_blob": b"x" * 5000}, "MESSAGE_TOO_LARGE", id="a huge credential"),
    ],
)
def test_a_malformed_challenge_is_refused(fields: dict[str, Any], code: str) -> None:
    data = changed("ChallengeResponse", CHALLENGE.to_bytes(), **fields)
    assert code_of(lambda: Challenge.parse(data)) == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"challenge_id": b"x"}, "EVIDENCE_MALFORMED", id="a short id"),
        pytest.param({"hpke_public": b""}, "EVIDENCE_MALFORMED", id="no one-time key"),
        pytest.param({"proof": b"p" * 33}, "EVIDENCE_MALFORMED", id="a long proof"),
        pytest.param({"event_logs_sha256": b""}, "EVIDENCE_MALFORMED", id="no digest of the logs"),
        pytest.param({"evidence": b"\xff"}, "MESSAGE_MALFORMED", id="evidence that is none"),
        pytest.param({"evidence": b"x" * 20_000}, "MESSAGE_TOO_LARGE", id="huge evidence"),
    ],
)
def test_a_malformed_answer_is_refused(fields: dict[str, Any], code: str) -> None:
    data = changed("Binding", ANSWER.bound.to_bytes(), **fields)
    assert code_of(lambda: BoundEvidence.parse(data)) == code


PcrValue = message_class("attested.v1.PcrValue")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"pcrs": [PcrValue(index=24, digest=bytes(32))]}, id="a register that does not exist"),
        pytest.param({"pcrs": [PcrValue(index=1, digest=bytes(32))] * 2}, id="a register twice"),
        pytest.param(
            {"pcrs": [PcrValue(index=2, digest=bytes(32)), PcrValue(index=1, digest=bytes(32))]},
            id="registers out of order",
        ),
        pytest.param({"pcrs": [PcrValue(index=1, digest=bytes(20))]}, id="a SHA-1 value"),
        pytest.param({"quote": b"x" * 1025}, id="a huge quote"),
        pytest.param({"ak_public": b"x" * 1025}, id="a huge key"),
        pytest.param({"signature": b"x" * 1025}, id="a huge signature"),
    ],
)
def test_malformed_evidence_is_refused(fields: dict[str, Any]) -> None:
    data = changed("Evidence", ANSWER.bound.evidence.to_bytes(), **fields)
    assert code_of(lambda: Evidence.parse(data)) == "EVIDENCE_MALFORMED"


def test_a_command_line_longer_than_the_kernels_is_refused() -> None:
    logs = EventLogs(command_line=b"x" * 4097)
    assert code_of(lambda: EventLogs.parse(logs.to_bytes())) == "MESSAGE_TOO_LARGE"


def test_the_digest_of_logs_keeps_them_apart() -> None:
    digests = {
        EventLogs().digest(),
        EventLogs(firmware=b"x").digest(),
        EventLogs(userspace=b"x").digest(),
        EventLogs(nodelock=b"x").digest(),
        EventLogs(command_line=b"x").digest(),
    }
    assert len(digests) == 5


def test_a_number_that_is_no_rsa_key_is_a_refusal() -> None:
    """S29: an even modulus has the form of an endorsement key, and nothing can be encrypted to it."""
    recorded = Public.parse(public_area("ek"))
    no_key = replace(recorded, unique=recorded.unique[:-1] + b"\x00")  # type: ignore[index, operator]
    assert code_of(lambda: EXCHANGE.challenged(ek_public=no_key)) == "TPM_MALFORMED"


@pytest.mark.parametrize("offered", [0, 2, 1 << 31])
def test_a_version_that_is_not_spoken_is_refused_on_both_sides(offered: int) -> None:
    """S12: no side lets itself be talked down."""
    assert code_of(lambda: EXCHANGE.challenged(protocol_version=offered)) == "PROTOCOL_VERSION"
    challenge = replace(CHALLENGE, protocol_version=offered)
    assert code_of(lambda: EXCHANGE.answered(challenge)) == "PROTOCOL_VERSION"


def test_a_cluster_may_ask_for_a_newer_version_than_this_release_must() -> None:
    assert agreed_version(1) == 1
    assert code_of(lambda: agreed_version(1, minimum=2)) == "PROTOCOL_VERSION"


def test_a_challenge_for_another_endorsement_key_is_not_answered() -> None:
    stranger = Exchange()
    challenge, _unused = stranger.challenged()
    assert code_of(lambda: EXCHANGE.answered(challenge)) == "TPM_CREDENTIAL_REFUSED"


def test_a_challenge_for_another_attestation_key_is_not_answered() -> None:
    """S4: the credential names the key that it is for."""
    challenge, _unused = EXCHANGE.challenged(ak_public=SoftTpm().ak.public)
    assert code_of(lambda: EXCHANGE.answered(challenge)) == "TPM_CREDENTIAL_REFUSED"


def test_a_secret_of_another_length_is_not_used() -> None:
    class ShortSecret(SoftTpm):
        def activate_credential(self, *_rest: object) -> bytes:
            return b"s" * 16

    tpm = ShortSecret(EXCHANGE.boot.pcrs)
    keys = {"ek": tpm.ek, "ak": tpm.ak}
    code = code_of(lambda: answer(tpm, CHALLENGE, EXCHANGE.context, **keys, logs=EXCHANGE.logs))
    assert code == "EVIDENCE_MALFORMED"


def test_a_register_that_moves_once_is_quoted_again() -> None:
    class Moving(SoftTpm):
        moves = 1

        def pcr_read(self, indices: Any, **options: Any) -> dict[int, bytes]:
            values = super().pcr_read(indices, **options)
            if self.moves:
                self.moves -= 1
                self.pcr_event(11, b"ready")
            return values

    exchange = Exchange()
    exchange.tpm = Moving(exchange.boot.pcrs)
    challenge, _unused = exchange.challenged()
    assert exchange.answered(challenge).bound.evidence.pcrs[11] == exchange.tpm.pcrs[11]
    exchange.tpm.moves = 99
    assert code_of(lambda: exchange.answered(challenge)) == "TPM_BUSY"


# The store -------------------------------------------------------------------------------------------------


def record_at(seconds: int) -> Any:
    now = NOW + timedelta(seconds=seconds)
    return new_challenge(EXCHANGE.request(), selection=SELECTION, random=SystemRandom(), now=now)[1]


def test_a_full_store_takes_no_more_until_challenges_expire() -> None:
    """S27: who asks and never answers holds a place for a minute."""
    store = ChallengeStore(capacity=2)
    store.add(record_at(0), now=NOW)
    store.add(record_at(1), now=NOW)
    with pytest.raises(Refusal, match="at most 2 open challenges") as caught:
        store.add(record_at(2), now=NOW + timedelta(seconds=59))
    assert caught.value.code == "CHALLENGES_EXHAUSTED"
    late = record_at(60)
    store.add(late, now=NOW + timedelta(seconds=60))
    assert store.take(late.challenge.id) is late


def test_a_full_store_forgets_the_oldest_of_who_has_the_most() -> None:
    """S51: a flood from one address costs no other its challenge."""
    store, records = ChallengeStore(capacity=3), [record_at(number) for number in range(5)]
    for record, source in zip(records[:4], ("quiet", "flood", "flood", "other"), strict=True):
        store.add(record, now=NOW, source=source)
    assert store.take(records[0].challenge.id) is records[0]
    assert code_of(lambda: store.take(records[1].challenge.id)) == "CHALLENGE_UNKNOWN"
    store.add(record_at(5), now=NOW, source="flood")
    with pytest.raises(Refusal, match="at most 3 open challenges"):
        store.add(records[4], now=NOW, source="flood")
    assert store.take(records[3].challenge.id) is records[3]


def test_what_was_answered_or_is_too_old_counts_for_nobody() -> None:
    """The shares follow the records."""
    store, first, late = ChallengeStore(capacity=2), record_at(0), record_at(60)
    store.add(first, now=NOW, source="a")
    store.take(first.challenge.id)
    store.add(record_at(1), now=NOW, source="a")
    store.add(record_at(2), now=NOW, source="b")
    store.add(late, now=NOW + timedelta(seconds=62), source="a")
    assert len(store._shares) == len(store._records) == 1
    assert store.take(late.challenge.id) is late


def test_a_store_keeps_1024_where_nobody_says_otherwise() -> None:
    store = ChallengeStore()
    records = [replace(RECORD, challenge=replace(CHALLENGE, id=number.to_bytes(16, "big"))) for number in range(1025)]
    for record in records[:-1]:
        store.add(record, now=NOW)
    assert code_of(lambda: store.add(records[-1], now=NOW)) == "CHALLENGES_EXHAUSTED"


def test_an_answer_that_comes_late_is_told_so_while_there_is_room() -> None:
    """The record is kept, so that the refusal is about its age."""
    store, record = ChallengeStore(capacity=2), record_at(0)
    store.add(record, now=NOW)
    store.add(record_at(61), now=NOW + timedelta(seconds=61))
    assert store.take(record.challenge.id) is record


def test_one_of_many_threads_gets_the_record() -> None:
    store = ChallengeStore()
    store.add(RECORD, now=NOW)
    start, outcomes = threading.Barrier(16), []

    def race() -> None:
        start.wait()
        try:
            outcomes.append(store.take(CHALLENGE.id) is RECORD)
        except Refusal as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=race) for _unused in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == ["CHALLENGE_UNKNOWN"] * 15 + ["True"]


@given(data=st.data(), parser=st.sampled_from([ChallengeRequest, Challenge, BoundEvidence, Evidence, EventLogs]))
def test_broken_bytes_are_parsed_or_refused(data: st.DataObject, parser: Any) -> None:
    whole = {
        ChallengeRequest: REQUEST,
        Challenge: CHALLENGE,
        BoundEvidence: ANSWER.bound,
        Evidence: ANSWER.bound.evidence,
        EventLogs: EXCHANGE.logs,
    }[parser].to_bytes()
    changed_bytes = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    changed_bytes[data.draw(st.integers(0, len(changed_bytes) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        parsed = parser.parse(bytes(changed_bytes))
    except AttestedError as error:
        assert error.code in {"MESSAGE_MALFORMED", "EVIDENCE_MALFORMED", "MESSAGE_TOO_LARGE"}
    else:
        assert isinstance(parsed, parser)
