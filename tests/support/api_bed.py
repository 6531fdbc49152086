# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes API on loopback: etcd and kube-apiserver, ready in about three seconds.

The programs come from the cache of the bundle build (``$ATTESTED_CACHE`` or ~/.cache/attested-kubernetes).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KUBERNETES_VERSION = "1.35.4"
_READY_SECONDS = 900
_STOP_SECONDS = 900


def binaries() -> Path:
    """Return the directory of etcd, kube-apiserver and kubectl after a bundle build."""
    cache = os.environ.get("ATTESTED_CACHE")
    root = Path(cache) if cache else Path.home() / ".cache" / "attested-kubernetes"
    return root / "bin" / KUBERNETES_VERSION


def why_not() -> str | None:
    """Return why no bed can start here, or None."""
    missing = [name for name in ("etcd", "kube-apiserver", "kubectl") if not (binaries() / name).is_file()]
    if missing:
        return f"no {', '.join(missing)} in {binaries()}: build the bundle first (playbook bundle)"
    return None


@dataclass(frozen=True, slots=True)
class Authority:
    """A cluster CA like kubeadm's (RSA-2048), in PEM files."""

    directory: Path
    certificate: x509.Certificate
    key: rsa.RSAPrivateKey

    @classmethod
    def make(cls, directory: Path) -> Authority:
        """Write ca.crt and ca.key to ``directory``."""
        key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        certificate = (
            certificate_builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        made = cls(directory, certificate, key)
        made.write("ca", certificate, key)
        return made

    def issue(
        self,
        stem: str,
        *,
        names: list[tuple[x509.ObjectIdentifier, str]],
        server: bool = False,
        dns: tuple[str, ...] = (),
    ) -> None:
        """Write ``stem``.crt and ``stem``.key, a certificate of this CA.

        A server's certificate is for 127.0.0.1, or only for the names in ``dns``.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in names])
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = certificate_builder(subject, self.certificate.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if server:
            alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dns]
            alternatives = alternatives or [x509.IPAddress(ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        self.write(stem, builder.sign(self.key, hashes.SHA256()), key)

    def write(
        self, stem: str, certificate: x509.Certificate, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    ) -> None:
        """Write a pair of PEM files."""
        (self.directory / f"{stem}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self.directory / f"{stem}.key").write_bytes(pem)


def certificate_builder(subject: x509.Name, issuer: x509.Name, key: Any) -> x509.CertificateBuilder:
    """Return a builder of a two-day certificate without extensions and signature."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
    )


