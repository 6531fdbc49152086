# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import (
    message_class,
    method_path,
    parse,
)
from hypothesis import given
from hypothesis import strategies as some


def test_a_message_survives_the_wire():
    sent = message_class("attested.v1.Evidence")(variant="tpm2", quote=b"q")
    received = parse("attested.v1.Evidence", sent.SerializeToString())
    assert (received.variant, received.quote) == ("tpm2", b"q")


@pytest.mark.parametrize(
    ("message", "field", "number"),
    [
        pytest.param("join.IssueJoinTicketRequest", "disk_uuid", 1, id="the disk's id"),
        pytest.param("join.IssueJoinTicketRequest", "certificate_request", 2, id="the kubelet's request"),
        pytest.param("join.IssueJoinTicketRequest", "is_control_plane", 3, id="the role that is asked for"),
        pytest.param("join.IssueJoinTicketResponse", "state_disk_key", 1, id="the disk key"),
        pytest.param("join.IssueJoinTicketResponse", "measurement_salt", 2, id="the salt"),
        pytest.param("join.IssueJoinTicketResponse", "measurement_secret", 3, id="the measurement secret"),
        pytest.param("join.IssueJoinTicketResponse", "kubelet_cert", 4, id="the kubelet's certificate"),
        pytest.param("join.IssueRejoinTicketRequest", "disk_uuid", 1, id="the id of a disk that is known"),
        pytest.param("join.IssueRejoinTicketResponse", "state_disk_key", 1, id="its key"),
        pytest.param("join.IssueRejoinTicketResponse", "measurement_secret", 2, id="the secret to lock again with"),
        pytest.param("recoverproto.RecoverMessage", "kms_uri", 3, id="the URI that holds the master secret"),
        pytest.param("recoverproto.RecoverMessage", "storage_uri", 4, id="the URI that says there is no storage"),
    ],
)
def test_field_numbers_are_those_of_constellation(message, field, number):
    assert message_class(message).DESCRIPTOR.fields_by_name[field].number == number


@pytest.mark.parametrize(
    ("message", "highest"),
    [
        pytest.param("join.IssueJoinTicketRequest", 5, id="request"),
        pytest.param("join.IssueJoinTicketResponse", 12, id="response"),
    ],
)
def test_our_own_fields_of_its_messages_begin_at_1000(message, highest):
    numbers = [field.number for field in message_class(message).DESCRIPTOR.fields]
    assert [number for number in numbers if highest < number < 1000] == []
    assert max(numbers) >= 1000


def test_bytes_that_are_no_message_are_refused():
    with pytest.raises(Refusal) as caught:
        parse("attested.v1.Evidence", b"\xff\xff\xff")
    assert caught.value.code == "MESSAGE_MALFORMED"


def test_a_message_over_the_limit_is_refused_before_it_is_parsed():
    with pytest.raises(Refusal, match="at most 10 bytes") as caught:
        parse("attested.v1.Evidence", b"\xff" * 11, limit=10)
    assert caught.value.code == "MESSAGE_TOO_LARGE"


@given(some.binary(max_size=300))
def test_no_bytes_bring_the_parser_down(data):
    try:
        parse("attested.v1.Evidence", data)
    except Refusal as refusal:
        assert refusal.code == "MESSAGE_MALFORMED"


def test_the_path_of_a_method():
    assert method_path("join.API", "IssueJoinTicket") == "/join.API/IssueJoinTicket"
