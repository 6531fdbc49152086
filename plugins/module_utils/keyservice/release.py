# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a proven machine gets. Pure: nothing here reads, writes or signs.

A `Proven` exists only after the bound quote was verified. Claims of the machine decide nothing: its EK selects the
identity, the identity has the name and the role, and the disk id in the request is only compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from ..errors import ApiError, Refusal
from ..policy.identity import Role, TpmRecord
from ..policy.standing import OVERDUE_AFTER, require_good_standing
from ..proto.messages import parse
from ..reasons import Reason
from .derive import DiskId
from .kubelet import KubeletRequest, check_kubelet_request
from .live_policy import StatusChange
from .nodes import ADMITTED, JOINED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ..policy.identity import NodeIdentity
    from .live_policy import Registration


# Continuity: a TPM counts its resets, its restarts and its time, and these counters never decrease.
#
# The attestation key is in the endorsement hierarchy, so its quotes show the true counters (TPM 2.0 part 1, "Timing
# components"). A power cycle increments the reset count. After an unexpected one the clock may be a little lower than
# before, so it is compared within one reset only.


def check_continuity(
    last: TpmRecord | None, now: TpmRecord, *, locked: bool, challenged: TpmRecord | None = None
) -> bool:
    """Return whether the machine was rebooted since ``last``, the TPM's state at its last evidence (None: never).

    ``challenged`` is that state when the challenge was made, if it was known. Raises `Refusal` TPM_ROLLED_BACK if a
    counter, or the clock within one reset, is lower than before. Raises `ApiError` API_CONFLICT if it is not lower than
    at the challenge: other evidence of the machine was accepted meanwhile, and this one was made before it. Raises
    NODELOCK_NO_TICKET if the machine was rebooted and is ``locked``: a boot begins unlocked, and the lock is taken with
    a ticket, so another program took the lock.
    """
    if last is None:
        return False
    if _is_earlier(now, last):
        if challenged is not None and not _is_earlier(now, challenged):
            raise ApiError("newer evidence of the machine was accepted meanwhile", reason=Reason.API_CONFLICT)
        raise Refusal(f"expected a TPM at least at {_shown(last)}, got {_shown(now)}", reason=Reason.TPM_ROLLED_BACK)
    rebooted = now.reset_count != last.reset_count
    if rebooted and locked:
        raise Refusal(
            f"expected an unlocked machine after reset {now.reset_count} (the last ticket was given at reset "
            f"{last.reset_count}), got a locked one",
            reason=Reason.NODELOCK_NO_TICKET,
        )
    return rebooted


def _is_earlier(one: TpmRecord, other: TpmRecord) -> bool:
    if (one.reset_count, one.restart_count) < (other.reset_count, other.restart_count):
        return True
    return one.reset_count == other.reset_count and one.clock < other.clock


def _shown(record: TpmRecord) -> str:
    return f"reset {record.reset_count}, restart {record.restart_count}, clock {record.clock} ms"


TICKET_LIFE = timedelta(minutes=15)

