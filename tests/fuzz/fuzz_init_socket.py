# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frames that the network side of init hands to the process which holds the TPM."""

from __future__ import annotations

import io

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.machine_socket import init_service
from ansible_collections.attested.kubernetes.tests.support.init_bed import EXPORTER, SPKI, InitBed
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_parts import ORDER

BED = InitBed()
SERVICE = init_service(BED.desk, log=Log(io.StringIO(), as_json=True, clock=SystemClock()))


def seeds() -> list[bytes]:
    begin = message_class("attested.v1.InitSocketRequest")(source="192.0.2.1")
    begin.begin.request = ORDER.to_bytes()
    begin.begin.exporter = EXPORTER
    begin.begin.spki_sha256 = SPKI
    follow = message_class("attested.v1.InitSocketRequest")()
    follow.follow.handle = b"h" * 16
    identify = message_class("attested.v1.InitSocketRequest")(source="192.0.2.1")
    identify.identify.SetInParent()
    return [begin.SerializeToString(), follow.SerializeToString(), identify.SerializeToString()]


def one_input(data: bytes) -> None:
    # an answer always comes, and never is somebody founded
    answer = parse("attested.v1.InitSocketResponse", SERVICE.answer(data))
    assert BED.founding.founded == []
    assert answer.refusal.code != "INTERNAL", answer.refusal.message
    if answer.WhichOneof("answer") == "refusal":
        raise Refusal(answer.refusal.message, reason=Reason[answer.refusal.code])
