# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The allow-list of sources for a support bundle: paths, commands and kinds of objects. Nothing else is read.

A `Shape` selects the fields of a document: a mapping from field names to shapes, ``[shape]`` for each item of a list,
True for any value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Shape: TypeAlias = Union[bool, "Mapping[str, Shape]", "list[Shape]"]

KIB = 1024
_JOURNAL_LINES = 2000
_JOURNAL_BYTES = 512 * KIB


class Keep(Enum):
    """What is kept of a file: its text, the certificates in it, or no more than its size and SHA-256."""

    TEXT = "text"
    CERTIFICATES = "certificates"
    DIGEST = "digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """One regular file; ``shape`` is set for YAML and JSON, of which only the selected fields are kept."""

    name: str
    path: str
    keep: Keep = Keep.TEXT
    shape: Shape | None = None
    limit: int = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingSource:
    """Names, modes, sizes and times of the entries of one directory; no content."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSource:
    """The output of one command, at most its last ``limit`` bytes."""

    name: str
    argv: tuple[str, ...]
    limit: int = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSource:
    """All objects of a kind in the cluster, with the fields of ``shape``.

    ``about``: events of these kinds only.
    """

    name: str
    kind: str
    shape: Shape
    options: tuple[str, ...] = ()
    about: frozenset[str] = frozenset()
    limit: int = 2048 * KIB


Source: TypeAlias = FileSource | ListingSource | CommandSource | ObjectSource

LEFT_OUT = {
    "private keys and kubeconfigs": "they are secrets; of files with certificates only those are taken",
    "Secrets, Pods and ConfigMaps": "users keep secrets in them; of kubeadm-config ClusterConfiguration is taken",
    "environment and drop-ins of units": "they may hold secrets; only names of drop-ins are collected",
    "journals of other units, containerd among them": "they describe workloads",
    "logs and environment of containers": "they belong to the users",
    "audit logs of the API server": "they record what users did",
    "event logs and the kernel's command line": "size and digest only; verify shows their relevant content",
    ".secrets, group_vars and hosts.yml of the site": "they may hold passwords of connections",
}
"""What a bundle never contains, and why."""

UNITS = (
    "attested-bootstrapper.service",
    "attested-disk-health.service",
    "attested-disk-health.timer",
    "attested-figures.service",
    "attested-figures.timer",
    "attested-init-service.service",
    "attested-join-service.service",
    "attested-key-service.service",
    "attested-reattest.service",
    "attested-reattest.timer",
    "attested-recovery-service.service",
    "attested-unlock.service",
    "attested-verification-service.service",
    "attested-witness.service",
    "kubelet.service",
)
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts,ActiveEnterTimestamp,"
    "InactiveEnterTimestamp,ConditionResult,FragmentPath,DropInPaths,MemoryCurrent,TasksCurrent"
)

