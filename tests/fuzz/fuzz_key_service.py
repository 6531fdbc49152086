# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message on the key service's socket, and a frame; every answer is a message too."""

from __future__ import annotations

import contextlib
import io

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.framing import (
    REQUEST,
    RESPONSE,
    answer_of,
    frame_length,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.serving import open_log
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed

BED = Bed()
SERVICE = BED.service(log=open_log(stream=io.StringIO()))


def seeds() -> list[bytes]:
    channel, request, binding = BED.exchange()
    made = message_class(REQUEST)(correlation_id="x")
    made.release.channel.CopyFrom(channel.to_message())
    made.release.request, made.release.binding = request[:200], binding
    health = message_class(REQUEST)()
    health.health.SetInParent()
    return [made.SerializeToString(), health.SerializeToString()]


def one_input(data: bytes) -> None:
    with contextlib.suppress(AttestedError):
        frame_length(data[:4])
    answer = parse(RESPONSE, SERVICE.answer(data))
    assert answer.refusal.code != "INTERNAL", answer.refusal.message
    answer_of(data)
