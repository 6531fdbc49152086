# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `kubeadm_cluster`: the first control plane by ``kubeadm init``, phase by phase, without a token."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.documents import load_documents
from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..core.host import SystemClock, SystemRandom
from ..errors import KubeadmError
from ..reasons import Reason
from ..result import Diff, Result
from .admin import issue_admin_certificate
from .api import Health, LocalHealth, wait_ready
from .encryption import make_encryption, observe_encryption, plan_encryption
from .files import write_api_server_files
from .gateway import installed_version
from .operation import Machine, Operation
from .phases import INIT_PHASES, Executor, Phase
from .render import AUDIT_WEBHOOK_ARGUMENT, audit_webhook_path, documents, ignored_checks, render_init
from .spec import ClusterSpec, KubernetesPaths, NodeSpec, PodSecurity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..core.host import Random
    from ..result import Step
    from .operation import Plan


# Static pods by digest: kubeadm writes tags, and its patches replace them with the digests of the bundle.
#
# A tag can name another image at the next restart, a digest cannot. In a reference with a digest, only kubeadm's
# upgrades use the tag: they read the running version from it.

STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

_WEBHOOK_PATCH = "kube-apiserver-audit+json.json"
_LIMIT = 1 << 16
_REFERENCE = re.compile(r"[a-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9._-]+)+:[A-Za-z0-9._-]{1,128}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pinned(node: NodeSpec, paths: KubernetesPaths) -> NodeSpec:
    """Return the node with patches for image digests if the machine has digests.

    Raises IMAGE_PINS_MALFORMED.
    """
    return dataclasses.replace(node, patches=str(patches_directory(paths))) if read_pins(paths) else node


def write_patches(paths: KubernetesPaths) -> None:
    """Write the patches that kubeadm applies to the manifests of static pods.

    That of the audit webhook exists only if this control plane has one. It is no argument of kubeadm's configuration,
    because the API server of a control plane without the file would not start with it.
    """
    directory, webhook = patches_directory(paths), audit_webhook_path(paths)
    patches = render_patches(read_pins(paths))
    if webhook.exists():
        value = f"--{AUDIT_WEBHOOK_ARGUMENT}={webhook}"
        patches[_WEBHOOK_PATCH] = json.dumps(
            [{"op": "add", "path": "/spec/containers/0/command/-", "value": value}]
        ).encode()
    else:
        remove(directory / _WEBHOOK_PATCH)
    for name, content in patches.items():
        make_directory(directory, mode=0o700)
        write_atomic(directory / name, content)


def read_pins(paths: KubernetesPaths) -> dict[str, str]:
    """Return the image of each static pod as repository:tag@digest.

    The result is empty on a machine that was prepared without digests.
    """
    place = paths.image_pins
    return parse_pins(read_bytes(place, limit=_LIMIT)) if place.exists() else {}


def parse_pins(content: bytes) -> dict[str, str]:
    """Parse the images of a bundle (a list of component, reference, digest). Pure.

    Raises IMAGE_PINS_MALFORMED.
    """
    try:
        (images,) = load_documents(content.decode("utf-8"))
        known = {image["component"]: _pin(image) for image in images if image["component"] in STATIC_PODS}
        return {name: known[name] for name in STATIC_PODS}
    except (ValueError, KeyError, TypeError) as error:
        raise KubeadmError(
            f"expected the images of {', '.join(STATIC_PODS)} with reference and digest, found something else",
            reason=Reason.IMAGE_PINS_MALFORMED,
        ) from error


def render_patches(pins: Mapping[str, str]) -> dict[str, bytes]:
    """Return kubeadm's patches by file name, one strategic merge patch for each static pod. Pure."""
    return {f"{name}+strategic.json": _patch(name, image) for name, image in pins.items()}


def _patch(name: str, image: str) -> bytes:
    return documents({"spec": {"containers": [{"name": name, "image": image}]}})


def _pin(image: Mapping[str, Any]) -> str:
    reference, digest = _REFERENCE.fullmatch(image["reference"]), _DIGEST.fullmatch(image["digest"])
    if reference is None or digest is None:
        raise ValueError(json.dumps(image))
    return f"{reference[0]}@{digest[0]}"


def patches_directory(paths: KubernetesPaths) -> Path:
    """Return the directory of kubeadm's patches."""
    return paths.state / "patches"


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOutcome:
    """The completed steps, and whether the control plane is complete now."""

    steps: tuple[Step, ...]
    complete: bool


class ControlPlane:
    """A machine that is or becomes the first control plane."""

    def __init__(
        self,
        cluster: ClusterSpec,
        node: NodeSpec,
        machine: Machine,
        *,
        health: Health | None = None,
        random: Random | None = None,
    ) -> None:
        """Render the configuration; raises OPTION_INVALID and IMAGE_PINS_MALFORMED."""
        self._machine = machine
        self._pods = cluster.pod_security
        self._random = random or SystemRandom()
        self._health = health or LocalHealth(ca=machine.paths.ca, address=node.node_ip)
        self._operation = Operation(
            machine,
            name="init",
            table=_phases(cluster),
            config=render_init(cluster, pinned(node, machine.paths), paths=machine.paths),
            ignored=ignored_checks(node),
            wait_ready=self.wait_ready,
        )

    def plan(self) -> Plan:
        """Return the plan; raises also ENCRYPTION_MALFORMED and ENCRYPTION_KEY_LOST."""
        plan_encryption(observe_encryption(self._machine.paths))
        return self._operation.plan()

    @property
    def is_in_clear(self) -> bool:
        """Whether the API server has no encryption file: the cluster is older than that feature."""
        return observe_encryption(self._machine.paths).is_in_clear

    def apply(self, todo: Plan, *, until: str | None = None) -> InitOutcome:
        """Run ``todo`` up to phase ``until``, and wait for the API server if nothing is left to do."""
        if todo.phases:
            self._operation.require_lock()
            write_api_server_files(self._machine.paths, self._pods)
            write_patches(self._machine.paths)
            make_encryption(self._machine.paths, random=self._random)
        steps = self._operation.apply(todo, until=until)
        left = self._operation.plan()
        if todo and not left:
            self.wait_ready()
        return InitOutcome(steps=steps, complete=not left.phases)

    def wait_ready(self) -> None:
        """Wait until the API server of this machine is ready; raises API_UNREACHABLE."""
        wait_ready(self._health, clock=self._machine.clock)


def _phases(cluster: ClusterSpec) -> tuple[Phase, ...]:
    """Return the phases of this cluster. Without kube-proxy, its phase stays in the list and does nothing.

    kubeadm's own phase, run alone, installs kube-proxy whatever the configuration says.
    """
    if cluster.kube_proxy:
        return INIT_PHASES
    return tuple(
        replace(one, title="Leave out kube-proxy", executor=Executor.LEFTOVERS) if one.name == "kube-proxy" else one
        for one in INIT_PHASES
    )


# The module kubeadm_cluster.

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


def node_spec(params: Mapping[str, Any]) -> NodeSpec:
    """Return the node that a module's options describe."""
    return NodeSpec(
        name=params["node_name"],
        node_ip=params["node_ip"],
        second_node_ip=params["second_node_ip"],
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
