# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S20: two good nodes; A makes a disk that passes for B's, shows B's disk for its own, or names B's disk anywhere."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Observed, plan
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey, MeasurementSecret
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import JoinRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import TpmRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_helper import perform
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverySecrets
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, seal
from ansible_collections.attested.kubernetes.tests.support.luks import with_bytes
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import UUID
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import KEY, DiskBed, sealed_key
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.disk import test_plan as plans
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.keyservice import test_release as releases
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services import (
    test_received_ticket as tickets,
)

if TYPE_CHECKING:
    from pathlib import Path

THREAT = Threat(
    id="S20",
    title="Disk cloned, UUID reused",
    case="oddlama.org on TPM2 unlock, systemd#42748",
    bed="bytes",
    stops=(
        ("disk/plan.py step 5", "DISK_KEY_WRONG"),
        ("disk/plan.py step 4", "STATE_DISK_FOREIGN"),
        ("disk/luks_check.py step 6", "LUKS_VOLUME_FOREIGN"),
        ("keyservice/release.py step 6", "DISK_ID_NOT_ASSIGNED"),
        ("services/received_ticket.py step 3", "TICKET_NOT_OURS"),
        ("keyservice/derive.py", "DISK_ID_MALFORMED"),
        ("services/recovery_helper.py", "RECOVERY_DISK_DIFFERS"),
    ),
)

OF_A = DiskKey(b"a" * 32)
DISK_OF_B = "21111111-2222-4333-8444-555555555555"
WIDE = "\N{FULLWIDTH DIGIT ONE}"
TRICKS = [
    pytest.param("..", id="a way up"),
    pytest.param(f"../{DISK_OF_B}", id="a way up to B's"),
    pytest.param(f"{DISK_OF_B}/..", id="B's and a way up"),
    pytest.param(releases.ASSIGNED.replace("1111", "ABCD", 1), id="capitals"),
    pytest.param(releases.ASSIGNED.replace("1", WIDE), id="digits of another script"),
    pytest.param(f"{releases.ASSIGNED}\n", id="a line's end"),
    pytest.param(f"{{{releases.ASSIGNED}}}", id="braces"),
    pytest.param("x" * 300, id="300 bytes"),
]


# ---- a disk that passes for another


class Attacked:
    """B's machine, with a disk that A formatted under the id that is B's."""

    def __init__(self, folder: Path, *, in_use: bool) -> None:
        self.bed = DiskBed(folder)
        device = self.bed.device
        device.format(uuid=UUID, key=OF_A, progress=lambda *_numbers: None)
        device.write_token(initialised=False)
        if in_use:
            device.write_token(initialised=True)
        device.wipes = 0

    def join(self) -> None:
        """Open it with B's ticket, at B's first join."""
        self.bed.disk().open(disk_id=UUID, key=sealed_key(), member=False)


def test_a_volume_that_another_made_under_our_id_is_not_used(tmp_path: Path) -> None:
    """Before B first joined: what A wrote is not mounted, and A's key is not B's."""
    attacked = Attacked(tmp_path, in_use=True)
    assert code_of(attacked.join) == "DISK_KEY_WRONG"
    device = attacked.bed.device
    assert (device.mapped, device.wipes, device.slots) == (False, 0, {0: OF_A.reveal()})
    assert attacked.bed.volumes.load() is None


def test_a_disk_that_another_prepared_under_our_id_is_made_anew(tmp_path: Path) -> None:
    """Its token says that nothing lies on it; nothing of A's is left, no key and no sector."""
    attacked = Attacked(tmp_path, in_use=False)
    attacked.join()
    device = attacked.bed.device
    assert (device.wipes, device.slots) == (1, {0: KEY.reveal()})


def test_a_volume_that_the_node_has_never_seen_is_not_used(tmp_path: Path) -> None:
    """A knows B's key by now, say, and brings a volume of its own under it: B remembers which one is its own."""
    bed = DiskBed(tmp_path)
    bed.disk().open(disk_id=UUID, key=sealed_key(), member=False)
    bed.device.reboot()
    bed.volumes.save("ab" * 32)
    assert code_of(lambda: bed.disk().open(disk_id=UUID, key=sealed_key(), member=True)) == "LUKS_VOLUME_FOREIGN"
    assert not bed.device.mapped


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        pytest.param(plans.KEPT, "STATE_DISK_FOREIGN", id="B's header, or all of B's disk"),
        pytest.param(with_bytes(plans.KEPT, 168, b"3"), "DISK_KEY_WRONG", id="B's header under A's id"),
    ],
)
def test_a_copy_of_bs_disk_in_as_machine_opens_with_no_key_that_a_gets(begin: bytes, code: str) -> None:
    own = with_bytes(plans.KEPT, 168, b"3")
    wanted = plans.wanted(own)
    assert plan(Observed(disk=plans.disk(own), permanent=plans.ZERO), wanted)
    found = Observed(disk=plans.disk(begin), permanent=plans.NO)
    assert code_of(lambda: plan(found, wanted)) == code


