# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a control plane held, and what whoever has it could still do: said where one goes and nothing is rotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..policy import Role
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


AUTHORITIES = "rotate_authorities"
ENCRYPTION = "rotate_encryption_key"
MASTER = "rotate_master_secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One secret: its name, where it lay, what it is good for, and when that ends by itself.

    ``rotated``: the playbook that makes it worthless; empty where none does.
    """

    what: str
    where: str
    could: str
    ends: str
    rotated: str = ""

    def as_result(self) -> dict[str, str]:
        """Return plain values for a module's result."""
        said = {"what": self.what, "where": self.where, "could": self.could, "ends": self.ends}
        return {**said, "rotated": self.rotated}


HELD = (
    Held(
        what="key of the cluster CA",
        rotated=AUTHORITIES,
        where="/etc/kubernetes/pki/ca.key",
        could="sign a certificate for any user or node, also of system:masters, which no rule of the API stops",
        ends="with the CA, in ten years",
    ),
    Held(
        what="key of the front-proxy CA",
        rotated=AUTHORITIES,
        where="/etc/kubernetes/pki/front-proxy-ca.key",
        could="be any user before an API server, by the headers of an aggregated API",
        ends="with the CA, in ten years",
    ),
    Held(
        what="key of etcd's CA",
        rotated=AUTHORITIES,
        where="/etc/kubernetes/pki/etcd/ca.key",
        could="read and write etcd past the API, and become a member again, wherever ports 2379 and 2380 are reached",
        ends="with the CA, in ten years",
    ),
    Held(
        what="key of the service accounts",
        rotated=AUTHORITIES,
        where="/etc/kubernetes/pki/sa.key",
        could="sign a token of any service account",
        ends="never",
    ),
    Held(
        what="key of the encryption at rest, and a copy of etcd",
        rotated=ENCRYPTION,
        where="/etc/kubernetes/attested/encryption.yaml, /var/lib/etcd",
        could="read every object of that copy, Secrets too, and Secrets of any later copy under the same key",
        ends="what was read is known; for later copies, when the key is rotated",
    ),
    Held(
        what="kubeconfigs and certificates of its components",
        rotated=AUTHORITIES,
        where="/etc/kubernetes/*.conf, /etc/kubernetes/pki",
        could="be cluster-admin, the controller manager, the scheduler, a client and a peer of etcd",
        ends="with each certificate, at most a year after it was made",
    ),
    Held(
        what="master secret",
        rotated=MASTER,
        where="its key service, sealed to its TPM",
        could="derive the disk key of every node",
        ends="for each disk when its key is rotated; a header that was copied before opens for ever",
    ),
    Held(
        what="measurement secret and seed of the emergency SSH CA",
        where="its key service, sealed to its TPM",
        could="derive the cluster id, and log in wherever that CA is trusted",
        ends="never",
    ),
    Held(
        what="key of the join CA",
        where="its key service, sealed to its TPM",
        could="be a join service before a node, sign tickets, and be an admin before a machine that waits for init",
        ends="with the join CA",
    ),
    Held(
        what="its kubelet's certificate",
        rotated=AUTHORITIES,
        where="/var/lib/kubelet/pki",
        could="read what its node's user may; once it is revoked it writes nothing",
        ends="at most 72 hours after its last ticket; what kubeadm made for the first control plane, a year after that",
    ),
)
"""The site's policy key is not among them: no machine can sign who is one of the cluster, and which boots count."""


def held_by(identity: Mapping[str, Any]) -> tuple[Held, ...]:
    """Return what the machine of an identity (as in YAML) held beyond what is its own; a worker held none of it."""
    return HELD if identity["spec"]["role"] == Role.CONTROL_PLANE.value else ()


def require_nothing_held(identity: Mapping[str, Any]) -> None:
    """Raise HELD_KEYS_NOT_ROTATED for a control plane, naming all of it: nobody has said what is rotated then."""
    held = held_by(identity)
    if held:
        listed = "; ".join(f"{one.what} ({one.where}): could {one.could}, ends {one.ends}" for one in held)
        raise PolicyError(
            f"expected a machine that held nothing of the cluster's, {identity['spec']['nodeName']} is a control plane "
            f"and held: {listed}",
            reason=Reason.HELD_KEYS_NOT_ROTATED,
        )
