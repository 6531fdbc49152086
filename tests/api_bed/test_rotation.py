# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key for Secrets is rotated between two real API servers on one real etcd, while Secrets are written through both.

The API servers are started anew where a minute would have to be waited; that a running one takes a new file by itself
is a test of a lab (tests/system/control_planes). What etcd has is read with etcdctl.
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from typing import TYPE_CHECKING, Self

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import EncryptionFile
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import encryption_path
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings
from ansible_collections.attested.kubernetes.tests.support.rotation import Plane, Rotation
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIGURATION = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "apiServer": {"extraArgs": []}}


@pytest.fixture(scope="module")
def rotation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotation]:
    """One control plane of a cluster that was made before Secrets were encrypted, and a few of them."""
    if reason := why_not():
        pytest.skip(reason)
    with api_bed(tmp_path_factory.mktemp("rotation")) as bed:
        first = Plane.make(bed, "cp-1", process="kube-apiserver", server=bed.server)
        text = {"ClusterConfiguration": json.dumps(CONFIGURATION)}
        metadata = {"name": "kubeadm-config", "namespace": "kube-system"}
        bed.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": text})
        for number in range(5):
            write(bed, f"before-{number}")
        write(bed, "unchangeable", immutable=True)
        yield Rotation(bed, {"cp-1": first})


@pytest.fixture(scope="module")
def watch() -> Iterator[ProcessWatch]:
    """Sees every program that runs meanwhile."""
    with ProcessWatch() as watching:
        yield watching


def test_a_cluster_in_clear_is_encrypted_and_its_joiners_are_told(rotation: Rotation, watch: ProcessWatch) -> None:
    """In the order of a rotation, a Secret that nobody may change among them."""
    del watch
    assert stored_by(rotation.bed) == {""}
    while rotation.step("identity"):
        assert read(rotation, "before-0", "cp-1") == "before-0"
    assert rotation.phases == ["make", "share", "lead", "rewrite"]
    assert stored_by(rotation.bed) == {only_key(rotation)}
    data = rotation.bed.get("configmap", "kubeadm-config", "--namespace=kube-system")["data"]
    told = {one["name"]: one["value"] for one in json.loads(data["ClusterConfiguration"])["apiServer"]["extraArgs"]}
    assert told["encryption-provider-config-automatic-reload"] == "true"
    assert told["encryption-provider-config"].endswith("/attested/encryption.yaml")


def test_a_key_is_rotated_with_kills_in_between_while_secrets_are_written(
    rotation: Rotation, watch: ProcessWatch
) -> None:
    """Each phase that goes over all is first left half done; every Secret that was written is there at the end."""
    rotation.planes["cp-2"] = Plane.join(rotation.bed, "cp-2", of=rotation.planes["cp-1"])
    old, old_file = only_key(rotation), encryption_path(rotation.planes["cp-2"].paths).read_bytes()
    rotation.phases.clear()
    with Writer(rotation) as writer:
        while rotation.step(old, half=True):
            require_all_readable(rotation)
    new = only_key(rotation)
    assert [phase for phase in rotation.phases if phase != "rewrite"] == [
        *("make", "share", "share", "lead", "lead", "retire", "retire")
    ]
    assert rotation.phases[5:-2] == ["rewrite"] * (len(rotation.phases) - 7)
    assert stored_by(rotation.bed) == {new} != {old}
    assert len(writer.written) > 1
    assert {name: read(rotation, name, "cp-1") for name in writer.written} == {name: name for name in writer.written}
    require_no_key_shown(rotation, watch, old_file)
    assert not rotation.step(old), "a second run finds nothing to do"

    # the old key alone opens nothing any more, and an API server that has no other is never ready
    plane = rotation.planes["cp-2"]
    encryption_path(plane.paths).write_bytes(old_file)
    rotation.bed.restart_server(plane.process, plane.server, ready=False)
    wait_for(lambda: "InternalError" in try_to_read(plane))


def try_to_read(plane: Plane) -> str:
    """Return what an API server says that is asked for a Secret; never the Secret."""
    said = plane.bed.kubectl(f"--server={plane.server}", "get", "secret", "before-0", "--output=name", check=False)
    assert "secret/before-0" not in said
    return said


class Writer:
    """Makes Secrets through both API servers in turn until it is left; one that is being restarted makes none."""

    def __init__(self, rotation: Rotation) -> None:
        self.written: list[str] = []
        self._rotation = rotation
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._ended.wait(1):
            number += 1
            planes = list(self._rotation.planes.values())
            name = f"meanwhile-{number}"
            if "created" in write(self._rotation.bed, name, server=planes[number % len(planes)].server):
                self.written.append(name)


def write(bed: ApiBed, name: str, *, server: str = "", immutable: bool = False) -> str:
    """Make a Secret that holds its own name, and return what was said."""
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": name}}
    words = (f"--server={server}",) if server else ()
    return bed.kubectl(
        *words, "create", "-f", "-", stdin=json.dumps({**document, "immutable": immutable}), check=not server
    )


def read(rotation: Rotation, name: str, plane: str) -> str:
    """Return the value of a Secret as one API server says it."""
    value = rotation.bed.kubectl(
        f"--server={rotation.planes[plane].server}", "get", "secret", name, "--output=jsonpath={.data.value}"
    )
    return base64.b64decode(value).decode()


def require_all_readable(rotation: Rotation) -> None:
    """Both API servers can read all that there is: a list with one that cannot be read is an error."""
    for plane in rotation.planes.values():
        said = rotation.bed.kubectl(f"--server={plane.server}", "get", "secrets", "--output=name")
        assert "secret/before-4" in said


def stored_by(bed: ApiBed) -> set[str]:
    """Return the keys that Secrets in etcd are closed by, empty for none, asked with etcdctl."""
    address = next(word for word in bed.commands["etcd"] if word.startswith("--listen-client-urls="))
    etcdctl = [str(binaries() / "etcdctl"), f"--endpoints={address.partition('=')[2]}"]
    argv = [*etcdctl, "get", "/registry/secrets/", "--prefix", "--write-out=json"]
    values = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=900).stdout)["kvs"]
    begin = "k8s:enc:secretbox:v1:"
    found = [base64.b64decode(one["value"])[:80].decode("latin-1") for one in values]
    return {text.removeprefix(begin).partition(":")[0] if text.startswith(begin) else "" for text in found}


def only_key(rotation: Rotation) -> str:
    """Return the name of the one key that both have."""
    (content,) = {encryption_path(plane.paths).read_bytes() for plane in rotation.planes.values()}
    (name,) = EncryptionFile.parse(content).order
    return name


def require_no_key_shown(rotation: Rotation, watch: ProcessWatch, old_file: bytes) -> None:
    """No key was in an argument or environment of any program, nor is one in a log, a manifest or etcd."""
    files = [old_file, encryption_path(rotation.planes["cp-1"].paths).read_bytes()]
    needles = [one for file in files for key in EncryptionFile.parse(file).keys for one in spellings(key.secret)]
    places: list[Path] = [
        path
        for path in rotation.bed.directory.rglob("*")
        if path.is_file() and path.name != encryption_path(rotation.planes["cp-1"].paths).name
    ]
    texts = [*(data for _channel, data in watch.seen()), *(path.read_bytes() for path in places)]
    assert any(needle in files[0] for needle in needles), "what is looked for can be found"
    assert len(needles) == 2 * 6
    assert not [needle for needle in needles for text in texts if needle in text]
