# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify and open a ticket: it is signed for this exchange, issued to this machine, and its box opens. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .._deps.crypto import serialization, unreadable, x509
from ..core.host import span
from ..errors import Refusal
from ..keyservice.derive import DiskId
from ..keyservice.ticket import SealedSecrets, TicketPublic, TicketSecrets, parse_ticket, verify_ticket
from ..policy.identity import Role
from ..proto.messages import parse
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..keyservice.master import SecretBytes
    from ..transport.pins import JoinCaPins
    from ..transport.sealed_box import OneTimeKey

RESPONSE = "join.IssueJoinTicketResponse"


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketMaterial:
    """The content of a ticket, and the kubelet's key (PEM) that the ticket's certificate is for.

    After `open_ticket`, ``secrets`` match the role in ``public``: a control plane has ``control_plane_files``,
    ``key_service_bundle`` and ``policy``, a worker has none of them. ``registers`` are the values that this machine
    quoted for the ticket (SHA-256 bank).
    """

    public: TicketPublic
    secrets: TicketSecrets = field(repr=False)
    kubelet_key: SecretBytes = field(repr=False)
    registers: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedTicket:
    """A ticket whose public part is verified and whose box is still sealed. Other fields as in `TicketMaterial`."""

    public: TicketPublic
    sealed: SealedSecrets
    kubelet_key: SecretBytes = field(repr=False)
    registers: Mapping[int, bytes] = field(default_factory=dict)

    def opened(self) -> TicketMaterial:
        """Return the material, opened in this process; raises what `SealedSecrets.opened` raises."""
        return TicketMaterial(
            public=self.public,
            secrets=self.sealed.opened(),
            kubelet_key=self.kubelet_key,
            registers=self.registers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the node knows independently of the answer; ``binding`` is B of this exchange."""

    cluster_id: bytes
    node_name: str
    disk_id: str
    binding: bytes
    kubelet_key: SecretBytes
    role: Role = Role.WORKER


def open_ticket(
    answer: bytes,
    *,
    expected: Expected,
    pins: JoinCaPins,
    secret: bytes,
    one_time_key: OneTimeKey,
    now: datetime,
) -> TicketMaterial:
    """Return the material of an `IssueJoinTicketResponse`; raises `Refusal`.

    1. A pinned join CA signed it for this exchange. TICKET_SIGNATURE
    2. It is a ticket. PROTOCOL_VERSION, TICKET_MALFORMED
    3. It is for this cluster, node, role and disk, and has not expired. TICKET_NOT_OURS, TICKET_EXPIRED
    4. Its certificate is for this node's kubelet key. TICKET_NOT_OURS
    5. Its secrets open with this exchange's secret and one-time key. SEAL_UNOPENABLE
    6. The cluster id is derived from them. TICKET_NOT_OURS
    7. They match the role, and a control plane's bundle is of this cluster. TICKET_MALFORMED,
       CLUSTER_ID_MISMATCH, FILE_VERSION_UNKNOWN, MESSAGE_MALFORMED, TICKET_NOT_OURS

    ``secret`` is the activation secret s; the caller must discard it and the one-time key afterwards. `read_ticket`
    does steps 1 to 4, `SealedSecrets.opened` the others; another process may do those.
    """
    read = read_ticket(answer, expected=expected, pins=pins, secret=secret, one_time_key=one_time_key, now=now)
    return read.opened()


def read_ticket(
    answer: bytes,
    *,
    expected: Expected,
    pins: JoinCaPins,
    secret: bytes,
    one_time_key: OneTimeKey,
    now: datetime,
) -> ClosedTicket:
    """Return the ticket of an `IssueJoinTicketResponse`, still sealed; raises as steps 1 to 4 of `open_ticket` do."""
    response = parse(RESPONSE, answer)
    _check_signature(response.ticket, response.ticket_signature, expected=expected, pins=pins)
    public, box = parse_ticket(response.ticket)
    _check_addressee(public, expected, now)
    _check_certificate(public.kubelet_certificate, expected.kubelet_key)
    sealed = SealedSecrets(
        box=box,
        secret=secret,
        binding=expected.binding,
        one_time_key=one_time_key,
        cluster_id=expected.cluster_id,
        role=public.role,
    )
    return ClosedTicket(public=public, sealed=sealed, kubelet_key=expected.kubelet_key)


def _check_signature(ticket: bytes, signature: bytes, *, expected: Expected, pins: JoinCaPins) -> None:
    refusals = []
    for pin in pins.certificates:
        key: Any = pin.public_key()  # Ed25519, as all pins are
        try:
            verify_ticket(key, signature, cluster_id=expected.cluster_id, binding=expected.binding, ticket=ticket)
        except Refusal as error:
            refusals.append(error)
            continue
        return
    raise refusals[0]


def _check_addressee(public: TicketPublic, expected: Expected, now: datetime) -> None:
    _require("cluster id", expected.cluster_id, public.cluster_id)
    _require("node name", expected.node_name, public.node_name)
    _require("role", expected.role.value, public.role.value)
    if expected.disk_id:
        _require("disk id", expected.disk_id, public.disk_id)
    DiskId(public.disk_id)
    if public.expires_unix_seconds <= now.timestamp():
        raise _over(datetime.fromtimestamp(public.expires_unix_seconds, UTC), now)


def _over(ends: datetime, now: datetime) -> Refusal:
    """Return the error with the difference of the clocks: the ticket of this exchange was made a moment ago."""
    return Refusal(
        f"expected a ticket that is good at {now:%Y-%m-%dT%H:%M:%SZ}, this machine's time, it ended at "
        f"{ends:%Y-%m-%dT%H:%M:%SZ}: this clock is {span((now - ends).total_seconds())} or more ahead of that of the "
        "key service",
        reason=Reason.TICKET_EXPIRED,
    )


def _check_certificate(certificate: bytes, key: SecretBytes) -> None:
    try:
        shown = x509.load_pem_x509_certificate(certificate).public_key()
    except unreadable() as error:
        raise Refusal("expected a certificate in PEM, got none", reason=Reason.TICKET_MALFORMED) from error
    if shown != serialization.load_pem_private_key(key.reveal(), password=None).public_key():
        raise _not_ours("a certificate for this node's key", "one for another key")


def _require(what: str, expected: bytes | str, got: bytes | str) -> None:
    if expected != got:
        raise _not_ours(f"the {what} {_shown(expected)}", _shown(got))


def _shown(value: bytes | str) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value[:100])


def _not_ours(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} in the ticket, got {got}", reason=Reason.TICKET_NOT_OURS)
