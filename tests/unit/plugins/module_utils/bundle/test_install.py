# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installing from a bundle: plan first, then whole steps, then nothing left to do."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.install import (
    NodeWorld,
    inspect_components,
    install_components,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.store import open_bundle, verify_blobs
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

from .conftest import KUBEADM, step

KUBELET = "usr/local/bin/kubelet"
PAUSE, ETCD = "example.test/pause:1", "example.test/etcd:1"
PIN = {"io.cri-containerd.pinned": "pinned"}


@pytest.fixture
def world(containerd, node_root) -> NodeWorld:
    return NodeWorld(runner=containerd, root=node_root, machine="x86_64")


@pytest.fixture
def params(bundle_dir: Path) -> dict[str, Any]:
    return {"bundle": str(bundle_dir), "role": "worker", "manifest_sha256": None}


def manifest_of(bundle_dir: Path) -> dict[str, Any]:
    return json.loads((bundle_dir / "manifest.json").read_text())


def rewrite(bundle_dir: Path, manifest: dict[str, Any]) -> None:
    (bundle_dir / "manifest.json").write_text(json.dumps(manifest))


def refused(reason: Reason, params: dict[str, Any], world: NodeWorld) -> ComponentError:
    with pytest.raises(ComponentError) as caught:
        install_components(params, False, world=world)
    assert caught.value.reason is reason
    return caught.value


def test_check_apply_again_and_again_in_check(params, world, node_root):
    walk = [install_components(params, check, world=world).changed for check in (True, False, False, True)]

    assert walk == [True, True, False, False]
    assert (node_root / KUBELET).stat().st_mode & 0o777 == 0o755
    assert (node_root / KUBELET).read_bytes().startswith(b"\x7fELF kubelet")


def test_check_mode_touches_nothing_and_shows_the_plan(params, world, node_root, containerd):
    result = install_components(params, True, world=world)

    assert not (node_root / KUBELET).exists()
    assert not any("import" in command for command in containerd.commands)
    assert result.diff is not None
    assert "kubelet absent" in str(result.diff.before)
    assert "image example.test/pause:1 sha256:abab" in str(result.diff.after)


def test_a_worker_gets_no_control_plane_images(params, world, containerd):
    assert install_components(params, False, world=world).values["imported"] == ["example.test/pause:1"]
    assert "example.test/etcd:1" not in containerd.images


def test_a_control_plane_gets_both_archives(params, world, containerd):
    install_components({**params, "role": "control_plane"}, False, world=world)
    assert set(containerd.images) == {"example.test/pause:1", "example.test/etcd:1"}


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.write_bytes(b"old"), id="another content"),
        pytest.param(lambda path: path.chmod(0o777), id="another mode"),
        pytest.param(lambda path: (path.unlink(), path.symlink_to("/bin/true")), id="a link in its place"),
    ],
)
def test_a_changed_program_is_put_right(params, world, node_root, spoil):
    install_components(params, False, world=world)
    spoil(node_root / KUBELET)

    assert install_components(params, False, world=world).values["installed"] == ["/usr/local/bin/kubelet"]
    assert install_components(params, False, world=world).changed is False


def test_an_image_with_another_digest_is_imported_again(params, world, containerd):
    install_components(params, False, world=world)
    containerd.images["example.test/pause:1"] = "sha256:" + "00" * 32

    assert install_components(params, False, world=world).values["imported"] == ["example.test/pause:1"]


def test_a_damaged_stored_file_installs_nothing_at_all(params, world, node_root, bundle_dir):
    (bundle_dir / "images/node.tar").write_bytes(b"an image archivE")

    error = refused(Reason.BUNDLE_HASH_MISMATCH, params, world)

    assert "images/node.tar: expected sha256" in error.message
    assert not (node_root / KUBELET).exists()


def test_another_size_is_named_without_hashing(params, world, bundle_dir):
    (bundle_dir / "images/node.tar").write_bytes(b"short")
    assert "expected 16 bytes, got 5" in refused(Reason.BUNDLE_HASH_MISMATCH, params, world).message


