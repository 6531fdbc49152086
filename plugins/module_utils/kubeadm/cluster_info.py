# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The implementation of the modules `kubeadm_cluster`, `cluster_objects` and `cluster_info`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock
from ..errors import AttestedError
from ..result import Diff, Result
from ..rotation.encryption_key import CLEAR
from .admin import issue_admin_certificate
from .cluster import ControlPlane, InitOutcome
from .custom_objects import CustomObjects
from .encryption_file import EncryptionFile
from .gateway import installed_version
from .inventory import api_versions, deprecated_apis, read_cluster
from .kubectl import Kubectl
from .operation import Machine
from .pod_security import PRIVILEGED, PodSecurity, parse_admission
from .render import admission_path, encryption_path
from .spec import ClusterSpec, KubernetesPaths, NodeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .operation import Plan

_LIMIT = 1 << 16
_CONFIGURATION = "admission-control-config-file"
_ARGUMENT = re.compile(r"^ *- --([a-z0-9-]+)=(.*)$", re.MULTILINE)
_DRIFT = (
    "The cluster was made with other options; init does not change a complete cluster "
    "(kubeadm changes these options only in an upgrade)."
)
_IN_CLEAR = (
    "Secrets of this cluster are not encrypted in etcd: the cluster was made before init encrypted them, and init does "
    "not change a running API server. The playbook rotate_encryption_key with -e confirm=identity encrypts them."
)


def run_cluster(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Make this machine the first control plane, completely or up to a phase; raises `KubeadmError`."""
    machine = _machine()
    version = installed_version(machine.runner, wanted=params["kubernetes_version"])
    spec = _cluster_spec({**params, "kubernetes_version": version})
    control_plane = ControlPlane(spec, node_spec(params), machine)
    todo = control_plane.plan()
    outcome = InitOutcome(steps=(), complete=not todo.phases)
    if todo and not check_mode:
        outcome = control_plane.apply(todo, until=params["until"])
    changed = _will_change(todo, params["until"]) if check_mode else bool(outcome.steps)
    return Result(
        changed=changed,
        values={
            "complete": outcome.complete,
            "kubernetes_version": version,
            "steps": [{**step.as_result(), "changed": True} for step in outcome.steps],
            **_credentials(params, machine, complete=outcome.complete),
        },
        diff=Diff(before="", after="".join(f"{phase.title}\n" for phase in todo.phases)),
        warnings=_warnings(todo, is_in_clear=control_plane.is_in_clear),
    )


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


def node_spec(params: Mapping[str, Any]) -> NodeSpec:
    """Return the node that a module's options describe."""
    return NodeSpec(
        name=params["node_name"],
        node_ip=params["node_ip"],
        cri_socket=params["cri_socket"],
        ignore_preflight_errors=tuple(params["ignore_preflight_errors"]),
        allow_cgroup_v1=params["allow_cgroup_v1"],
        api_proxy=params.get("api_proxy") or "",
    )


def _machine() -> Machine:
    return Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())


def _cluster_spec(params: Mapping[str, Any]) -> ClusterSpec:
    names = ("kubernetes_version", "cluster_name", "api_endpoint", "pod_subnet", "service_subnet", "dns_domain")
    return ClusterSpec(
        **{name: params[name] for name in names},
        extra_sans=tuple(params["extra_sans"]),
        unmanaged_conntrack=params["unmanaged_conntrack"],
        kube_proxy=params["kube_proxy"],
        kubelet_serving=params["kubelet_serving_certificates"],
        pod_security=PodSecurity(level=params["pod_security"], exempt=tuple(params["exempt_namespaces"])),
    )


def _will_change(todo: Plan, until: str | None) -> bool:
    return bool(todo) and (until is None or bool(todo.up_to(until)) or todo.start_kubelet)


def _warnings(todo: Plan, *, is_in_clear: bool) -> tuple[str, ...]:
    found = ((_DRIFT, todo.drifted), (_IN_CLEAR, is_in_clear and not todo.phases))
    return tuple(text for text, holds in found if holds)


def _credentials(params: Mapping[str, Any], machine: Machine, *, complete: bool) -> dict[str, Any]:
    """Return the cluster's CA and, if the options hold a request, the admin's certificate. None of it is secret."""
    if not complete:
        return {}
    found = {"cluster_ca": read_bytes(machine.paths.ca, limit=_LIMIT).decode("ascii")}
    request = params["admin_certificate_request"]
    if request:
        certificate = issue_admin_certificate(
            request.encode(), paths=machine.paths, clock=machine.clock, hours=params["admin_certificate_hours"]
        )
        found["admin_certificate"] = certificate.decode("ascii")
    return found
