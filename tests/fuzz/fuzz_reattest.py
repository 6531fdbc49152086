# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested.v1.ReattestRequest of an enrolled machine that sends any logs it likes, bound by a genuine quote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    BindingContext,
    Challenge,
    ChallengeRequest,
    answer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support.exchange import logs_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.verification import lock_log

REQUEST = "attested.v1.ReattestRequest"
MAX_BYTES = 1 << 17
BED: Any = Bed()
BED.release()
CLUSTER_ID = BED.bundle.cluster_id
BED.tpm.pcr_event(15, CLUSTER_ID)
LOGS = replace(logs_of(BED.boot), nodelock=lock_log(CLUSTER_ID))
ASKED = ChallengeRequest(ek_public=BED.tpm.ek.public, ak_public=BED.tpm.ak.public)
CHALLENGE = Challenge.parse(BED.releaser.challenge(ASKED.to_bytes()))
RECORD = BED.releaser.take(CHALLENGE.id)
BED.releaser.take = lambda _unused: RECORD
REATTESTER = BED.reattester()
CHANNEL = BED.channel()


def seeds() -> list[bytes]:
    short = EventLogs(firmware=b"f", userspace=b"", nodelock=LOGS.nodelock, command_line=b"quiet")
    return [message_class(REQUEST)(event_logs=logs.to_bytes()).SerializeToString() for logs in (LOGS, short)]


def one_input(data: bytes) -> None:
    context = BindingContext(
        purpose=Purpose.VERIFY,
        cluster_id=CLUSTER_ID,
        request=data,
        exporter=CHANNEL.exporter,
        spki_sha256=CHANNEL.spki_sha256,
    )
    logs = EventLogs.parse(parse(REQUEST, data, limit=MAX_BYTES).event_logs)
    given = answer(BED.tpm, CHALLENGE, context, ek=BED.tpm.ek, ak=BED.tpm.ak, logs=logs)
    done = REATTESTER.reattest(CHANNEL, data, given.bound.to_bytes(), note=BED.notes.update)
    assert done.node_name == "w-1"
