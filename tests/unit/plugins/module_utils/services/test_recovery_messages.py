# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes between admin and locked node: read strictly, shown safely."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey, MeasurementSecret
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import (
    MAX_REQUEST_BYTES,
    RecoverAnswer,
    RecoverOrder,
    RecoverySecrets,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

ORDER = RecoverOrder(challenge_id=b"i" * 16, measurement_salt=b"s" * 32, sealed=b"box")
SECRETS = RecoverySecrets(
    disk=DiskId("81111111-2222-4333-8444-555555555555"),
    disk_key=DiskKey(b"k" * 32),
    measurement_secret=MeasurementSecret(b"m" * 32),
)


def test_an_order_is_read_as_it_was_written():
    assert RecoverOrder.parse(ORDER.to_bytes()) == ORDER


@pytest.mark.parametrize("field", ["kms_uri", "storage_uri"])
def test_constellations_form_is_refused_by_name(field):
    message = message_class("recoverproto.RecoverMessage").FromString(ORDER.to_bytes())
    setattr(message, field, "kms://cluster-kms?key=AA&salt=AA")
    assert (
        code_of(lambda: RecoverOrder.parse(message.SerializeToString()))
        == "SECRETS_IN_CLEAR: the keys of this node alone"
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "MESSAGE_MALFORMED", id="an empty one"),
        pytest.param(b"\xff", "MESSAGE_MALFORMED", id="no message"),
        pytest.param(replace(ORDER, challenge_id=b"i").to_bytes(), "MESSAGE_MALFORMED", id="a short exchange"),
        pytest.param(replace(ORDER, measurement_salt=b"").to_bytes(), "MESSAGE_MALFORMED", id="no salt"),
        pytest.param(bytes(MAX_REQUEST_BYTES + 1), "MESSAGE_TOO_LARGE", id="one that is too large"),
    ],
)
def test_another_order_is_refused(data, code):
    assert code_of(lambda: RecoverOrder.parse(data)) == code


def test_secrets_are_read_as_they_were_written_and_not_shown():
    assert RecoverySecrets.from_bytes(SECRETS.to_bytes()) == SECRETS
    assert "k" * 8 not in repr(SECRETS)
    assert "m" * 8 not in repr(SECRETS)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"version": 2}, "MESSAGE_MALFORMED", id="another version"),
        pytest.param({"disk_key": b"k" * 31}, "MESSAGE_MALFORMED", id="a short key"),
        pytest.param({"measurement_secret": b""}, "MESSAGE_MALFORMED", id="no measurement secret"),
        pytest.param({"disk_uuid": ""}, "DISK_ID_MALFORMED", id="no disk"),
        pytest.param({"disk_uuid": "../w-2"}, "DISK_ID_MALFORMED", id="a path"),
        pytest.param({"disk_uuid": SECRETS.disk.uuid.upper() + "A"}, "DISK_ID_MALFORMED", id="another spelling"),
        pytest.param({"disk_key": b"k" * 600}, "MESSAGE_TOO_LARGE", id="too much"),
    ],
)
def test_other_secrets_are_refused(changes, code):
    message = message_class("attested.v1.RecoverySecrets").FromString(SECRETS.to_bytes())
    for name, value in changes.items():
        setattr(message, name, value)
    assert code_of(lambda: RecoverySecrets.from_bytes(message.SerializeToString())) == code


def test_an_answer_holds_nothing_that_a_terminal_obeys():
    said = RecoverAnswer(code="X\x1b[2J", message="a\nb", hint="\u202etxt")
    assert RecoverAnswer.parse(said.to_bytes()) == RecoverAnswer(
        code="X\\x1b[2J",
        message="a b",
        hint="\\u202etxt",
    )


def test_an_answer_of_any_length_is_cut():
    assert len(RecoverAnswer.parse(RecoverAnswer(code="X", message="m" * 9000).to_bytes()).message) == 2048
    assert code_of(lambda: RecoverAnswer.parse(bytes(1 << 15))) == "MESSAGE_TOO_LARGE"
