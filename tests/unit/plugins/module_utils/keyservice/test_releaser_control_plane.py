# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A release for a further control plane: who gets one, what is in it, whose turn it is, and what is not written."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import LEASE
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import parse_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Coarse, Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import RESPONSE, answer_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed


@pytest.fixture
def bed() -> Bed:
    return Bed(Role.CONTROL_PLANE)


def refused(bed: Bed) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        bed.release()
    return caught.value


def holder(bed: Bed) -> str:
    return str(bed.gateway.leases[LEASE]["spec"].get("holderIdentity", "")) if LEASE in bed.gateway.leases else ""


def hold(bed: Bed, other: str = "ek-other") -> None:
    """Let another control plane join."""
    bed.releaser._turns.take(other)


def test_a_signed_control_plane_gets_its_ticket_and_the_turn(bed: Bed) -> None:
    released = bed.release()
    assert released.role == "control-plane"
    assert parse_ticket(released.issued.ticket)[0].role is Role.CONTROL_PLANE
    assert bed.status()["phase"] == "Admitted"
    assert holder(bed) == bed.identity.name


def test_a_worker_is_given_no_file_and_takes_no_turn() -> None:
    bed = Bed()
    assert bed.release().role == "worker"
    assert (bed.control_plane.reads, holder(bed)) == (0, "")


@pytest.mark.parametrize(("role", "asks"), [(Role.CONTROL_PLANE, False), (Role.WORKER, True)])
def test_who_asks_as_what_it_is_not_gets_nothing(role: Role, asks: bool) -> None:
    bed = Bed(role)
    bed.asks_control_plane = asks
    assert refused(bed).code == "ROLE_NOT_REGISTERED"
    assert (bed.control_plane.reads, holder(bed), bed.status()) == (0, "", {})


def test_a_control_plane_that_nobody_signed_gets_nothing(bed: Bed) -> None:
    bed.policy = bed.site.sign(bed.gateway.objects("measurementprofiles"))
    bed.gateway.apply(bed.policy)
    assert refused(bed).code == "IDENTITY_UNSIGNED"
    assert (bed.control_plane.reads, holder(bed), bed.status()) == (0, "", {})


def test_who_must_wait_is_told_how_long_and_nothing_is_written(bed: Bed) -> None:
    hold(bed)
    error = refused(bed)
    assert (error.code, error.retry_after_seconds) == ("CONTROL_PLANE_JOIN_BUSY", 20.0)
    assert (bed.status(), holder(bed)) == ({}, "ek-other")


def test_who_must_wait_is_not_asked_twice_whose_turn_it_is(bed: Bed) -> None:
    """Neither view of the policy changes whose turn it is."""
    bed.follow(*bed.cached.caches)
    hold(bed)
    assert refused(bed).code == "CONTROL_PLANE_JOIN_BUSY"
    assert bed.control_plane.reads == 1


def test_the_caller_is_told_of_a_pause_and_not_of_its_cause(bed: Bed) -> None:
    hold(bed)
    channel, request, binding = bed.exchange()
    message = message_class("attested.v1.KeyServiceRequest")(correlation_id="c-1")
    message.release.request, message.release.binding = request, binding
    for name in ("exporter", "spki_sha256", "peer_nonce", "evidence"):
        setattr(message.release.channel, name, getattr(channel, name))
    data = bed.service().answer(message.SerializeToString())
    told = message_class(RESPONSE).FromString(data).refusal
    assert (told.coarse, told.retry_after_milliseconds) == (Coarse.BUSY.value, 20000)
    with pytest.raises(AttestedError) as caught:
        answer_of(data)
    assert (caught.value.code, caught.value.retry_after_seconds) == ("CONTROL_PLANE_JOIN_BUSY", 20.0)


def test_a_turn_that_another_key_service_took_meanwhile_is_looked_at_again(bed: Bed) -> None:
    bed.gateway.before_write = lambda: hold(bed)
    assert refused(bed).code == "CONTROL_PLANE_JOIN_BUSY"
    assert bed.status() == {}


def test_the_same_machine_asks_again_after_its_answer_was_lost(bed: Bed) -> None:
    bed.release()
    begun = bed.gateway.leases[LEASE]["spec"]
    bed.clock.sleep(30)
    assert bed.release().repeated
    renewed = bed.gateway.leases[LEASE]["spec"]
    assert renewed["acquireTime"] == begun["acquireTime"]
    assert renewed["renewTime"] > begun["renewTime"]


def test_files_that_are_not_whole_take_no_turn_and_write_nothing(bed: Bed) -> None:
    bed.control_plane.read_error = KeyServiceError(
        "expected certificate and key of one CA", reason=Reason.CONTROL_PLANE_FILES_UNUSABLE
    )
    assert refused(bed).code == "CONTROL_PLANE_FILES_UNUSABLE"
    assert (holder(bed), bed.status()) == ("", {})


def test_nobody_gets_the_material_who_hung_up(bed: Bed) -> None:
    call: tuple[Any, ...] = bed.exchange()
    with pytest.raises(AttestedError) as caught:
        bed.releaser.release(*call, note=bed.notes.update, gone=lambda: True)
    assert caught.value.code == "CALL_GONE"
    assert (bed.control_plane.reads, holder(bed)) == (0, "")


def test_a_locked_member_renews_its_kubelets_certificate_and_nothing_else(bed: Bed) -> None:
    bed.join()
    bed.gateway.leases.clear()
    bed.asks_control_plane, reads = False, bed.control_plane.reads
    released = bed.release()
    assert released.role == "worker"
    assert parse_ticket(released.issued.ticket)[0].role is Role.WORKER
    assert (bed.control_plane.reads, holder(bed)) == (reads, "")
