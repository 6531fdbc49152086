# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admin's word on a machine, written into its identity in the cluster: what is asked, decided, and patched."""

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


# What a control plane held, and what whoever has it could still do: said where one goes and nothing is rotated.

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


_KIND = "nodeidentities.attested-kubernetes.dev"
_CERTIFICATE_LIFE = timedelta(hours=72)

HELD_AUTHORITY = "attested-kubernetes.dev/held-authority"
"""On the identity of a control plane that was revoked as compromised: the name of the cluster CA that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionChange:
    """What the admin says: of which machine (name of identity or node), and which node a waiting one becomes.

    ``compromised``: somebody else may have what the machine held; ``authority`` names the cluster CA that is rotated
    then, with all that goes with it.
    """

    name: str
    admission: Admission
    node_name: str = ""
    replaced_by: str = ""
    compromised: bool = False
    authority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlan:
    """The identity as it is, and the merge patch that makes it what was asked for; an empty one is nothing to do."""

    identity: Mapping[str, Any]
    patch: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the identity."""
        return str(self.identity["metadata"]["name"])

    @property
    def certificate_until(self) -> str:
        """When every certificate that came with a ticket has ended (ISO 8601); empty if it never got one.

        Counted from the last ticket's end, a quarter of an hour after its certificate was made: never too early. A
        push of evidence brings no certificate and changes nothing here; kubeadm's own, of the first control plane's
        kubelet, came with no ticket.
        """
        expires = self.identity.get("status", {}).get("tickets", {}).get("expires", "")
        return (datetime.fromisoformat(expires) + _CERTIFICATE_LIFE).isoformat() if expires else ""


def plan_admission(identities: Sequence[Mapping[str, Any]], change: AdmissionChange) -> AdmissionPlan:
    """Return what is to patch.

    Raises `PolicyError` IDENTITY_NOT_FOUND (none or several of that name), IDENTITY_REVOKED (the policy
    alone leads back), IDENTITY_NAME_WANTED (a waiting machine has no node name yet), IDENTITY_AMBIGUOUS (another one
    has it),
    EK_ALIAS_TAKEN (its key is the second one of a machine that is known already),
    IDENTITY_NEEDS_SIGNATURE (a control plane is approved by the site's signed policy alone),
    IDENTITY_LAST_CONTROL_PLANE or HELD_KEYS_NOT_ROTATED (a compromised control plane, and no authority to rotate).
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
    """Do what the module `node_admission` is asked for; raises `PolicyError`, KUBECTL_FAILED."""
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
    return Result(changed=bool(plan.patch), values=_told(plan, change), diff=_difference(plan))


def _metadata(identity: Mapping[str, Any], change: AdmissionChange, *, changes: bool) -> dict[str, Any]:
    """Return what is written beside the spec: that it was revoked, and once which cluster CA a control plane held."""
    if change.admission is not Admission.REVOKED:
        return {}
    labels = {"labels": {REVOKED_LABEL: "true"}} if changes else {}
    held = _held_authority(identity, change)
    if not held or _annotations(identity).get(HELD_AUTHORITY) == held:
        return labels
    return {**labels, "annotations": {HELD_AUTHORITY: held}}


def _held_authority(identity: Mapping[str, Any], change: AdmissionChange) -> str:
    """Return the cluster CA that a compromised control plane held: what was written down first, else what is said now.

    Once it was rotated another one is in force, which that machine never had.
    """
    if not change.compromised or not held_by(identity):
        return ""
    return str(_annotations(identity).get(HELD_AUTHORITY, change.authority))


def _annotations(identity: Mapping[str, Any]) -> Mapping[str, Any]:
    return identity["metadata"].get("annotations") or {}


def _find(identities: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the identity of this name, or the one that is this node now; a revoked one only if no other is."""
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


def _told(plan: AdmissionPlan, change: AdmissionChange) -> dict[str, Any]:
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
