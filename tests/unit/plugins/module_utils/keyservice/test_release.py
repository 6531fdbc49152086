# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release decision and the ticket that follows from it; every refusal changes one point of a good case."""

from __future__ import annotations

import dataclasses
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import kubelet
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import Registration
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import (
    Held,
    JoinRequest,
    Proven,
    decide_release,
    plan_status,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    EvidenceRefusal,
    IdentityStatus,
    NodeIdentity,
    Role,
    TpmRecord,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
AK_NAME = b"\x00\x0b" + b"\xaa" * 32
ASSIGNED = "11111111-1111-4111-8111-111111111111"
FRESH = DiskId("22222222-2222-4222-8222-222222222222")
PROVEN = Proven(ak_name=AK_NAME, clock=7, reset_count=2, restart_count=1, profile="base", posture="boot")


@functools.cache
def certificate_request(name: str = "w-1", key_number: int = 0) -> bytes:
    """Return a kubelet's request; another ``key_number`` is another key."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def key_sha256(der: bytes) -> str:
    return kubelet.check_kubelet_request(der, node_name="w-1").spki_sha256


def registration(role: Role = Role.WORKER, issued: int = 0, superseded: int = 0, **status: Any) -> Registration:
    identity = NodeIdentity(
        ek_sha256="ab" * 32,
        node_name="w-1",
        role=role,
        admission=Admission.APPROVED,
        status=IdentityStatus(**status),
    )
    return Registration(identity=identity, revision="7", issued=issued, superseded=superseded)


def request(disk_id: str = "", *, csr: bytes | None = None, is_control_plane: bool = False) -> JoinRequest:
    return JoinRequest(
        disk_id=disk_id,
        certificate_request=csr or certificate_request(),
        is_control_plane=is_control_plane,
        event_logs=b"",
    )


def held(csr: bytes, *, expires: datetime = NOW + timedelta(minutes=5)) -> Held:
    return Held(key_sha256=key_sha256(csr), expires=expires, certificate=b"PEM")


def decide(asked: JoinRequest | None = None, **changes: Any) -> Any:
    good = {"proven": PROVEN, "registration": registration(), "held": None, "fresh_disk": FRESH, "now": NOW}
    return decide_release(asked or request(), **{**good, **changes})


def test_the_first_ticket_assigns_a_disk_and_pins_the_ak() -> None:
    decision = decide()
    assert (decision.disk, decision.assigns, decision.repeats, decision.supersedes) == (FRESH, True, None, False)
    assert decision.expires == NOW + timedelta(minutes=15)
    assert plan_status(decision, proven=PROVEN, now=NOW).to_document() == {
        "phase": "Admitted",
        "diskId": FRESH.uuid,
        "akName": AK_NAME.hex(),
        "tpm": {"clock": 7, "resetCount": 2, "restartCount": 1},
        "lastAttestation": {"time": "2026-11-21T12:00:00Z", "profile": "base", "posture": "boot"},
        "lastRefusal": None,
        "tickets": {
            "issued": 1,
            "superseded": 0,
            "keySha256": key_sha256(certificate_request()),
            "expires": "2026-11-21T12:15:00Z",
        },
    }


def test_a_registered_control_plane_that_asks_as_one_gets_a_ticket() -> None:
    decision = decide(request(is_control_plane=True), registration=registration(Role.CONTROL_PLANE))
    assert decision.registration.identity.role is Role.CONTROL_PLANE
    assert plan_status(decision, proven=PROVEN, now=NOW).phase == "Admitted"


def test_a_control_plane_that_is_a_locked_member_renews_as_a_worker() -> None:
    known = registration(Role.CONTROL_PLANE, phase="Joined", disk_id=ASSIGNED, tpm=LAST, attested_at=NOW)
    assert decide(proven=LOCKED, registration=known).role is Role.WORKER
    assert decide(request(is_control_plane=True), proven=LOCKED, registration=known).role is Role.CONTROL_PLANE


@pytest.mark.parametrize(
    ("proven", "status"),
    [
        pytest.param("PROVEN", {"phase": "Joined"}, id="a member that is not locked"),
        pytest.param("LOCKED", {"phase": "Admitted"}, id="a locked machine that is no member yet"),
    ],
)
def test_no_other_control_plane_asks_as_a_worker(proven: str, status: dict[str, Any]) -> None:
    known = registration(Role.CONTROL_PLANE, disk_id=ASSIGNED, tpm=LAST, attested_at=NOW, **status)
    with pytest.raises(AttestedError) as caught:
        decide(proven={"PROVEN": PROVEN, "LOCKED": LOCKED}[proven], registration=known)
    assert caught.value.code == "ROLE_NOT_REGISTERED"


@pytest.mark.parametrize("disk_id", [pytest.param("", id="names no disk"), pytest.param(ASSIGNED, id="names its disk")])
def test_a_known_machine_keeps_its_disk(disk_id: str) -> None:
    decision = decide(request(disk_id), registration=registration(disk_id=ASSIGNED))
    assert (decision.disk.uuid, decision.assigns) == (ASSIGNED, False)
    assert "diskId" not in plan_status(decision, proven=PROVEN, now=NOW).to_document()


def test_the_same_key_gets_the_same_answer_while_the_ticket_lives() -> None:
    before = held(certificate_request())
    decision = decide(held=before, registration=registration(issued=1))
    assert (decision.repeats, decision.supersedes) == (before, False)
    assert decision.expires == before.expires
    assert plan_status(decision, proven=PROVEN, now=NOW).issued == 1


def test_a_new_key_supersedes_a_live_ticket_and_is_counted() -> None:
    decision = decide(held=held(certificate_request(key_number=1)), registration=registration(issued=1))
    assert (decision.repeats, decision.supersedes) == (None, True)
    change = plan_status(decision, proven=PROVEN, now=NOW)
    assert (change.issued, change.superseded) == (2, 1)


@pytest.mark.parametrize("key_number", [pytest.param(0, id="the same key"), pytest.param(1, id="a new key")])
def test_a_ticket_that_ended_is_neither_repeated_nor_superseded(key_number: int) -> None:
    decision = decide(held=held(certificate_request(key_number=key_number), expires=NOW))
    assert (decision.repeats, decision.supersedes) == (None, False)


@pytest.mark.parametrize("disk_id", [pytest.param("", id="fresh"), pytest.param(ASSIGNED, id="with the moved disk")])
def test_a_machine_in_anothers_place_takes_over_its_disk(disk_id: str) -> None:
    decision = decide(request(disk_id), inherited_disk=ASSIGNED)
    assert (decision.disk.uuid, decision.assigns) == (ASSIGNED, True)
    assert plan_status(decision, proven=PROVEN, now=NOW).to_document()["diskId"] == ASSIGNED


def test_a_machine_with_a_disk_of_its_own_keeps_it() -> None:
    decision = decide(registration=registration(disk_id=ASSIGNED), inherited_disk=FOREIGN_DISK)
    assert (decision.disk.uuid, decision.assigns) == (ASSIGNED, False)


REBOOTED = dataclasses.replace(PROVEN, reset_count=3, restart_count=0, clock=1)
LAST = TpmRecord(clock=7, reset_count=2, restart_count=1)


@pytest.mark.parametrize("phase", [pytest.param("Joined", id="a node"), pytest.param("Admitted", id="not yet a node")])
def test_a_rebooted_machine_gets_a_new_ticket_even_for_its_old_key(phase: str) -> None:
    """Its key lay in memory: an answer of the last boot is never given again."""
    known = registration(issued=1, phase=phase, disk_id=ASSIGNED, tpm=LAST)
    decision = decide(proven=REBOOTED, held=held(certificate_request()), registration=known)
    assert (decision.repeats, decision.supersedes, decision.assigns) == (None, True, False)
    assert decision.expires == NOW + timedelta(minutes=15)
    assert plan_status(decision, proven=REBOOTED, now=NOW).to_document()["tpm"]["resetCount"] == 3


def test_a_joined_machine_stays_joined() -> None:
    decision = decide(registration=registration(phase="Joined", disk_id=ASSIGNED))
    assert decision.joined_before is True
    assert "phase" not in plan_status(decision, proven=PROVEN, now=NOW).to_document()


LOCKED = dataclasses.replace(PROVEN, locked=True)
FAILED = {"attested_at": NOW - timedelta(hours=1), "refusal": EvidenceRefusal("PCR_MISMATCH", NOW)}
OVERDUE = {"attested_at": NOW - timedelta(hours=4)}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        pytest.param(FAILED, "REATTESTATION_FAILED", id="its last evidence was refused"),
        pytest.param(OVERDUE, "REATTESTATION_OVERDUE", id="its last evidence is four hours old"),
    ],
)
def test_a_node_renews_only_in_good_standing_and_rejoins_in_any(status: dict[str, Any], code: str) -> None:
    """A rejoin is evidence of a boot that nobody has seen yet, and heals."""
    known = registration(phase="Joined", disk_id=ASSIGNED, tpm=LAST, **status)
    with pytest.raises(AttestedError) as caught:
        decide(proven=LOCKED, registration=known)
    assert caught.value.code == code
    decision = decide(proven=REBOOTED, registration=known)
    assert plan_status(decision, proven=REBOOTED, now=NOW).to_document()["lastRefusal"] is None


def test_how_old_evidence_may_be_is_configured() -> None:
    known = registration(phase="Joined", disk_id=ASSIGNED, tpm=LAST, **OVERDUE)
    assert decide(proven=LOCKED, registration=known, overdue_after=timedelta(hours=5)).joined_before


OTHER_AK = dataclasses.replace(PROVEN, ak_name=b"\x00\x0b" + b"\xbb" * 32)
PINNED = registration(ak_name=AK_NAME.hex())
FOREIGN_DISK = "33333333-3333-4333-8333-333333333333"


@pytest.mark.parametrize(
    ("asked", "changes", "code"),
    [
        pytest.param(
            request(csr=certificate_request("cp-1")), {}, "CSR_NAME_MISMATCH", id="csr for another node's name"
        ),
        pytest.param(
            request(is_control_plane=True), {}, "ROLE_NOT_REGISTERED", id="worker asks for control-plane files"
        ),
        pytest.param(
            request(is_control_plane=True),
            {
                "proven": LOCKED,
                "registration": registration(phase="Joined", disk_id=ASSIGNED, tpm=LAST, attested_at=NOW),
            },
            "ROLE_NOT_REGISTERED",
            id="a worker that is a locked member asks for control-plane files",
        ),
        pytest.param(
            request(),
            {"registration": registration(Role.CONTROL_PLANE)},
            "ROLE_NOT_REGISTERED",
            id="a registered control plane that asks as a worker",
        ),
        pytest.param(request(), {"proven": OTHER_AK, "registration": PINNED}, "AK_NOT_PINNED", id="another AK"),
        pytest.param(request(FOREIGN_DISK), {}, "DISK_ID_NOT_ASSIGNED", id="another's disk at the first join"),
        pytest.param(request("not a uuid"), {}, "DISK_ID_NOT_ASSIGNED", id="a disk id that is none"),
        pytest.param(
            request(FOREIGN_DISK),
            {"registration": registration(disk_id=ASSIGNED)},
            "DISK_ID_NOT_ASSIGNED",
            id="another's disk at a later join",
        ),
        pytest.param(
            request(FOREIGN_DISK),
            {"inherited_disk": ASSIGNED},
            "DISK_ID_NOT_ASSIGNED",
            id="a third one's disk in another's place",
        ),
        pytest.param(
            request(FOREIGN_DISK),
            {"registration": registration(disk_id=ASSIGNED), "inherited_disk": FOREIGN_DISK},
            "DISK_ID_NOT_ASSIGNED",
            id="the disk of the machine before it, once it has its own",
        ),
        pytest.param(
            request(ASSIGNED.upper().replace("1", "A", 1)),
            {"registration": registration(disk_id=ASSIGNED)},
            "DISK_ID_NOT_ASSIGNED",
            id="another spelling of a disk id",
        ),
        pytest.param(request(csr=b"x"), {}, "CSR_MALFORMED", id="a request that is none"),
        pytest.param(
            request(),
            {"registration": registration(tpm=LAST), "proven": dataclasses.replace(PROVEN, clock=6)},
            "TPM_ROLLED_BACK",
            id="a TPM whose time went back",
        ),
        pytest.param(
            request(),
            {"registration": registration(tpm=LAST), "proven": dataclasses.replace(REBOOTED, locked=True)},
            "NODELOCK_NO_TICKET",
            id="a machine that locked itself after its reboot",
        ),
    ],
)
def test_refused(asked: JoinRequest, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        decide(asked, **changes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        pytest.param("", "expected no disk id at the first ticket, got", id="that never had a ticket"),
        pytest.param(ASSIGNED, f"expected its assigned disk id {ASSIGNED}, got", id="that has a disk"),
    ],
)
def test_a_refused_disk_id_is_told_beside_the_expected_one(assigned: str, expected: str) -> None:
    with pytest.raises(AttestedError) as caught:
        decide(request(FOREIGN_DISK), registration=registration(disk_id=assigned))
    assert expected in caught.value.message


def test_a_request_is_read_field_by_field() -> None:
    message = message_class("join.IssueJoinTicketRequest")(
        disk_uuid="d", certificate_request=b"c", is_control_plane=True, event_logs=b"e"
    )
    assert JoinRequest.parse(message.SerializeToString()) == JoinRequest(
        disk_id="d", certificate_request=b"c", is_control_plane=True, event_logs=b"e"
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\xff\xff\xff", "MESSAGE_MALFORMED", id="bytes that are no message"),
        pytest.param(bytes((1 << 20) + 1), "MESSAGE_TOO_LARGE", id="more than the limit"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        JoinRequest.parse(data)
    assert caught.value.code == code
