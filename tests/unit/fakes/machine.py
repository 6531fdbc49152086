# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in a directory: programs that leave the files which the real ones leave."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import PurePosixPath

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import (
    INIT_PHASES,
    JOIN_PHASES,
    MEMBER_PHASES,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


class FakeClock:
    """Time that passes by sleeping only."""

    def __init__(self):
        self.elapsed = 0.0

    def now(self):
        return NOW + dt.timedelta(seconds=self.elapsed)

    def monotonic(self):
        return self.elapsed

    def sleep(self, seconds):
        self.elapsed += seconds


class FakePrograms:
    """kubeadm, systemctl, ip, nft and kubectl of one machine, below a root directory."""

    def __init__(self, root):
        self.root = root
        self.calls = []
        self.active = False
        self.bootstrapper = "inactive"
        self.links = set()
        self.tables = set()
        self.answers = {}
        self.versions = {"kubeadm": "v1.35.4", "kubelet": "Kubernetes v1.35.4"}

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del stdin, env
        words = tuple(argv)
        self.calls.append(words)
        code, error = self._answer(words, timeout_seconds)
        shown = self.bootstrapper if words[1:] == ("is-active", "attested-bootstrapper.service") else ""
        if words[1:2] in {("version",), ("--version",)}:
            shown = self.versions[words[0]]
        result = CommandResult(argv=words, returncode=code, stdout=shown.encode(), stderr=error)
        if check and code != 0:
            raise SystemFault("failed", reason=Reason.COMMAND_FAILED)
        return result

    def phases(self):
        """The phases that ran, in order."""
        return [" ".join(words[3 : words.index("--config")]) for words in self.calls if words[2:3] == ("phase",)]

    def _answer(self, words, timeout_seconds):
        for start, answer in self.answers.items():
            if words[: len(start)] == start:
                if answer == "timeout":
                    raise SystemFault(f"{timeout_seconds}", reason=Reason.COMMAND_TIMEOUT)
                return answer
        return getattr(self, f"_{words[0]}")(words[1:])

    def _kubeadm(self, words):
        if words[0] in {"reset", "version"}:
            return 0, b""
        return self._phase(words)

    def _phase(self, words):
        command = words[2 : words.index("--config")]
        table = INIT_PHASES if words[0] == "init" else (*JOIN_PHASES, *MEMBER_PHASES)
        phase = next(one for one in table if one.command == command)
        for path in phase.witnesses:
            self._leave(path)
        if command == ("kubeconfig", "all"):
            self._leave(PurePosixPath("etc/kubernetes/super-admin.conf"))
        self.active = self.active or command == ("kubelet-start",)
        return 0, b""

    def _kubelet(self, words):
        assert words == ("--version",)
        return 0, b""

    def _leave(self, path):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.name == "kubelet.conf" and not target.exists():
            target.write_text(json.dumps(embedded_kubeconfig()))
        elif not target.exists():
            target.write_text("x\n")

    def _systemctl(self, words):
        if words[0] == "is-active":
            return (0 if self.active else 3), b""
        if words[0] in ("start", "restart"):
            self.active = (self.root / "run/attested/locked").exists()
        if "--now" in words:
            self.active = False
        return 0, b""

    def _ip(self, words):
        return self._network(self.links, words[1], words[-1])

    def _nft(self, words):
        return self._network(self.tables, words[0], words[2:])

    def _network(self, present, verb, name):
        if name not in present:
            return 1, b"no such thing"
        if verb == "delete":
            present.discard(name)
        return 0, b""


def pair(name="w-1", organization="system:nodes", days=3):
    """A kubelet's certificate and key, self-signed: the code under test does not look at the issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - dt.timedelta(minutes=5))
        .not_valid_after(NOW + dt.timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def embedded_kubeconfig():
    """What ``kubeadm init phase kubeconfig kubelet`` writes."""
    certificate, key = pair("cp-1")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.11:6443"}}],
        "users": [
            {
                "name": "u",
                "user": {
                    "client-certificate-data": base64.b64encode(certificate).decode(),
                    "client-key-data": base64.b64encode(key).decode(),
                },
            }
        ],
    }


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def programs(tmp_path):
    return FakePrograms(tmp_path)


@pytest.fixture
def machine(programs, clock, tmp_path):
    return Machine(runner=programs, clock=clock, paths=KubernetesPaths(root=tmp_path))


@pytest.fixture
def locked(machine):
    """The machine, with its lock taken."""
    machine.paths.lock_marker.parent.mkdir(parents=True)
    machine.paths.lock_marker.write_text("0\n")
    return machine


@pytest.fixture
def make_pair():
    return pair
