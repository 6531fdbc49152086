# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of releases, and the pinned sources of the role, which say the same."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.bundle import PARTS
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import published_upstreams
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import (
    SOURCES,
    linker_flags,
    load_table,
    module_directory,
    source_for,
    version_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError

ROOT = Path(__file__).parents[5]
ROLE = ROOT / "roles/bundle_builder"
RELEASES = ROLE / "files/releases"
MODULES = ROLE / "files/go"
TABLE = load_table(RELEASES)
DEFAULTS = [TABLE.release_for(minor) for minor in TABLE.defaults]
BUILT = [source for source in SOURCES if source.package]
RELEASE = TABLE.release_for("1.35")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RELEASES, tmp_path / "releases"))


def replaced(directory: Path, name: str, old: str, new: str) -> Path:
    text = (directory / name).read_text()
    assert old in text
    (directory / name).write_text(text.replace(old, new, 1))
    return directory


@pytest.mark.parametrize("release", DEFAULTS, ids=lambda release: release.kubernetes)
@pytest.mark.parametrize("source", [s for s in BUILT if s.module != "pause"], ids=lambda source: source.name)
def test_each_program_is_pinned_in_its_module(source, release):
    text = (MODULES / module_directory(source, release) / "go.mod").read_text()
    module = re.sub(r"/cmd/.*|/plugins/(main|meta|ipam)/.*", "", source.package)
    if module.startswith("attested.invalid/"):  # our own program, of the packages of the module
        module = TABLE.components[source.module].module

    assert re.search(rf"\s{re.escape(module)} v{re.escape(version_of(source, release))}( |$)", text, re.MULTILINE)


def test_every_pinned_module_belongs_to_a_default_release():
    """A directory that no release names is shipped for nothing."""
    assert {path.name for path in MODULES.iterdir()} == {module_directory(s, r) for s in BUILT for r in DEFAULTS}


def test_the_table_has_three_minors_with_several_patches_each():
    assert TABLE.defaults == {"1.35": "1.35.4", "1.36": "1.36.3", "1.37": "1.37.2"}
    assert Counter(release.minor for release in TABLE.releases.values()) == {"1.35": 9, "1.36": 5, "1.37": 3}


@pytest.mark.parametrize(
    ("version", "etcd", "coredns", "pause"),
    [
        ("1.35.4", "3.6.6", "1.13.1", "3.10.1"),
        ("1.36.3", "3.6.8", "1.14.2", "3.10.2"),
        ("1.37.2", "3.7.0", "1.14.6", "3.10.2"),
    ],
)
def test_what_kubeadm_of_a_minor_wants(version, etcd, coredns, pause):
    """The constants of kubeadm: DefaultEtcdVersion, CoreDNSVersion and PauseVersion."""
    release = TABLE.release_for(version)

    assert (release.etcd, release.coredns, release.pause) == (etcd, coredns, pause)


def test_a_published_hash_is_in_the_table_and_an_unknown_one_is_not():
    assert TABLE.release_for("1.35.4").hashes["kubelet"]["amd64"].startswith("983a6ba5a49823dc")
    assert TABLE.release_for("1.35.4").hashes["etcd"].keys() == {"amd64", "arm64"}
    assert TABLE.release_for("1.37.2").hashes["kubelet"] == {}


@pytest.mark.parametrize("component", TABLE.components.values(), ids=lambda component: component.name)
def test_each_component_is_published_somewhere(component):
    assert component.module
    assert component.url or component.image
    assert bool(component.url) == bool(component.checksums)
    assert "{version}" in (component.url or component.image)
    assert not component.url or "{arch}" in component.url


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        pytest.param("1.36.yml", "default: 1.36.3", "default: 1.36.9", "default", id="a default that is no patch"),
        pytest.param("1.36.yml", "  1.36.4:", "  1.35.4:", "patches of 1.36", id="a patch of another minor"),
        pytest.param("1.36.yml", "amd64: cf9cfe", "amd64: CF9CFE", "sha256 of etcd", id="a hash in capitals"),
        pytest.param(
            "1.36.yml", "sha256: pinned at first fetch", "sha256: later", "sha256 of coredns", id="another mark"
        ),
        pytest.param("1.36.yml", "  pause:", "  paws:", "row for each component", id="an unknown component"),
        pytest.param("1.36.yml", "    version: 3.6.8", "    version: 3.6", "version of etcd", id="a version cut short"),
        pytest.param("1.36.yml", "patches:", "patch:", "mapping patches", id="no patches"),
        pytest.param("1.36.yml", "default:", "- default:", "one YAML document", id="no YAML"),
        pytest.param("components.yml", "    module: helm.sh", "    modul: helm.sh", "of helm", id="an unknown field"),
    ],
)
def test_a_damaged_table_is_refused(directory, name, old, new, expected):
    with pytest.raises(ComponentError, match=re.escape(expected)) as caught:
        load_table(replaced(directory, name, old, new))

    assert caught.value.code == "RELEASE_TABLE_MALFORMED"
    assert name in caught.value.message