def test_missing_stored_files_are_listed_together(params, world, bundle_dir):
    (bundle_dir / "images/node.tar").unlink()
    (bundle_dir / "programs/kubelet.gz").unlink()

    message = refused(Reason.BUNDLE_INCOMPLETE, params, world).message

    assert "programs/kubelet.gz, images/node.tar" in message


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(b"another program", mtime=0), id="another program inside"),
        pytest.param(b"no gzip at all", id="not compressed"),
        pytest.param(gzip.compress(b"\x7fELF kubelet " * 500, mtime=0)[:-9], id="cut off"),
        pytest.param(gzip.compress(b"\0" * 10_000_000, mtime=0), id="a bomb"),
    ],
)
def test_what_is_inside_must_match_too(params, world, bundle_dir, node_root, content):
    """The stored file has the hash that the manifest says, its content has not."""
    manifest = manifest_of(bundle_dir)
    manifest["files"][0].update(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    (bundle_dir / "programs/kubelet.gz").write_bytes(content)
    rewrite(bundle_dir, manifest)

    refused(Reason.BUNDLE_HASH_MISMATCH, params, world)

    assert [path for path in node_root.rglob("*") if path.is_file() and "kubelet" in path.name] == []


def test_a_pinned_manifest_refuses_any_other(params, world, bundle_dir):
    digest = open_bundle(bundle_dir).digest
    install_components({**params, "manifest_sha256": digest}, False, world=world)
    rewrite(bundle_dir, {**manifest_of(bundle_dir), "kubernetes_version": "1.35.5"})

    assert digest in refused(Reason.BUNDLE_HASH_MISMATCH, {**params, "manifest_sha256": digest}, world).message


def test_a_directory_without_manifest_is_no_bundle(params, world, bundle_dir):
    (bundle_dir / "manifest.json").unlink()
    refused(Reason.BUNDLE_INCOMPLETE, params, world)


@pytest.mark.parametrize(
    ("machine", "next_step"),
    [
        pytest.param(
            "aarch64", "Set attested_bundle_architecture: arm64 and an attested_bundle of its own", id="other"
        ),
        pytest.param("riscv64", "Build the bundle for this architecture", id="unknown"),
    ],
)
def test_a_bundle_for_another_machine_type_is_refused(params, containerd, node_root, machine, next_step):
    world = NodeWorld(runner=containerd, root=node_root, machine=machine)
    assert refused(Reason.BUNDLE_ARCH_MISMATCH, params, world).hint.startswith(next_step)


def test_a_failing_import_is_told_as_such(params, world, containerd):
    containerd.broken = True
    assert "no space" in refused(Reason.IMAGE_IMPORT_FAILED, params, world).message


def test_an_import_that_brings_something_else_is_noticed(params, world, containerd):
    containerd.archives["node.tar"] = {"example.test/other:1": "sha256:00"}
    assert "example.test/pause:1" in refused(Reason.IMAGE_IMPORT_FAILED, params, world).message


def test_a_run_that_was_cut_off_is_continued(params, world, containerd):
    containerd.broken = True
    refused(Reason.IMAGE_IMPORT_FAILED, params, world)
    containerd.broken = False

    result = install_components(params, False, world=world)

    assert result.values["installed"] == []
    assert result.values["imported"] == ["example.test/pause:1"]


NEW = b"\x7fELF a newer kubelet " * 300


def renew(bundle_dir: Path) -> None:
    """Let the bundle have another kubelet."""
    packed = gzip.compress(NEW, mtime=0)
    manifest = manifest_of(bundle_dir)
    manifest["files"][0].update(sha256=hashlib.sha256(packed).hexdigest(), size=len(packed))
    manifest["files"][0].update(content_sha256=hashlib.sha256(NEW).hexdigest(), content_size=len(NEW))
    (bundle_dir / "programs/kubelet.gz").write_bytes(packed)
    rewrite(bundle_dir, manifest)


def join(root: Path) -> None:
    """Let the machine be a member."""
    (root / "etc/kubernetes").mkdir(parents=True)
    (root / "etc/kubernetes/kubelet.conf").touch()


def release_of(bundle_dir: Path) -> str:
    return hashlib.sha256((bundle_dir / "manifest.json").read_bytes()).hexdigest()[:12]


def current(params: dict[str, Any], world: NodeWorld) -> bool:
    manifest = base64.b64encode((Path(params["bundle"]) / "manifest.json").read_bytes()).decode()
    asked = {**params, "manifest": manifest, "store": "/nowhere", "runtime_path": "/opt/attested/venv"}
    return inspect_components(asked, False, world=world).values["components_current"]


def test_images_are_pinned_for_their_release(params, world, containerd, bundle_dir):
    install_components(params, False, world=world)

    assert containerd.labels == {PAUSE: PIN | {"attested.releases": release_of(bundle_dir)}}
    commands = len(containerd.commands)
    assert install_components(params, False, world=world).changed is False
    assert not any("label" in command for command in containerd.commands[commands:])


@pytest.mark.parametrize("lost", ["io.cri-containerd.pinned", "attested.releases"])
def test_an_image_that_lost_a_label_is_not_current_and_is_pinned_again(params, world, containerd, lost):
    install_components(params, False, world=world)
    before = {name: dict(labels) for name, labels in containerd.labels.items()}
    del containerd.labels[PAUSE][lost]

    assert current(params, world) is False
    result = install_components(params, True, world=world)
    assert (result.changed, result.diff.after) == (True, f"image {PAUSE} pinned\n")
    assert install_components(params, False, world=world).values["imported"] == []
    assert containerd.labels == before
    assert current(params, world) is True


def test_an_image_is_unpinned_once_no_release_on_the_node_has_it(params, world, containerd, bundle_dir):
    """One that the admin pinned stays so."""
    planes, own = {**params, "role": "control_plane"}, "example.test/own:1"
    containerd.images[own] = "sha256:" + "ee" * 32
    containerd.labels[own] = dict(PIN)
    earlier = install_components(planes, False, world=world).values["release"]
    join(world.root)
    renew(bundle_dir)
    manifest = manifest_of(bundle_dir)
    manifest["image_archives"].pop()
    rewrite(bundle_dir, manifest)

    later = install_components(planes, False, world=world).values["release"]
    assert containerd.labels == {
        PAUSE: PIN | {"attested.releases": ".".join(sorted((earlier, later)))},
        ETCD: PIN | {"attested.releases": earlier},
        own: PIN,
    }

    (world.root / "etc/kubernetes/kubelet.conf").unlink()  # now the later one is installed, and the earlier one goes
    install_components(planes, False, world=world)
    assert containerd.labels == {PAUSE: PIN | {"attested.releases": later}, ETCD: {}, own: PIN}


def test_an_import_leaves_an_image_pinned_for_the_release_that_is_in_use(params, world, containerd, bundle_dir):
    """An archive may contain images of another release: containerd replaces their labels."""
    earlier = install_components(params, False, world=world).values["release"]
    join(world.root)
    renew(bundle_dir)
    containerd.images[PAUSE] = "sha256:" + "00" * 32
    later = install_components(params, False, world=world).values["release"]
    assert earlier != later
    assert containerd.labels == {PAUSE: PIN | {"attested.releases": ".".join(sorted((earlier, later)))}}


def test_containerd_that_refuses_a_label_is_told(params, world, containerd):
    containerd.unlabelled = True
    assert f"expected {PAUSE}" in refused(Reason.IMAGE_IMPORT_FAILED, params, world).message


@pytest.mark.parametrize("times", [1, 2])
def test_an_image_that_kubelet_removes_before_it_is_pinned_is_imported_again(params, world, containerd, times):
    containerd.removed = [PAUSE] * times
    assert install_components(params, False, world=world).changed
    assert sum("import" in command for command in containerd.commands) == times + 1
    assert containerd.labels[PAUSE].items() >= PIN.items()


def test_an_image_that_kubelet_removes_each_time_is_told(params, world, containerd):
    containerd.removed = [PAUSE] * 3
    assert "does not list them pinned" in refused(Reason.IMAGE_IMPORT_FAILED, params, world).message


def test_an_unpinned_image_that_kubelet_removes_meanwhile_is_told(params, world, containerd):
    install_components(params, False, world=world)
    containerd.labels, containerd.unlabelled = {}, True
    containerd.commands.clear()
    assert "does not list them pinned" in refused(Reason.IMAGE_IMPORT_FAILED, params, world).message
    assert not any("import" in command for command in containerd.commands)


def identity(path: Path) -> tuple[int, ...]:
    """Which file it is, and as of when; without the time of the last access, which reading changes."""
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_mode, state.st_size, state.st_mtime_ns


def kept(root: Path) -> dict[str, bytes]:
    """The kubelet of each release."""
    releases = [path for path in root.glob("opt/attested/releases/*") if not path.is_symlink()]
    return {path.name: (path / KUBELET).read_bytes() for path in releases}


def test_a_member_keeps_its_programs_and_gets_the_release_beside_them(params, world, node_root, bundle_dir):
    """Kubelet and kubeadm are not swapped under a running node, in either of two runs."""
    first = install_components(params, False, world=world).values["release"]
    join(node_root)
    renew(bundle_dir)
    before = identity(node_root / KUBELET)

    runs = [install_components(params, check, world=world) for check in (True, False, False)]

    assert [run.changed for run in runs] == [True, True, False]
    assert identity(node_root / KUBELET) == before
    release = runs[1].values["release"]
    assert set(kept(node_root)) == {first, release}
    assert kept(node_root)[release] == NEW
    assert (runs[1].values["installed"], runs[1].values["waiting"]) == ([], ["/usr/local/bin/kubelet"])
    assert runs[1].values["message"] == (
        f"prepared release {release}, in use {first}; next: ansible-playbook attested.kubernetes.upgrade"
    )


def test_a_machine_that_is_no_member_is_switched_at_once(params, world, node_root, bundle_dir):
    install_components(params, False, world=world)
    renew(bundle_dir)

    result = install_components(params, False, world=world)

    assert (node_root / KUBELET).read_bytes() == NEW
    assert (result.values["waiting"], result.values["message"]) == ([], "")
    assert set(kept(node_root)) == {result.values["release"]}


def test_a_release_whose_program_still_runs_is_not_removed(params, world, node_root, bundle_dir):
    """The process was started from the installed path, which is another file by now."""
    first = install_components(params, False, world=world).values["release"]
    (node_root / "running").hardlink_to(node_root / KUBELET)
    (node_root / "proc/77").mkdir(parents=True)
    (node_root / "proc/77/exe").symlink_to(node_root / "running")
    renew(bundle_dir)

    release = install_components(params, False, world=world).values["release"]

    assert set(kept(node_root)) == {first, release}


def test_a_program_is_one_file_on_the_disk_and_no_link(params, world, node_root):
    release = install_components(params, False, world=world).values["release"]
    assert not (node_root / KUBELET).is_symlink()
    assert (node_root / KUBELET).samefile(node_root / "opt/attested/releases" / release / KUBELET)


def test_a_release_with_the_same_programs_needs_none_of_them_again(params, world, node_root, bundle_dir):
    install_components(params, False, world=world)
    join(node_root)
    rewrite(bundle_dir, {**manifest_of(bundle_dir), "inputs_sha256": "ef" * 32})
    (bundle_dir / "programs/kubelet.gz").unlink()

    result = install_components(params, False, world=world)

    assert result.values["waiting"] == []
    assert kept(node_root)[result.values["release"]] == (node_root / KUBELET).read_bytes()


def test_a_member_that_was_reset_takes_what_was_prepared(params, world, node_root, bundle_dir):
    install_components(params, False, world=world)
    join(node_root)
    renew(bundle_dir)
    install_components(params, False, world=world)
    (node_root / "etc/kubernetes/kubelet.conf").unlink()
    (bundle_dir / "programs/kubelet.gz").unlink()

    assert install_components(params, False, world=world).values["installed"] == ["/usr/local/bin/kubelet"]
    assert (node_root / KUBELET).read_bytes() == NEW


STEP = "steps/1.34.9/usr/local/bin/kubeadm"


@pytest.fixture
def waiting(params, world, bundle_dir, node_root, containerd):
    """A member that is to go to another kubelet, by a release in between."""
    install_components(params, False, world=world)
    join(node_root)
    renew(bundle_dir)
    told, stored = step()
    for name, content in stored.items():
        (bundle_dir / name).write_bytes(content)
    rewrite(bundle_dir, {**manifest_of(bundle_dir), "steps": [told]})
    containerd.commands.clear()
    return params


def test_a_control_plane_gets_the_release_in_between_beside_its_own(waiting, world, node_root, containerd):
    wish = {**waiting, "role": "control_plane"}
    walk = [install_components(wish, check, world=world) for check in (True, False, False, True)]
    assert [one.changed for one in walk] == [True, True, False, False]
    place = node_root / "opt/attested/releases" / walk[0].values["release"]
    assert (place / STEP).read_bytes() == KUBEADM
    assert not (node_root / "usr/local/bin/kubeadm").exists()
    assert walk[1].values["installed"] == []
    assert {"example.test/etcd:0", "example.test/pause:0"} < set(containerd.images)


def test_a_worker_gets_of_it_what_is_for_all_nodes(waiting, world, node_root, containerd):
    release = install_components(waiting, False, world=world).values["release"]
    assert not (node_root / "opt/attested/releases" / release / "steps").exists()
    assert "example.test/pause:0" in containerd.images
    assert "example.test/etcd:0" not in containerd.images


def test_a_machine_that_is_no_member_needs_no_release_in_between(waiting, world, node_root, containerd):
    (node_root / "etc/kubernetes/kubelet.conf").unlink()
    release = install_components({**waiting, "role": "control_plane"}, False, world=world).values["release"]
    assert not (node_root / "opt/attested/releases" / release / "steps").exists()
    assert "example.test/etcd:0" not in containerd.images


def test_a_member_that_is_there_does_not_miss_it_any_more(waiting, world, node_root, containerd):
    wish = {**waiting, "role": "control_plane"}
    install_components(wish, False, world=world)
    (node_root / KUBELET).write_bytes(NEW)
    del containerd.images["example.test/etcd:0"]
    assert install_components(wish, True, world=world).values["imported"] == []


def test_inspection_names_what_a_release_in_between_needs(waiting, world, bundle_dir):
    manifest = base64.b64encode((bundle_dir / "manifest.json").read_bytes()).decode()
    asked = {"manifest": manifest, "store": "/nowhere", "runtime_path": "/opt/attested/venv"}
    found = {
        role: set(inspect_components({**asked, "role": role}, False, world=world).values["needed"])
        for role in ("worker", "control_plane")
    }
    of_a_step = {"programs/kubeadm-1.34.gz", "images/step.tar", "images/step-pause.tar"}
    assert found["control_plane"] >= of_a_step
    assert found["worker"] & of_a_step == {"images/step-pause.tar"}


def test_inspection_names_the_least_free_space(waiting, world, bundle_dir, node_root, monkeypatch):
    """Of what is there: a directory that is not counts as its parent."""
    free = {node_root / "etc": 3, node_root: 2, node_root / "opt": 7}
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=free[place]))
    manifest = base64.b64encode((bundle_dir / "manifest.json").read_bytes()).decode()
    asked = {"manifest": manifest, "store": "/nowhere", "runtime_path": "/opt/attested/venv", "role": "worker"}
    shutil.rmtree(node_root / "usr")
    shutil.rmtree(node_root / "var", ignore_errors=True)
    assert inspect_components(asked, False, world=world).values["free_bytes"] == 2


