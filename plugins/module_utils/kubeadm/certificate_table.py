# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates that kubeadm issues for a control plane: file, CA, and the component that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath as Posix

_KUBERNETES = Posix("etc/kubernetes")
_PKI = _KUBERNETES / "pki"
_CA = _PKI / "ca.crt"
_ETCD_CA = _PKI / "etcd/ca.crt"
_FRONT_PROXY_CA = _PKI / "front-proxy-ca.crt"

AUTHORITIES = {"ca": _CA, "etcd-ca": _ETCD_CA, "front-proxy-ca": _FRONT_PROXY_CA}
"""The CAs of a cluster by name: the file of each, relative to the root of the machine."""

NO_COMPONENT = "files"
"""Instead of a component: the clients of the file read it at each use, so no component is restarted."""

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"

ORDER = (NO_COMPONENT, ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
"""First the credentials that the renewal itself uses (kubectl, etcd health check), then etcd and its clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate: kubeadm's ``name`` for it, its file, its CA's file, and the static pod to restart.

    Paths are relative to the root of the machine. A file `*.conf` is a kubeconfig with embedded certificate and key.
    """

    name: str
    path: Posix
    authority: Posix
    component: str

    @property
    def files(self) -> tuple[Posix, ...]:
        """The files that the renewal of this certificate writes."""
        return (self.path,) if self.path.suffix == ".conf" else (self.path, self.path.with_suffix(".key"))


CERTIFICATES = (
    Certificate(name="admin.conf", path=_KUBERNETES / "admin.conf", authority=_CA, component=NO_COMPONENT),
    Certificate(name="apiserver", path=_PKI / "apiserver.crt", authority=_CA, component=API_SERVER),
    Certificate(
        name="apiserver-etcd-client",
        path=_PKI / "apiserver-etcd-client.crt",
        authority=_ETCD_CA,
        component=API_SERVER,
    ),
    Certificate(
        name="apiserver-kubelet-client",
        path=_PKI / "apiserver-kubelet-client.crt",
        authority=_CA,
        component=API_SERVER,
    ),
    Certificate(
        name="controller-manager.conf",
        path=_KUBERNETES / "controller-manager.conf",
        authority=_CA,
        component=CONTROLLER_MANAGER,
    ),
    Certificate(
        name="etcd-healthcheck-client",
        path=_PKI / "etcd/healthcheck-client.crt",
        authority=_ETCD_CA,
        component=NO_COMPONENT,
    ),
    Certificate(name="etcd-peer", path=_PKI / "etcd/peer.crt", authority=_ETCD_CA, component=ETCD),
    Certificate(name="etcd-server", path=_PKI / "etcd/server.crt", authority=_ETCD_CA, component=ETCD),
    Certificate(
        name="front-proxy-client",
        path=_PKI / "front-proxy-client.crt",
        authority=_FRONT_PROXY_CA,
        component=API_SERVER,
    ),
    Certificate(name="scheduler.conf", path=_KUBERNETES / "scheduler.conf", authority=_CA, component=SCHEDULER),
)
"""All certificates of ``kubeadm certs renew`` except super-admin.conf, which init removes and no renewal may create."""
