# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret in every channel of a machine: a plain search finds it in each, and nothing that is gathered has it."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_bundle import Material, parse_material
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_catalogue import (
    UNITS,
    node_sources,
    site_sources,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_collect import (
    MAX_TOTAL,
    Collector,
    Hider,
    pick,
    run_material,
    secrets_of_machine,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KEY = (
    rsa.generate_private_key(public_exponent=65537, key_size=2048)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)
CERTIFICATE = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(bytes(96)).decode()}\n-----END CERTIFICATE-----"
SOURCES = node_sources(firmware_log="/srv/eventlog.bin", userspace_log="/srv/userspace.json")


@dataclass(slots=True)
class Machine:
    """Programs of a machine: systemd tells the properties that it is asked for, the API server the kinds."""

    root: Path
    secret: str
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    journal: str = ""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Answer as the program would."""
        assert stdin is None
        assert env is None
        assert timeout_seconds > 0 or check
        words = tuple(argv)
        self.asked.append(words)
        if words[0] in {"date", "kubelet"}:
            raise SystemFault(f"expected the program {words[0]}, found none", reason=Reason.COMMAND_MISSING)
        output = {"systemctl": self._systemctl, "journalctl": self._journalctl, "kubectl": self._kubectl}
        text = output.get(words[0], lambda words: f"{words[0]} says this\n")(words)
        return CommandResult(argv=words, returncode=0, stdout=text.encode(), stderr=b"")

    def everything(self) -> dict[str, str]:
        """Return what each channel of the machine says when nobody is careful."""
        files = {str(path): path.read_text() for path in self.root.rglob("*") if path.is_file()}
        kinds = {f"object {kind}": json.dumps(found) for kind, found in self.objects.items()}
        environment = self._systemctl(("--property=Environment",))
        return {**files, **kinds, "journal": self.journal, "environment of a unit": environment}

    def _systemctl(self, words: tuple[str, ...]) -> str:
        properties = {"Id": UNITS[0], "Environment": f"PLANTED={self.secret}", "ActiveState": "active"}
        asked = next((word for word in words if word.startswith("--property=")), "--property=Id").partition("=")[2]
        return "".join(f"{name}={properties[name]}\n" for name in asked.split(",") if name in properties)

    def _journalctl(self, words: tuple[str, ...]) -> str:
        unit = next(word for word in words if word.startswith("--unit=")).partition("=")[2]
        return self.journal if unit == "kubelet.service" else f"a line of {unit}\n"

    def _kubectl(self, words: tuple[str, ...]) -> str:
        kind = words[words.index("get") + 1].partition(".")[0]
        return json.dumps({"items": self.objects.get(kind, [])})


def write(root: Path, name: str, content: str) -> None:
    """Write one file of the machine."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.fixture
def secret() -> str:
    """A secret that no pattern knows."""
    return secrets.token_hex(24)


@pytest.fixture
def machine(tmp_path: Path, secret: str) -> Machine:
    """A control plane in whose every channel there is a secret."""
    root = tmp_path / "machine"
    pod = {
        "kind": "Pod",
        "metadata": {"name": "etcd", "annotations": {"x": secret}},
        "spec": {"containers": [{"name": "etcd", "image": "etcd:1", "env": [{"name": "X", "value": secret}]}]},
    }
    write(root, "etc/kubernetes/manifests/etcd.yaml", yaml.safe_dump(pod))
    write(root, "etc/kubernetes/admin.conf", f"client-key-data: {base64.b64encode(KEY.encode()).decode()}\n")
    write(root, "etc/kubernetes/pki/ca.key", KEY)
    write(root, "etc/kubernetes/pki/ca.crt", CERTIFICATE)
    write(root, "var/lib/kubelet/pki/kubelet-client-current.pem", f"{CERTIFICATE}\n{KEY}")
    write(root, "var/lib/kubelet/config.yaml", f"cgroupDriver: systemd\nstaticPodURLHeader: {{X: [{secret}]}}\n")
    write(root, "var/lib/kubelet/kubeadm-flags.env", f"X={secret}\n")
    write(root, "etc/attested/node.yml", f"name: cp-1\nnote: {secret}\n# {secret}\n")
    write(root, "etc/containerd/config.toml", f'auth = "{secret}"\n')
    write(root, "var/lib/attested/kubeadm/progress.json", json.dumps({"operation": "init", "x": secret}))
    write(root, "proc/cmdline", f"quiet unlock={secret}")
    write(root, "proc/swaps", f"Filename\npassword={secret}\n")
    write(root, "srv/eventlog.bin", secret)
    write(root, "run/attested/tickets/one", secret)
    lines = (KEY.splitlines()[3], f"token: {secret}", f"Bearer {secret}", KEY, spellings_of_pem(KEY.encode())[3].hex())
    made = Machine(root, secret, journal="".join(f"{line}\n" for line in ("it begins", *lines, "it ends")))
    made.objects = {
        "nodes": [
            {"kind": "Node", "metadata": {"name": "cp-1", "annotations": {"x": secret}}, "status": {"x": secret}}
        ],
        "events": [event("Pod", secret), event("Node", "registered")],
        "configmaps": [{"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": "c: 1", "y": secret}}],
        "secrets": [{"metadata": {"name": "s"}, "data": {"x": secret}}],
    }
    return made


