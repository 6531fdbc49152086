# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which TPM is which node: an endorsement key names an identity, the identity says node name and role."""

from __future__ import annotations

import ipaddress
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
    """The admin's word on a machine: PENDING before there is one, and back from REVOKED only by the signed policy."""

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

    ``attested_at``: when evidence was good last, by ``profile`` and ``posture``; ``refusal``: there only while none was
    good after it.
    """

    phase: str = ""
    disk_id: str = ""
    ak_name: str = ""
    tpm: TpmRecord | None = None
    attested_at: datetime | None = None
    profile: str = ""
    posture: str = ""
    refusal: EvidenceRefusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """One machine. ``ek_sha256``: 64 lower-case hex digits, SHA-256 of the EK's SubjectPublicKeyInfo.

    ``ek_alias``: the same of the chip's other endorsement key where that was proven, else empty; evidence over either
    key is this machine's, the name is made of the first. ``replaced_by``: of a revoked one, the name of the identity
    that took its node's name and its disk. ``addresses``: the IP addresses of its node, as the site says them, where a
    certificate may name them (`is_address`).
    """

    ek_sha256: str
    node_name: str
    role: Role
    admission: Admission
    known_by: str = ""
    replaced_by: str = ""
    ek_alias: str = ""
    addresses: tuple[str, ...] = ()
    status: IdentityStatus = field(default=IdentityStatus())

    @property
    def name(self) -> str:
        """The name of the object in the API, for example ``ek-9f2c0123456789abcdef``."""
        return identity_name(self.ek_sha256)

    @property
    def keys(self) -> tuple[str, ...]:
        """Its endorsement keys, the one that it is named by first."""
        return (self.ek_sha256, self.ek_alias) if self.ek_alias else (self.ek_sha256,)


def is_address(text: str) -> bool:
    """Say whether ``text`` is one IP address in its one form (RFC 5952), without a zone and no IPv4 in IPv6."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return str(found) == text and "%" not in text and getattr(found, "ipv4_mapped", None) is None


def identity_name(ek_sha256: str) -> str:
    """Return the object name that belongs to an endorsement key."""
    return f"ek-{ek_sha256[:NAME_DIGITS]}"


def inherited_disk(identities: Iterable[NodeIdentity], heir: NodeIdentity) -> str:
    """Return the disk id that ``heir`` takes over from the revoked identity which an admin replaced by it, or nothing.

    The machine's claims have no part in it: the admin names the heir in the revoked object, under one node name. The
    caller owes that a control plane which inherits is one that the site signed.

    1. Those that it replaces leave it one disk. IDENTITY_AMBIGUOUS
    2. The disk that it has or inherits is nobody else's: other identities that have it are revoked ones of the same
       node name and the same role, which were that node before. DISK_ID_TAKEN
    """
    every = tuple(identities)
    left = _left_to(every, heir)  # 1
    disk = heir.status.disk_id or left
    others = tuple(one for one in every if one.name != heir.name and disk and one.status.disk_id == disk)
    foreign = tuple(one for one in others if not _was_the_same_node(one, heir))
    if foreign:  # 2
        holders = ", ".join(f"{one.name} ({one.node_name}, {one.role.value}, {one.admission.value})" for one in foreign)
        raise _refusal(
            f"expected the disk {disk} with {heir.name} ({heir.node_name}, {heir.role.value}) alone, it is also that "
            f"of {holders}",
            Reason.DISK_ID_TAKEN,
        )
    return left


def _was_the_same_node(other: NodeIdentity, heir: NodeIdentity) -> bool:
    before = (other.node_name, other.role) == (heir.node_name, heir.role)
    return before and other.admission is Admission.REVOKED


def _left_to(identities: tuple[NodeIdentity, ...], heir: NodeIdentity) -> str:
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
    """Return the approved identity of an endorsement key, be it the one that it is named by or its alias.

    Raises `PolicyError` IDENTITY_UNKNOWN, IDENTITY_REVOKED (one revocation outweighs everything, also one of the chip's
    other key), IDENTITY_AMBIGUOUS (two live identities with this key, or another one with this node's name),
    EK_ALIAS_TAKEN (one of the chip's keys is the alias of one and a key of another), IDENTITY_PENDING or
    IDENTITY_REFUSED. What only waits takes no key away from what an admin decided about.
    """
    every = tuple(identities)
    holders = tuple(one for one in every if ek_sha256 in one.keys)
    if not holders:
        raise _refusal(f"expected an identity for the endorsement key {ek_sha256}, found none", Reason.IDENTITY_UNKNOWN)
    known = {key for one in holders for key in one.keys}
    chip = tuple(one for one in every if not known.isdisjoint(one.keys))
    revoked = [one for one in chip if one.admission is Admission.REVOKED]
    if revoked:
        raise _refusal(
            f"expected a live identity for {ek_sha256}, {revoked[0].node_name} was revoked", Reason.IDENTITY_REVOKED
        )
    decided = tuple(one for one in chip if one.admission is not Admission.PENDING)
    _require_one_chip(decided, ek_sha256)
    identity = next((one for one in decided if ek_sha256 in one.keys), holders[0])
    if identity.admission is Admission.PENDING:
        raise _refusal(f"expected an approved identity, {identity.name} waits for an admin", Reason.IDENTITY_PENDING)
    if identity.admission is Admission.REFUSED:
        raise _refusal(f"expected an approved identity, {identity.node_name} was refused", Reason.IDENTITY_REFUSED)
    same_name = tuple(
        one for one in every if one.node_name == identity.node_name and one.admission is Admission.APPROVED
    )
    _require_single(same_name, f"node name {identity.node_name}")
    return identity


def require_own_aliases(identities: Iterable[NodeIdentity]) -> None:
    """Raise EK_ALIAS_TAKEN where the alias of one identity is a key of another one."""
    every = tuple(identities)
    owners = {one.ek_sha256: one for one in every}
    for one in every:
        owner = owners.setdefault(one.ek_alias, one) if one.ek_alias else one
        if owner is not one:
            raise _taken(one.ek_alias, (one, owner))


def _require_one_chip(decided: tuple[NodeIdentity, ...], ek_sha256: str) -> None:
    if len({one.ek_sha256 for one in decided}) > 1:
        raise _taken(ek_sha256, decided)
    _require_single(decided, f"endorsement key {ek_sha256}")


def _taken(ek_sha256: str, identities: tuple[NodeIdentity, ...]) -> PolicyError:
    return _refusal(
        f"expected one identity with the keys of the chip with {ek_sha256}, found {_listed(identities)}",
        Reason.EK_ALIAS_TAKEN,
    )


def _require_single(identities: tuple[NodeIdentity, ...], what: str) -> None:
    if len(identities) > 1:
        raise _refusal(f"expected one identity with the {what}, found {_listed(identities)}", Reason.IDENTITY_AMBIGUOUS)


def _listed(identities: tuple[NodeIdentity, ...]) -> str:
    return ", ".join(f"{one.name} ({one.node_name}, {one.admission.value})" for one in identities)


def _refusal(message: str, reason: Reason) -> PolicyError:
    return PolicyError(message, reason=reason)
