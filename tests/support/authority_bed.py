# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control planes like kubeadm's, each with its own files and member of etcd, some with an API server.

The programs have the arguments of kubeadm's manifests, including CA files; only addresses differ, because all run on
one machine. The bed restarts components in place of the kubelet. There is no scheduler.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import (
    KubeletRequest,
    load_cluster_ca,
    sign_kubelet_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import (
    AuthorityFiles,
    PlaneRotation,
    observe_kubelet,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import ControlPlaneRenewal
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import (
    KubeletCredential,
    authorities_of,
    place,
    render_kubeconfig,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import EtcdGateway
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import (
    AuthorityPhase,
    FoundAuthorities,
    plan_authorities,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries, last_words
from ansible_collections.attested.kubernetes.tests.support.kubeadm import RootedKubeadm, make_control_plane
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import AuthorityPlan

ETCD, API_SERVER, CONTROLLER_MANAGER = "etcd", "kube-apiserver", "kube-controller-manager"
_STOP_SECONDS = 900
_READY_SECONDS = 600
_TIMEOUT_SECONDS = 300
_PAUSE_SECONDS = 1.0
_CONTROLLERS = "certificatesigningrequest-signing-controller,root-ca-certificate-publisher-controller"


@dataclass(slots=True, kw_only=True)
class BedPlane:
    """One control plane: root, ports on loopback, and processes by component."""

    name: str
    root: Path
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def paths(self) -> KubernetesPaths:
        """The root of its files."""
        return KubernetesPaths(root=self.root)

    @property
    def files(self) -> AuthorityFiles:
        """The machine for our code, new at each access, as for each task."""
        return AuthorityFiles(self.paths, clock=SystemClock())

    @property
    def pki(self) -> Path:
        """The directory of keys and certificates."""
        return self.paths.kubernetes / "pki"

    def command(self, component: str, others: Mapping[str, str]) -> list[str]:
        """Return the arguments of a component in its manifest, overridden by ``others``."""
        manifest = yaml.safe_load((self.paths.kubernetes / f"manifests/{component}.yaml").read_bytes())
        words = manifest["spec"]["containers"][0]["command"][1:]
        said = dict(word[2:].partition("=")[::2] for word in words)
        said = {name: value.replace("/etc/kubernetes/", f"{self.paths.kubernetes}/") for name, value in said.items()}
        return [str(binaries() / component), *(f"--{name}={value}" for name, value in {**said, **others}.items())]


@dataclass(slots=True, kw_only=True)
class AuthorityBed:
    """Control planes of one cluster; the first ``api_servers`` have one, the first one also a controller manager."""

    directory: Path
    api_servers: int
    planes: dict[str, BedPlane] = field(default_factory=dict)
    restarts: list[tuple[str, str]] = field(default_factory=list)

    def begin(self, *names: str) -> None:
        """Create the control planes and start all components."""
        first = None
        for name in names:
            ports = {key: free_port() for key in ("client", "peer", "metrics", "api", "manager")}
            plane = BedPlane(name=name, root=self.directory / name, ports=ports)
            make_control_plane(plane.root, shared=first)
            first = first or plane.root
            self.planes[name] = plane
            _turn_to_loopback(plane)
        for component in (ETCD, API_SERVER, CONTROLLER_MANAGER):
            for plane in self.planes.values():
                self._start(plane, component)
            for plane in self.planes.values():
                wait_for(partial(self.is_healthy, plane, component), seconds=_READY_SECONDS)

    def restart(self, plane: BedPlane, component: str) -> None:
        """Wait for the other control planes, then restart the component and wait until it is healthy."""
        for other in self.planes.values():
            if other is not plane:
                wait_for(partial(self.is_healthy, other, component), seconds=_READY_SECONDS)
        self.restarts.append((plane.name, component))
        if component in plane.processes:
            _end(plane.processes[component])
            self._start(plane, component)
        wait_for(lambda: self.is_healthy(plane, component), seconds=_READY_SECONDS)

    def is_healthy(self, plane: BedPlane, component: str) -> bool:
        """Return whether the component answers, verified by the CA files of its own control plane."""
        process = plane.processes.get(component)
        if process is None:
            return True
        assert process.poll() is None, f"{plane.name}: {component} ended: {self.log(plane, component)}"
        with contextlib.suppress(OSError):  # it does not listen yet
            if component == ETCD:
                client = etcd_client(plane)
                return client.ask(plane.ports["client"], "GET", "/health") == http.client.OK
            if component == API_SERVER:
                return admin_of(plane).ask(plane.ports["api"], "GET", "/readyz") == http.client.OK
            return _health_of_manager(plane.ports["manager"])
        return False

    def log(self, plane: BedPlane, component: str) -> str:
        """Return the end of a component's output."""
        return last_words(self.directory / f"{plane.name}-{component}.log")

    def stop(self) -> None:
        """End all processes."""
        for component in (CONTROLLER_MANAGER, API_SERVER, ETCD):
            for plane in self.planes.values():
                if component in plane.processes:
                    _end(plane.processes[component])

    def _start(self, plane: BedPlane, component: str) -> None:
        most = {API_SERVER: self.api_servers, CONTROLLER_MANAGER: min(1, self.api_servers)}
        if plane.name not in list(self.planes)[: most.get(component, len(self.planes))]:
            return
        argv = plane.command(component, self._others(plane, component))
        with (self.directory / f"{plane.name}-{component}.log").open("ab") as log:
            plane.processes[component] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _others(self, plane: BedPlane, component: str) -> dict[str, str]:
        client, peer = (f"https://127.0.0.1:{plane.ports[name]}" for name in ("client", "peer"))
        if component == ETCD:
            members = [f"{one.name}=https://127.0.0.1:{one.ports['peer']}" for one in self.planes.values()]
            return {
                **dict.fromkeys(("advertise-client-urls", "listen-client-urls"), client),
                **dict.fromkeys(("initial-advertise-peer-urls", "listen-peer-urls"), peer),
                "initial-cluster": ",".join(members),
                "listen-metrics-urls": f"http://127.0.0.1:{plane.ports['metrics']}",
                "name": plane.name,
                "data-dir": str(plane.root / "etcd"),
                "unsafe-no-fsync": "true",
                "log-level": "warn",
            }
        if component == API_SERVER:
            return {
                "advertise-address": "192.0.2.1",  # must not be loopback; nothing is published (reconciler none)
                "bind-address": "127.0.0.1",
                "endpoint-reconciler-type": "none",
                "etcd-servers": client,
                "secure-port": str(plane.ports["api"]),
                "anonymous-auth": "false",
                "shutdown-watch-termination-grace-period": "1s",  # otherwise a shutdown waits for watches
            }
        return {"secure-port": str(plane.ports["manager"]), "controllers": _CONTROLLERS, "leader-elect": "false"}


@contextlib.contextmanager
def authority_bed(directory: Path, *names: str, api_servers: int) -> Iterator[AuthorityBed]:
    """Run the control planes below ``directory`` until the block ends."""
    bed = AuthorityBed(directory=directory, api_servers=api_servers)
    try:
        bed.begin(*names)
        yield bed
    finally:
        bed.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client that reads its CA file at each request, with a certificate, a token or headers."""

    believes: Path
    certificate: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, port: int, method: str, path: str, body: bytes | None = None) -> int:
        """Return the status, 0 for a refused handshake; raises `OSError` without a listener."""
        return self.tell(port, method, path, body)[0]

    def tell(self, port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body, 0 if either side refused the handshake."""
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS, context=self._context())
        try:
            connection.request(method, path, body=body, headers={"Content-Type": "application/json", **self.headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (ssl.SSLError, ConnectionResetError, http.client.RemoteDisconnected) as error:
            return 0, str(error).encode()
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.believes))
        if self.certificate is not None:
            context.load_cert_chain(f"{self.certificate}.crt", f"{self.certificate}.key")
        return context


def etcd_client(plane: BedPlane) -> Client:
    """Return a client that queries etcd like the probe of a control plane."""
    return Client(believes=plane.pki / "etcd/ca.crt", certificate=plane.pki / "etcd/healthcheck-client")


def admin_of(plane: BedPlane) -> Client:
    """Return a client with the present admin kubeconfig of a control plane, its certificate and its CAs."""
    config = yaml.safe_load(plane.paths.admin_config.read_bytes())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    stem = plane.root / f"admin-now-{threading.get_ident()}"
    parts = {
        "crt": user["client-certificate-data"],
        "key": user["client-key-data"],
        "ca": cluster["certificate-authority-data"],
    }
    for suffix, data in parts.items():
        stem.with_name(f"{stem.name}.{suffix}").write_bytes(base64.b64decode(data))
    return Client(believes=stem.with_name(f"{stem.name}.ca"), certificate=stem)


@dataclass(slots=True, kw_only=True)
class BedKubelet:
    """The files of a worker's kubelet, from a ticket of a key service that signs with our code."""

    name: str
    root: Path

    @property
    def paths(self) -> KubernetesPaths:
        """The root of its files."""
        return KubernetesPaths(root=self.root)

    def take_ticket(self, plane: BedPlane) -> None:
        """Get the CAs and a certificate for a new key from one control plane."""
        key = ec.generate_private_key(ec.SECP256R1())
        ca = load_cluster_ca(plane.paths.ca.read_bytes(), plane.paths.ca.with_suffix(".key").read_bytes())
        request = KubeletRequest(key.public_key(), "")
        now, machine = SystemClock().now(), "ek-0123456789abcdef0123"
        certificate = sign_kubelet_certificate(request, node_name=self.name, machine=machine, ca=ca, now=now)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        believed = plane.paths.ca.read_bytes()
        paths = self.paths
        paths.ca.parent.mkdir(parents=True, exist_ok=True)
        paths.ca.write_bytes(believed)
        place(KubeletCredential(certificate=certificate, key=pem), paths, clock=SystemClock())
        user, credential = f"system:node:{self.name}", paths.kubelet_credential
        server = f"https://127.0.0.1:{plane.ports['api']}"
        config = render_kubeconfig(server=server, ca=believed, cluster_name="bed", user=user, credential=credential)
        paths.kubelet_config.write_bytes(config)

    def client(self) -> Client:
        """Return the kubelet as client of an API server, with the CAs of its kubeconfig."""
        believes = self.root / "believes.crt"
        believes.write_bytes(authorities_of(self.paths.kubelet_config.read_bytes()))
        stem = self.root / "shown"
        for suffix in ("crt", "key"):
            stem.with_suffix(f".{suffix}").write_bytes(self.paths.kubelet_credential.read_bytes())
        return Client(believes=believes, certificate=stem)


class Surroundings:
    """The dependencies of `PlaneRotation` and leaf renewal: Pods are processes of the bed."""

    def __init__(self, bed: AuthorityBed, plane: BedPlane) -> None:
        self._bed = bed
        self._plane = plane

    def is_healthy(self, component: str) -> bool:
        return self._bed.is_healthy(self._plane, component)

    def restart(self, component: str) -> None:
        self._bed.restart(self._plane, component)

    def take(self) -> None:
        """Only this process rotates here; test_control_planes tests the Lease."""

    def free(self) -> None:
        """There is no contention."""


class NoServices:
    """The bed has no running kubelets and key services."""

    def restart(self) -> None:
        """Only the components keep a CA in memory."""


class PatientMembers:
    """The members as a machine sees them; retries if the test machine is too slow."""

    def __init__(self, members: EtcdGateway) -> None:
        self._members = members

    def require_healthy(self) -> None:
        """Wait until all are healthy; fails after a timeout."""
        wait_for(self._are_healthy, seconds=_READY_SECONDS)

    def _are_healthy(self) -> bool:
        with contextlib.suppress(KubeadmError):
            self._members.require_healthy()
            return True
        return False


@dataclass(slots=True, kw_only=True)
class AuthorityRotation:
    """The steps of a run, one control plane at a time; each step begins with an inspection."""

    bed: AuthorityBed
    old: str
    kubelets: dict[str, BedKubelet] = field(default_factory=dict)
    phases: list[AuthorityPhase] = field(default_factory=list)

    def plan(self, now: datetime) -> AuthorityPlan:
        """Inspect, and return what remains."""
        planes = [plane.files.observe(name=plane.name) for plane in self.bed.planes.values()]
        found = FoundAuthorities(
            planes=planes,
            kubelets=[observe_kubelet(one.paths, name=name) for name, one in self.kubelets.items()],
            members=frozenset(self.bed.planes),
            nodes=frozenset(self.kubelets),
        )
        return plan_authorities(found, old=self.old, now=now)

    def step(self, plan: AuthorityPlan) -> None:
        """Run the first remaining phase, on the first control plane that it changes, else on the first kubelet."""
        phase, known = plan.phases[0], self.known()
        self.phases.append(phase)
        if plan.kubelets and not plan.bundles:
            self.kubelets[plan.kubelets[0]].take_ticket(self.bed.planes[plan.source])
            return
        name = next(iter(plan.bundles), plan.source)
        plane = self.bed.planes[name]
        if phase is AuthorityPhase.MAKE:
            plane.files.make()
        elif phase is AuthorityPhase.SHARE:
            plane.files.stage(self.bed.planes[plan.source].files.staged())
        elif phase is AuthorityPhase.ISSUE:
            self.of(plane).issue(plan.bundles[name], known)
        elif phase is AuthorityPhase.FORGET:
            plane.files.remove_staged()
        else:
            self.of(plane).trust(plan.bundles[name], known)

    def known(self) -> dict[str, bytes]:
        """Return all public keys of all control planes."""
        return {name: pem for plane in self.bed.planes.values() for name, pem in plane.files.known().items()}

    def of(self, plane: BedPlane) -> PlaneRotation:
        """Return the phases of one control plane, with the real kubeadm and the real members of etcd."""
        around = Surroundings(self.bed, plane)
        machine = Machine(runner=RootedKubeadm(plane.root), clock=SystemClock(), paths=plane.paths)
        members = PatientMembers(EtcdGateway.local(plane.paths, endpoint=f"https://127.0.0.1:{plane.ports['client']}"))
        renewal = ControlPlaneRenewal(machine, pods=around, members=members, turns=around)
        return PlaneRotation(
            plane.files, renewal=renewal, pods=around, members=members, turns=around, services=NoServices()
        )


class Worker:
    """Write numbers to the members of etcd until the block ends; one member must accept each of them."""

    def __init__(self, bed: AuthorityBed) -> None:
        self.taken = 0
        self.lost: list[str] = []
        self._bed = bed
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._ends.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._ends.wait(_PAUSE_SECONDS):
            number += 1
            said = [self._write(plane, number) for plane in self._bed.planes.values()]
            if "taken" in said:
                self.taken += 1
            else:
                self.lost.append(f"{number}: {said}")

    def _write(self, plane: BedPlane, number: int) -> str:
        pair = {"key": base64.b64encode(f"n{number}".encode()).decode(), "value": "eA=="}
        try:
            status, said = etcd_client(plane).tell(
                plane.ports["client"], "POST", "/v3/kv/put", json.dumps(pair).encode()
            )
        except OSError as error:
            return type(error).__name__
        return "taken" if status == http.client.OK else f"{status} {said[:200]!r}"


def _turn_to_loopback(plane: BedPlane) -> None:
    """Point every kubeconfig to the API server of its own control plane, at its port in the bed."""
    for path in plane.paths.kubernetes.glob("*.conf"):
        config: dict[str, Any] = yaml.safe_load(path.read_bytes())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{plane.ports['api']}"
        path.write_text(yaml.safe_dump(config))


def _health_of_manager(port: int) -> bool:
    """Send a request as the kubelet: its certificate is created in memory at each start and is not verified."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS, context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