def event(kind: str, message: str) -> dict[str, Any]:
    """Return an event about an object of a kind."""
    return {"metadata": {"name": "e"}, "involvedObject": {"kind": kind}, "message": message}


def gathered(machine: Machine) -> Material:
    """Return what is gathered on the machine."""
    hider = secrets_of_machine(machine.root)
    return Collector(runner=machine, hider=hider, root=machine.root).collect(SOURCES)


def needles(secret: str) -> list[bytes]:
    """Return every spelling of both planted secrets."""
    return [*spellings(secret.encode()), *spellings_of_pem(KEY.encode())]


def holding(texts: Mapping[str, str], wanted: list[bytes]) -> set[str]:
    """Return which of the texts hold any of the needles."""
    return {name for name, text in texts.items() if any(one in text.encode() for one in wanted)}


def test_a_plain_search_finds_the_planted_secret_in_every_channel(machine: Machine, secret: str):
    channels = machine.everything()
    clean = {str(machine.root / "etc/kubernetes/pki/ca.crt")}
    assert holding(channels, needles(secret)) == set(channels) - clean


def test_nothing_that_is_gathered_has_it(machine: Machine, secret: str):
    material = gathered(machine)
    told = {piece.name: piece.content + piece.origin + piece.note for piece in material.pieces}
    told["left out"] = json.dumps([one.what + one.why for one in material.left_out])
    assert holding(told, needles(secret)) == set()


def test_what_is_allowed_is_there_all_the_same(machine: Machine):
    found = {piece.name: piece for piece in gathered(machine).pieces}
    journal = found["journals/kubelet.service.log"]
    assert journal.content.splitlines()[0] == "it begins"
    assert journal.content.splitlines()[-1] == "it ends"
    assert journal.hidden >= 5
    assert found["certificates/var/lib/kubelet/pki/kubelet-client-current.pem"].content == CERTIFICATE
    assert yaml.safe_load(found["configuration/node.yml"].content) == {"name": "cp-1"}
    assert yaml.safe_load(found["configuration/kubelet.yml"].content) == {"cgroupDriver": "systemd"}
    assert yaml.safe_load(found["configuration/etcd.yml"].content)["spec"]["containers"] == [
        {"name": "etcd", "image": "etcd:1"}
    ]
    assert [json.loads(line)["message"] for line in found["objects/events.jsonl"].content.splitlines()] == [
        "registered"
    ]
    assert "ClusterConfiguration" in found["objects/kubeadm-config.jsonl"].content
    assert found["units.txt"].content == f"Id={UNITS[0]}\nActiveState=active\n"
    assert json.loads(found["digests/cmdline"].content)["size"] > 0


def test_secrets_of_the_cluster_and_environments_are_not_even_asked_for(machine: Machine):
    gathered(machine)
    kinds = {argv[argv.index("get") + 1] for argv in machine.asked if argv[0] == "kubectl"}
    assert kinds & {"secrets", "pods"} == set()
    assert "nodes" in kinds
    assert not any("Environment" in word for argv in machine.asked if argv[0] == "systemctl" for word in argv)
    assert [argv for argv in machine.asked if argv[0] == "journalctl" and argv[1].partition("=")[2] not in UNITS] == []


def test_a_source_that_fails_is_a_line_and_the_rest_goes_on(machine: Machine):
    write(machine.root, "etc/attested/join-service.yml", "{[")
    material = gathered(machine)
    why = {one.what: one.why for one in material.left_out}
    assert why["system/clock.txt"] == "expected the program date, found none"
    assert "configuration/join-service.yml" in why
    assert "configuration/kube-apiserver.yml" in why
    assert len(material.pieces) > 30