_META: Shape = {
    "name": True,
    "namespace": True,
    "uid": True,
    "labels": True,
    "creationTimestamp": True,
    "deletionTimestamp": True,
    "generation": True,
    "resourceVersion": True,
    "ownerReferences": True,
}
_WHOLE: Shape = {"apiVersion": True, "kind": True, "metadata": _META, "spec": True, "status": True}
_NODE: Shape = {
    "apiVersion": True,
    "kind": True,
    "metadata": _META,
    "spec": {"podCIDR": True, "podCIDRs": True, "taints": True, "unschedulable": True},
    "status": {"conditions": True, "nodeInfo": True, "addresses": True, "capacity": True, "allocatable": True},
}
_EVENT: Shape = {
    "metadata": {"name": True, "namespace": True, "creationTimestamp": True},
    "involvedObject": True,
    "reason": True,
    "message": True,
    "type": True,
    "count": True,
    "firstTimestamp": True,
    "lastTimestamp": True,
    "source": True,
}
_REQUEST: Shape = {
    "metadata": _META,
    "spec": {"signerName": True, "username": True, "usages": True, "expirationSeconds": True},
    "status": {"conditions": True},
}
_POD: Shape = {
    "apiVersion": True,
    "kind": True,
    "metadata": {"name": True, "namespace": True, "labels": True},
    "spec": {
        "containers": [{"name": True, "image": True, "command": True, "resources": True}],
        "hostNetwork": True,
        "priorityClassName": True,
    },
}
_KUBELET: Shape = dict.fromkeys(
    (
        *("apiVersion", "kind", "address", "authorization", "cgroupDriver", "clusterDNS", "clusterDomain"),
        *("containerRuntimeEndpoint", "evictionHard", "failCgroupV1", "featureGates", "healthzPort", "kubeReserved"),
        *("maxPods", "nodeStatusUpdateFrequency", "protectKernelDefaults", "readOnlyPort", "resolvConf"),
        *("rotateCertificates", "serverTLSBootstrap", "staticPodPath", "systemReserved", "tlsCipherSuites"),
        "tlsMinVersion",
    ),
    True,
)
_NODE_CONFIG: Shape = dict.fromkeys(
    ("version", "name", "cluster_name", "cluster_id", "endpoints", "join_ca", "tcti", "logs"), True
)
_SERVICES: Mapping[str, tuple[str, ...]] = {
    "bootstrapper": (
        *("node_ip", "role", "ignore_preflight_errors", "allow_cgroup_v1", "serve_init", "init_user", "inventory"),
        *("state_disk", "state_disk_erase", "state_disk_minimum_bytes", "recovery_after_seconds", "recovery_user"),
    ),
    "join-service": ("listen_address", "listen_port", "metrics_port"),
    "recovery-service": ("listen_address", "listen_port"),
    "key-service": (
        *("node_name", "api_server", "api_endpoint", "reattest_overdue_seconds", "join_user"),
        *("kubelet_serving", "metrics", "tcti", "unknown_machines"),
    ),
    "verification-service": ("listen_address", "listen_port", "questions_per_second", "question_burst"),
}
_CLUSTER = ("version", "cluster_id", "measurement_salt", "join_ca", "policy_key", "policy", "endpoints")
_JOURNAL: Shape = dict.fromkeys(
    ("version", "phase", "since", "disk_id", "kubernetes_version", "reason", "message", "next_try"), True
)
_CERTIFICATES = (
    "/etc/kubernetes/pki/apiserver.crt",
    "/etc/kubernetes/pki/ca.crt",
    "/etc/kubernetes/pki/etcd/ca.crt",
    "/etc/kubernetes/pki/etcd/peer.crt",
    "/etc/kubernetes/pki/etcd/server.crt",
    "/etc/kubernetes/pki/front-proxy-ca.crt",
    "/var/lib/kubelet/pki/kubelet-client-current.pem",
    "/var/lib/kubelet/pki/kubelet.crt",
)
_MANIFESTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_DIRECTORIES = (
    "/etc/attested",
    "/etc/kubernetes",
    "/etc/kubernetes/manifests",
    "/etc/kubernetes/pki",
    "/run/attested",
    "/var/lib/attested",
    "/var/lib/kubelet/pki",
)
_SYSTEM_FILES = (
    "/proc/cgroups",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/self/mounts",
    "/proc/swaps",
    "/proc/uptime",
    "/sys/fs/cgroup/cgroup.controllers",
    "/usr/lib/os-release",
)
_COMMANDS = {
    "addresses.json": ("ip", "-json", "address"),
    "attested.version": ("/opt/attested/venv/bin/attested", "--version"),
    "clock.txt": ("date", "--utc", "+%Y-%m-%dT%H:%M:%S.%NZ"),
    "containerd.version": ("containerd", "--version"),
    "disks.json": ("lsblk", "--json", "--output=NAME,TYPE,SIZE,FSTYPE,MOUNTPOINTS"),
    "file-systems.txt": ("df", "--block-size=1", "--output=source,fstype,size,used,avail,target"),
    "kernel.version": ("uname", "-srm"),
    "kubeadm.version": ("kubeadm", "version", "--output=short"),
    "kubelet.version": ("kubelet", "--version"),
    "listeners.txt": ("ss", "-ltnH"),
    "routes.json": ("ip", "-json", "route"),
}
OUR_KINDS = frozenset(
    {"AttestationPolicy", "ClusterRelease", "JoinAttempt", "MeasurementProfile", "Node", "NodeIdentity"}
)
_OBJECTS = (
    ObjectSource(name="attestationpolicies", kind="attestationpolicies.attested-kubernetes.dev", shape=_WHOLE),
    ObjectSource(name="clusterreleases", kind="clusterreleases.attested-kubernetes.dev", shape=_WHOLE),
    ObjectSource(name="joinattempts", kind="joinattempts.attested-kubernetes.dev", shape=_WHOLE),
    ObjectSource(name="measurementprofiles", kind="measurementprofiles.attested-kubernetes.dev", shape=_WHOLE),
    ObjectSource(name="nodeidentities", kind="nodeidentities.attested-kubernetes.dev", shape=_WHOLE),
    ObjectSource(name="nodes", kind="nodes", shape=_NODE),
    ObjectSource(name="leases", kind="leases.coordination.k8s.io", shape=_WHOLE, options=("--all-namespaces",)),
    ObjectSource(name="events", kind="events", shape=_EVENT, options=("--all-namespaces",), about=OUR_KINDS),
    ObjectSource(name="certificaterequests", kind="certificatesigningrequests", shape=_REQUEST),
    ObjectSource(
        name="kubeadm-config",
        kind="configmaps",
        shape={"metadata": _META, "data": {"ClusterConfiguration": True}},
        options=("--namespace=kube-system", "--field-selector=metadata.name=kubeadm-config"),
    ),
)


