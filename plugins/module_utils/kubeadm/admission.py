# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the admission of a machine: plan the change of its identity object, and patch that object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError
from ..policy.identity import Admission, Role
from ..policy.manifest import REVOKED_LABEL
from ..reasons import Reason
from ..result import Diff, Result
from .kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# The secrets that a control plane held, and what an attacker who has them can do. An admin who removes a control plane
# without a rotation reads this list.

AUTHORITIES = "rotate_authorities"
ENCRYPTION = "rotate_encryption_key"
MASTER = "rotate_master_secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One secret: its name, its place, what it permits, and when it expires without a rotation.

    ``rotated`` names the playbook that replaces the secret; empty if there is no such playbook.
    """

    what: str
    where: str
    could: str
    ends: str
    rotated: str = ""

    def as_result(self) -> dict[str, str]:
        """Return plain values for a module's result."""
        values = {"what": self.what, "where": self.where, "could": self.could, "ends": self.ends}
        return {**values, "rotated": self.rotated}


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
"""The site's policy key is not in the list: no machine holds it, so no machine can sign a policy."""


def held_by(identity: Mapping[str, Any]) -> tuple[Held, ...]:
    """Return the cluster's secrets that the machine of an identity (as in YAML) held; empty for a worker."""
    return HELD if identity["spec"]["role"] == Role.CONTROL_PLANE.value else ()


def require_nothing_held(identity: Mapping[str, Any]) -> None:
    """Raise HELD_KEYS_NOT_ROTATED for a control plane, and list every secret that it held."""
    held = held_by(identity)
    if held:
        listed = "; ".join(f"{one.what} ({one.where}): could {one.could}, ends {one.ends}" for one in held)
        raise PolicyError(
            f"expected a machine that held nothing of the cluster's, {identity['spec']['nodeName']} is a control plane "
            f"and held: {listed}",
            reason=Reason.HELD_KEYS_NOT_ROTATED,
        )


_KIND = "nodeidentities.attested-kubernetes.dev"
_CERTIFICATE_LIFE = timedelta(hours=72)

HELD_AUTHORITY = "attested-kubernetes.dev/held-authority"
"""Annotation on the identity of a control plane revoked as compromised: the name of the cluster CA that it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionChange:
    """The change that the admin requests. ``name`` is the name of an identity or of a node.

    ``node_name`` is the node that a waiting machine becomes. ``compromised`` means that an attacker may have the
    machine's secrets. In that case ``authority`` names the cluster CA that the rotation replaces.
    """

    name: str
    admission: Admission
    node_name: str = ""
    replaced_by: str = ""
    compromised: bool = False
    authority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlan:
    """The current identity and the merge patch that makes the requested change.

    An empty patch changes nothing.
    """

    identity: Mapping[str, Any]
    patch: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the identity."""
        return str(self.identity["metadata"]["name"])

    @property
    def certificate_until(self) -> str:
        """The time by which every certificate from a ticket has expired (ISO 8601).

        The result is empty if there was no ticket. The time is counted from the expiry of the last ticket, a quarter of
        an hour after the certificate was issued, so it is never too early. Pushed evidence issues no certificate. The
        kubelet certificate that kubeadm made on the first control plane is not covered, because it came without a
        ticket.
        """
        expires = self.identity.get("status", {}).get("tickets", {}).get("expires", "")
        return (datetime.fromisoformat(expires) + _CERTIFICATE_LIFE).isoformat() if expires else ""


def plan_admission(identities: Sequence[Mapping[str, Any]], change: AdmissionChange) -> AdmissionPlan:
    """Return the plan of the change.

    Raises `PolicyError`:

    - IDENTITY_NOT_FOUND if no identity or several identities match the name.
    - IDENTITY_REVOKED if the identity is revoked: only the policy can admit it again.
    - IDENTITY_NAME_WANTED if a waiting machine has no node name yet.
    - IDENTITY_AMBIGUOUS if another machine has the node name.
    - EK_ALIAS_TAKEN if the machine's key is the second key of another machine.
    - IDENTITY_NEEDS_SIGNATURE for a control plane: only the site's signed policy approves it.
    - IDENTITY_LAST_CONTROL_PLANE if no other approved control plane exists.
    - HELD_KEYS_NOT_ROTATED for a compromised control plane if the admin names no CA to rotate.
    """
    identity = _find(identities, change.name)
    if change.compromised and not _held_authority(identity, change):
        require_nothing_held(identity)
    spec = identity["spec"]
    now = Admission(spec["admission"])
    if now is Admission.REVOKED and change.admission is not Admission.REVOKED:
        raise PolicyError(f"expected a live identity, {change.name} was revoked", reason=Reason.IDENTITY_REVOKED)
    if change.admission is Admission.APPROVED and now is not Admission.APPROVED:
        _require_worker(spec, change)
        _require_own_key(identities, identity)
        _require_free_name(identities, identity, change)
    if change.admission is Admission.REVOKED and now is not Admission.REVOKED:
        _require_another_control_plane(identities, identity)
    patch = {"admission": change.admission.value, "nodeName": change.node_name, "replacedBy": change.replaced_by}
    changes = {field: value for field, value in patch.items() if value and spec.get(field) != value}
    metadata = _metadata(identity, change, changes=bool(changes))
    written: dict[str, Any] = {"metadata": metadata, "spec": changes}
    return AdmissionPlan(identity=identity, patch={name: fields for name, fields in written.items() if fields})


