# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frames that the network side of recovery hands to the process which holds the TPM."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import recovery_service
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import EXPORTER, SPKI, RecoveryBed
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_recovery_messages import (
    ORDER,
)

BED = RecoveryBed(Path(tempfile.gettempdir()))
SERVICE = recovery_service(BED.desk, log=Log(io.StringIO(), as_json=True, clock=SystemClock()))


def seeds() -> list[bytes]:
    recover = message_class("attested.v1.RecoverySocketRequest")(source="192.0.2.1")
    recover.recover.request = ORDER.to_bytes()
    recover.recover.exporter = EXPORTER
    recover.recover.spki_sha256 = SPKI
    identify = message_class("attested.v1.RecoverySocketRequest")(source="192.0.2.1")
    identify.identify.SetInParent()
    return [recover.SerializeToString(), identify.SerializeToString()]


def one_input(data: bytes) -> None:
    # an answer always comes, and never is a disk opened
    answer = parse("attested.v1.RecoverySocketResponse", SERVICE.answer(data))
    BED.records.told.clear()
    assert BED.opening.opened == []
    assert answer.refusal.code != "INTERNAL", answer.refusal.message
    if answer.WhichOneof("answer") == "refusal":
        raise Refusal(answer.refusal.message, reason=Reason[answer.refusal.code])
