# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole small bundle on disk, and a containerd that only remembers names."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KUBELET = b"\x7fELF kubelet " * 500
DIGEST = "sha256:" + "ab" * 32


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel_tar(names: tuple[str, ...]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    return raw.getvalue()


def document() -> tuple[dict[str, Any], dict[str, bytes]]:
    """A manifest as plain data and the stored files that belong to it."""
    packed = gzip.compress(KUBELET, mtime=0)
    wheels = ("demo-1.0-py3-none-any.whl", "kubernetes-37.0-py3-none-any.whl")
    stored = {
        "programs/kubelet.gz": packed,
        "images/node.tar": b"an image archive",
        "images/control-plane.tar": b"another image archive",
        "wheels/py3.11.tar": wheel_tar(wheels),
    }

    def blob(path: str, roles: tuple[str, ...] = ("control_plane", "worker")) -> dict[str, Any]:
        data = stored[path]
        return {
            "path": path,
            "sha256": sha(data),
            "size": len(data),
            "arch": "amd64",
            "origin": "built",
            "roles": list(roles),
        }

    image = {"reference": "example.test/pause:1", "digest": DIGEST, "component": "pause"}
    etcd = {"reference": "example.test/etcd:1", "digest": DIGEST, "component": "etcd"}
    manifest = {
        "schema": "attested.bundle/1",
        "kubernetes_version": "1.35.4",
        "inputs_sha256": "cd" * 32,
        "files": [
            {
                "name": "kubelet",
                "version": "1.35.4",
                **blob("programs/kubelet.gz"),
                "compression": "gzip",
                "content_sha256": sha(KUBELET),
                "content_size": len(KUBELET),
                "install_path": "/usr/local/bin/kubelet",
                "mode": "0755",
            }
        ],
        "image_archives": [
            {"name": "node", **blob("images/node.tar"), "images": [image]},
            {"name": "cp", **blob("images/control-plane.tar", ("control_plane",)), "images": [etcd]},
        ],
        "wheel_archives": [
            {
                "python": "3.11",
                **blob("wheels/py3.11.tar"),
                "wheels": [
                    {
                        "name": name.split("-", maxsplit=1)[0],
                        "version": name.split("-")[1],
                        "filename": name,
                        "sha256": sha(name.encode()),
                        "control_plane_only": name.startswith("kubernetes"),
                    }
                    for name in wheels
                ],
            }
        ],
    }
    return manifest, stored


KUBEADM = b"\x7fELF kubeadm of the step " * 50


def step() -> tuple[dict[str, Any], dict[str, bytes]]:
    """A release on the way as plain data, and the stored files that belong to it."""
    packed = gzip.compress(KUBEADM, mtime=0)
    stored = {"programs/kubeadm-1.34.gz": packed, "images/step.tar": b"images", "images/step-pause.tar": b"pause"}

    def blob(path: str, *roles: str) -> dict[str, Any]:
        told = {"path": path, "sha256": sha(stored[path]), "size": len(stored[path])}
        return told | {"arch": "amd64", "origin": "built", "roles": list(roles)}

    kubeadm = {
        "name": "kubeadm",
        "version": "1.34.9",
        **blob("programs/kubeadm-1.34.gz", "control_plane"),
        "compression": "gzip",
        "content_sha256": sha(KUBEADM),
        "content_size": len(KUBEADM),
        "install_path": "/usr/local/bin/kubeadm",
        "mode": "0755",
    }
    etcd = {"reference": "example.test/etcd:0", "digest": DIGEST, "component": "etcd"}
    pause = {"reference": "example.test/pause:0", "digest": DIGEST, "component": "pause"}
    archives = [
        {"name": "control-plane", **blob("images/step.tar", "control_plane"), "images": [etcd]},
        {"name": "pause", **blob("images/step-pause.tar", "control_plane", "worker"), "images": [pause]},
    ]
    return {"kubernetes_version": "1.34.9", "files": [kubeadm], "image_archives": archives}, stored


@dataclass
class FakeContainerd:
    """Answers `ctr` for archives it was told about; notes every command."""

    archives: dict[str, dict[str, str]]
    images: dict[str, str] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    broken: bool = False
    unlabelled: bool = False
    removed: list[str] = field(default_factory=list)
    """References that kubelet removes, one right after each import."""

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        self.commands.append(tuple(argv))
        if "import" in argv:
            if self.broken:
                raise SystemFault("expected ctr to succeed: no space", reason=Reason.COMMAND_FAILED)
            imported = self.archives[argv[-1].rpartition("/")[2]]
            self.images |= imported
            self.labels |= {name: {} for name in imported}  # as containerd does
            if self.removed:
                del self.images[self.removed.pop()]
        if "label" in argv:
            if self.unlabelled:
                return CommandResult(argv=tuple(argv), returncode=1, stdout=b"", stderr=b"ctr: not found\n")
            name, *pairs = argv[argv.index("label") + 1 :]
            given = dict(pair.split("=", 1) for pair in pairs)
            self.labels[name] = {key: value for key, value in (self.labels.get(name, {}) | given).items() if value}
        rows = "".join(
            f"{name} application/x {digest} 1.0 MiB linux/amd64 {self.column(name)}\t\n"
            for name, digest in self.images.items()
        )
        text = "3.11" if "-c" in argv else "REF TYPE DIGEST SIZE PLATFORMS LABELS\n" + rows
        return CommandResult(argv=tuple(argv), returncode=0, stdout=text.encode(), stderr=b"")

    def column(self, name: str) -> str:
        """Return the labels of an image as `ctr images list` shows them."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.labels.get(name, {}).items())) or "-"


@pytest.fixture
def manifest() -> dict[str, Any]:
    return document()[0]


@pytest.fixture
def bundle_dir(tmp_path: Path) -> Path:
    data, stored = document()
    root = tmp_path / "bundle"
    for name, content in stored.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "manifest.json").write_text(json.dumps(data))
    return root


@pytest.fixture
def containerd() -> FakeContainerd:
    return FakeContainerd(
        archives={
            "node.tar": {"example.test/pause:1": DIGEST},
            "control-plane.tar": {"example.test/etcd:1": DIGEST},
            "step.tar": {"example.test/etcd:0": DIGEST},
            "step-pause.tar": {"example.test/pause:0": DIGEST},
        }
    )


@pytest.fixture
def node_root(tmp_path: Path) -> Path:
    """The file system of a node on which containerd runs."""
    root = tmp_path / "node"
    (root / "run/containerd").mkdir(parents=True)
    (root / "run/containerd/containerd.sock").touch()
    return root
