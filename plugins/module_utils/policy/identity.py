# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which TPM is which node: an endorsement key names an identity, the identity says node name and role (design 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

NAME_DIGITS = 20
"""Hex digits of the endorsement key's SHA-256 in the name of an identity."""


class Role(Enum):
    """What a node may become."""

    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class Admission(Enum):
    """The admin's word on a machine: PENDING before there is one, and from REVOKED there is no way back."""

    APPROVED = "Approved"
    PENDING = "Pending"
    REFUSED = "Refused"
    REVOKED = "Revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmRecord:
    """TPMS_CLOCK_INFO of a verified quote: ``clock`` in milliseconds, how often the TPM was reset and restarted."""

    clock: int
    reset_count: int
    restart_count: int


@dataclass(frozen=True, slots=True)
class EvidenceRefusal:
    """That the last evidence of a machine was refused: the reason's code, and when, where that is known."""

    code: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityStatus:
    """What the key service wrote; empty strings where nothing is known yet, ``tpm`` is of the last ticket.

    ``attested_at``: when evidence was good last; ``refusal``: there only while none was good after it.
    """

    phase: str = ""
    disk_id: str = ""
    ak_name: str = ""
    tpm: TpmRecord | None = None
    attested_at: datetime | None = None
    refusal: EvidenceRefusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """One machine. ``ek_sha256``: 64 lower-case hex digits, SHA-256 of the EK's SubjectPublicKeyInfo.

    ``replaced_by``: of a revoked one, the name of the identity that took its node's name and its disk.
    """

    ek_sha256: str
    node_name: str
    role: Role
    admission: Admission
    known_by: str = ""
    replaced_by: str = ""
    status: IdentityStatus = field(default=IdentityStatus())

    @property
    def name(self) -> str:
        """The name of the object in the API, for example ``ek-9f2c0123456789abcdef``."""
        return identity_name(self.ek_sha256)


def identity_name(ek_sha256: str) -> str:
    """Return the object name that belongs to an endorsement key."""
    return f"ek-{ek_sha256[:NAME_DIGITS]}"


def inherited_disk(identities: Iterable[NodeIdentity], heir: NodeIdentity) -> str:
    """Return the disk id that ``heir`` takes over from the revoked identity which an admin replaced by it, or nothing.

    The machine's claims have no part in it: the admin names the heir in the revoked object, under one node name.
    Raises `PolicyError` IDENTITY_AMBIGUOUS where two of them leave it different disks.
    """
    left = {
        one.status.disk_id
        for one in identities
        if one.admission is Admission.REVOKED
        and one.replaced_by == heir.name
        and one.node_name == heir.node_name
        and one.status.disk_id
    }
    if len(left) > 1:
        raise _refusal(
            f"expected one disk for {heir.node_name}, the identities that it replaces leave {sorted(left)}",
            Reason.IDENTITY_AMBIGUOUS,
        )
    return next(iter(left), "")


def find_identity(identities: Iterable[NodeIdentity], ek_sha256: str) -> NodeIdentity:
    """Return the approved identity of an endorsement key.

    Raises `PolicyError` IDENTITY_UNKNOWN, IDENTITY_REVOKED (one revocation outweighs everything), IDENTITY_AMBIGUOUS
    (two live identities with this key, or another one with this node's name), IDENTITY_PENDING or IDENTITY_REFUSED.
    """
    every = tuple(identities)
    same_key = tuple(one for one in every if one.ek_sha256 == ek_sha256)
    if not same_key:
        raise _refusal(f"expected an identity for the endorsement key {ek_sha256}, found none", Reason.IDENTITY_UNKNOWN)
    if any(one.admission is Admission.REVOKED for one in same_key):
        raise _refusal(
            f"expected a live identity for {ek_sha256}, {same_key[0].node_name} was revoked", Reason.IDENTITY_REVOKED
        )
    _require_single(same_key, f"endorsement key {ek_sha256}")
    identity = same_key[0]
    if identity.admission is Admission.PENDING:
        raise _refusal(f"expected an approved identity, {identity.name} waits for an admin", Reason.IDENTITY_PENDING)
    if identity.admission is Admission.REFUSED:
        raise _refusal(f"expected an approved identity, {identity.node_name} was refused", Reason.IDENTITY_REFUSED)
    same_name = tuple(
        one for one in every if one.node_name == identity.node_name and one.admission is Admission.APPROVED
    )
    _require_single(same_name, f"node name {identity.node_name}")
    return identity


def _require_single(identities: tuple[NodeIdentity, ...], what: str) -> None:
    if len(identities) > 1:
        listed = ", ".join(f"{one.name} ({one.node_name}, {one.admission.value})" for one in identities)
        raise _refusal(f"expected one identity with the {what}, found {listed}", Reason.IDENTITY_AMBIGUOUS)


def _refusal(message: str, reason: Reason) -> PolicyError:
    return PolicyError(message, reason=reason)