def run_admission(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Run the module `node_admission`; raises `PolicyError`, KUBECTL_FAILED."""
    kubectl = Kubectl.of_a_module(params["kubeconfig"])
    change = AdmissionChange(
        name=params["name"],
        admission=Admission(params["admission"]),
        node_name=params["node_name"],
        replaced_by=params["replaced_by"],
        compromised=params["compromised"],
        authority=params["authority"],
    )
    plan = plan_admission(kubectl.read((_KIND,)), change)
    if plan.patch and not check_mode:
        kubectl.patch(_KIND, plan.name, plan.patch)
    return Result(changed=bool(plan.patch), values=_values(plan, change), diff=_difference(plan))


def _metadata(identity: Mapping[str, Any], change: AdmissionChange, *, changes: bool) -> dict[str, Any]:
    """Return the metadata to write: the label of a revocation, and the annotation with the cluster CA it held."""
    if change.admission is not Admission.REVOKED:
        return {}
    labels = {"labels": {REVOKED_LABEL: "true"}} if changes else {}
    held = _held_authority(identity, change)
    if not held or _annotations(identity).get(HELD_AUTHORITY) == held:
        return labels
    return {**labels, "annotations": {HELD_AUTHORITY: held}}


def _held_authority(identity: Mapping[str, Any], change: AdmissionChange) -> str:
    """Return the cluster CA that a compromised control plane held: the annotated CA, else the CA of the request.

    The annotation wins, because after the rotation the cluster has another CA that the machine never held.
    """
    if not change.compromised or not held_by(identity):
        return ""
    return str(_annotations(identity).get(HELD_AUTHORITY, change.authority))


def _annotations(identity: Mapping[str, Any]) -> Mapping[str, Any]:
    return identity["metadata"].get("annotations") or {}


def _find(identities: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the identity with this name, else the identity of this node. A live identity wins over a revoked one."""
    found = [one for one in identities if one["metadata"]["name"] == name]
    found = found or [one for one in identities if one["spec"]["nodeName"] == name]
    live = [one for one in found if one["spec"]["admission"] != Admission.REVOKED.value]
    chosen = live or found
    if len(chosen) != 1:
        names = ", ".join(one["metadata"]["name"] for one in chosen) or "none"
        raise PolicyError(f"expected one identity for {name}, found {names}", reason=Reason.IDENTITY_NOT_FOUND)
    return chosen[0]


def _require_worker(spec: Mapping[str, Any], change: AdmissionChange) -> None:
    if spec["role"] != Role.WORKER.value:
        raise PolicyError(
            f"expected a worker, {change.name} is registered as {spec['role']}", reason=Reason.IDENTITY_NEEDS_SIGNATURE
        )


def _require_free_name(
    identities: Sequence[Mapping[str, Any]], identity: Mapping[str, Any], change: AdmissionChange
) -> None:
    name = change.node_name or identity["spec"]["nodeName"]
    if name == identity["metadata"]["name"]:
        raise PolicyError(f"expected the node that {change.name} becomes, got none", reason=Reason.IDENTITY_NAME_WANTED)
    holders = [
        one["metadata"]["name"]
        for one in identities
        if one["spec"]["nodeName"] == name
        and one["spec"]["admission"] == Admission.APPROVED.value
        and one["metadata"]["name"] != identity["metadata"]["name"]
    ]
    if holders:
        raise PolicyError(
            f"expected a name that no machine has, {name} is {', '.join(holders)}", reason=Reason.IDENTITY_AMBIGUOUS
        )


def _require_own_key(identities: Sequence[Mapping[str, Any]], identity: Mapping[str, Any]) -> None:
    key = identity["spec"].get("ekSha256")
    owners = [one["metadata"]["name"] for one in identities if key and one["spec"].get("ekAliasSha256") == key]
    if owners:
        raise PolicyError(
            f"expected a key that no other machine has, {identity['metadata']['name']} is the second one of "
            f"{', '.join(owners)}",
            reason=Reason.EK_ALIAS_TAKEN,
        )


def _require_another_control_plane(identities: Sequence[Mapping[str, Any]], identity: Mapping[str, Any]) -> None:
    others = [
        one
        for one in identities
        if one["spec"]["role"] == Role.CONTROL_PLANE.value
        and one["spec"]["admission"] == Admission.APPROVED.value
        and one["metadata"]["name"] != identity["metadata"]["name"]
    ]
    if identity["spec"]["role"] == Role.CONTROL_PLANE.value and not others:
        raise PolicyError(
            f"expected another control plane, {identity['spec']['nodeName']} is the only one",
            reason=Reason.IDENTITY_LAST_CONTROL_PLANE,
        )


def _values(plan: AdmissionPlan, change: AdmissionChange) -> dict[str, Any]:
    spec, status = plan.identity["spec"], plan.identity.get("status", {})
    return {
        "identity": plan.name,
        "node": change.node_name or spec["nodeName"],
        "role": spec["role"],
        "ek_sha256": spec["ekSha256"],
        "ek_alias": spec.get("ekAliasSha256", ""),
        "known_by": spec.get("knownBy", ""),
        "before": spec["admission"],
        "admission": change.admission.value,
        "disk_id": status.get("diskId", ""),
        "certificate_until": plan.certificate_until,
        "held": [one.as_result() for one in held_by(plan.identity)],
        "held_authority": _held_authority(plan.identity, change),
    }


def _difference(plan: AdmissionPlan) -> Diff:
    changes = plan.patch.get("spec", {})
    before = {field: plan.identity["spec"].get(field, "") for field in changes}
    return Diff(before=_lines(before), after=_lines(changes))


def _lines(fields: Mapping[str, Any]) -> str:
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in sorted(fields.items()))
