# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of releases: the components of each Kubernetes version, their download URLs and hashes.

The table has one file for each minor version and one for all components, in the directory `releases` of the role
`bundle_builder` (docs/adr/0069). The Go modules of built programs are pinned by hash in its directory `go`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_document
from ..core.files import read_bytes
from ..errors import ComponentError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

TOUR = "1"
FIRST_FETCH = "pinned at first fetch"
"""The value for a hash that the publisher does not provide."""
ARCHITECTURES = ("amd64", "arm64")
COMPONENTS_FILE = "components.yml"

CNI_PLUGINS = "/usr/local/libexec/cni"
"""The directory of the CNI plugins of a release."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATCH = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """How one component is published: Go module, patterns of URL, checksum file and image.

    A pattern is empty if there is no such file. ``folder``: directory in the archive, default: its name.
    """

    name: str
    module: str
    url: str = ""
    checksums: str = ""
    image: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One Kubernetes version and the versions of its components.

    ``hashes`` has SHA-256 (hex) by component and architecture; the row of a hash at `FIRST_FETCH` is empty.
    """

    kubernetes: str
    versions: Mapping[str, str]
    hashes: Mapping[str, Mapping[str, str]]

    @property
    def minor(self) -> str:
        """The minor version, such as 1.35."""
        return self.kubernetes.rpartition(".")[0]

    @property
    def etcd(self) -> str:
        """The version of etcd."""
        return self.versions["etcd"]

    @property
    def coredns(self) -> str:
        """The version of CoreDNS."""
        return self.versions["coredns"]

    @property
    def pause(self) -> str:
        """The version of the pause image."""
        return self.versions["pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All releases by version, the default patch of each minor, and how the components are published."""

    components: Mapping[str, Component]
    defaults: Mapping[str, str]
    releases: Mapping[str, Release]

    def release_for(self, version: str) -> Release:
        """Return the release of exactly this version, or the default one of a minor (1.35); raises RELEASE_UNKNOWN."""
        release = self.releases.get(self.defaults.get(version, version))
        if release is None:
            known = ", ".join(f"{minor} ({default})" for minor, default in self.defaults.items())
            patches = [one for one in self.releases if one.startswith(".".join(version.split(".")[:2]) + ".")]
            raise ComponentError(
                f"expected a Kubernetes version of the table ({known}), got {version!r}"
                + (f"; patches of this minor: {', '.join(patches)}" if patches else ""),
                reason=Reason.RELEASE_UNKNOWN,
            )
        return release


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One program: its Go module directory, its package, and its path on a node.

    ``package`` is empty for a program that is only downloaded, ``install_path`` for a program that is only in an
    image. ``control_plane_only``: workers do not need it. ``network_plugin``: only bundles with this network plugin
    have it.
    """

    name: str
    module: str
    package: str = ""
    install_path: str = ""
    control_plane_only: bool = False
    network_plugin: str = ""


_CNI_MODULE = "cni-plugins"
_CNI_PACKAGES = (
    *("main/bridge", "main/dummy", "main/host-device", "main/ipvlan", "main/loopback", "main/macvlan", "main/ptp"),
    *("main/tap", "main/vlan", "ipam/dhcp", "ipam/host-local", "ipam/static"),
    *("meta/bandwidth", "meta/firewall", "meta/portmap", "meta/sbr", "meta/tuning", "meta/vrf"),
)
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
    Source(
        name="helm",
        module="helm",
        package="helm.sh/helm/v4/cmd/helm",
        install_path="/usr/local/bin/helm",
        control_plane_only=True,
    ),
    Source(
        name="containerd",
        module="containerd",
        package="github.com/containerd/containerd/v2/cmd/containerd",
        install_path="/usr/local/bin/containerd",
    ),
    Source(
        name="containerd-shim-runc-v2",
        module="containerd",
        package="github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        install_path="/usr/local/bin/containerd-shim-runc-v2",
    ),
    Source(
        name="ctr",
        module="containerd",
        package="github.com/containerd/containerd/v2/cmd/ctr",
        install_path="/usr/local/bin/ctr",
    ),
    Source(name="runc", module="runc", install_path="/usr/local/bin/runc"),
    *(
        Source(
            name=f"cni-{package.rpartition('/')[2]}",
            module=_CNI_MODULE,
            package=f"github.com/containernetworking/plugins/plugins/{package}",
            install_path=f"{CNI_PLUGINS}/{package.rpartition('/')[2]}",
        )
        for package in _CNI_PACKAGES
    ),
    Source(
        name="crictl",
        module="crictl",
        package="sigs.k8s.io/cri-tools/cmd/crictl",
        install_path="/usr/local/bin/crictl",
    ),
    Source(name="pause", module="pause", package="attested.invalid/pause"),
    Source(name="flannel", module="flannel", package="attested.invalid/flannel", network_plugin="flannel"),
)


_VERSION_VARIABLES = {
    "helm": "helm.sh/helm/v4/internal/version.version",
    "containerd": "github.com/containerd/containerd/v2/version.Version",
    _CNI_MODULE: "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
    "crictl": "sigs.k8s.io/cri-tools/pkg/version.Version",
}
"""The Go variable with the version of a program, by module."""


def load_table(directory: Path) -> Table:
    """Return the table in ``directory``; raises RELEASE_TABLE_MALFORMED."""
    shared = _read(directory / COMPONENTS_FILE)
    groups = [_mapping(shared, group, directory / COMPONENTS_FILE) for group in ("kubernetes", "components")]
    components = {name: _component(name, row, directory) for group in groups for name, row in group.items()}
    defaults: dict[str, str] = {}
    releases: dict[str, Release] = {}
    for path in sorted(directory.glob("1.*.yml"), key=lambda path: version_key(path.stem)):
        found = _releases_of(path, components)
        default = _read(path).get("default")
        if default not in found:
            raise _malformed(path, f"one of its patches as default, got {default!r}")
        defaults[path.stem] = default
        releases |= found
    return Table(components=components, defaults=defaults, releases=releases)


def is_version(text: str) -> bool:
    """Return whether ``text`` is an exact version, such as 1.35.4."""
    return _PATCH.fullmatch(text) is not None


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a version of digits and dots."""
    return tuple(int(number) for number in version.split("."))


def _releases_of(path: Path, components: Mapping[str, Component]) -> dict[str, Release]:
    """Return the releases in the file of one minor, in file order."""
    document = _read(path)
    shared = _mapping(document, "components", path)
    versions = {name: _version(row, path, name) for name, row in shared.items()}
    hashes = {name: _hashes(row.get("sha256", FIRST_FETCH), path, name) for name, row in shared.items()}
    releases = {}
    for version, rows in _mapping(document, "patches", path).items():
        if not (is_version(version) and version.startswith(f"{path.stem}.") and isinstance(rows, dict)):
            raise _malformed(path, f"patches of {path.stem}, got {version}")
        own = {name: _hashes(value, path, f"{name} {version}") for name, value in rows.items()}
        releases[version] = Release(
            kubernetes=version,
            versions={**versions, **dict.fromkeys(own, version)},
            hashes={**hashes, **own},
        )
        if (named := set(releases[version].versions)) != set(components):
            raise _malformed(path, f"a row for each component, differs for {sorted(named ^ set(components))}")
    return releases


def _version(row: object, path: Path, name: str) -> str:
    version = str(row.get("version")) if isinstance(row, dict) else ""
    if not is_version(version):
        raise _malformed(path, f"a version of {name} such as 1.2.3, got {row!r}")
    return version


def _hashes(value: object, path: Path, name: str) -> Mapping[str, str]:
    """Return the hashes of one row, none if its value is `FIRST_FETCH`."""
    if value == FIRST_FETCH:
        return {}
    if (
        isinstance(value, dict)
        and set(value) == set(ARCHITECTURES)
        and all(_SHA256.fullmatch(str(one)) for one in value.values())
    ):
        return value
    raise _malformed(path, f"sha256 of {name} for {' and '.join(ARCHITECTURES)}, or {FIRST_FETCH!r}, got {value!r}")


def _component(name: str, row: object, directory: Path) -> Component:
    path = directory / COMPONENTS_FILE
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise _malformed(path, f"texts in the row of {name}, got {row!r}")
    try:
        return Component(name=name, **row)
    except TypeError as error:
        raise _malformed(path, f"module, url, checksums and image of {name}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document = load_document(read_bytes(path))
    except ValueError as error:
        raise _malformed(path, f"one YAML document: {error}") from error
    if not isinstance(document, dict):
        raise _malformed(path, "one mapping")
    return document


def _mapping(document: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    found = document.get(key)
    if not isinstance(found, dict):
        raise _malformed(path, f"a mapping {key}, got {found!r}")
    return found


def _malformed(path: Path, expected: str) -> ComponentError:
    return ComponentError(f"{path}: expected {expected}", reason=Reason.RELEASE_TABLE_MALFORMED)


def source_for(name: str) -> Source:
    """Return the program called ``name``; raises BUNDLE_INCOMPLETE."""
    for source in SOURCES:
        if source.name == name:
            return source
    known = ", ".join(source.name for source in SOURCES)
    raise ComponentError(f"expected one of {known}, got {name}", reason=Reason.BUNDLE_INCOMPLETE)


def require_part(part: str, brought: Collection[str]) -> None:
    """Raise BUNDLE_INCOMPLETE for a program that is neither built nor downloaded."""
    if part not in brought and any(one.name == part and not one.package for one in SOURCES):
        raise ComponentError(
            f"expected {part} as a download, it is not built",
            reason=Reason.BUNDLE_INCOMPLETE,
            hint=f"Set attested_component_download, or name {part} in attested_component_sources.",
        )


def version_of(source: Source, release: Release) -> str:
    """Return the version of one program within ``release``."""
    return release.versions[source.module] if source.module != "kubernetes" else release.kubernetes


def module_directory(source: Source, release: Release) -> str:
    """Return the directory with the pinned Go module of one program; that of pause is the same for every release."""
    return source.module if source.module == "pause" else f"{source.module}-{version_of(source, release)}"


def is_pinned(release: Release, modules: Path) -> bool:
    """Return whether ``modules`` has all pinned Go modules to build a bundle of ``release``."""
    built = (source for source in SOURCES if source.package)
    return all((modules / module_directory(source, release) / "go.mod").is_file() for source in built)


def require_pinned_sources(release: Release, modules: Path) -> None:
    """Raise RELEASE_UNKNOWN if this collection has no pinned Go modules for ``release``."""
    if not is_pinned(release, modules):
        pinned = ", ".join(sorted(path.name.partition("-")[2] for path in modules.glob("kubernetes-*")))
        raise ComponentError(
            f"expected a release whose Go modules are pinned by this collection ({pinned}), got {release.kubernetes}",
            reason=Reason.RELEASE_UNKNOWN,
        )


def linker_flags(source: Source, release: Release) -> str:
    """Return the flags of the Go linker: strip symbols, and set the version of the program."""
    if source.module == "pause":
        return f"-s -w -X main.version={release.pause}"
    if variable := _VERSION_VARIABLES.get(source.module):
        return f"-s -w -X {variable}=v{version_of(source, release)}"
    if source.module != "kubernetes":
        return "-s -w"
    major, minor, _patch = release.kubernetes.split(".")
    facts = {"gitVersion": f"v{release.kubernetes}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    package = "k8s.io/component-base/version"
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in facts.items())])
