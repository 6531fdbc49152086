# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The relay of the join service: bytes in, bytes out, and nothing without a bound quote."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.atls import claims as claims_module
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.join import service
from ansible_collections.attested.kubernetes.plugins.module_utils.join.client import BINDING_METADATA
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.client import Channel, TicketAnswer
from ansible_collections.attested.kubernetes.plugins.module_utils.proto import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.serving import Call, Line

CLAIMS = claims_module.Claims(
    evidence=b"E1",
    peer_nonce=b"n" * 32,
    spki_sha256=b"k" * 32,
    exporter=b"e" * 32,
    remote="192.0.2.7:4711",
    accepted_at=0.0,
)
KNOWN = Channel(exporter=b"e" * 32, spki_sha256=b"k" * 32, peer_nonce=b"n" * 32, evidence=b"E1")


class RecordingKeys:
    """A key service that answers everything and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def challenge(self, channel: Channel, request: bytes, *, correlation_id: str) -> bytes:
        self.asked.append((channel, request, correlation_id))
        return b"a challenge"

    async def release(self, channel: Channel, request: bytes, binding: bytes, *, correlation_id: str) -> TicketAnswer:
        self.asked.append((channel, request, binding, correlation_id))
        return TicketAnswer(ticket=b"a ticket", signature=b"signed", node_name="w-1")


@pytest.fixture
def keys() -> RecordingKeys:
    return RecordingKeys()


@pytest.fixture
def relay(keys: RecordingKeys) -> service.Relay:
    claims_module._current.set(CLAIMS)
    return service.Relay(keys)  # type: ignore[arg-type]


def call(**metadata: str | bytes) -> Call:
    return Call(method="m", correlation_id="abc123", metadata=metadata, line=Line({}))


async def test_a_challenge_goes_on_as_it_came(relay: service.Relay, keys: RecordingKeys) -> None:
    claims_module._current.set(CLAIMS)
    given = call()
    assert await relay.challenge(b"\x00raw", given) == b"a challenge"
    assert keys.asked == [(KNOWN, b"\x00raw", "abc123")]
    assert given.line.fields == {"remote": "192.0.2.7:4711"}


async def test_a_request_goes_on_as_it_came_with_its_bound_quote(relay: service.Relay, keys: RecordingKeys) -> None:
    claims_module._current.set(CLAIMS)
    given = call(**{BINDING_METADATA: b"\x00bound"})
    answer = message_class("join.IssueJoinTicketResponse").FromString(await relay.issue_join_ticket(b"\xffraw", given))
    assert keys.asked == [(KNOWN, b"\xffraw", b"\x00bound", "abc123")]
    assert (answer.ticket, answer.ticket_signature) == (b"a ticket", b"signed")
    assert [field.number for field, _unused in answer.ListFields()] == [1000, 1001]
    assert given.line.fields["node"] == "w-1"


@pytest.mark.parametrize(
    "metadata", [pytest.param({}, id="none"), pytest.param({BINDING_METADATA: "text"}, id="text instead of bytes")]
)
async def test_a_request_without_its_bound_quote_is_refused(
    relay: service.Relay, keys: RecordingKeys, metadata: dict[str, Any]
) -> None:
    claims_module._current.set(CLAIMS)
    with pytest.raises(AttestedError) as caught:
        await relay.issue_join_ticket(b"raw", call(**metadata))
    assert caught.value.code == "BINDING_MISSING"
    assert keys.asked == []


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_program_describes_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        service.main([word])
    assert caught.value.code == 0
    assert "attested-join-service" in capsys.readouterr().out


def test_the_program_names_a_configuration_that_is_not_there(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert service.main(["--config", str(tmp_path / "none.yml")]) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err
