# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message on the key service's socket, and a frame; every answer is a message too."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import (
    RESPONSE,
    answer_of,
    frame_length,
)
from ansible_collections.attested.kubernetes.tests.fuzz.fuzz_server_request import server_request
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import Channel

BED = Bed()
SERVICE = BED.service(log=open_log(stream=io.StringIO()))


def seeds() -> list[bytes]:
    channel, request, binding = BED.exchange()
    made = message_class(REQUEST)(correlation_id="x")
    made.release.channel.CopyFrom(channel.to_message())
    made.release.request, made.release.binding = request[:200], binding
    health = message_class(REQUEST)()
    health.health.SetInParent()
    return [made.SerializeToString(), health.SerializeToString(), *_others(channel, binding)]


def _others(channel: Channel, binding: bytes) -> list[bytes]:
    asked = ChallengeRequest(ek_public=BED.tpm.ek.public, ak_public=BED.tpm.ak.public)
    reattest, server, challenge = (message_class(REQUEST)() for _unused in range(3))
    reattest.reattest.channel.CopyFrom(channel.to_message())
    reattest.reattest.request = message_class("attested.v1.ReattestRequest")(event_logs=b"f").SerializeToString()
    reattest.reattest.binding = binding
    server.server_certificate.certificate_request = server_request()
    challenge.challenge.request = asked.to_bytes()
    return [one.SerializeToString() for one in (reattest, server, challenge)]


def one_input(data: bytes) -> None:
    with contextlib.suppress(AttestedError):
        frame_length(data[:4])
    answer = parse(RESPONSE, SERVICE.answer(data))
    assert answer.refusal.code != "INTERNAL", answer.refusal.message
    answer_of(data)
