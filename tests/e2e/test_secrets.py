# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Must show 4: no secret is in a wrong place after all operations of a lab, at the highest verbosity."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    DiskId,
    disk_key,
    measurement_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.attested.kubernetes.tests.support.road import Road

NODES = ("cp-1", "w-1", "w-2")
PKI = "/etc/kubernetes/pki"
ENCRYPTION = "/etc/kubernetes/attested/encryption.yaml"

# The allowed places of secrets, with reasons. An fnmatch pattern for each needle; all other places are leaks.
PROPER = {
    "master secret": {"/run/attested/key-service/*": "opened keys of a control plane, root-only memory"},
    "join CA key": {"/run/attested/key-service/*": "opened keys of a control plane, root-only memory"},
    "cluster CA key": {f"{PKI}/ca.key": "kubeadm's PKI on a control plane"},
    "etcd CA key": {f"{PKI}/etcd/ca.key": "kubeadm's PKI on a control plane"},
    "front proxy CA key": {f"{PKI}/front-proxy-ca.key": "kubeadm's PKI on a control plane"},
    "service account key": {f"{PKI}/sa.key": "kubeadm's PKI on a control plane"},
    "key of Secrets at rest": {ENCRYPTION: "the API server's configuration on a control plane"},
    **{
        f"kubelet key of {node}": {"/var/lib/kubelet/pki/*": "the kubelet's own credential, on its own node"}
        for node in NODES
    },
}

# Images and layers are from the bundle: programs, not state of this cluster.
SKIPPED = ["/srv/bundles", "/var/lib/containerd/io.containerd"]


@pytest.fixture(scope="module")
def needles(road: Road) -> dict[str, list[bytes]]:
    """All secrets of the cluster in all encodings."""
    vault = Path(sys.executable).parent / "ansible-vault"
    password = f"--vault-password-file={road.lab.directory / 'vault-password'}"

    def opened(name: str) -> bytes:
        argv: list[str | Path] = [vault, "view", password, road.site / ".secrets" / name]
        return subprocess.run(argv, capture_output=True, check=True).stdout

    master = import_master_secret(opened("master-secret.json"))
    found = {
        "master secret": spellings(master.key.reveal()),
        "measurement secret": spellings(measurement_secret(master).reveal()),
        "join CA key": spellings_of_pem(opened("join-ca-key.pem")),
    }
    for name, path in (
        ("cluster CA key", "ca.key"),
        ("etcd CA key", "etcd/ca.key"),
        ("front proxy CA key", "front-proxy-ca.key"),
        ("service account key", "sa.key"),
    ):
        found[name] = spellings_of_pem(road.inside("cp-1", "cat", f"{PKI}/{path}").encode())
    found["key of Secrets at rest"] = spellings(key_at_rest(road))
    for node in NODES:
        pem = road.inside(node, "cat", "/var/lib/kubelet/pki/kubelet-client-current.pem").encode()
        found[f"kubelet key of {node}"] = spellings_of_pem(pem)
    for node in NODES[1:]:
        remembered = json.loads(road.inside(node, "cat", "/var/lib/attested/node.json"))
        found[f"disk key of {node}"] = spellings(disk_key(master, DiskId(remembered["disk_id"])).reveal())
    return found


def test_the_scan_finds_what_is_planted(road: Road, tmp_path: Path) -> None:
    """Proves that the scan finds leaks: one secret is planted in each channel."""
    planted = f"planted-{secrets.token_hex(16)}"
    playbook = tmp_path / "plant.yml"
    playbook.write_text(
        json.dumps([{"hosts": "w-1", "gather_facts": False, "tasks": [{"command": f"echo {planted}"}]}])
    )
    needle = {"planted": [planted.encode()]}
    plant = f"echo {planted} > /var/lib/planted; echo {planted} | systemd-cat; sleep 600; true {planted}"
    words = ("exec", "--env", f"PLANTED={planted}", "w-1", "sh", "-c", plant)
    process = subprocess.Popen([road.lab.directory / "podman", *words])
    try:
        output = road.play(str(playbook)).output
        found = {one["channel"] for one in road.look_inside("w-1", needle, SKIPPED)}
    finally:
        road.inside("w-1", "sh", "-c", "rm /var/lib/planted; pkill -x sleep", check=False)
        process.wait()
    assert found == {"argv", "environment", "file", "journal"}
    assert leaks_in_output(road, needle), output[-2000:]
    assert {channel for channel, seen in road.watch.seen() if planted.encode() in seen} == {"argv", "environment"}


def test_no_log_or_result_of_a_playbook_has_a_secret(road: Road, needles: dict[str, list[bytes]]) -> None:
    """All output at -vvvv, including results of modules."""
    assert any("changed: [" in run.output for run in road.runs)
    assert leaks_in_output(road, needles) == []


def leaks_in_output(road: Road, needles: dict[str, list[bytes]]) -> list[tuple[str, str]]:
    """Return the needles in the output by playbook."""
    printed = [(run.name, run.output.encode()) for run in road.runs]
    return [(name, run) for run, output in printed for name, many in needles.items() if has(output, many)]


def test_no_argv_or_environment_had_a_secret(road: Road, needles: dict[str, list[bytes]]) -> None:
    """Of all processes of this host and its machines, during the whole lab."""
    seen = road.watch.seen()
    assert {channel for channel, _data in seen} == {"argv", "environment"}
    leaks = [(name, channel, data[:200]) for name, many in needles.items() for channel, data in seen if has(data, many)]
    assert leaks == []


@pytest.mark.parametrize("node", NODES)
def test_no_secret_is_outside_its_proper_places(road: Road, needles: dict[str, list[bytes]], node: str) -> None:
    """Files, journal and processes of each machine."""
    found = road.look_inside(node, needles, SKIPPED)
    assert [one for one in found if not is_proper(one, node)] == []
    assert any(one["needle"] == f"kubelet key of {node}" for one in found), (
        "the scan saw not even the kubelet's own key"
    )


def test_no_secret_lies_on_the_machine_of_the_admin(road: Road, needles: dict[str, list[bytes]]) -> None:
    """The site's secrets are Ansible-Vault files; the used directories have no other copy."""
    leaks = [
        (name, str(path))
        for folder in (road.site, road.lab.directory / "ssh", Path.home() / ".ansible")
        for path in files_of(folder)
        for name, many in needles.items()
        if has(content_of(path), many)
    ]
    assert leaks == []


def key_at_rest(road: Road) -> bytes:
    """Return the only key in the file of the API server."""
    (entry,) = json.loads(road.inside("cp-1", "cat", ENCRYPTION))["resources"]
    (key,) = entry["providers"][0]["secretbox"]["keys"]
    return base64.b64decode(key["secret"])


def has(data: bytes, many: list[bytes]) -> bool:
    """Return whether the data contain any encoding."""
    return any(one in data for one in many)


def files_of(folder: Path) -> Iterator[Path]:
    """Return the regular files below a directory; other runs of Ansible may remove some meanwhile."""
    for directory, _directories, names in os.walk(folder):  # Path.rglob ends at a removed directory
        paths = (Path(directory, name) for name in names)
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def content_of(path: Path) -> bytes:
    """Return the content of a file, empty if it is gone."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def is_proper(found: dict[str, str], node: str) -> bool:
    """Return whether a needle is allowed at that place of that node."""
    places = PROPER.get(found["needle"], {})
    foreign = found["needle"].startswith("kubelet key of ") and found["needle"] != f"kubelet key of {node}"
    return found["channel"] == "file" and not foreign and any(Path(found["place"]).match(one) for one in places)
