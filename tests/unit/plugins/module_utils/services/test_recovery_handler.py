# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of recovery: a good request, and the same one with one point changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, DiskError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import Contender
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import (
    RecoverAnswer,
    RecoverOrder,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.tests.support.init_bed import InitBed
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import OTHER_DISK, RecoveryBed
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded


@pytest.fixture
def bed(tmp_path):
    return RecoveryBed(tmp_path)


def answered(bed, asked):
    return RecoverAnswer.parse(bed.desk.recover(asked, correlation_id="c1"))


def refused(bed, asked):
    """Return the code of a request whose sender is not known: the peer gets no more than its coarse text."""
    with pytest.raises(AttestedError) as caught:
        bed.desk.recover(asked, correlation_id="c1")
    assert bed.opening.opened == []
    assert bed.records.outcomes[-1] == caught.value.code
    return Coded(caught.value)


def test_the_right_key_opens_the_disk_and_is_gone(bed):
    assert answered(bed, bed.asked()) == RecoverAnswer()
    assert bed.opening.opened == [bed.right.disk_key.reveal()]
    assert bed.contest.winner is Contender.RECOVERY
    assert list(bed.directory.iterdir()) == []
    ((event, outcome, fields),) = bed.records.told
    assert (event, outcome, fields["source"], fields["correlation_id"]) == ("recovery", "given", "192.0.2.1", "c1")
    assert fields["admin"]


def test_a_wrong_key_is_answered_as_wrong_and_the_next_one_may_be_right(bed):
    wrong = replace(bed.right, disk_key=DiskKey(b"w" * 32))
    assert answered(bed, bed.asked(secrets=wrong)).code == "RECOVERY_KEY_WRONG"
    assert (bed.opening.opened, bed.contest.winner) == ([], None)
    assert answered(bed, bed.asked()).code == ""
    assert bed.records.outcomes == ["RECOVERY_KEY_WRONG", "given"]


def test_the_key_of_another_node_is_refused(bed):
    assert answered(bed, bed.asked(secrets=bed.cluster.of_node(OTHER_DISK))).code == "RECOVERY_DISK_DIFFERS"
    assert bed.opening.opened == []


def test_a_disk_that_is_busy_is_told_and_the_claim_is_free_again(bed):
    def busy():
        raise DiskError("expected nobody on it", reason=Reason.STATE_DISK_BUSY)

    bed.opening.acts = [busy, lambda: None]
    assert answered(bed, bed.asked()).code == "STATE_DISK_BUSY"
    assert answered(bed, bed.asked()).code == ""
    assert bed.records.outcomes == ["given", "STATE_DISK_BUSY", "given"]


def test_after_the_cluster_was_first_an_admin_opens_nothing(bed):
    asked = bed.asked()
    bed.unlocking.offer(bed.offer(), by=Contender.REJOIN, record=lambda: None)
    assert answered(bed, asked).code == "RECOVERY_RACE_LOST"
    assert len(bed.opening.opened) == 1


def test_what_cannot_be_recorded_is_not_done(bed):
    asked = bed.asked()
    bed.records.broken = True
    with pytest.raises(AttestedError) as caught:
        bed.desk.recover(asked, correlation_id="c1")
    assert (caught.value.code, bed.opening.opened, bed.contest.winner) == ("AUDIT_UNWRITABLE", [], None)


# ---- who asks


def test_without_proof_nothing_is_tried(bed):
    assert refused(bed, bed.asked(admin_proof=b"")) == "ADMIN_UNAUTHENTICATED: expected an admin's proof, got none"


def test_an_admin_of_another_join_ca_is_a_stranger(bed):
    assert refused(bed, bed.asked(admin=InitBed().admin)) == "ADMIN_CERTIFICATE_UNTRUSTED"


def test_a_proof_for_init_is_none_for_recovery(bed):
    assert refused(bed, bed.asked(purpose=Purpose.INIT)) == "ADMIN_SIGNATURE"


def test_a_proof_for_another_request_is_none_for_this_one(bed):
    asked = bed.asked()
    other = replace(RecoverOrder.parse(asked.request), measurement_salt=b"x" * 32)
    assert refused(bed, replace(asked, request=other.to_bytes())) == "ADMIN_SIGNATURE"


# ---- which exchange


def test_a_request_counts_once(bed):
    asked = bed.asked()
    wrong = replace(bed.right, disk_key=DiskKey(b"w" * 32))
    again = bed.asked(secrets=wrong)
    answered(bed, again)
    assert refused(bed, again) == "CHALLENGE_UNKNOWN"
    assert answered(bed, asked).code == ""


@pytest.mark.parametrize("field", ["exporter", "spki_sha256"])
def test_a_request_counts_on_its_own_connection(bed, field):
    assert refused(bed, bed.asked(**{field: b"o" * 32})) == "CHANNEL_NOT_BOUND"


def test_a_box_for_another_exchange_does_not_open(bed):
    other, _id = bed.judged()
    verified, challenge_id = bed.judged()
    order = RecoverOrder(
        challenge_id=challenge_id,
        measurement_salt=bed.bundle.measurement_salt,
        sealed=other.machine.seal(bed.right.to_bytes()),
    )
    assert verified.machine.binding != other.machine.binding
    asked = bed.asked()
    proof = bed.proof(verified, order.to_bytes())
    assert answered(bed, replace(asked, request=order.to_bytes(), admin_proof=proof)).code == "SEAL_UNOPENABLE"


def test_a_request_that_comes_too_late_is_refused(bed):
    class Later:
        def monotonic(self):
            return bed.clock.monotonic() + 301

    asked = bed.asked()
    bed.desk._exchanges._clock = Later()
    assert refused(bed, asked) == "CHALLENGE_UNKNOWN"


def test_constellations_request_is_refused_before_anybody_is_asked(bed):
    message = message_class("recoverproto.RecoverMessage")(
        kms_uri="kms://cluster-kms?key=AA&salt=AA", storage_uri="storage://no-store"
    )
    asked = bed.asked()
    assert (
        refused(bed, replace(asked, request=message.SerializeToString()))
        == "SECRETS_IN_CLEAR: the keys of this node alone"
    )