def test_a_worker_names_why_it_has_no_objects(machine: Machine):
    (machine.root / "etc/kubernetes/admin.conf").unlink()
    why = {one.what: one.why for one in gathered(machine).left_out}
    assert why["nodes"] == "this machine has no kubeconfig of an admin"
    assert not any(argv[0] == "kubectl" for argv in machine.asked)


@pytest.mark.parametrize("target", ["../../../../secret", "/etc/shadow"])
def test_a_link_that_leads_elsewhere_is_not_followed(machine: Machine, target: str):
    write(machine.root.parent, "secret", "name: elsewhere\n")
    path = machine.root / "etc/attested/node.yml"
    path.unlink()
    path.symlink_to(target)
    material = gathered(machine)
    assert "configuration/node.yml" in {one.what for one in material.left_out}
    assert "configuration/node.yml" not in {piece.name for piece in material.pieces}


def test_a_long_journal_keeps_its_end_and_a_machine_no_more_than_its_share(machine: Machine):
    machine.journal = "".join(f"line {number}\n" for number in range(100_000))
    found = {piece.name: piece for piece in gathered(machine).pieces}
    journal = found["journals/kubelet.service.log"]
    assert journal.note == "the last 524288 bytes"
    assert journal.content.endswith("line 99999\n")
    assert len(journal.content) <= 512 * 1024
    assert sum(len(piece.content) for piece in found.values()) <= MAX_TOTAL


def test_what_exceeds_the_share_of_a_machine_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "ansible_collections.attested.kubernetes.plugins.module_utils.node.support_collect.MAX_TOTAL", 100
    )
    material = gathered(machine)
    assert sum(len(piece.content) for piece in material.pieces) <= 100
    assert any("at most 100 bytes" in one.why for one in material.left_out)


@pytest.mark.parametrize(
    ("shape", "document", "kept"),
    [
        pytest.param({"a": True}, {"a": 1, "b": 2}, {"a": 1}, id="a field that is not listed"),
        pytest.param({"a": {"b": True}}, {"a": "text"}, {"a": None}, id="text where a mapping is expected"),
        pytest.param({"a": [{"b": True}]}, {"a": {"b": 1}}, {"a": []}, id="a mapping where a list is expected"),
        pytest.param({"a": [{"b": True}]}, {"a": [{"b": 1, "c": 2}, "x"]}, {"a": [{"b": 1}, None]}, id="items"),
        pytest.param({"a": True}, ["a"], None, id="a list where a mapping is expected"),
        pytest.param(False, {"a": 1}, None, id="nothing"),
    ],
)
def test_what_a_shape_keeps(shape: Any, document: Any, kept: Any):
    assert pick(document, shape) == kept


def test_of_a_site_only_what_it_commits_is_taken(tmp_path: Path, secret: str):
    for name, text in {
        "hosts.yml": f"x: {secret}",
        "group_vars/nodes/cluster.yml": f"attested_cluster_name: {secret}",
        ".secrets/master-secret.json": secret,
        "cluster.yml": f"cluster_id: abc\nother: {secret}\n",
        "host_vars/w-1/identity.yml": f"attested_ek: sha256:00\nansible_become_password: {secret}\n",
        "host_vars/w-1/tpm.yml": secret,
        "policy/lab.yml": f"kind: MeasurementProfile\nmetadata: {{name: lab, annotations: {{x: {secret}}}}}\n",
    }.items():
        write(tmp_path, name, text)
    machine = Machine(tmp_path, secret)
    material = Collector(runner=machine, hider=Hider()).collect(site_sources(tmp_path, tmp_path / "policy"))
    assert {piece.name for piece in material.pieces} == {"cluster.yml", "host_vars/w-1.yml", "policy/lab.yml"}
    assert holding({piece.name: piece.content for piece in material.pieces}, needles(secret)) == set()
    assert machine.asked == []


def test_the_module_gathers_without_a_tpm_and_on_a_machine_that_never_began(tmp_path: Path):
    params = {"tcti": "device:/dev/no-such-tpm", "firmware_log": "/x", "userspace_log": "/y"}
    values = run_material(params, False, runner=Machine(tmp_path, "none"), root=tmp_path).values
    material = parse_material(base64.b64decode(values["material"]))
    assert values["collected"] == len(material.pieces) > 15
    assert any(line.startswith("registers: ") for line in values["left_out"])
