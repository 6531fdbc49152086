# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions table: what belongs to one Kubernetes minor, pinned.

Sources are pinned once more, by hash, in the `go.sum` files of the role `bundle_builder`; a test holds that
the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ComponentError
from ..reasons import Reason

PAUSE = "3.10.1"
TOUR = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The versions that are run together."""

    kubernetes: str
    etcd: str
    coredns: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One program: the Go module directory it is built in, its package, and where a node has it.

    ``install_path`` is empty for what is only part of an image; ``control_plane_only`` says who needs it.
    """

    name: str
    module: str
    package: str
    install_path: str = ""
    control_plane_only: bool = False


RELEASES = {
    "1.35": Release(kubernetes="1.35.4", etcd="3.6.6", coredns="1.13.1"),
}

SOURCES = (
    Source(
        name="etcd",
        module="etcd",
        package="go.etcd.io/etcd/server/v3",
        install_path="/usr/local/bin/etcd",
        control_plane_only=True,
    ),
    Source(name="kube-apiserver", module="kubernetes", package="k8s.io/kubernetes/cmd/kube-apiserver"),
    Source(
        name="kubectl",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kubectl",
        install_path="/usr/local/bin/kubectl",
        control_plane_only=True,
    ),
    Source(
        name="kube-controller-manager", module="kubernetes", package="k8s.io/kubernetes/cmd/kube-controller-manager"
    ),
    Source(
        name="kubeadm",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kubeadm",
        install_path="/usr/local/bin/kubeadm",
    ),
    Source(
        name="kubelet",
        module="kubernetes",
        package="k8s.io/kubernetes/cmd/kubelet",
        install_path="/usr/local/bin/kubelet",
    ),
    Source(name="kube-scheduler", module="kubernetes", package="k8s.io/kubernetes/cmd/kube-scheduler"),
    Source(name="kube-proxy", module="kubernetes", package="k8s.io/kubernetes/cmd/kube-proxy"),
    Source(
        name="etcdctl",
        module="etcd",
        package="go.etcd.io/etcd/etcdctl/v3",
        install_path="/usr/local/bin/etcdctl",
        control_plane_only=True,
    ),
    Source(
        name="etcdutl",
        module="etcd",
        package="go.etcd.io/etcd/etcdutl/v3",
        install_path="/usr/local/bin/etcdutl",
        control_plane_only=True,
    ),
    Source(name="coredns", module="coredns", package="github.com/coredns/coredns"),
    Source(name="pause", module="pause", package="attested.invalid/pause"),
)


def release_for(version: str) -> Release:
    """Return the release of a minor (``1.35``) or of exactly this patch; raises OPTION_INVALID."""
    release = RELEASES.get(".".join(version.split(".")[:2]))
    if release is None or version not in {release.kubernetes, release.kubernetes.rpartition(".")[0]}:
        known = ", ".join(f"{minor} ({entry.kubernetes})" for minor, entry in sorted(RELEASES.items()))
        raise ComponentError(
            f"expected a Kubernetes version of the table ({known}), got {version}",
            reason=Reason.OPTION_INVALID,
        )
    return release


def source_for(name: str) -> Source:
    """Return the program called ``name``; raises BUNDLE_INCOMPLETE."""
    for source in SOURCES:
        if source.name == name:
            return source
    known = ", ".join(source.name for source in SOURCES)
    raise ComponentError(f"expected one of {known}, got {name}", reason=Reason.BUNDLE_INCOMPLETE)


def version_of(source: Source, release: Release) -> str:
    """Return the version of one program within ``release``."""
    return {"etcd": release.etcd, "coredns": release.coredns, "pause": PAUSE}.get(source.module, release.kubernetes)


def linker_flags(source: Source, release: Release) -> str:
    """Return what the Go linker is told: strip, and the version that Kubernetes programs print."""
    if source.module == "pause":
        return f"-s -w -X main.version={PAUSE}"
    if source.module != "kubernetes":
        return "-s -w"
    major, minor, _patch = release.kubernetes.split(".")
    facts = {"gitVersion": f"v{release.kubernetes}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    package = "k8s.io/component-base/version"
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in facts.items())])