def test_the_whole_bundle_verifies(bundle_dir):
    bundle = open_bundle(bundle_dir)
    verify_blobs(bundle, bundle.manifest.blobs)


def test_inspection_names_only_what_this_node_lacks(params, world, bundle_dir):
    asked = {
        "manifest": base64.b64encode((bundle_dir / "manifest.json").read_bytes()).decode(),
        "role": "worker",
        "store": "/var/lib/attested/bundle",
        "runtime_path": "/opt/attested/venv",
    }
    before = inspect_components(asked, False, world=world).values
    store = world.root / "var/lib/attested/bundle"
    (store / "programs").mkdir(parents=True)
    (store / "programs/kubelet.gz").write_bytes((bundle_dir / "programs/kubelet.gz").read_bytes())
    delivered = inspect_components(asked, False, world=world).values
    release = install_components(params, False, world=world).values["release"]
    after = inspect_components(asked, False, world=world).values

    assert before["missing"] == ["programs/kubelet.gz", "images/node.tar", "wheels/py3.11.tar"]
    assert delivered["missing"] == ["images/node.tar", "wheels/py3.11.tar"]
    assert delivered["needed"] == before["needed"]
    assert (after["needed"], after["components_current"]) == (["wheels/py3.11.tar"], True)
    assert (after["current"], after["member"], after["message"]) == (False, False, "")
    join(world.root)
    renew(bundle_dir)
    newer = {**asked, "manifest": base64.b64encode((bundle_dir / "manifest.json").read_bytes()).decode()}
    member = inspect_components(newer, False, world=world).values
    assert (member["needed"], member["member"]) == (["programs/kubelet.gz", "wheels/py3.11.tar"], True)
    assert (
        f"prepared release {member['release']}, in use unknown (services), {release} (Kubernetes)" in member["message"]
    )


