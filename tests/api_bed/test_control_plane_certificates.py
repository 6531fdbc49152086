# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane's own certificates with the real kubeadm, etcd and API server; only no kubelet starts anything here.

That a kubelet starts the static pods anew is a test of the nightly run (tests/system/control_planes).
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import shutil
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import LEASE, JoinTurns
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ApiGateway, CredentialFiles
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import (
    ControlPlaneRenewal,
    read_leaves,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import EtcdGateway
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import site_names
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.static_pods import (
    RESTARTED_AT,
    StaticPods,
    arguments_of,
    probe_of,
    stamped,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.control_plane_turns import (
    AdminCredential,
    ControlPlaneTurns,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries
from ansible_collections.attested.kubernetes.tests.support.kubeadm import (
    NODE,
    RootedKubeadm,
    make_control_plane,
    why_no_kubeadm,
)
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import RenewalPlan
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

_READY_SECONDS = 900
LEASES = ("leases", LEASE, "--namespace=kube-system")
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class PassingClock(SystemClock):
    """The real time, and waits that are over at once."""

    def __init__(self) -> None:
        self._waited = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._waited

    def sleep(self, seconds: float) -> None:
        self._waited += seconds


class Surroundings:
    """Pods, members and turns that write down what they were asked for; ``sick`` components do not come up."""

    def __init__(self, paths: KubernetesPaths) -> None:
        self.paths = paths
        self.told: list[str] = []
        self.sick: set[str] = set()
        self.serials: list[dict[str, int]] = []

    def is_healthy(self, component: str) -> bool:
        self.told.append(f"{component}?")
        return True

    def restart(self, component: str) -> None:
        self.told.append(component)
        self.serials.append(serials(self.paths))
        if component in self.sick:
            self.sick.discard(component)  # with the files before it is well again
            raise KubeadmError("not well", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY)

    def require_healthy(self) -> None:
        self.told.append("members?")

    def take(self) -> None:
        self.told.append("turn")

    def free(self) -> None:
        self.told.append("free")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if found := why_no_kubeadm():
        pytest.skip(found)
    root: Path = tmp_path_factory.mktemp("kubeadm") / "root"
    make_control_plane(root)
    return root


@pytest.fixture
def paths(made: Path, tmp_path: Path) -> KubernetesPaths:
    """A control plane that kubeadm has just made, for one test."""
    shutil.copytree(made, tmp_path / "root", symlinks=True)
    return KubernetesPaths(root=tmp_path / "root")


def renewal_on(paths: KubernetesPaths) -> tuple[ControlPlaneRenewal, RootedKubeadm, Surroundings]:
    kubeadm, around = RootedKubeadm(paths.root), Surroundings(paths)
    machine = Machine(runner=kubeadm, clock=PassingClock(), paths=paths)
    return ControlPlaneRenewal(machine, pods=around, members=around, turns=around), kubeadm, around


def serials(paths: KubernetesPaths) -> dict[str, int]:
    """Return the serial number of every certificate as it lies there now."""
    return {
        one.name: x509.load_pem_x509_certificate(pem_of(paths.root / one.path)).serial_number for one in CERTIFICATES
    }


def pem_of(path: Path) -> bytes:
    if path.suffix != ".conf":
        return path.read_bytes()
    return base64.b64decode(yaml.safe_load(path.read_bytes())["users"][0]["user"]["client-certificate-data"])


def contents(paths: KubernetesPaths) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of every file below /etc/kubernetes."""
    files = [path for path in paths.kubernetes.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in files}


def openssl(*words: str, cwd: Path) -> str:
    return subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


# ---- kubeadm


def test_our_table_is_what_kubeadm_renews_but_one(made: Path) -> None:
    """A kubeadm of another version with another certificate is noticed here."""
    said = RootedKubeadm(made).run(["kubeadm", "certs", "renew", "--help"]).stdout.decode()
    listed = said.partition("Available Commands:\n")[2].partition("\n\n")[0]
    names = {line.split()[0] for line in listed.splitlines()}
    assert names - {one.name for one in CERTIFICATES} == {"all", "super-admin.conf"}
    assert {one.name for one in CERTIFICATES} <= names


def test_fresh_certificates_are_not_due(paths: KubernetesPaths) -> None:
    renewal, kubeadm, around = renewal_on(paths)
    before = contents(paths)
    assert not renewal.plan()
    assert renewal.apply(renewal.plan()) == ()
    assert (kubeadm.calls, around.told, contents(paths)) == ([], [], before)


@dataclass(frozen=True)
class Renewed:
    """A control plane before and after everything was renewed at once."""

    before: KubernetesPaths
    after: KubernetesPaths
    kubeadm: RootedKubeadm
    around: Surroundings
    steps: tuple[str, ...]


@pytest.fixture(scope="module")
def renewed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Renewed:
    root = tmp_path_factory.mktemp("renewed") / "root"
    shutil.copytree(made, root)
    paths = KubernetesPaths(root=root)
    renewal, kubeadm, around = renewal_on(paths)
    steps = tuple(step.name for step in renewal.apply(renewal.plan(at_once=True)))
    return Renewed(before=KubernetesPaths(root=made), after=paths, kubeadm=kubeadm, around=around, steps=steps)


def test_every_certificate_is_renewed_by_its_name_and_no_file_comes_or_goes(renewed: Renewed) -> None:
    """No copies stay, and super-admin.conf does not come back."""
    before, after = serials(renewed.before), serials(renewed.after)
    assert [name for name in after if after[name] == before[name]] == []
    assert {words[2] for words in renewed.kubeadm.calls} == set(after)
    modes = [
        {path.removeprefix(str(paths.root)): mode for path, (mode, _data) in contents(paths).items()}
        for paths in (renewed.before, renewed.after)
    ]
    assert modes[0] == modes[1]
    assert not renewed.after.super_admin_config.exists()


def test_each_component_starts_anew_after_its_own_certificates_and_before_the_next_ones(renewed: Renewed) -> None:
    assert renewed.steps == ("files", *COMPONENTS)
    assert renewed.around.told == [
        *("turn", "members?", "etcd?", "etcd"),
        *("turn", "kube-apiserver?", "kube-apiserver"),
        *("turn", "kube-controller-manager?", "kube-controller-manager"),
        *("turn", "kube-scheduler?", "kube-scheduler"),
        "free",
    ]
    before = serials(renewed.before)
    by_then = [{name for name in seen if seen[name] != before[name]} for seen in renewed.around.serials]
    assert by_then[0] == {"admin.conf", "etcd-healthcheck-client", "etcd-peer", "etcd-server"}
    assert by_then[2] - by_then[1] == {"controller-manager.conf"}
    assert by_then[3] == set(before)


@pytest.mark.parametrize(
    ("file", "authority"),
    [
        pytest.param("apiserver.crt", "ca.crt", id="of the API server"),
        pytest.param("etcd/peer.crt", "etcd/ca.crt", id="of etcd"),
        pytest.param("front-proxy-client.crt", "front-proxy-ca.crt", id="of the front proxy"),
    ],
)
def test_openssl_finds_the_renewed_as_good_as_the_one_before(renewed: Renewed, file: str, authority: str) -> None:
    pki = renewed.after.ca.parent
    names = ("x509", "-noout", "-subject", "-ext", "subjectAltName,extendedKeyUsage,keyUsage", "-in", file)
    assert openssl(*names, cwd=pki) == openssl(*names, cwd=renewed.before.ca.parent)
    assert openssl("verify", "-CAfile", authority, file, cwd=pki) == f"{file}: OK\n"
    public = openssl("pkey", "-in", file.replace(".crt", ".key"), "-pubout", cwd=pki)
    assert openssl("x509", "-noout", "-pubkey", "-in", file, cwd=pki) == public


def test_what_is_due_is_renewed_and_the_rest_is_left(paths: KubernetesPaths) -> None:
    """One certificate of etcd ends in 50 days."""
    shorten(paths, "etcd/peer", "etcd/ca", days=50)
    renewal, kubeadm, around = renewal_on(paths)
    before = serials(paths)
    renewal.apply(renewal.plan())
    assert kubeadm.calls == [("certs", "renew", "etcd-peer")]
    assert around.told == ["turn", "members?", "etcd?", "etcd", "free"]
    assert {name for name, serial in serials(paths).items() if serial != before[name]} == {"etcd-peer"}
    assert not renewal.plan()


def shorten(paths: KubernetesPaths, stem: str, authority: str, *, days: int) -> None:
    """Sign a certificate anew that began ten months ago and ends in ``days``, with all that it says besides."""
    pki = paths.ca.parent
    old = x509.load_pem_x509_certificate((pki / f"{stem}.crt").read_bytes())
    key: Any = serialization.load_pem_private_key((pki / f"{authority}.key").read_bytes(), password=None)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(old.issuer)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime.now(dt.UTC) - dt.timedelta(days=300))
        .not_valid_after(dt.datetime.now(dt.UTC) + dt.timedelta(days=days))
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (pki / f"{stem}.crt").write_bytes(pem)


def only(todo: RenewalPlan, component: str) -> RenewalPlan:
    """Return the plan of one component."""
    return replace(todo, due=todo.of(component))


def test_kubeadm_signs_beyond_the_end_of_its_ca_so_the_plan_looks_at_it(paths: KubernetesPaths) -> None:
    """Measured: without our look a certificate good for a year would end with its CA, and nobody would be told."""
    pki = paths.ca.parent
    extensions = ("-addext", "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=kubernetes", "-days", "20", *extensions,
            "-out", "ca.crt", cwd=pki)  # fmt: skip
    renewal, _kubeadm, _around = renewal_on(paths)
    todo = only(renewal.plan(at_once=True), "kube-apiserver")
    renewal.apply(todo)
    leaf = next(leaf for leaf in read_leaves(paths) if leaf.certificate.name == "apiserver")
    assert leaf.ends - leaf.authority_ends > dt.timedelta(days=300)
    assert leaf.until == leaf.authority_ends
    assert not renewal.plan()
    with pytest.raises(KubeadmError, match="ca.crt until") as caught:
        todo.require_lasting()
    assert caught.value.reason is Reason.CONTROL_PLANE_CA_ENDS


def test_without_the_key_of_its_ca_nothing_is_renewed_and_nothing_is_lost(paths: KubernetesPaths) -> None:
    (paths.ca.parent / "etcd/ca.key").unlink()
    before = contents(paths)
    renewal, _kubeadm, around = renewal_on(paths)
    with pytest.raises(KubeadmError, match="etcd") as caught:
        renewal.apply(renewal.plan(at_once=True))
    assert caught.value.reason is Reason.CONTROL_PLANE_RENEWAL_FAILED
    changed = {path for path, found in contents(paths).items() if found != before.get(path)}
    assert changed <= {str(paths.admin_config)}
    assert around.told == []


def test_a_component_that_is_not_well_gets_back_what_it_had(paths: KubernetesPaths) -> None:
    renewal, _kubeadm, around = renewal_on(paths)
    around.sick = {"kube-apiserver"}
    before = contents(paths)
    with pytest.raises(KubeadmError, match="it runs with the old files") as caught:
        renewal.apply(only(renewal.plan(at_once=True), "kube-apiserver"))
    assert caught.value.reason is Reason.CONTROL_PLANE_RENEWAL_UNDONE
    assert around.told == ["turn", "kube-apiserver?", "kube-apiserver", "kube-apiserver", "free"]
    assert [seen["apiserver"] == serials(paths)["apiserver"] for seen in around.serials] == [False, True]
    assert contents(paths) == before


# ---- manifests and probes


@pytest.mark.parametrize(
    ("component", "probe"),
    [
        pytest.param("etcd", ("HTTP", "127.0.0.1", 2381, "/readyz"), id="etcd"),
        pytest.param("kube-apiserver", ("HTTPS", "10.0.0.11", 6443, "/readyz"), id="API server"),
        pytest.param("kube-controller-manager", ("HTTPS", "127.0.0.1", 10257, "/healthz"), id="controller manager"),
        pytest.param("kube-scheduler", ("HTTPS", "127.0.0.1", 10259, "/readyz"), id="scheduler"),
    ],
)
def test_kubeadms_manifests_say_whom_to_ask(made: Path, component: str, probe: tuple[str, str, int, str]) -> None:
    found = probe_of((made / f"etc/kubernetes/manifests/{component}.yaml").read_bytes())
    assert (found.scheme, found.host, found.port, found.path) == probe


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_manifest_that_starts_its_pod_anew_differs_in_one_annotation(made: Path, component: str) -> None:
    path = made / f"etc/kubernetes/manifests/{component}.yaml"
    again = stamped(stamped(path.read_bytes(), "2026-11-21T12:00:00Z"), "2026-11-22T12:00:00Z")
    before, after = (as_json(text) for text in (path.read_bytes(), again))
    assert after["metadata"]["annotations"].pop(RESTARTED_AT) == "2026-11-22T12:00:00Z"
    assert before["metadata"].setdefault("annotations", {}) == after["metadata"]["annotations"]
    assert before == after


def as_json(manifest: bytes) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(manifest)
    return found


# ---- etcd


@contextlib.contextmanager
def etcd_on(paths: KubernetesPaths) -> Iterator[str]:
    """Run etcd with the certificates that kubeadm made; yields where it listens."""
    client, peer = (f"https://127.0.0.1:{free_port()}" for _unused in range(2))
    pki = paths.ca.parent / "etcd"
    arguments = {
        "name": NODE, "data-dir": str(paths.root / "etcd"), "log-level": "error",
        "listen-client-urls": client, "advertise-client-urls": client,
        "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"{NODE}={peer}",
        "cert-file": str(pki / "server.crt"), "key-file": str(pki / "server.key"),
        "trusted-ca-file": str(pki / "ca.crt"), "client-cert-auth": "true",
        "peer-cert-file": str(pki / "peer.crt"), "peer-key-file": str(pki / "peer.key"),
        "peer-trusted-ca-file": str(pki / "ca.crt"), "peer-client-cert-auth": "true",
    }  # fmt: skip
    argv = [str(binaries() / "etcd"), "--unsafe-no-fsync", *(f"--{name}={value}" for name, value in arguments.items())]
    with (paths.root / "etcd.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield client
    finally:
        process.terminate()
        process.wait()


def wait_until_healthy(members: EtcdGateway) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            return members.require_healthy()
        except KubeadmError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_one_member_that_is_not_there_keeps_etcd_from_being_started_anew(paths: KubernetesPaths) -> None:
    with etcd_on(paths) as client:
        members = EtcdGateway.local(paths, endpoint=client)
        wait_until_healthy(members)
        pki = paths.ca.parent / "etcd"
        tls = (f"--cacert={pki / 'ca.crt'}", f"--cert={pki / 'server.crt'}", f"--key={pki / 'server.key'}")
        argv = [str(binaries() / "etcdctl"), f"--endpoints={client}", *tls, "member", "add", "cp-2", "--learner"]
        subprocess.run([*argv, "--peer-urls=https://127.0.0.1:1"], check=True, capture_output=True)
        with pytest.raises(KubeadmError, match="a member that never started .* has not started") as caught:
            members.require_healthy()
        assert caught.value.reason is Reason.ETCD_MEMBER_UNHEALTHY
    with pytest.raises(KubeadmError, match="expected an answer of etcd"):
        members.require_healthy()


# ---- API


@pytest.fixture
def gateway(api: ApiBed) -> ApiGateway:
    files = CredentialFiles(certificate=api.directory / "admin.crt", private_key=api.directory / "admin.key")

    class Fixed:
        def current(self) -> CredentialFiles:
            return files

    return ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=Fixed())


@pytest.fixture
def turns(api: ApiBed, gateway: ApiGateway) -> Iterator[Callable[[str], ControlPlaneTurns]]:
    api.kubectl("delete", "--ignore-not-found", *LEASES)
    yield lambda node: ControlPlaneTurns(gateway, node=node, clock=PassingClock())
    api.kubectl("delete", "--ignore-not-found", *LEASES)


def code_of(act: Callable[[], object]) -> str:
    try:
        act()
    except AttestedError as error:
        return error.code
    return ""


def test_two_control_planes_are_never_started_anew_at_once(turns: Callable[[str], ControlPlaneTurns]) -> None:
    first, second = turns("cp-1"), turns("cp-2")
    first.take()
    first.take()
    assert code_of(second.take) == "CONTROL_PLANE_JOIN_BUSY"
    second.free()  # not its own
    assert code_of(second.take) == "CONTROL_PLANE_JOIN_BUSY"
    first.free()
    assert code_of(second.take) == ""


def test_nobody_joins_meanwhile_and_nobody_is_started_anew_during_a_join(
    gateway: ApiGateway, turns: Callable[[str], ControlPlaneTurns]
) -> None:
    joins = JoinTurns(gateway, clock=SystemClock(), freed=lambda _holder: None)
    renewal = turns("cp-1")
    renewal.take()
    joins.settle()  # as every key service does: this holder is no identity
    assert code_of(lambda: joins.take("ek-0123456789abcdef0123")) == "CONTROL_PLANE_JOIN_BUSY"
    renewal.free()
    joins.take("ek-0123456789abcdef0123")
    assert code_of(renewal.take) == "CONTROL_PLANE_JOIN_BUSY"


class Healthy(BaseHTTPRequestHandler):
    """Says 200 to everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Keep silent."""


@pytest.fixture
def served(paths: KubernetesPaths) -> Iterator[StaticPods]:
    """A server with the API server's certificate, named by the manifests of API server and scheduler."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths.ca.parent / "apiserver.crt", paths.ca.parent / "apiserver.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for component, port in (("kube-apiserver", 6443), ("kube-scheduler", 10259)):
        path = paths.kubernetes / f"manifests/{component}.yaml"
        text = path.read_text().replace("host: 10.0.0.11", "host: 127.0.0.1")
        path.write_text(text.replace(f"containerPort: {port}", f"containerPort: {server.server_port}"))
    machine = Machine(runner=RootedKubeadm(paths.root), clock=PassingClock(), paths=paths)
    yield StaticPods(machine, node=NODE, reader=NoPods())
    server.shutdown()
    thread.join()
    server.server_close()


class NoPods:
    """An API without a pod."""

    def pod(self, _namespace: str, _name: str) -> None:
        """Find none."""


def test_only_the_api_server_has_to_show_a_certificate_of_the_cluster(
    served: StaticPods, paths: KubernetesPaths
) -> None:
    """The scheduler's, which it makes in memory at each start, is taken as the kubelet takes it: not looked at."""
    both = ("kube-apiserver", "kube-scheduler")
    assert [served.is_healthy(component) for component in both] == [True, True]
    shutil.copy(paths.ca.with_name("front-proxy-ca.crt"), paths.ca)
    assert [served.is_healthy(component) for component in both] == [False, True]


def test_no_argument_of_kubeadms_is_one_that_a_site_sets(paths: KubernetesPaths) -> None:
    """Else a site that gives up an argument would take kubeadm's away: what is there is refused, or goes back."""
    for component in COMPONENTS:
        told = arguments_of((paths.kubernetes / f"manifests/{component}.yaml").read_bytes())
        assert site_names(component, told) == frozenset()


def test_who_does_not_answer_is_not_well(paths: KubernetesPaths) -> None:
    path = paths.kubernetes / "manifests/etcd.yaml"
    path.write_text(path.read_text().replace("containerPort: 2381", f"containerPort: {free_port()}"))
    machine = Machine(runner=RootedKubeadm(paths.root), clock=PassingClock(), paths=paths)
    assert not StaticPods(machine, node=NODE, reader=NoPods()).is_healthy("etcd")


def mirror(api: ApiBed, manifest: Path, *, ready: bool) -> None:
    """Write the pod as a kubelet mirrors it, with its status."""
    document = as_json(manifest.read_bytes())
    name = f"{document['metadata']['name']}-{NODE}"
    annotations = {**document["metadata"]["annotations"], "kubernetes.io/config.mirror": "x"}
    document["metadata"] |= {"name": name, "annotations": annotations}
    document["spec"]["nodeName"] = NODE
    api.kubectl("delete", "--ignore-not-found", "--force", "pod", name, "--namespace=kube-system")
    api.kubectl("create", "-f", "-", stdin=json.dumps(document))
    container = {"name": document["metadata"]["labels"]["component"], "ready": ready, "image": "x", "imageID": "x"}
    status = {"status": {"containerStatuses": [{**container, "restartCount": 0}]}}
    words = ("patch", "pod", name, "--namespace=kube-system", "--subresource=status", "--type=merge")
    api.kubectl(*words, f"--patch={json.dumps(status)}")


def test_a_pod_has_started_anew_when_the_api_shows_its_annotation_and_it_is_ready(
    api: ApiBed, gateway: ApiGateway, paths: KubernetesPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test is the kubelet: it mirrors each manifest when the renewal first waits for it."""
    machine = Machine(runner=RootedKubeadm(paths.root), clock=PassingClock(), paths=paths)
    pods = StaticPods(machine, node=NODE, reader=gateway)
    manifest = paths.kubernetes / "manifests/kube-scheduler.yaml"
    monkeypatch.setattr(pods, "is_healthy", lambda _component: True)
    mirror(api, stamp_of(manifest, "2026-01-01T00:00:00Z"), ready=True)
    assert code_of(lambda: pods.restart("kube-scheduler")) == "CONTROL_PLANE_COMPONENT_UNHEALTHY"
    seen = []

    def kubelet(_seconds: float) -> None:
        seen.append(len(seen))
        mirror(api, manifest, ready=len(seen) > 1)

    monkeypatch.setattr(PassingClock, "sleep", lambda _self, seconds: kubelet(seconds))
    pods.restart("kube-scheduler")
    assert seen == [0, 1]


def stamp_of(manifest: Path, stamp: str) -> Path:
    manifest.write_bytes(stamped(manifest.read_bytes(), stamp))
    return manifest


def test_the_admins_credential_is_read_again_after_its_renewal(renewed: Renewed, tmp_path: Path) -> None:
    paths = KubernetesPaths(root=tmp_path / "root")
    paths.kubernetes.mkdir(parents=True)
    shutil.copy(renewed.before.admin_config, paths.admin_config)
    credential = AdminCredential(paths, tmp_path / "files")
    first = credential.current()
    assert credential.current() == first
    assert (first.private_key.stat().st_mode & 0o777, first.private_key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    shutil.copy(renewed.after.admin_config, paths.admin_config)
    assert credential.current().serial == first.serial + 1
    assert first.certificate.read_bytes() == pem_of(renewed.after.admin_config)
    credential.remove()
    assert list((tmp_path / "files").iterdir()) == []