# ---- a name for another's disk


REBOOTED = dataclasses.replace(releases.PROVEN, clock=9, reset_count=3)
MEMBER = releases.registration(
    disk_id=releases.ASSIGNED,
    tpm=TpmRecord(clock=7, reset_count=2, restart_count=1),
    ak_name=releases.AK_NAME.hex(),
    phase="Joined",
)


def asked_for(disk: str) -> JoinRequest:
    """Return a request as the key service reads it from its socket."""
    message = message_class("join.IssueJoinTicketRequest")(
        disk_uuid=disk, certificate_request=releases.certificate_request()
    )
    return JoinRequest.parse(message.SerializeToString())


JOINING = pytest.param({}, id="joins")
REJOINING = pytest.param({"registration": MEMBER, "proven": REBOOTED}, id="comes back after a reboot")


@pytest.mark.parametrize("known", [JOINING, REJOINING])
@pytest.mark.parametrize("disk", [*TRICKS, pytest.param(DISK_OF_B, id="B's")])
def test_a_gets_no_key_for_a_name(disk: str, known: dict[str, Any]) -> None:
    """By the key service, which alone derives: whoever relays the request, and for whatever purpose."""
    assert releases.decide(asked_for(""), **known)
    assert code_of(lambda: releases.decide(asked_for(disk), **known)) == "DISK_ID_NOT_ASSIGNED"


def test_no_name_is_the_own_disk() -> None:
    assert releases.decide(asked_for(""), registration=MEMBER, proven=REBOOTED).disk.uuid == releases.ASSIGNED


@pytest.mark.parametrize("disk", TRICKS)
def test_nothing_is_derived_for_what_is_no_id(disk: str) -> None:
    assert DiskId(releases.ASSIGNED)
    assert code_of(lambda: DiskId(disk)) == "DISK_ID_MALFORMED"


def test_a_ticket_for_bs_disk_is_not_taken_by_a() -> None:
    node = tickets.Node()
    assert node.open(expected={"disk_id": tickets.DISK.uuid})
    assert code_of(lambda: node.open(expected={"disk_id": releases.ASSIGNED})) == "TICKET_NOT_OURS"


# ---- through recovery


SALT, SECRET, BINDING = b"m" * 32, b"s" * 32, b"b" * 32


def offered(disk: str, key: OneTimeKey) -> bytes:
    """Return the box of an offer for a disk of this name."""
    message = message_class("attested.v1.RecoverySecrets")(
        version=1, disk_uuid=disk, disk_key=KEY.reveal(), measurement_secret=b"x" * 32
    )
    return seal(message.SerializeToString(), secret=SECRET, binding=BINDING, recipient=key.public)


def recovered(disk: str, folder: Path) -> None:
    """Do the job of the process that tries an offered key, on the machine whose disk is `releases.ASSIGNED`."""
    key = OneTimeKey.generate()
    given = {
        "box": offered(disk, key),
        "secret": SECRET,
        "binding": BINDING,
        "one_time_key": key.export(),
        "measurement_salt": SALT,
        "cluster_id": b"c" * 32,
    }
    job = {name: b64encode(value).decode() for name, value in given.items()}
    paths = {"device": "/dev/disk/by-id/none", "memory": str(folder / "memory"), "mounts": "/proc/self/mounts"}
    perform({**job, **paths, "uuid": releases.ASSIGNED})


@pytest.mark.parametrize("disk", [*TRICKS, pytest.param("", id="none")])
def test_an_offer_for_what_is_no_id_is_not_read(tmp_path: Path, disk: str) -> None:
    assert code_of(lambda: recovered(disk, tmp_path)) == "DISK_ID_MALFORMED"
    assert list(tmp_path.iterdir()) == []


def test_an_offer_for_bs_disk_is_not_used_by_a(tmp_path: Path) -> None:
    """The measure: the own id gets one step further, to the cluster of the offer."""
    assert code_of(lambda: recovered(releases.ASSIGNED, tmp_path)) == "CLUSTER_ID_MISMATCH"
    assert code_of(lambda: recovered(DISK_OF_B, tmp_path)) == "RECOVERY_DISK_DIFFERS"
    assert list(tmp_path.iterdir()) == []


def test_an_admin_names_a_disk_by_its_type() -> None:
    secrets = RecoverySecrets(
        disk=DiskId(DISK_OF_B), disk_key=KEY, measurement_secret=MeasurementSecret(b"x" * 32)
    ).to_bytes()
    assert RecoverySecrets.from_bytes(secrets).disk.uuid == DISK_OF_B
