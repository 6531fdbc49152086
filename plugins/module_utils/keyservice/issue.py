# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Issue the signed ticket of a decision: derive, sign, seal, sign again. All checks were done before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..transport.sealed_box import seal
from .kubelet import ClusterCa, sign_kubelet_certificate
from .master import SecretBytes
from .release import Held
from .ticket import TicketPublic, TicketSecrets, sign_ticket

if TYPE_CHECKING:
    from datetime import datetime

    from .._deps.crypto import ed25519
    from .control_plane import ControlPlaneMaterial
    from .derive import DiskId
    from .key_bundle import KeyBundle
    from .release import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The cluster's fields in a ticket: the version to install (1.35.4) and the API's endpoint (host:port)."""

    kubernetes_version: str
    api_endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The verified exchange that a ticket belongs to: activation secret s, binding B, one-time public key."""

    secret: bytes = field(repr=False)
    binding: bytes
    recipient: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A ticket with its signature, and the part that is kept to repeat it."""

    ticket: bytes
    signature: bytes
    held: Held


def issue_ticket(
    decision: Decision,
    *,
    bundle: KeyBundle,
    facts: ClusterFacts,
    ca: ClusterCa,
    signing_key: ed25519.Ed25519PrivateKey,
    exchange: Exchange,
    now: datetime,
    control_plane: ControlPlaneMaterial | None = None,
) -> Issued:
    """Return the ticket of ``decision``, its secrets sealed to ``exchange``, signed with the join CA's key.

    ``control_plane``: the content for control planes only. Raises TICKET_MALFORMED if it is given for a worker, or
    missing for a control plane.
    """
    held = decision.repeats or _new_ticket(decision, ca=ca, now=now)
    identity = decision.registration.identity
    public = TicketPublic(
        cluster_id=bundle.cluster_id,
        node_name=identity.node_name,
        role=decision.role,
        disk_id=decision.disk.uuid,
        kubernetes_version=facts.kubernetes_version,
        api_endpoint=facts.api_endpoint,
        cluster_ca=ca.pem(),
        kubelet_certificate=held.certificate,
        expires_unix_seconds=int(held.expires.timestamp()),
        joined_before=decision.joined_before,
    )
    secrets = _secrets(decision.disk, bundle, control_plane)
    secrets.require_role(decision.role)
    box = seal(secrets.to_bytes(), secret=exchange.secret, binding=exchange.binding, recipient=exchange.recipient)
    ticket = public.to_bytes(box)
    signature = sign_ticket(signing_key, cluster_id=bundle.cluster_id, binding=exchange.binding, ticket=ticket)
    return Issued(ticket=ticket, signature=signature, held=held)


def _new_ticket(decision: Decision, *, ca: ClusterCa, now: datetime) -> Held:
    identity = decision.registration.identity
    return Held(
        key_sha256=decision.request.spki_sha256,
        expires=decision.expires,
        certificate=sign_kubelet_certificate(
            decision.request, node_name=identity.node_name, machine=identity.name, ca=ca, now=now
        ),
    )


def _secrets(disk: DiskId, bundle: KeyBundle, control_plane: ControlPlaneMaterial | None) -> TicketSecrets:
    lead, *others = bundle.ring.disk_keys(disk)
    secrets = TicketSecrets(
        disk_key=lead.key,
        disk_key_name=lead.name,
        other_disk_keys=tuple(others),
        measurement_secret=bundle.measurement_secret(),
        measurement_salt=bundle.measurement_salt,
    )
    if control_plane is None:
        return secrets
    return replace(
        secrets,
        control_plane_files=control_plane.files,
        key_service_bundle=SecretBytes(bundle.to_bytes()),
        policy=control_plane.policy,
    )
