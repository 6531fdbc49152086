# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node of Constellation hears and says: bytes by the wire facts, and nothing secret shown."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.node import (
    Measurements,
    NodeDemands,
    judge_node,
    master_secret_uri,
    parse_rejoin_reply,
    parse_verify_reply,
    recover_request,
    rejoin_request,
    verify_request,
)
from ansible_collections.attested.kubernetes.tests.support.constellation_node import Machine, fields_of, ticket
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_values import UUID, master

NONCE = bytes(range(32))
ANY = NodeDemands(measurements=Measurements(expected={4: bytes(32)}, warn_only=frozenset()))


def test_the_uri_is_that_of_the_known_answer() -> None:
    """kms://cluster-kms?key=a2V5&salt=c2FsdA== is `key` and `salt`; a master secret of ours is longer."""
    secret = MasterSecret(key=SecretBytes(b"key".ljust(32, b"\xff")), salt=SecretBytes(b"salt".ljust(32, b"\xff")))
    uri = master_secret_uri(secret).reveal()
    head, _question, query = uri.partition(b"?")
    assert head == b"kms://cluster-kms"
    assert query == b"key=a2V5" + b"_" * 38 + b"8=&salt=c2FsdP" + b"_" * 36 + b"8="


def test_a_recovery_holds_two_fields_and_does_not_show_them() -> None:
    request = recover_request(master())
    told = fields_of(request.reveal())
    assert told == {3: master_secret_uri(master()).reveal(), 4: b"storage://no-store"}
    assert repr(request) == "SecretBytes()"


def test_questions_have_the_numbers_of_their_fields() -> None:
    assert fields_of(verify_request(NONCE)) == {2: NONCE}
    assert fields_of(rejoin_request(DiskId(UUID))) == {1: UUID.encode()}


def test_a_rejoin_ticket_is_two_secrets() -> None:
    secrets = parse_rejoin_reply(ticket(b"d" * 32, b"m" * 32))
    assert (secrets.disk_key.reveal(), secrets.measurement_secret.reveal()) == (b"d" * 32, b"m" * 32)
    assert "ddd" not in repr(secrets)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(ticket(b"d" * 31, b"m" * 32), id="a short key"),
        pytest.param(ticket(b"d" * 32, b"m" * 33), id="a long secret"),
        pytest.param(b"\xff\xff", id="no message"),
    ],
)
def test_another_ticket_is_refused(reply: bytes) -> None:
    assert code_of(lambda: parse_rejoin_reply(reply)) == "MESSAGE_MALFORMED"


def test_a_verification_is_one_document() -> None:
    assert parse_verify_reply(b"\x0a\x02{}") == b"{}"
    assert code_of(lambda: parse_verify_reply(b"\xff")) == "MESSAGE_MALFORMED"


def test_a_key_is_believed_where_it_was_noted_or_where_that_is_said() -> None:
    machine = Machine()
    document = machine.document(b"user data", NONCE)

    def seen(**changes: object) -> bytes:
        demands = NodeDemands(measurements=ANY.measurements, **changes)  # type: ignore[arg-type]
        return judge_node(document, demands, user_data=b"user data", nonce=NONCE).ak_name

    assert seen(attestation_keys=frozenset({machine.name})) == machine.name
    assert seen(insecure_any_attestation_key=True) == machine.name
    assert code_of(lambda: seen(attestation_keys=frozenset({b"\0\x0b" + bytes(32)}))) == "CONSTELLATION_KEY_UNKNOWN"
    assert code_of(seen) == "CONSTELLATION_KEY_UNKNOWN"


@pytest.mark.parametrize("document", [b"", b"{}", b'{"Attestation": {}}', b"\xff"])
def test_no_document_names_no_key(document: bytes) -> None:
    demands = NodeDemands(measurements=ANY.measurements, insecure_any_attestation_key=True)
    assert code_of(lambda: judge_node(document, demands, user_data=b"u", nonce=NONCE)) == "EVIDENCE_MALFORMED"
