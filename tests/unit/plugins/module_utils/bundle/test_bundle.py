# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making a bundle: from a cache, in a world where Go, mmdebstrap, pip and kubeadm are played by one fake."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.bundle import make_bundle, parts_with
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import NodeRole, Origin
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.releases import left_out
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import (
    PartCache,
    open_bundle,
    this_architecture,
    verify_blobs,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import SOURCES, load_table
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import Upstream

ROLE_FILES = Path(__file__).parents[5] / "roles/bundle_builder/files"
REFERENCES = """\
example.test/kube-apiserver:v1.35.4
example.test/kube-controller-manager:v1.35.4
example.test/kube-scheduler:v1.35.4
example.test/kube-proxy:v1.35.4
example.test/coredns/coredns:v1.13.1
example.test/pause:3.10.1
example.test/etcd:3.6.6-0
"""


CONTAINERD = {"containerd", "containerd-shim-runc-v2", "ctr", "containerd.service"}
CNI = {one.name for one in SOURCES if one.module == "cni-plugins"}

LATER = (
    REFERENCES.replace("1.35.4", "1.36.3")
    .replace("1.13.1", "1.14.2")
    .replace("3.10.1", "3.10.2")
    .replace("3.6.6", "3.6.8")
)


@dataclass
class FakeTools:
    """Does what the tools would leave behind, with contents that follow from what was asked."""

    fails: str = ""
    go: str = "go version go1.26.8 linux/amd64"
    references: str = REFERENCES
    started: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        words = list(argv)
        name = next(word for word in words if word not in {"nice", "-n", "5"}).rpartition("/")[2]
        what = f"{name} {' '.join(words)}"
        self.started.append(what)
        if self.fails and self.fails in what:
            raise SystemFault("expected it to succeed: it did not", reason=Reason.COMMAND_FAILED)
        said = ""
        if words[-1] == "version":
            said = self.go
        elif "build" in words:
            Path(words[words.index("-o") + 1]).write_bytes(f"program {words[-1]}".encode())
        elif name == "mmdebstrap":
            with tarfile.open(words[-1], "w"):
                pass
        elif name == "zstd":
            Path(words[-1]).write_bytes(b"zstd:" + Path(words[-3]).read_bytes())
        elif "images" in words:
            said = LATER if words[-1] == "v1.36.3" else self.references
        elif "download" in words:
            place = Path(words[words.index("--dest") + 1])
            place.mkdir(parents=True)
            stem = "kubernetes-37.0" if "control" in place.name else "pip-25.3"
            (place / f"{stem}-py3-none-any.whl").write_bytes(stem.encode())
        elif "wheel" in words:
            place = Path(words[words.index("--wheel-dir") + 1])
            (place / "attested_kubernetes-0.1.0-py3-none-any.whl").write_bytes(b"ours")
        return CommandResult(argv=tuple(words), returncode=0, stdout=said.encode(), stderr=b"")


@pytest.fixture
def tools() -> FakeTools:
    return FakeTools()


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    files, tree, path = tmp_path / "files", tmp_path / "tree", tmp_path / "path"
    shutil.copytree(ROLE_FILES / "releases", files / "releases")
    for name in ("containerd.service", "crictl.yaml"):
        shutil.copy(ROLE_FILES / name, files)
    for name in (
        *("kubernetes-1.35.4", "etcd-3.6.6", "coredns-1.13.1"),
        *("containerd-2.3.4", "helm-4.3.1", "flannel-0.28.10", "pause", "cni-plugins-1.8.0", "crictl-1.36.0"),
    ):
        (files / "go" / name).mkdir(parents=True)
        (files / "go" / name / "go.mod").write_text(f"module {name}\n")
    (files / "python").mkdir()
    (files / "python/requirements-node.txt").write_text("pip==25.3\n")
    (files / "python/requirements-control-plane.txt").write_text("kubernetes==37.0\n")
    tree.mkdir()
    (tree / "pyproject.toml").write_text("[project]\n")
    path.mkdir()
    for tool in ("mmdebstrap", "nice", "zstd"):
        (path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(path))
    return {
        "state": "present",
        "path": str(tmp_path / "bundle"),
        "kubernetes_version": "1.35",
        "architecture": this_architecture().value,
        "python_versions": ["3.11"],
        "cache_dir": str(tmp_path / "cache"),
        "files_dir": str(files),
        "collection_dir": str(tree),
    }


def refused(reason: Reason, params: dict[str, Any], tools: FakeTools) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        make_bundle(params, False, runner=tools)
    assert caught.value.reason is reason
    return caught.value


def test_check_make_again_and_again_in_check(params, tools):
    walk = [make_bundle(params, check, runner=tools).changed for check in (True, False, False, True)]
    assert walk == [True, True, False, False]


def test_what_was_made_verifies_and_names_what_a_cluster_needs(params, tools):
    result = make_bundle(params, False, runner=tools)

    bundle = open_bundle(params["path"], expected_digest=result.values["manifest_sha256"])
    verify_blobs(bundle, bundle.manifest.blobs)
    names = {"etcd", "etcdctl", "etcdutl", "helm", "kubeadm", "kubectl", "kubelet"}
    assert {entry.name for entry in bundle.manifest.files} == names | CONTAINERD | CNI | {"crictl", "crictl.yaml"}
    assert result.values["images"]["coredns"] == "example.test/coredns/coredns:v1.13.1"
    assert result.values["images"]["tour"] == "localhost/attested-tour:1"
    assert result.values["kubernetes_version"] == "1.35.4"


def test_the_same_inputs_give_the_same_bundle_elsewhere(params, tools, tmp_path):
    first = make_bundle(params, False, runner=tools).values["manifest_sha256"]
    elsewhere = {**params, "path": str(tmp_path / "other"), "cache_dir": str(tmp_path / "other-cache")}

    assert make_bundle(elsewhere, False, runner=tools).values["manifest_sha256"] == first


def test_images_are_listed_by_tag_and_by_digest_and_their_blobs_are_what_they_say(params, tools):
    make_bundle(params, False, runner=tools)
    manifest = open_bundle(params["path"]).manifest
    archive = next(entry for entry in manifest.image_archives if entry.name == "node")

    with tarfile.open(Path(params["path"]) / archive.blob.path) as tar:
        index = json.load(tar.extractfile("index.json"))
        names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
        pause = json.load(tar.extractfile(f"blobs/sha256/{manifest.image('pause').digest[7:]}"))

    assert names[:2] == ["example.test/pause:3.10.1", f"example.test/pause@{manifest.image('pause').digest}"]
    assert [layer["mediaType"].rpartition("+")[2] for layer in pause["layers"]] == ["zstd"]


def test_only_control_planes_get_the_kubernetes_library_and_the_servers(params, tools):
    make_bundle(params, False, runner=tools)
    manifest = open_bundle(params["path"]).manifest

    (wheels,) = manifest.wheel_archives
    assert [wheel.name for wheel in wheels.wheels if wheel.control_plane_only] == ["kubernetes"]
    assert {
        role.value for entry in manifest.image_archives if entry.name == "control-plane" for role in entry.blob.roles
    } == {"control_plane"}


def test_a_bundle_has_the_wheels_of_every_python_of_its_nodes(params, tools):
    one = make_bundle(params, False, runner=tools)
    tools.started.clear()
    two = {**params, "python_versions": ["3.13", "3.11"]}
    both = [make_bundle(two, check, runner=tools) for check in (True, False)]
    archives = {archive.python: archive for archive in open_bundle(params["path"]).manifest.wheel_archives}

    assert [part["part"] for part in both[0].values["missing_parts"]] == ["wheels-3.13"]
    assert not [what for what in tools.started if "build" in what.split()]
    assert sorted(archives) == ["3.11", "3.13"]
    assert archives["3.13"].blob.path == f"wheels/py3.13-{this_architecture().value}.tar"
    assert one.values["files"] + 1 == both[1].values["files"]
    assert make_bundle(params, False, runner=tools).values["manifest_sha256"] == one.values["manifest_sha256"]


def missing_parts(params: dict[str, Any], tools: FakeTools) -> list[str]:
    return [one["part"] for one in make_bundle(params, True, runner=tools).values["missing_parts"]]


def test_check_mode_lists_the_parts_that_are_missing(params, tools):
    before = missing_parts(params, tools)
    make_bundle({**params, "state": "cached", "part": "kubelet"}, False, runner=tools)
    after = missing_parts(params, tools)

    assert before == list(parts_with("none", pythons=["3.11"]))
    assert after == [part for part in before if part != "kubelet"]
    assert not any("mmdebstrap" in command for command in tools.started)


def test_a_network_plugin_is_part_of_a_bundle_that_asks_for_it(params, tools):
    without = make_bundle(params, False, runner=tools)
    built = [what for what in tools.started if what.endswith("invalid/flannel")]
    with_it = [
        make_bundle({**params, "network_plugin": "flannel"}, check, runner=tools) for check in (True, False, True)
    ]

    assert not built
    assert "flannel" not in without.values["images"]
    assert [result.changed for result in with_it] == [True, True, False]
    assert [one["part"] for one in with_it[0].values["missing_parts"]] == ["flannel"]
    images = dict(with_it[1].values["images"])
    pattern = load_table(ROLE_FILES / "releases").components["flannel"].image
    assert images.pop("flannel") == pattern.format(version="0.28.10")
    assert images == without.values["images"]
    archives = {entry.name: entry for entry in open_bundle(params["path"]).manifest.image_archives}
    assert archives["node"].blob.roles == frozenset(NodeRole)
    with tarfile.open(Path(params["path"]) / archives["node"].blob.path) as tar:
        image = open_bundle(params["path"]).manifest.image("flannel")
        document = json.load(tar.extractfile(f"blobs/sha256/{image.digest[7:]}"))
        config = json.load(tar.extractfile(f"blobs/sha256/{document['config']['digest'][7:]}"))
    assert len(document["layers"]) == 2
    assert config["config"]["Entrypoint"] == ["/flannel"]


def test_the_image_of_a_network_plugin_does_not_change_the_others(params, tools, tmp_path):
    plain = make_bundle(params, False, runner=tools)
    elsewhere = {**params, "path": str(tmp_path / "other"), "network_plugin": "flannel"}
    more = make_bundle(elsewhere, False, runner=tools)
    digests = [
        {one.component: one.digest for one in open_bundle(path).manifest.images}
        for path in (params["path"], elsewhere["path"])
    ]

    assert digests[0].items() < digests[1].items()
    assert plain.values["manifest_sha256"] != more.values["manifest_sha256"]


def test_a_part_is_made_once(params, tools):
    asked = {**params, "state": "cached", "part": "etcd"}

    assert [make_bundle(asked, False, runner=tools).changed for _unused in range(2)] == [True, False]
    assert sum("build" in command for command in tools.started) == 1


def test_a_changed_source_is_built_again(params, tools):
    asked = {**params, "state": "cached", "part": "etcd"}
    make_bundle(asked, False, runner=tools)
    (Path(params["files_dir"]) / "go/etcd-3.6.6/go.sum").write_text("another hash")

    assert make_bundle(asked, False, runner=tools).changed is True


def test_the_build_cache_goes_with_the_run_that_asks_for_it(params, tools):
    build_cache = Path(params["cache_dir"], "go", "modules")
    build_cache.mkdir(parents=True)
    make_bundle(params, False, runner=tools)
    make_bundle({**params, "keep_build_cache": False}, True, runner=tools)
    assert build_cache.exists()
    make_bundle({**params, "keep_build_cache": False}, False, runner=tools)
    assert not build_cache.exists()
    assert make_bundle(params, True, runner=tools).changed is False


def test_the_build_cache_stays_while_another_run_builds_with_it(params, tools):
    """Another run is complete, and asks for its removal, in the middle of a build."""
    build_cache = Path(params["cache_dir"], "go", "modules")
    seen = []

    class Slow(FakeTools):
        def run(self, argv: Sequence[str], **options: object) -> CommandResult:
            if "build" in argv:
                build_cache.mkdir(parents=True, exist_ok=True)
                PartCache(Path(params["cache_dir"])).drop("go")
                seen.append(build_cache.exists())
            return FakeTools.run(self, argv, **options)

    make_bundle({**params, "keep_build_cache": False}, False, runner=Slow())
    assert len(seen) > 1
    assert all(seen)
    assert not build_cache.exists()


def test_old_parts_of_one_name_do_not_pile_up(params, tools):
    asked = {**params, "state": "cached", "part": "pause"}
    for content in range(10):
        (Path(params["files_dir"]) / "go/pause/main.go").write_text(f"// {content}")
        newest = make_bundle(asked, False, runner=tools).values["file"]

    kept = [str(path) for path in (Path(params["cache_dir"]) / "programs").glob("*/pause")]
    assert len(kept) == 8
    assert newest in kept


def test_a_damaged_part_is_made_again(params, tools):
    asked = {**params, "state": "cached", "part": "etcd"}
    part = Path(make_bundle(asked, False, runner=tools).values["file"])
    part.write_bytes(part.read_bytes()[::-1])

    assert make_bundle(asked, False, runner=tools).changed is True


def test_a_run_that_was_cut_off_is_continued(params, tools):
    tools.fails = "mmdebstrap"
    refused(Reason.COMPONENT_BUILD_FAILED, params, tools)
    assert not Path(params["path"]).exists()
    tools.fails, tools.started = "", []

    make_bundle(params, False, runner=tools)

    assert not any("cmd/kubelet" in command for command in tools.started)


def test_a_damaged_file_in_the_bundle_is_put_right(params, tools):
    make_bundle(params, False, runner=tools)
    spoiled = next((Path(params["path"]) / "programs").iterdir())
    spoiled.unlink()
    spoiled.write_bytes(b"x")

    assert make_bundle(params, False, runner=tools).changed is True
    assert make_bundle({"state": "verified", "path": params["path"]}, False).changed is False


def test_verified_refuses_a_damaged_file(params, tools):
    make_bundle(params, False, runner=tools)
    spoiled = next((Path(params["path"]) / "images").iterdir())
    spoiled.unlink()
    spoiled.write_bytes(b"x")

    refused(Reason.BUNDLE_HASH_MISMATCH, {"state": "verified", "path": params["path"]}, tools)


def test_what_no_longer_belongs_to_the_bundle_goes(params, tools):
    make_bundle(params, False, runner=tools)
    stranger = Path(params["path"]) / "programs/old.gz"
    stranger.touch()

    make_bundle(params, False, runner=tools)

    assert not stranger.exists()


@pytest.mark.parametrize("version", ["1.34", "1.35.99", "1", "", "v1.35"])
def test_a_version_that_is_not_in_the_table_is_refused(params, tools, version):
    error = refused(Reason.RELEASE_UNKNOWN, {**params, "kubernetes_version": version}, tools)
    assert "1.35 (1.35.4)" in error.message


@dataclass
class FakeDownloader:
    """Has what its publisher has, if the hash that is asked for is one of the table."""

    asked: list[Upstream] = field(default_factory=list)

    def fetch(self, upstream: Upstream, place: Path) -> None:
        self.asked.append(upstream)
        if upstream.extract == "none":
            place.write_bytes(upstream.name.encode())
            return
        with tarfile.open(place, "w:gz") as tar:
            names = ["etcd", "etcdctl", "etcdutl", "containerd", "containerd-shim-runc-v2", "ctr", "crictl"]
            folder = upstream.member.rpartition("/")[0] or "."
            for name in [*names, *(one.removeprefix("cni-") for one in CNI)]:
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size = len(name)
                tar.addfile(member, io.BytesIO(name.encode()))


def test_what_the_table_has_a_hash_of_is_downloaded_and_the_rest_built(params, tools):
    web = FakeDownloader()
    given = {**params, "download": True, "architecture": "amd64"}

    result = make_bundle(given, False, runner=tools, downloader=web)

    urls = {upstream.name: upstream.urls for upstream in web.asked}
    containerd = {"containerd", "containerd-shim-runc-v2", "ctr"}
    names = {"kubeadm", "kubelet", "kubectl", "etcd", "etcdctl", "etcdutl", "runc", "crictl"}
    assert urls.keys() == names | containerd | CNI
    assert urls["kubelet"] == ("https://dl.k8s.io/v1.35.4/bin/linux/amd64/kubelet",)
    assert urls["etcdctl"][0].endswith("/etcd/releases/download/v3.6.6/etcd-v3.6.6-linux-amd64.tar.gz")
    assert urls["containerd"][0].endswith("/containerd/releases/download/v2.3.4/containerd-2.3.4-linux-amd64.tar.gz")
    assert urls["runc"][0].endswith("/runc/releases/download/v1.4.3/runc.amd64")
    members = {one.name: (one.extract, one.member) for one in web.asked if one.name in {*containerd, "runc"}}
    assert members == {name: ("tar", f"bin/{name}") for name in containerd} | {"runc": ("none", "")}
    (etcd,) = [one for one in web.asked if one.name == "etcdctl"]
    assert (etcd.extract, etcd.member) == ("tar", "etcd-v3.6.6-linux-amd64/etcdctl")
    table = load_table(ROLE_FILES / "releases").release_for("1.35")
    assert {one.sha256 for one in web.asked} == {
        table.hashes[name]["amd64"]
        for name in ("kubeadm", "kubelet", "kubectl", "etcd", "containerd", "runc", "cni-plugins", "crictl")
    }
    files = {entry.name: entry for entry in open_bundle(result.values["path"]).manifest.files}
    assert {name for name, entry in files.items() if entry.blob.origin is not Origin.DOWNLOADED} == {
        "helm",
        "containerd.service",
        "crictl.yaml",
    }
    assert files["cni-host-local"].install_path == "/usr/local/libexec/cni/host-local"
    assert files["cni-host-local"].content_sha256 == hashlib.sha256(b"host-local").hexdigest()
    assert list((Path(params["cache_dir"]) / "downloads").iterdir()) == []
    assert files["runc"].install_path == "/usr/local/bin/runc"
    assert files["etcdctl"].content_sha256 == hashlib.sha256(b"etcdctl").hexdigest()
    built = {what.rpartition("/")[2] for what in tools.started if " build " in what}
    assert built == {
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "coredns",
        "helm",
        "pause",
    }


def test_an_archive_is_brought_once_for_all_programs_in_it(params, tools, tmp_path):
    """What a run that was cut off has brought stays until its last program is in the cache."""
    web = FakeDownloader()
    given = {**params, "download": True, "architecture": "amd64", "state": "cached"}
    places = Path(params["cache_dir"]) / "downloads"
    left = []
    for name in sorted(CNI):
        make_bundle({**given, "part": name}, False, runner=tools, downloader=web)
        left.append([path.name for path in places.iterdir()])

    sha256 = load_table(ROLE_FILES / "releases").release_for("1.35").hashes["cni-plugins"]["amd64"]
    assert left == [[sha256]] * (len(CNI) - 1) + [[]]


def test_runc_is_part_of_a_bundle_that_brings_it(params, tools, tmp_path):
    place = tmp_path / "runc"
    place.write_bytes(b"runc")
    row = {"name": "runc", "urls": [str(place)], "sha256": hashlib.sha256(b"runc").hexdigest()}
    without = make_bundle(params, False, runner=tools)
    names = [{entry.name for entry in open_bundle(params["path"]).manifest.files}]
    walk = [make_bundle({**params, "sources": [row]}, check, runner=tools).changed for check in (True, False, True)]
    names.append({entry.name for entry in open_bundle(params["path"]).manifest.files})

    assert without.changed
    assert walk == [True, True, False]
    assert names[1] - names[0] == {"runc"}
    assert not any(command.endswith("runc") for command in tools.started)


def test_runc_is_not_built(params, tools):
    error = refused(Reason.BUNDLE_INCOMPLETE, {**params, "state": "cached", "part": "runc"}, tools)
    assert "runc" in error.message
    assert "attested_component_download" in error.hint


@pytest.mark.parametrize(
    ("name", "version", "path"),
    [
        ("containerd.service", "2.3.4", "/etc/systemd/system/containerd.service"),
        ("crictl.yaml", "1.36.0", "/etc/crictl.yaml"),
    ],
)
def test_a_file_of_the_role_is_installed_as_it_is(params, tools, name, version, path):
    make_bundle(params, False, runner=tools)
    unit = next(entry for entry in open_bundle(params["path"]).manifest.files if entry.name == name)

    content = (ROLE_FILES / name).read_bytes()
    assert (unit.version, unit.mode, unit.install_path) == (version, 0o644, path)
    assert unit.content_sha256 == hashlib.sha256(content).hexdigest()
    assert unit.blob.roles == frozenset(NodeRole)


@pytest.mark.parametrize("name", ["containerd.service", "crictl.yaml"])
def test_another_file_of_the_role_makes_another_bundle(params, tools, name):
    before = make_bundle(params, False, runner=tools).values["manifest_sha256"]
    (Path(params["files_dir"]) / name).write_text("# another\n")

    foreseen = make_bundle(params, True, runner=tools)

    assert (foreseen.changed, foreseen.values["missing_parts"]) == (True, [])
    assert make_bundle(params, False, runner=tools).values["manifest_sha256"] != before


def test_a_node_without_containerd_of_the_bundle_leaves_out_all_that_belongs_to_it(params, tools):
    web = FakeDownloader()
    make_bundle({**params, "download": True, "architecture": "amd64"}, False, runner=tools, downloader=web)
    files = open_bundle(params["path"]).manifest.files
    without = left_out("distribution")
    assert {entry.name for entry in files if entry.install_path in without} == {*CONTAINERD, *CNI, "runc"}
    assert len(without) == 5 + len(CNI)
    assert left_out("bundle") == frozenset()


def test_a_source_of_the_site_goes_before_the_publisher(params, tools):
    web = FakeDownloader()
    row = {"name": "kubelet", "urls": ["https://mirror.example/kubelet"], "sha256": "ab" * 32}

    make_bundle({**params, "download": True, "sources": [row]}, False, runner=tools, downloader=web)

    assert [one.urls for one in web.asked if one.name == "kubelet"] == [("https://mirror.example/kubelet",)]


def test_nothing_is_downloaded_unless_told(params, tools):
    web = FakeDownloader()
    make_bundle(params, False, runner=tools, downloader=web)
    assert web.asked == []


@pytest.mark.parametrize("version", ["1.35.3", "1.36"])
def test_a_release_without_pinned_modules_is_refused(params, tools, version):
    error = refused(Reason.RELEASE_UNKNOWN, {**params, "kubernetes_version": version}, tools)
    assert "(1.35.4)" in error.message
    assert not tools.started


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        pytest.param("/kubelet", Reason.COMPONENT_BUILD_FAILED, id="the compiler"),
        pytest.param("download", Reason.COMPONENT_BUILD_FAILED, id="the download of wheels"),
        pytest.param("mmdebstrap", Reason.COMPONENT_BUILD_FAILED, id="the base layer"),
    ],
)
def test_a_failing_tool_is_told_with_the_part(params, tools, fails, reason):
    tools.fails = fails
    refused(reason, params, tools)


