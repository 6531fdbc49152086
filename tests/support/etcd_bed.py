# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real members of etcd on loopback with TLS like kubeadm's: they join, are killed, and are replaced.

Programs and certificates are those of `api_bed`; etcdctl runs the steps of kubeadm for a joining control plane.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import EtcdError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import (
    EtcdCredentials,
    EtcdGateway,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import Authority, binaries, certificate_builder
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECONDS = 900
_STOP_SECONDS = 900


@dataclass(slots=True, kw_only=True)
class Process:
    """One member: name, ports on loopback, and process while it runs."""

    name: str
    client_port: int
    peer_port: int
    running: subprocess.Popen[bytes] | None = None

    @property
    def client_url(self) -> str:
        """The client URL."""
        return f"https://127.0.0.1:{self.client_port}"

    @property
    def peer_url(self) -> str:
        """The peer URL."""
        return f"https://127.0.0.1:{self.peer_port}"


@dataclass(slots=True, kw_only=True)
class EtcdBed:
    """An etcd cluster; ``directory`` has the CA, the client's certificate and the members' data."""

    directory: Path
    members: dict[str, Process] = field(default_factory=dict)

    def begin(self, *names: str) -> None:
        """Start a new cluster with these members and wait until all answer."""
        self._certificates()
        for name in names:
            self.members[name] = _process(name)
        whole = ",".join(f"{one.name}={one.peer_url}" for one in self.members.values())
        for one in self.members.values():
            self._start(one, cluster=whole, state="new")
        for name in names:
            self.wait_healthy(name, asked=name)

    def gateway(self, name: str) -> EtcdGateway:
        """Return the gateway of a control plane to its own member."""
        return EtcdGateway(self.members[name].client_url, EtcdCredentials.below(self.directory))

    def alive(self) -> tuple[str, ...]:
        """Return the members with a running process."""
        return tuple(name for name, one in self.members.items() if one.running and one.running.poll() is None)

    def kill(self, name: str) -> None:
        """End a member like a power cut; its data stay."""
        process = self.members[name].running
        assert process is not None
        process.kill()
        process.wait(timeout=_STOP_SECONDS)

    def learn(self, name: str, *, asked: str) -> None:
        """Add a new member as a learner, through the member ``asked``, and start it."""
        one = _process(name)
        self.add(name, one.peer_url, asked=asked)
        listed = json.loads(self.etcdctl(asked, "member", "list", "--write-out=json"))["members"]
        known = {url: member.get("name") or name for member in listed for url in member["peerURLs"]}
        self.members[name] = one
        self._start(one, cluster=",".join(f"{who}={url}" for url, who in known.items()), state="existing")

    def add(self, name: str, peer_url: str, *, asked: str) -> None:
        """Add a learner that need not exist; etcd accepts it only after all members are connected for a while."""
        words = ("member", "add", name, "--learner", f"--peer-urls={peer_url}")
        wait_for(lambda: " added " in self.etcdctl(asked, *words, check=False))

    def start_again(self, name: str) -> subprocess.Popen[bytes]:
        """Start a killed member with its previous data; return its process."""
        return self._start(self.members[name], cluster=f"{name}={self.members[name].peer_url}", state="existing")

    def promote(self, name: str, *, asked: str) -> None:
        """Promote a learner as soon as etcd finds it in sync, like kubeadm."""
        url = self.members[name].peer_url
        number = next(one.member_id for one in self.gateway(asked).members() if url in one.peer_urls)
        wait_for(lambda: "promoted" in self.etcdctl(asked, "member", "promote", f"{number:x}", check=False))

    def wait_healthy(self, name: str, *, asked: str) -> None:
        """Wait until the member ``asked`` sees ``name`` answer."""

        def is_healthy() -> bool:
            with contextlib.suppress(EtcdError):
                return any(one.name == name and one.healthy for one in self.gateway(asked).members())
            return False

        wait_for(is_healthy)

    def etcdctl(self, name: str, *words: str, check: bool = True) -> str:
        """Run etcdctl against one member and return its output."""
        d = self.directory
        argv = [
            str(binaries() / "etcdctl"),
            f"--endpoints={self.members[name].client_url}",
            f"--cacert={d / 'ca.crt'}",
            f"--cert={d / 'healthcheck-client.crt'}",
            f"--key={d / 'healthcheck-client.key'}",
            *words,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def stop(self) -> None:
        """End all processes."""
        for one in self.members.values():
            if one.running is not None and one.running.poll() is None:
                one.running.kill()
                one.running.wait(timeout=_STOP_SECONDS)

    def log(self, name: str) -> str:
        """Return the output of a member."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _start(self, one: Process, *, cluster: str, state: str) -> subprocess.Popen[bytes]:
        d = self.directory
        argv = [
            str(binaries() / "etcd"),
            f"--name={one.name}",
            f"--data-dir={d / one.name}",
            f"--listen-client-urls={one.client_url}",
            f"--advertise-client-urls={one.client_url}",
            f"--listen-peer-urls={one.peer_url}",
            f"--initial-advertise-peer-urls={one.peer_url}",
            f"--initial-cluster={cluster}",
            f"--initial-cluster-state={state}",
            *(f"--{kind}trusted-ca-file={d / 'ca.crt'}" for kind in ("", "peer-")),
            *(f"--{kind}cert-file={d / 'member.crt'}" for kind in ("", "peer-")),
            *(f"--{kind}key-file={d / 'member.key'}" for kind in ("", "peer-")),
            "--client-cert-auth",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        with (d / f"{one.name}.log").open("ab") as log:
            one.running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return one.running

    def _certificates(self) -> None:
        ca = Authority.make(self.directory)
        ca.issue("healthcheck-client", names=[(NameOID.COMMON_NAME, "kube-etcd-healthcheck-client")])
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "member")])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            certificate_builder(name, ca.certificate.subject, key.public_key())
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(ca.key, hashes.SHA256())
        )
        ca.write("member", made, key)


@contextlib.contextmanager
def etcd_bed(directory: Path, *names: str) -> Iterator[EtcdBed]:
    """Run a cluster below ``directory`` until the block ends."""
    bed = EtcdBed(directory=directory)
    try:
        bed.begin(*names)
        yield bed
    finally:
        bed.stop()


def _process(name: str) -> Process:
    return Process(name=name, client_port=free_port(), peer_port=free_port())