_REQUEST = "join.IssueJoinTicketRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The parsed request; ``event_logs``: the unparsed bytes of `attested.v1.EventLogs`."""

    disk_id: str
    certificate_request: bytes
    is_control_plane: bool
    event_logs: bytes

    @classmethod
    def parse(cls, data: bytes) -> JoinRequest:
        """Return the request of ``data``; raises MESSAGE_MALFORMED or MESSAGE_TOO_LARGE."""
        message = parse(_REQUEST, data)
        return cls(
            disk_id=message.disk_uuid,
            certificate_request=message.certificate_request,
            is_control_plane=message.is_control_plane,
            event_logs=message.event_logs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """The content of the verified bound quote: the AK, the TPM's clock and counters, and the profile that accepted it.

    ``locked``: the machine is locked to this cluster, which is possible only after a ticket in this boot.
    """

    ak_name: bytes
    clock: int
    reset_count: int
    restart_count: int
    profile: str
    posture: str
    locked: bool = False
    registers: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def tpm(self) -> TpmRecord:
        """The TPM's clock and counters."""
        return TpmRecord(clock=self.clock, reset_count=self.reset_count, restart_count=self.restart_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The ticket that was issued to an EK: the kubelet's key, the expiry time, and the certificate (PEM)."""

    key_sha256: str
    expires: datetime
    certificate: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An allowed release.

    ``role``: the role of the ticket. It is the registered role, but a control plane that renews its kubelet's
    certificate gets a worker's ticket. ``repeats``: the ticket that is repeated. ``supersedes``: the ticket replaces a
    valid one of another key or boot. ``assigns``: the disk id is new and must be written before the ticket is sent.
    """

    registration: Registration
    role: Role
    request: KubeletRequest
    disk: DiskId
    expires: datetime
    assigns: bool
    repeats: Held | None
    supersedes: bool

    @property
    def joined_before(self) -> bool:
        """Whether the identity's Node object has appeared already."""
        return self.registration.identity.status.phase == JOINED


def decide_release(
    request: JoinRequest,
    *,
    proven: Proven,
    registration: Registration,
    held: Held | None,
    fresh_disk: DiskId,
    now: datetime,
    inherited_disk: str = "",
    overdue_after: timedelta = OVERDUE_AFTER,
    challenged: TpmRecord | None = None,
) -> Decision:
    """Return what the machine gets; raises `Refusal`, and API_CONFLICT (`check_continuity`, also for ``challenged``).

    1. The requested role is the registered one. A control plane that is locked and joined may also request a worker's
       ticket, which renews its kubelet's certificate and contains no files. ROLE_NOT_REGISTERED
    2. The certificate request is for the registered name. CSR_NAME_MISMATCH, CSR_KEY_UNSUPPORTED, CSR_MALFORMED
    3. The AK is the one pinned at the first ticket, if there was one. AK_NOT_PINNED
    4. Its TPM continues from its last evidence, and a locked machine was not rebooted since. TPM_ROLLED_BACK,
       NODELOCK_NO_TICKET
    5. A locked machine renews, so its evidence on record must be good and recent. An unlocked machine brings evidence
       of a new boot, which replaces earlier evidence. REATTESTATION_FAILED, REATTESTATION_OVERDUE
    6. The requested disk id is empty or the assigned one. If none is assigned yet, it may be ``inherited_disk``: the
       disk of the machine that it replaces. DISK_ID_NOT_ASSIGNED
    7. A valid ticket of the same key is repeated within one boot; another key or boot supersedes it.

    The caller must verify the quote, pass the registration of the EK that was proven, and write the status.
    """
    status = registration.identity.status
    role = _check_role(request, registration.identity, locked=proven.locked)  # 1
    kubelet = check_kubelet_request(request.certificate_request, node_name=registration.identity.node_name)  # 2
    _check_pin(status.ak_name, proven.ak_name.hex())  # 3
    rebooted = check_continuity(status.tpm, proven.tpm, locked=proven.locked, challenged=challenged)  # 4
    if proven.locked:
        require_good_standing(status, now=now, overdue_after=overdue_after)  # 5
    disk = _choose_disk(request.disk_id, known=status.disk_id or inherited_disk, fresh=fresh_disk)  # 6
    live, repeats = _live_ticket(held, kubelet, rebooted=rebooted, now=now)  # 7
    return Decision(
        registration=registration,
        role=role,
        request=kubelet,
        disk=disk,
        expires=repeats.expires if repeats else now + TICKET_LIFE,
        assigns=not status.disk_id,
        repeats=repeats,
        supersedes=live is not None and repeats is None,
    )


def plan_status(decision: Decision, *, proven: Proven, now: datetime) -> StatusChange:
    """Return the status of the identity with the ticket of ``decision``."""
    registration = decision.registration
    return StatusChange(
        phase="" if decision.joined_before else ADMITTED,
        disk_id=decision.disk.uuid if decision.assigns else "",
        ak_name=proven.ak_name.hex(),
        clock=proven.clock,
        reset_count=proven.reset_count,
        restart_count=proven.restart_count,
        attested_at=now,
        profile=proven.profile,
        posture=proven.posture,
        registers=proven.registers,
        issued=registration.issued + (decision.repeats is None),
        superseded=registration.superseded + decision.supersedes,
        key_sha256=decision.request.spki_sha256,
        expires=decision.expires,
    )


def _check_role(request: JoinRequest, identity: NodeIdentity, *, locked: bool) -> Role:
    """Return the role of the ticket."""
    requested = Role.CONTROL_PLANE if request.is_control_plane else Role.WORKER
    renews = requested is Role.WORKER and locked and identity.status.phase == JOINED
    if requested is not identity.role and not renews:
        raise Refusal(
            f"expected a request for the registered role {identity.role.value}, got one for {requested.value}",
            reason=Reason.ROLE_NOT_REGISTERED,
        )
    return requested


def _check_pin(pinned: str, shown: str) -> None:
    if pinned and pinned != shown:
        raise Refusal(f"expected the pinned AK {pinned}, got {shown}", reason=Reason.AK_NOT_PINNED)


def _choose_disk(requested: str, *, known: str, fresh: DiskId) -> DiskId:
    if requested and requested != known:
        expected = f"its assigned disk id {known}" if known else "no disk id at the first ticket"
        raise Refusal(f"expected {expected}, got {requested[:64]!r}", reason=Reason.DISK_ID_NOT_ASSIGNED)
    return DiskId(known) if known else fresh


def _live_ticket(
    held: Held | None, requested: KubeletRequest, *, rebooted: bool, now: datetime
) -> tuple[Held | None, Held | None]:
    """Return the ticket that is still valid, and the ticket to repeat: the same, if key and boot are the same."""
    live = held if held is not None and held.expires > now else None
    repeats = live if live is not None and not rebooted and live.key_sha256 == requested.spki_sha256 else None
    return live, repeats