def test_inspection_wants_the_manifest_in_base64(world):
    with pytest.raises(ComponentError) as caught:
        inspect_components({"manifest": "{}"}, False, world=world)
    assert caught.value.reason is Reason.BUNDLE_MALFORMED


CONTAINERD = b"\x7fELF containerd " * 100


@pytest.fixture
def with_containerd(params, bundle_dir):
    """A bundle that has containerd."""
    packed = gzip.compress(CONTAINERD, mtime=0)
    (bundle_dir / "programs/containerd.gz").write_bytes(packed)
    manifest = manifest_of(bundle_dir)
    entry = {**manifest["files"][0], "name": "containerd", "path": "programs/containerd.gz"}
    entry |= {"sha256": hashlib.sha256(packed).hexdigest(), "size": len(packed)}
    entry |= {"content_sha256": hashlib.sha256(CONTAINERD).hexdigest(), "content_size": len(CONTAINERD)}
    manifest["files"].append({**entry, "install_path": "/usr/local/bin/containerd"})
    rewrite(bundle_dir, manifest)
    return params


def test_containerd_is_one_of_the_programs(with_containerd, world, node_root):
    result = install_components(with_containerd, False, world=world)
    assert result.values["installed"] == ["/usr/local/bin/kubelet", "/usr/local/bin/containerd"]
    assert (node_root / "usr/local/bin/containerd").read_bytes() == CONTAINERD