def test_an_unknown_patch_is_refused_with_the_known_ones():
    with pytest.raises(ComponentError, match=r"1\.36\.4, 1\.36\.3") as caught:
        TABLE.release_for("1.36.77")

    assert caught.value.code == "RELEASE_UNKNOWN"


def test_every_wheel_of_a_node_is_admitted_by_its_hash():
    for name in ("requirements-node.txt", "requirements-control-plane.txt"):
        text = (ROLE / "files/python" / name).read_text().replace(" \\\n   ", "")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


def test_wheels_with_machine_code_are_admitted_for_every_python_and_architecture():
    """Of cffi and PyYAML there is a wheel for each of four minors of Python on two architectures."""
    text = (ROLE / "files/python/requirements-node.txt").read_text()
    for name in ("cffi", "pyyaml", "markupsafe", "grpcio"):
        (found,) = re.findall(rf"^{name}==.*\n((?:    --hash=\S+.*\n)+)", text, re.MULTILINE)
        assert found.count("--hash=") == 8


def test_the_module_offers_exactly_the_parts_that_exist():
    text = (ROOT / "plugins/modules/component_bundle.py").read_text()
    listed = re.search(r"  part:.*?choices:\n((?:      - \S+\n)+)", text, re.DOTALL)

    assert listed is not None
    assert tuple(re.findall(r"- (\S+)", listed.group(1))) == PARTS


def test_kubernetes_programs_are_told_their_version():
    assert "gitVersion=v1.35.4" in linker_flags(source_for("kubelet"), RELEASE)
    assert "gitMinor=35" in linker_flags(source_for("kubelet"), RELEASE)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("containerd", "containerd/v2/version.Version=v2.3.4"),
        ("cni-bridge", "plugins/pkg/utils/buildversion.BuildVersion=v1.8.0"),
        ("crictl", "cri-tools/pkg/version.Version=v1.36.0"),
        ("helm", "helm/v4/internal/version.version=v4.3.1"),
    ],
)
def test_a_program_is_told_the_version_that_it_reports(name, variable):
    assert linker_flags(source_for(name), RELEASE).endswith(f"/{variable}")


def test_each_archive_is_opened_where_its_publisher_puts_the_program():
    release = replace(
        TABLE.release_for("1.36"),
        hashes={name: {"arm64": "a" * 64} for name in ("containerd", "etcd", "helm", "runc", "crictl")},
    )
    found = published_upstreams(TABLE, release, "arm64")

    assert {name: one.member for name, one in found.items()} == {
        "containerd": "bin/containerd",
        "containerd-shim-runc-v2": "bin/containerd-shim-runc-v2",
        "ctr": "bin/ctr",
        "etcd": "etcd-v3.6.8-linux-arm64/etcd",
        "etcdctl": "etcd-v3.6.8-linux-arm64/etcdctl",
        "etcdutl": "etcd-v3.6.8-linux-arm64/etcdutl",
        "crictl": "crictl",
        "helm": "linux-arm64/helm",
        "runc": "",
    }


def test_the_cni_plugins_lie_at_the_top_of_their_archive():
    release = replace(TABLE.release_for("1.36"), hashes={"cni-plugins": {"arm64": "a" * 64}})
    found = published_upstreams(TABLE, release, "arm64")

    assert len(found) == 18
    assert all(
        one.extract == "tar" and one.urls[0].endswith("/cni-plugins-linux-arm64-v1.9.1.tgz") for one in found.values()
    )
    assert {one.member for one in found.values()} == {name.removeprefix("cni-") for name in found}
    assert {source_for(name).install_path for name in found} == {
        f"/usr/local/libexec/cni/{one.member}" for one in found.values()
    }
