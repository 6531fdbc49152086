# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of kubeadm's phases in order: name, title, command, and the files of a complete phase."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath as Posix


class Executor(Enum):
    """What runs a phase."""

    KUBEADM = "kubeadm"
    CREDENTIAL = "credential"
    LEFTOVERS = "leftovers"
    READINESS = "readiness"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase. ``command`` are the words after ``kubeadm init phase`` or ``kubeadm join phase``.

    ``witnesses`` are files that the phase makes, ``absent`` are files that it removes, both relative to the root of the
    machine.
    """

    name: str
    title: str
    command: tuple[str, ...] = ()
    executor: Executor = Executor.KUBEADM
    witnesses: tuple[Posix, ...] = ()
    absent: tuple[Posix, ...] = field(default=())
    timeout_seconds: float = 120.0


_KUBERNETES = Posix("etc/kubernetes")
_PKI = _KUBERNETES / "pki"
_MANIFESTS = _KUBERNETES / "manifests"
_KUBELET = Posix("var/lib/kubelet")

INIT_PHASES = (
    Phase(name="preflight", title="Check the machine", command=("preflight",)),
    Phase(
        name="certs",
        title="Make the cluster's certificates",
        command=("certs", "all"),
        witnesses=(_PKI / "ca.crt", _PKI / "ca.key", _PKI / "sa.key", _PKI / "etcd/ca.crt", _PKI / "apiserver.crt"),
    ),
    Phase(
        name="kubeconfig",
        title="Make the control plane's kubeconfigs",
        command=("kubeconfig", "all"),
        # super-admin.conf is no witness, because the last phase removes it.
        witnesses=tuple(
            _KUBERNETES / name for name in ("admin.conf", "kubelet.conf", "controller-manager.conf", "scheduler.conf")
        ),
    ),
    Phase(
        name="kubelet-credential",
        title="Give the kubelet its own certificate file",
        executor=Executor.CREDENTIAL,
        witnesses=(_KUBELET / "pki/kubelet-client-current.pem",),
    ),
    Phase(name="etcd", title="Describe etcd", command=("etcd", "local"), witnesses=(_MANIFESTS / "etcd.yaml",)),
    Phase(
        name="control-plane",
        title="Describe the control plane",
        command=("control-plane", "all"),
        witnesses=tuple(_MANIFESTS / f"kube-{name}.yaml" for name in ("apiserver", "controller-manager", "scheduler")),
    ),
    Phase(
        name="kubelet-start",
        title="Start the kubelet",
        command=("kubelet-start",),
        witnesses=(_KUBELET / "config.yaml", _KUBELET / "kubeadm-flags.env"),
    ),
    # kubeadm's phase of this name reads no configuration when it runs alone, so this collection waits itself.
    Phase(name="wait-control-plane", title="Wait for the control plane", executor=Executor.READINESS),
    Phase(name="upload-config", title="Keep the configuration in the cluster", command=("upload-config", "all")),
    Phase(name="mark-control-plane", title="Mark the control plane", command=("mark-control-plane",)),
    Phase(name="kubelet-finalize", title="Finish the kubelet", command=("kubelet-finalize", "all")),
    Phase(name="coredns", title="Install CoreDNS", command=("addon", "coredns")),
    Phase(name="kube-proxy", title="Install kube-proxy", command=("addon", "kube-proxy")),
    Phase(
        name="super-admin",
        title="Remove the kubeconfig of system:masters",
        executor=Executor.LEFTOVERS,
        absent=(_KUBERNETES / "super-admin.conf",),
    ),
)
"""These phases of kubeadm are left out and never run: upload-certs, bootstrap-token, show-join-command."""

JOIN_PHASES = (
    Phase(name="preflight", title="Check the machine", command=("preflight",)),
    Phase(
        name="kubelet-start",
        title="Start the kubelet",
        command=("kubelet-start",),
        witnesses=(_KUBELET / "config.yaml", _KUBELET / "kubeadm-flags.env"),
        timeout_seconds=60.0,
    ),
    # kubeadm's phase kubelet-wait-bootstrap takes every node for a control plane when it runs alone (1.35). The wait
    # for the Node object of this boot replaces it.
    Phase(
        name="bootstrap-config",
        title="Remove the copy of the kubelet's credential",
        executor=Executor.LEFTOVERS,
        absent=(_KUBERNETES / "bootstrap-kubelet.conf",),
    ),
)

MEMBER_PHASES = (
    Phase(name="preflight", title="Check the machine", command=("preflight",), timeout_seconds=240.0),
    Phase(
        name="certs",
        title="Make this control plane's certificates",
        command=("control-plane-prepare", "certs"),
        witnesses=(_PKI / "apiserver.crt", _PKI / "apiserver-etcd-client.crt", _PKI / "etcd/peer.crt"),
    ),
    Phase(
        name="kubeconfig",
        title="Make the control plane's kubeconfigs",
        command=("control-plane-prepare", "kubeconfig"),
        witnesses=tuple(_KUBERNETES / name for name in ("admin.conf", "controller-manager.conf", "scheduler.conf")),
    ),
    Phase(
        name="control-plane",
        title="Describe the control plane",
        command=("control-plane-prepare", "control-plane"),
        witnesses=tuple(_MANIFESTS / f"kube-{name}.yaml" for name in ("apiserver", "controller-manager", "scheduler")),
    ),
    Phase(
        name="kubelet-start",
        title="Start the kubelet",
        command=("kubelet-start",),
        witnesses=(_KUBELET / "config.yaml", _KUBELET / "kubeadm-flags.env"),
    ),
    # The member starts as a learner: it copies the data before it gets a vote, and is promoted in the same phase.
    Phase(
        name="etcd-join",
        title="Become a member of etcd",
        command=("etcd-join",),
        witnesses=(_MANIFESTS / "etcd.yaml",),
        timeout_seconds=360.0,
    ),
    # kubeadm's phases wait-control-plane and kubelet-wait-bootstrap cannot run alone (1.35), so this collection waits.
    Phase(name="wait-control-plane", title="Wait for the control plane", executor=Executor.READINESS),
    Phase(
        name="mark-control-plane", title="Mark the control plane", command=("control-plane-join", "mark-control-plane")
    ),
    Phase(
        name="leftovers",
        title="Remove the copies of credentials",
        executor=Executor.LEFTOVERS,
        absent=(_KUBERNETES / "bootstrap-kubelet.conf", _KUBERNETES / "super-admin.conf"),
    ),
)
"""The phases of a further control plane. download-certs never runs, because no Secret holds keys of the cluster."""

STARTS_KUBELET = "kubelet-start"
"""A phase of each table. Later phases need the kubelet, which does not start at boot on an incomplete machine."""

SKIPPED_ON_REPEAT = ("preflight",)
"""Preflight checks an empty machine, so its result is meaningless on a partly complete machine."""