def test_a_node_with_containerd_of_its_distribution_takes_none(with_containerd, world, node_root, bundle_dir):
    theirs = {**with_containerd, "containerd": "distribution"}
    result = install_components(theirs, False, world=world)
    data = base64.b64encode((bundle_dir / "manifest.json").read_bytes()).decode()
    ask = {"manifest": data, "role": "worker", "store": "/store", "runtime_path": "/opt/attested/venv"}
    needed = [
        inspect_components({**ask, "containerd": which}, False, world=world).values["needed"]
        for which in ("distribution", "bundle")
    ]
    assert result.values["installed"] == ["/usr/local/bin/kubelet"]
    assert not list(node_root.rglob("containerd"))[1:]  # but for the directory of its socket
    assert [("programs/containerd.gz" in one) for one in needed] == [False, True]


def test_programs_come_before_images_where_containerd_is_one_of_them(with_containerd, world, containerd):
    alone = {**with_containerd, "only": "programs"}
    first = [install_components(alone, check, world=world) for check in (True, False, True)]
    assert [one.changed for one in first] == [True, True, False]
    assert (first[1].values["imported"], containerd.images) == ([], {})
    images = {**with_containerd, "only": "images"}
    then = [install_components(images, check, world=world) for check in (True, False, True)]
    assert [one.changed for one in then] == [True, True, False]
    assert (then[1].values["installed"], then[1].values["imported"]) == ([], ["example.test/pause:1"])
    assert not install_components(with_containerd, True, world=world).changed


def test_images_alone_note_no_release(params, world, node_root):
    install_components({**params, "only": "images"}, False, world=world)
    assert not (node_root / "opt/attested/releases/current").is_symlink()
