# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles with other programs and wheels than a lab's, for the same version of Kubernetes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.road import Road

OURS = "ansible_collections/attested/kubernetes/plugins/module_utils"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def changed_wheel(data: bytes, file: str, more: str) -> bytes:
    """Return our wheel with ``more`` before the code of ``file``."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename == f"{OURS}/{file}":
                future = b"from __future__ import annotations\n"
                assert future in content
                content = content.replace(future, future + more.encode(), 1)
            new.writestr(entry, content)
    return made.getvalue()


def change_wheels(bundle: Path, row: dict[str, Any], file: str, more: str) -> None:
    made = io.BytesIO()
    with tarfile.open(bundle / row["path"]) as old, tarfile.open(fileobj=made, mode="w") as new:
        for member in old:
            stream = old.extractfile(member)
            assert stream is not None
            data = stream.read()
            if member.name.startswith("attested_kubernetes-"):
                data = changed_wheel(data, file, more)
                member.size = len(data)
                next(one for one in row["wheels"] if one["filename"] == member.name)["sha256"] = sha(data)
            new.addfile(member, io.BytesIO(data))
    (bundle / row["path"]).write_bytes(made.getvalue())
    row.update(sha256=sha(made.getvalue()), size=len(made.getvalue()))


def newer(
    road: Road,
    name: str,
    *,
    file: str = "core/installed.py",
    more: str,
    instead: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Create a bundle with other kubelet, kubeadm and wheels; return the playbook options to use it.

    ``instead``: the replacement of a program; empty for another file with the same behavior.
    """
    variables = yaml.safe_load((road.site / "group_vars/nodes/lab.yml").read_text())
    source = variables["attested_bundle"].replace("{{ inventory_dir }}", str(road.site))
    bundle = road.lab.directory / name
    shutil.rmtree(bundle, ignore_errors=True)
    shutil.copytree(source, bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    for row in manifest["files"]:
        if row["name"] in {"kubelet", "kubeadm", *instead}:
            content = gzip.decompress((bundle / row["path"]).read_bytes()) + name.encode()  # an ELF file runs as before
            content = instead.get(row["name"]) or content
            packed = gzip.compress(content, 1, mtime=0)
            (bundle / row["path"]).write_bytes(packed)
            row.update(sha256=sha(packed), size=len(packed), content_sha256=sha(content), content_size=len(content))
    for row in manifest["wheel_archives"]:
        change_wheels(bundle, row, file, more)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return ("-e", json.dumps({"attested_bundle": str(bundle), "attested_bundle_on_node": ""}))