def node_sources(*, firmware_log: str, userspace_log: str) -> tuple[Source, ...]:
    """Return the sources of a machine."""
    logs = {"eventlog.bin": firmware_log, "userspace.json": userspace_log, "cmdline": "/proc/cmdline"}
    digests = {
        **logs,
        "kubeadm-flags.env": "/var/lib/kubelet/kubeadm-flags.env",
        "containerd": "/etc/containerd/config.toml",
    }
    return (
        *(CommandSource(name=f"system/{name}", argv=argv) for name, argv in _COMMANDS.items()),
        *(FileSource(name=f"system{path}", path=path) for path in _SYSTEM_FILES),
        *(FileSource(name=f"digests/{name}", path=path, keep=Keep.DIGEST) for name, path in digests.items()),
        CommandSource(name="units.txt", argv=("systemctl", "show", f"--property={_PROPERTIES}", *UNITS)),
        *(CommandSource(name=f"journals/{unit}.log", argv=_journal(unit), limit=_JOURNAL_BYTES) for unit in UNITS),
        *_configuration(),
        *(FileSource(name=f"certificates{path}", path=path, keep=Keep.CERTIFICATES) for path in _CERTIFICATES),
        *(ListingSource(name=f"listings{path}.txt", path=path) for path in _DIRECTORIES),
        *_OBJECTS,
    )


def site_sources(site: Path, policy_directory: Path) -> tuple[Source, ...]:
    """Return the sources of the site on the admin's side: only files that belong to its repository."""
    identities = sorted(site.glob("host_vars/*/identity.yml"))
    policies = sorted(policy_directory.glob("*.y*ml"))
    fields: Shape = dict.fromkeys(
        ("attested_ek", "attested_ek_aliases", "attested_ek_known_by", "attested_ek_replaced"), True
    )
    public: Shape = dict.fromkeys(_CLUSTER, True)
    return (
        FileSource(name="cluster.yml", path=str(site / "cluster.yml"), shape=public),
        *(FileSource(name=f"host_vars/{one.parent.name}.yml", path=str(one), shape=fields) for one in identities),
        *(FileSource(name=f"policy/{one.name}", path=str(one), shape=_WHOLE, limit=1024 * KIB) for one in policies),
    )


def _configuration() -> tuple[Source, ...]:
    def fields(names: tuple[str, ...]) -> Shape:
        return dict.fromkeys(names, True)

    kubeadm = ("version", "operation", "config_sha256", "done")
    return (
        FileSource(name="configuration/node.yml", path="/etc/attested/node.yml", shape=_NODE_CONFIG),
        *(
            FileSource(name=f"configuration/{name}.yml", path=f"/etc/attested/{name}.yml", shape=fields(names))
            for name, names in _SERVICES.items()
        ),
        FileSource(name="configuration/kubelet.yml", path="/var/lib/kubelet/config.yaml", shape=_KUBELET),
        *(
            FileSource(name=f"configuration/{name}.yml", path=f"/etc/kubernetes/manifests/{name}.yaml", shape=_POD)
            for name in _MANIFESTS
        ),
        FileSource(name="phases/node.json", path="/var/lib/attested/node.json", shape=_JOURNAL),
        FileSource(name="phases/kubeadm.json", path="/var/lib/attested/kubeadm/progress.json", shape=fields(kubeadm)),
    )


def _journal(unit: str) -> tuple[str, ...]:
    plain = ("--output=short-iso", "--no-pager", "--quiet")
    return ("journalctl", f"--unit={unit}", f"--lines={_JOURNAL_LINES}", *plain)