def test_an_old_go_and_no_way_to_get_another(params, tools):
    tools.go, tools.fails = "go version go1.22.1 linux/amd64", "venv"
    assert "Go 1.26" in refused(Reason.GO_TOOLCHAIN_UNUSABLE, params, tools).message


def test_all_missing_tools_are_named_at_once(params, tools, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "missing mmdebstrap, nice, zstd" in refused(Reason.COMMAND_MISSING, params, tools).message


def test_images_of_other_versions_than_were_built_are_refused(params, tools):
    tools.references = REFERENCES.replace("etcd:3.6.6-0", "etcd:3.6.7-0")
    assert "etcd:3.6.7-0" in refused(Reason.BUNDLE_INCOMPLETE, params, tools).message


def test_a_tree_without_its_build_file_cannot_give_a_wheel(params, tools):
    (Path(params["collection_dir"]) / "pyproject.toml").unlink()
    assert "pyproject.toml" in refused(Reason.COMPONENT_BUILD_FAILED, params, tools).message


BROUGHT = b"\x7fELF kubelet that somebody else has built"


@pytest.fixture
def with_source(params, tmp_path):
    """A site that takes its kubelet from a file."""
    place = tmp_path / "published" / "kubelet"
    place.parent.mkdir()
    place.write_bytes(BROUGHT)
    row = {"name": "kubelet", "urls": [str(place)], "sha256": hashlib.sha256(BROUGHT).hexdigest()}
    return {**params, "sources": [row]}


def test_a_program_that_is_brought_is_not_built_and_the_manifest_says_so(with_source, tools):
    walk = [make_bundle(with_source, check, runner=tools).changed for check in (True, False, False, True)]
    assert walk == [True, True, False, False]
    assert not any("cmd/kubelet" in command for command in tools.started)
    bundle = open_bundle(with_source["path"])
    verify_blobs(bundle, bundle.manifest.blobs)
    origins = {entry.name: entry.blob.origin.value for entry in bundle.manifest.files}
    assert origins.pop("kubelet") == "downloaded"
    assert set(origins.values()) == {"built"}
    (kubelet,) = (entry for entry in bundle.manifest.files if entry.name == "kubelet")
    assert kubelet.content_sha256 == hashlib.sha256(BROUGHT).hexdigest()


def test_a_program_that_is_another_stops_the_bundle_and_the_right_one_goes_on(with_source, tools):
    place = Path(with_source["sources"][0]["urls"][0])
    place.write_bytes(BROUGHT[::-1])
    error = refused(Reason.COMPONENT_HASH_MISMATCH, with_source, tools)
    assert str(place) in error.message
    assert not Path(with_source["path"]).exists()
    place.write_bytes(BROUGHT)
    assert make_bundle(with_source, False, runner=tools).changed is True


def test_another_mirror_of_the_same_file_changes_nothing(with_source, tools, tmp_path):
    first = make_bundle(with_source, False, runner=tools).values["manifest_sha256"]
    (row,) = with_source["sources"]
    elsewhere = {**with_source, "sources": [{**row, "urls": ["https://other.example/kubelet"]}]}
    result = make_bundle(elsewhere, False, runner=tools)
    assert (result.changed, result.values["manifest_sha256"]) == (False, first)


def test_a_kubeadm_that_is_brought_is_the_one_that_is_asked(params, tools, tmp_path):
    place = tmp_path / "kubeadm.published"
    place.write_bytes(BROUGHT)
    row = {"name": "kubeadm", "urls": [str(place)], "sha256": hashlib.sha256(BROUGHT).hexdigest()}
    make_bundle({**params, "sources": [row]}, False, runner=tools)
    (asked,) = (command for command in tools.started if "config images list" in command)
    assert "/brought/" in asked


def test_a_row_that_cannot_be_meant_stops_before_anything_is_made(params, tools):
    row = {"name": "kubelet", "urls": ["kubelet"], "sha256": "ab" * 32}
    refused(Reason.OPTION_INVALID, {**params, "sources": [row]}, tools)
    assert tools.started == []


@pytest.fixture
def with_step(params):
    """A bundle of 1.36.3 for a cluster that comes from 1.34 by 1.35.4."""
    for name in ("kubernetes-1.36.3", "etcd-3.6.8", "coredns-1.14.2", "cni-plugins-1.9.1"):
        (Path(params["files_dir"]) / "go" / name).mkdir()
        (Path(params["files_dir"]) / "go" / name / "go.mod").write_text(f"module {name}\n")
    return {**params, "kubernetes_version": "1.36.3", "steps": ["1.35"]}


def test_a_step_brings_kubeadm_and_the_control_plane_of_its_release(with_step, tools):
    walk = [make_bundle(with_step, check, runner=tools).changed for check in (True, False, False, True)]
    assert walk == [True, True, False, False]
    bundle = open_bundle(with_step["path"])
    verify_blobs(bundle, bundle.manifest.blobs)
    (step,) = bundle.manifest.steps
    assert step.kubernetes_version == "1.35.4"
    assert [(one.name, one.version, one.install_path) for one in step.files] == [
        ("kubeadm", "1.35.4", "/usr/local/bin/kubeadm")
    ]
    images = {archive.name: [one.component for one in archive.images] for archive in step.image_archives}
    assert images == {
        "control-plane": ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"],
        "pause": ["pause"],
    }
    roles = {one.name: {role.value for role in one.blob.roles} for one in (*step.files, *step.image_archives)}
    assert roles == {
        "kubeadm": {"control_plane"},
        "control-plane": {"control_plane"},
        "pause": {"control_plane", "worker"},
    }


def test_of_a_step_nothing_else_is_built(with_step, tools):
    (foreseen,) = {make_bundle(with_step, True, runner=tools).values["kubernetes_version"]}
    missing = make_bundle(with_step, True, runner=tools).values["missing_parts"]
    assert foreseen == "1.36.3"
    expected = list(parts_with("none", pythons=["3.11"]))
    assert [one["part"] for one in missing if one["kubernetes_version"] == foreseen] == expected
    assert {one["part"] for one in missing if one["kubernetes_version"] == "1.35.4"} == {
        "kubeadm",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "etcdctl",
        "etcdutl",
        "pause",
    }
    make_bundle(with_step, False, runner=tools)
    assert not any("cmd/kubelet" in command and "kubernetes-1.35.4" in command for command in tools.started)


def test_a_pause_that_the_nodes_have_anyway_is_not_brought_twice(with_step, tools):
    place = Path(with_step["files_dir"]) / "releases/1.35.yml"
    place.write_text(place.read_text().replace("version: 3.10.1", "version: 3.10.2"))
    tools.references = REFERENCES.replace("pause:3.10.1", "pause:3.10.2")
    make_bundle(with_step, False, runner=tools)
    (step,) = open_bundle(with_step["path"]).manifest.steps
    assert [archive.name for archive in step.image_archives] == ["control-plane"]


def test_a_step_changes_the_bundle_and_goes_with_the_variable(with_step, tools):
    with_one = make_bundle(with_step, False, runner=tools).values["manifest_sha256"]
    without = make_bundle({**with_step, "steps": []}, False, runner=tools).values["manifest_sha256"]
    assert with_one != without
    assert open_bundle(with_step["path"]).manifest.steps == ()
    assert not list(Path(with_step["path"]).glob("*/*1.35.4*"))


def test_a_source_of_the_site_is_not_for_a_step(with_step, tools, tmp_path):
    place = tmp_path / "kubeadm.published"
    place.write_bytes(BROUGHT)
    row = {"name": "kubeadm", "urls": [str(place)], "sha256": hashlib.sha256(BROUGHT).hexdigest()}
    make_bundle({**with_step, "sources": [row]}, False, runner=tools)
    manifest = open_bundle(with_step["path"]).manifest
    (kubeadm,) = (one for one in manifest.files if one.name == "kubeadm")
    assert (kubeadm.blob.origin, manifest.steps[0].files[0].blob.origin) == (Origin.DOWNLOADED, Origin.BUILT)


@pytest.mark.parametrize("steps", [["1.36.3"], ["1.35.4", "1.35.8"], ["1.37.2"]], ids=str)
def test_steps_that_lead_nowhere_are_refused(with_step, tools, steps):
    error = refused(Reason.RELEASE_SKEW, {**with_step, "steps": steps}, tools)
    assert f"up to the one before 1.36.3, got {', '.join(steps)}" in error.message
    assert not tools.started


def test_a_step_without_pinned_modules_is_refused(with_step, tools):
    refused(Reason.RELEASE_UNKNOWN, {**with_step, "steps": ["1.35.8"]}, tools)