@dataclass(slots=True)
class ApiBed:
    """A running API: address, CA, admin credential, and kubectl."""

    directory: Path
    port: int
    ca: Authority
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """The API's URL."""
        return f"https://127.0.0.1:{self.port}"

    def kubectl(self, *words: str, stdin: str | None = None, user: str = "admin", check: bool = True) -> str:
        """Run kubectl as ``user`` (with a certificate in the bed) and return its output."""
        argv = [
            str(binaries() / "kubectl"),
            f"--server={self.server}",
            f"--certificate-authority={self.directory / 'ca.crt'}",
            f"--client-certificate={self.directory / f'{user}.crt'}",
            f"--client-key={self.directory / f'{user}.key'}",
            *words,
        ]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=900, check=False)
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout + ("" if check else done.stderr)

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply objects like the site: server-side, with the site's field manager."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        self.kubectl("apply", "--server-side", "--field-manager=attested-site", "-f", "-", stdin=text)

    def get(self, *words: str) -> dict[str, Any]:
        """Return an object or list as kubectl prints it in JSON."""
        return cast("dict[str, Any]", json.loads(self.kubectl("get", *words, "-o", "json")))

    def snapshot(self) -> Path:
        """Return a copy of the data of etcd as after a power cut; etcd is only paused meanwhile."""
        copy, etcd = Path(tempfile.mkdtemp(dir=self.directory)) / "etcd", self.processes["etcd"]
        etcd.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, etcd.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            shutil.copytree(self.directory / "etcd", copy)
        finally:
            etcd.send_signal(signal.SIGCONT)
        return copy

    def restore(self, copy: Path) -> None:
        """Restore the data of etcd: objects and revisions."""
        with self._stopped():
            shutil.rmtree(self.directory / "etcd")
            shutil.copytree(copy, self.directory / "etcd")

    def restart(self, arguments: Mapping[str, str]) -> None:
        """Restart both, the API server with additional ``arguments``."""
        with self._stopped():
            self.commands["kube-apiserver"] += [f"--{name}={value}" for name, value in arguments.items()]

    def add_server(self, name: str, arguments: Mapping[str, str]) -> str:
        """Start another API server on the same etcd, as ``name`` in `commands`; return its URL.

        ``arguments`` replace those of the first API server.
        """
        port = free_port()
        own = {"secure-port": str(port), **arguments}
        first = [word for word in self.commands["kube-apiserver"] if word[2:].partition("=")[0] not in own]
        self.commands[name] = [*first, *(f"--{key}={value}" for key, value in own.items())]
        _run(self, name, self.commands[name])
        server = f"https://127.0.0.1:{port}"
        _wait_ready(self, server)
        return server

    def kill(self, name: str) -> None:
        """Kill etcd or an API server with SIGKILL and start it again."""
        self.processes[name].kill()
        self.processes[name].wait()
        self.start_again(name)

    def start_again(self, name: str) -> None:
        """Start etcd or an API server that was killed."""
        _run(self, name, self.commands[name])
        _wait_ready(self)

    def restart_server(self, name: str, server: str, *, ready: bool = True) -> None:
        """Restart the API server at ``server`` with its present arguments in `commands`.

        Without ``ready``, do not wait until it is ready.
        """
        self.processes[name].terminate()
        self.processes[name].wait(timeout=_STOP_SECONDS)
        _run(self, name, self.commands[name])
        if ready:
            _wait_ready(self, server)

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[None]:
        self.stop()
        yield
        for name, argv in self.commands.items():
            _run(self, name, argv)
        _wait_ready(self)

    def stop(self) -> None:
        """End all processes, etcd after the API servers.

        An API server without etcd waits a minute for its open requests.
        """
        servers = [process for name, process in self.processes.items() if name != "etcd"]
        for group in (servers, [self.processes["etcd"]] if "etcd" in self.processes else []):
            for process in group:
                process.terminate()
            for process in group:
                try:
                    process.wait(timeout=_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


@contextlib.contextmanager
def api_bed(
    directory: Path, *, arguments: Mapping[str, str] | None = None, dns: tuple[str, ...] = (), syncs: bool = False
) -> Iterator[ApiBed]:
    """Run a bed below ``directory`` until the block ends; ``arguments`` override those of the API server.

    With ``dns``, its certificate has only these names and no address, so the bed's kubectl does not trust it. With
    ``syncs``, etcd syncs each write to the disk, as in a cluster.
    """
    bed = ApiBed(directory, free_port(), Authority.make(directory))
    _credentials(bed.ca, dns)
    try:
        _start(bed, arguments or {}, syncs=syncs)
        _wait_ready(bed)
        yield bed
    finally:
        bed.stop()


def _credentials(ca: Authority, dns: tuple[str, ...]) -> None:
    ca.issue("apiserver", names=[(NameOID.COMMON_NAME, "kube-apiserver")], server=True, dns=dns)
    ca.issue("admin", names=[(NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "admin")])
    key = rsa.generate_private_key(65537, 2048)
    ca.write("sa", ca.certificate, key)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (ca.directory / "sa.pub").write_bytes(public)


def _start(bed: ApiBed, arguments: Mapping[str, str], *, syncs: bool) -> None:
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    _spawn(
        bed,
        "etcd",
        f"--data-dir={bed.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *([] if syncs else ["--unsafe-no-fsync"]),
        "--log-level=warn",
    )
    # the API server takes this argument or a file with the same setting
    anonymous = {} if "authentication-config" in arguments else {"anonymous-auth": "false"}
    wanted = {**_api_arguments(bed, client), **anonymous, **arguments}
    _spawn(bed, "kube-apiserver", *(f"--{name}={value}" for name, value in wanted.items()))


def _api_arguments(bed: ApiBed, client: str) -> dict[str, str]:
    d = bed.directory
    return {
        "etcd-servers": client,
        "cert-dir": str(d),
        "tls-cert-file": str(d / "apiserver.crt"),
        "tls-private-key-file": str(d / "apiserver.key"),
        "secure-port": str(bed.port),
        "bind-address": "127.0.0.1",
        "advertise-address": "192.0.2.1",  # must not be loopback; nothing is published (reconciler none)
        "endpoint-reconciler-type": "none",
        "client-ca-file": str(d / "ca.crt"),
        "service-account-issuer": "https://test",
        "service-account-key-file": str(d / "sa.pub"),
        "service-account-signing-key-file": str(d / "sa.key"),
        "service-cluster-ip-range": "10.96.0.0/24",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "disable-admission-plugins": "ServiceAccount",
        "enable-bootstrap-token-auth": "false",
        "allow-privileged": "true",
        "shutdown-watch-termination-grace-period": "1s",  # otherwise a shutdown waits a minute for watches
    }


def _spawn(bed: ApiBed, name: str, *arguments: str) -> None:
    bed.commands[name] = [str(binaries() / name), *arguments]
    _run(bed, name, bed.commands[name])


def _run(bed: ApiBed, name: str, argv: list[str]) -> None:
    with (bed.directory / f"{name}.log").open("ab") as log:
        bed.processes[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait_ready(bed: ApiBed, server: str = "") -> None:
    context = ssl.create_default_context(cafile=str(bed.directory / "ca.crt"))
    context.check_hostname = False  # the certificate may have other names
    context.load_cert_chain(bed.directory / "admin.crt", bed.directory / "admin.key")
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        for name, process in bed.processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended: {last_words(bed.directory / f'{name}.log')}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{server or bed.server}/readyz", context=context, timeout=5).close()
            return
        time.sleep(0.05)
    raise RuntimeError(f"the API was not ready within {_READY_SECONDS} s, see {bed.directory}")


def last_words(log: Path) -> str:
    """Return the end of a log, newest line first, because reports of failed tests keep only the start."""
    return "\n".join(reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]))
