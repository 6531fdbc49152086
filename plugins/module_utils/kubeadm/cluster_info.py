# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The implementation of the modules `cluster_objects` and `cluster_info`."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes
from ..core.host import SystemClock
from ..errors import AttestedError, KubeadmError, PolicyError
from ..policy.manifest import PROFILE_KIND, parse_objects
from ..policy.profile import weaknesses
from ..policy.standing import CONDITION
from ..result import Diff, Result
from ..rotation.encryption_key import CLEAR
from .custom_objects import CustomObjects
from .encryption import EncryptionFile
from .kubectl import Kubectl
from .render import admission_path, encryption_path
from .spec import API_PORT, PRIVILEGED, KubernetesPaths, PodSecurity, parse_admission
from .static_pods import version_of_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# Read the cluster: nodes with identities, waiting machines, and objects that must not exist.

# Refused machines, from the cluster's `JoinAttempt` objects.

ATTEMPTS = "joinattempts.attested-kubernetes.dev"
_FIELDS = {
    "machine": "machine",
    "node": "nodeName",
    "ek_sha256": "ekSha256",
    "reason": "reason",
    "message": "message",
    "command": "next",
    "correlation_id": "correlationId",
    "first_seen": "firstSeen",
    "last_seen": "lastSeen",
}


def list_attempts(objects: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the attempts as plain values, the latest first."""
    rows = [_attempt_row(one["metadata"]["name"], one.get("status", {})) for one in objects]
    return sorted(rows, key=lambda row: str(row["last_seen"]), reverse=True)


def _attempt_row(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {ours: status.get(theirs, "") for ours, theirs in _FIELDS.items()}
    return {"name": name, "count": status.get("count", 0), **row}


_IDENTITIES = "nodeidentities.attested-kubernetes.dev"
_PENDING, _REVOKED = "Pending", "Revoked"
_CLAIM = "attested-kubernetes.dev/claims-node"
_POLICIES = "attestationpolicies.attested-kubernetes.dev"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_PROFILES = "measurementprofiles.attested-kubernetes.dev"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_BOOTSTRAPPER = "system:node-bootstrapper"
_AUTO_APPROVAL = ("system:certificates.k8s.io:certificatesigningrequests:", "system:node-bootstrapper")


_DEPRECATED = re.compile(r"^apiserver_requested_deprecated_apis\{([^}\n]*)\} [1-9]", re.MULTILINE)
_LABEL = re.compile(r'([a-z_]+)="([^"\n]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The nodes (plain values, one per Node or identity), and the names of objects that must not exist."""

    nodes: tuple[dict[str, Any], ...]
    waiting: tuple[dict[str, Any], ...]
    pending_requests: tuple[str, ...]
    bootstrap_tokens: tuple[str, ...]
    auto_approval_bindings: tuple[str, ...]
    anonymous_bindings: tuple[str, ...]
    attempts: tuple[dict[str, Any], ...] = ()
    policy: dict[str, Any] = field(default_factory=dict)

    def as_result(self) -> dict[str, Any]:
        """Return plain values for a module's result."""
        return {
            "nodes": list(self.nodes),
            "waiting": list(self.waiting),
            "pending_requests": list(self.pending_requests),
            "bootstrap_tokens": list(self.bootstrap_tokens),
            "auto_approval_bindings": list(self.auto_approval_bindings),
            "anonymous_bindings": list(self.anonymous_bindings),
            "attempts": list(self.attempts),
            "policy": self.policy,
        }


def read_cluster(kubectl: Kubectl) -> ClusterView:
    """Read the cluster in two or three calls; raises KUBECTL_FAILED."""
    everything = kubectl.read(
        ("nodes", "certificatesigningrequests", "clusterrolebindings", "rolebindings", "customresourcedefinitions"),
        "--all-namespaces",
    )
    kinds = _by_kind(everything)
    known = {one["metadata"]["name"] for one in kinds.get("CustomResourceDefinition", ())}
    wanted = tuple(one for one in (_IDENTITIES, _POLICIES, _PROFILES, ATTEMPTS) if one in known)
    ours = _by_kind(kubectl.read(wanted)) if wanted else {}
    identities = ours.get("NodeIdentity", [])
    policies = [*ours.get("AttestationPolicy", ()), *ours.get(PROFILE_KIND, ())]
    tokens = kubectl.read(("secrets",), "--all-namespaces", "--field-selector=type=bootstrap.kubernetes.io/token")
    bindings = [*kinds.get("ClusterRoleBinding", ()), *kinds.get("RoleBinding", ())]
    return ClusterView(
        nodes=join_identities(kinds.get("Node", ()), identities, ours.get("JoinAttempt", ())),
        waiting=waiting_machines(identities),
        pending_requests=_names(one for one in kinds.get("CertificateSigningRequest", ()) if _is_pending(one)),
        bootstrap_tokens=_names(tokens),
        auto_approval_bindings=_names(one for one in bindings if _grants_certificates(one)),
        anonymous_bindings=_names(one for one in bindings if _names_anonymous(one)),
        attempts=tuple(list_attempts(ours.get("JoinAttempt", ()))),
        policy=_policy(policies, identities),
    )


def api_versions(kubectl: Kubectl) -> dict[str, str]:
    """Return the version of each API server by the name of its node, from the tag of its image.

    Raises KUBECTL_FAILED. An image without a tag has no row. The kubelet of a control plane may be older than its API
    server.
    """
    pods = kubectl.read(("pods",), "--namespace=kube-system", "--selector=component=kube-apiserver")
    images = {one["spec"].get("nodeName", ""): str(one["spec"]["containers"][0].get("image", "")) for one in pods}
    return {name: version for name, image in images.items() if (version := version_of_image(image))}


def deprecated_apis(kubectl: Kubectl, addresses: Iterable[str]) -> list[dict[str, str]]:
    """Return the deprecated APIs that clients have requested from these API servers since they started.

    Each row has the ``api`` and the release that no longer serves it (``removed``, empty if unknown). An API server
    that does not answer is left out.
    """
    found = set()
    for address in addresses:
        host, metrics = f"[{address}]" if ":" in address else address, ""
        with contextlib.suppress(KubeadmError):
            metrics = kubectl.raw("/metrics", server=f"https://{host}:{API_PORT}")
        for row in _DEPRECATED.findall(metrics):
            labels = dict(_LABEL.findall(row))
            group = "/".join(one for one in (labels.get("group"), labels.get("version")) if one)
            resource = "/".join(one for one in (labels.get("resource"), labels.get("subresource")) if one)
            found.add((f"{group} {resource}", labels.get("removed_release", "")))
    return [{"api": api, "removed": removed} for api, removed in sorted(found)]


def join_identities(
    nodes: Iterable[dict[str, Any]], identities: Iterable[dict[str, Any]], attempts: Iterable[Mapping[str, Any]] = ()
) -> tuple[dict[str, Any], ...]:
    """Return one row per node name, from its Node object and its identity; one of the two may be missing.

    A row also has the last refusal of its identity in ``attempts``, unless good evidence came later.
    """
    by_node = {one["metadata"]["name"]: one for one in nodes}
    decided = [one for one in identities if one["spec"]["admission"] != _PENDING]
    live_last = sorted(decided, key=lambda one: one["spec"]["admission"] != _REVOKED)
    by_identity = {one["spec"]["nodeName"]: one for one in live_last}
    refusals = {one["machine"]: one for one in reversed(list_attempts(attempts))}
    rows = (_row(name, by_node.get(name), by_identity.get(name)) for name in sorted({*by_node, *by_identity}))
    return tuple({**row, "refused": _standing_refusal(row, refusals)} for row in rows)


def _standing_refusal(row: Mapping[str, Any], refusals: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    found = refusals.get(row["identity"]) if row["identity"] else None
    if found is None or _moment(found["last_seen"]) < _moment(row["attested"]):
        return {}
    return {name: found[name] for name in ("reason", "message", "command", "count", "last_seen")}


def _moment(text: str) -> datetime:
    """Return a time of the API; an unreadable time counts as long ago."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _LONG_AGO
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def waiting_machines(identities: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the machines that wait for an admin, the oldest first."""
    found = [one for one in identities if one["spec"]["admission"] == _PENDING]
    found.sort(key=lambda one: one["metadata"].get("creationTimestamp", ""))
    return tuple(
        {
            "identity": one["metadata"]["name"],
            "claims": one["metadata"].get("annotations", {}).get(_CLAIM, ""),
            "since": one["metadata"].get("creationTimestamp", ""),
            "known_by": one["spec"].get("knownBy", ""),
        }
        for one in found
    )


def _row(name: str, node: dict[str, Any] | None, identity: dict[str, Any] | None) -> dict[str, Any]:
    status = (node or {}).get("status", {})
    ours = (identity or {}).get("status", {})
    spec = (identity or {}).get("spec", {})
    info = status.get("nodeInfo", {})
    conditions: dict[str, dict[str, Any]] = {one["type"]: one for one in status.get("conditions", ())}
    ready, standing = conditions.get("Ready", {}), conditions.get(CONDITION, {})
    labels = (node or {}).get("metadata", {}).get("labels", {})
    return {
        "name": name,
        "registered": node is not None,
        "ready": ready.get("status") == "True",
        "ready_message": "" if ready.get("status") == "True" else ready.get("message", ""),
        "role": spec.get("role") or ("control-plane" if _CONTROL_PLANE in labels else "worker"),
        "version": info.get("kubeletVersion", ""),
        "boot_id": info.get("bootID", ""),
        "internal_ip": next((one["address"] for one in status.get("addresses", ()) if one["type"] == "InternalIP"), ""),
        "pod_cidr": (node or {}).get("spec", {}).get("podCIDR", ""),
        "identity": (identity or {}).get("metadata", {}).get("name", ""),
        "admission": spec.get("admission", ""),
        "phase": ours.get("phase", ""),
        "profile": ours.get("lastAttestation", {}).get("profile", ""),
        "posture": ours.get("lastAttestation", {}).get("posture", ""),
        "attested": ours.get("lastAttestation", {}).get("time", ""),
        "standing": standing.get("reason", ""),
        "standing_status": standing.get("status", ""),
        "standing_message": standing.get("message", ""),
        "known_by": spec.get("knownBy", ""),
    }


def _policy(objects: Sequence[dict[str, Any]], identities: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a summary of the policy in force, empty if there is none. The signature is not verified."""
    profiles = [one for one in objects if one["kind"] == PROFILE_KIND]
    found = next((one for one in objects if one not in profiles and one["metadata"]["name"] == "cluster"), None)
    if found is None:
        return {}
    names = {
        one["spec"][field]: one["spec"].get("nodeName", "")
        for one in identities
        for field in ("ekSha256", "ekAliasSha256")
        if field in one["spec"]
    }
    spec, seen = found["spec"], found.get("status", {}).get("seenBy", {})
    counting = {one["name"] for one in (*spec["profiles"], *(one["profile"] for one in spec["exceptions"]))}
    return {
        "generation": spec["generation"],
        "profiles": [one["name"] for one in spec["profiles"]],
        "revoked": len(spec["revoked"]),
        "revocations_unsigned": sorted(
            one["spec"]["nodeName"]
            for one in identities
            if one["spec"]["admission"] == _REVOKED and one["spec"].get("ekSha256") not in spec["revoked"]
        ),
        "exceptions": [
            {
                "profile": one["profile"]["name"],
                "nodes": [names.get(ek, ek) for ek in one["machines"]],
                "until": one["expires"],
                "why": one["why"],
            }
            for one in spec["exceptions"]
        ],
        "seen_by": {name: report.get("generation", 0) for name, report in sorted(seen.items())},
        "unreadable": sorted({one for report in seen.values() for one in report.get("unreadable", ())}),
        "weaknesses": [text for one in profiles if one["metadata"]["name"] in counting for text in _weaknesses(one)],
    }


def _weaknesses(profile: dict[str, Any]) -> list[str]:
    """Return the weaknesses of a profile; empty for an unreadable profile, which the control planes report."""
    try:
        return [text for one in parse_objects([("profile", profile)]).profiles for text in weaknesses(one)]
    except PolicyError:
        return []


def _by_kind(items: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in items:
        kinds.setdefault(one["kind"], []).append(one)
    return kinds


def _names(items: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(one["metadata"]["name"] for one in items))


def _is_pending(request: dict[str, Any]) -> bool:
    return not request.get("status", {}).get("conditions")


def _grants_certificates(binding: dict[str, Any]) -> bool:
    """Return whether a binding approves certificates automatically, or lets a machine request one with a token."""
    role = str(binding["roleRef"]["name"])
    return role.startswith(_AUTO_APPROVAL) or role == _BOOTSTRAPPER


def _names_anonymous(binding: dict[str, Any]) -> bool:
    """Return whether a binding grants rights to anonymous users; the built-in view of version and health is ignored."""
    if binding["metadata"]["name"] == "system:public-info-viewer":
        return False
    names = {one["name"] for one in binding.get("subjects") or ()}
    return not names.isdisjoint({"system:anonymous", "system:unauthenticated"})


_LIMIT = 1 << 16
_CONFIGURATION = "admission-control-config-file"
_ARGUMENT = re.compile(r"^ *- --([a-z0-9-]+)=(.*)$", re.MULTILINE)


def run_objects(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Apply the manifests to the cluster; raises KUBECTL_FAILED."""
    kubectl = Kubectl.of_a_module(params["kubeconfig"])
    found = kubectl.apply(params["manifests"], field_manager=params["field_manager"], check_mode=check_mode)
    lines: tuple[str, ...] = ()
    if params["store_anew"] and Path(params["kubeconfig"]).exists():
        names = kubectl.definitions_in(params["manifests"])
        lines = CustomObjects(kubectl, clock=SystemClock()).store_anew(names, check_mode=check_mode)
    return Result(
        changed=found.changed or bool(lines),
        diff=Diff(before="", after=found.difference + "".join(f"{line}\n" for line in lines)),
    )


def run_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001
    """Read the cluster and the name of the key that encrypts new Secrets on this machine.

    Raises KUBECTL_FAILED.
    """
    kubectl = Kubectl.of_a_module(params["kubeconfig"])
    found = read_cluster(kubectl).as_result()
    apis = api_versions(kubectl)
    addresses = [row["internal_ip"] for row in found["nodes"] if row["name"] in apis and params["deprecated_apis"]]
    return Result(
        values={
            **found,
            "nodes": [{**row, "api_version": apis.get(row["name"], "")} for row in found["nodes"]],
            "deprecated_apis": deprecated_apis(kubectl, addresses),
            "secrets_written_with": written_with(KubernetesPaths()),
            "guards": guards(KubernetesPaths()),
        }
    )


def written_with(paths: KubernetesPaths) -> str:
    """Return the name of the key that encrypts new Secrets.

    The result is `CLEAR` without a file, and "" if the file is unusable. Raises nothing: a module that only reads the
    cluster must not fail for a file that an admin changed.
    """
    place = encryption_path(paths)
    try:
        return EncryptionFile.parse(read_bytes(place, limit=_LIMIT)).order[0] if place.exists() else CLEAR
    except AttestedError:
        return ""


def guards(paths: KubernetesPaths) -> dict[str, Any]:
    """Return the rules that this API server enforces on Pods, Services and kubelets, from its manifest.

    Raises nothing, as `written_with`. An admission configuration of another origin has the level "".
    """
    arguments, place = _arguments(paths), admission_path(paths)
    pods = PodSecurity(level="") if _CONFIGURATION in arguments else PodSecurity(level=PRIVILEGED)
    if arguments.get(_CONFIGURATION) == str(place):
        with contextlib.suppress(AttestedError, ValueError):
            pods = parse_admission(read_bytes(place, limit=_LIMIT))
    return {
        "pod_security": pods.level,
        "exempt_namespaces": list(pods.namespaces),
        "external_ips_denied": "DenyServiceExternalIPs" in arguments.get("enable-admission-plugins", "").split(","),
        "kubelets_checked": "kubelet-certificate-authority" in arguments,
    }


def _arguments(paths: KubernetesPaths) -> dict[str, str]:
    """Return the arguments of the API server, empty if there is no manifest."""
    try:
        manifest = read_bytes(paths.kubernetes / "manifests/kube-apiserver.yaml", limit=_LIMIT)
    except AttestedError:
        return {}
    return dict(_ARGUMENT.findall(manifest.decode("utf-8", "replace")))
