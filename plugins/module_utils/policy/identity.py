# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identities map TPMs to nodes: an endorsement key names an identity, which has a node name and a role."""

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
    """The role of a node."""

    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class Admission(Enum):
    """The admin's decision about a machine; PENDING before it. Only the signed policy can take back REVOKED."""

    APPROVED = "Approved"
    PENDING = "Pending"
    REFUSED = "Refused"
    REVOKED = "Revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmRecord:
    """TPMS_CLOCK_INFO of a verified quote: ``clock`` in milliseconds, and the counts of resets and restarts."""

    clock: int
    reset_count: int
    restart_count: int


@dataclass(frozen=True, slots=True)
class EvidenceRefusal:
    """The refusal of a machine's last evidence: the reason code, and the time if it is known."""

    code: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityStatus:
    """The status that the key service writes; fields that are not known yet are empty. ``tpm`` is from the last ticket.

    ``attested_at``: the time of the last good evidence, with its ``profile`` and ``posture``. ``refusal``: set only
    until other evidence is good.
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

    ``ek_alias``: the same hash of the chip's other endorsement key if that was proven, else empty. Evidence over either
    key is from this machine; its name is derived from ``ek_sha256``. ``replaced_by``: in a revoked identity, the name
    of the identity that gets its node name and its disk. ``addresses``: the IP addresses of the node from the site,
    which certificates may name (`is_address`).
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
        """The endorsement keys, beginning with the key that the name is derived from."""
        return (self.ek_sha256, self.ek_alias) if self.ek_alias else (self.ek_sha256,)


def is_address(text: str) -> bool:
    """Return whether ``text`` is an IP address in canonical form (RFC 5952), without zone, not IPv4-mapped IPv6."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return str(found) == text and "%" not in text and getattr(found, "ipv4_mapped", None) is None


def identity_name(ek_sha256: str) -> str:
    """Return the name of an endorsement key's identity object."""
    return f"ek-{ek_sha256[:NAME_DIGITS]}"


def inherited_disk(identities: Iterable[NodeIdentity], heir: NodeIdentity) -> str:
    """Return the disk id that ``heir`` inherits from the revoked identity that it replaces, or an empty string.

    The machine's claims do not matter: the admin names the heir in the revoked object, for the same node name. The
    caller must check that the site signed an heir that is a control plane.

    1. The replaced identities have at most one disk. IDENTITY_AMBIGUOUS
    2. No other identity has the disk that ``heir`` has or inherits, except revoked identities of the same node name and
       role, which were the same node before. DISK_ID_TAKEN
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
    """Return the approved identity of an endorsement key, which may be its first key or its alias.

    Raises `PolicyError` IDENTITY_UNKNOWN, IDENTITY_REVOKED (any revocation of one of the chip's keys),
    IDENTITY_AMBIGUOUS (two live identities with this key, or another approved identity with this node name),
    EK_ALIAS_TAKEN (the alias of one identity is a key of another), IDENTITY_PENDING or IDENTITY_REFUSED. A pending
    identity does not conflict with one that an admin has decided about.
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
    """Raise EK_ALIAS_TAKEN if the alias of one identity is a key of another."""
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
