# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control planes of kubeadm's making get new CAs and a new key of service accounts, and nobody good is refused.

Real members of etcd, an API server and a controller manager, one started anew at a time. At the end the keys that a
lost control plane held are tried, as whoever has that machine would.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import split
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import TOKEN_LIFE, AuthorityPhase
from ansible_collections.attested.kubernetes.tests.support.api_bed import certificate_builder, why_not
from ansible_collections.attested.kubernetes.tests.support.authority_bed import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    AuthorityBed,
    AuthorityRotation,
    BedKubelet,
    BedPlane,
    Client,
    Worker,
    admin_of,
    authority_bed,
)
from ansible_collections.attested.kubernetes.tests.support.kubeadm import why_no_kubeadm
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import AuthorityPlan

ISSUER = "https://kubernetes.default.svc.cluster.local"
OK, UNAUTHORIZED = http.client.OK, http.client.UNAUTHORIZED
MAKE, SHARE, TRUST, ISSUE, RETIRE, FORGET = AuthorityPhase


@contextlib.contextmanager
def running(directory: Path, *names: str, api_servers: int) -> Iterator[AuthorityBed]:
    if reason := why_not() or why_no_kubeadm():
        pytest.skip(reason)
    with authority_bed(directory, *names, api_servers=api_servers) as started:
        yield started


@pytest.fixture
def members(tmp_path: Path) -> Iterator[AuthorityBed]:
    """Three control planes with nothing but their members of etcd."""
    with running(tmp_path / "members", "cp-1", "cp-2", "cp-3", api_servers=0) as started:
        yield started


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorityBed]:
    """One control plane with all but a scheduler."""
    with running(tmp_path_factory.mktemp("authorities"), "cp-1", api_servers=1) as started:
        masters_may_all(started)
        yield started


@dataclass(frozen=True, slots=True, kw_only=True)
class Thief:
    """Somebody with a copy of all keys of one control plane; ``keys`` is the directory of the copy."""

    keys: Path
    uid: str

    def clients(self, plane: BedPlane) -> dict[str, tuple[Client, int, str]]:
        """Return by what they show: a client, the port that it asks and the path, all good while the keys are."""
        pki, api, etcd = plane.pki, plane.ports["api"], plane.ports["client"]
        as_proxy = {"X-Remote-User": "anybody", "X-Remote-Group": "system:masters"}
        token = {"Authorization": f"Bearer {self.token()}"}
        return {
            "certificate": (Client(believes=pki / "ca.crt", certificate=self.mint("ca")), api, "/api/v1/nodes"),
            "headers": (
                Client(believes=pki / "ca.crt", certificate=self.mint("front-proxy-ca"), headers=as_proxy),
                api,
                "/api/v1/nodes",
            ),
            "token": (Client(believes=pki / "ca.crt", headers=token), api, "/api"),
            "etcd": (Client(believes=pki / "etcd/ca.crt", certificate=self.mint("etcd/ca")), etcd, "/health"),
        }

    def mint(self, stem: str) -> Path:
        """Return the stem of a new client certificate of one CA."""
        ca = x509.load_pem_x509_certificate((self.keys / f"{stem}.crt").read_bytes())
        signing: Any = serialization.load_pem_private_key((self.keys / f"{stem}.key").read_bytes(), None)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
                x509.NameAttribute(NameOID.COMMON_NAME, "front-proxy-client"),
            ]
        )
        made = (
            certificate_builder(subject, ca.subject, key.public_key())
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False)
            .sign(signing, hashes.SHA256())
        )
        target = self.keys / f"minted-{stem.replace('/', '-')}"
        target.with_suffix(".crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        target.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return target

    def token(self) -> str:
        """Return a new token of the service account robot."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": "system:serviceaccount:default:robot",
            "iat": now,
            "nbf": now - 5,
            "exp": now + 3600,
            "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": self.uid}},
        }
        text = f"{encoded({'alg': 'RS256', 'typ': 'JWT'})}.{encoded(claims)}"
        key: Any = serialization.load_pem_private_key((self.keys / "sa.key").read_bytes(), None)
        signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def masters_may_all(bed: AuthorityBed) -> None:
    """Bind kubeadm's group of admins, as its phase ``bootstrap-token`` or our own init does."""
    plane = bed.planes["cp-1"]
    directory = plane.root / "first"
    shutil.copytree(plane.pki, directory)
    admin = Client(believes=plane.paths.ca, certificate=Thief(keys=directory, uid="").mint("ca"))
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubeadm:cluster-admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "kubeadm:cluster-admins"}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    wait_for(lambda: admin.ask(plane.ports["api"], "POST", path, json.dumps(binding).encode()) in (201, 409))


def thief_of(bed: AuthorityBed, directory: Path) -> Thief:
    """Return who has copied the keys of the first control plane just now."""
    plane = bed.planes["cp-1"]
    shutil.copytree(plane.pki, directory)
    if not with_api(bed):
        return Thief(keys=directory, uid="")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    path = "/api/v1/namespaces/default/serviceaccounts"
    admin_of(plane).ask(plane.ports["api"], "POST", path, json.dumps(account).encode())
    said = json.loads(admin_of(plane).tell(plane.ports["api"], "GET", f"{path}/robot")[1])
    return Thief(keys=directory, uid=said["metadata"]["uid"])


def answers(bed: AuthorityBed, thief: Thief) -> dict[tuple[str, str], int]:
    """Return what each control plane says to each of the clients."""
    return {
        (plane.name, shown): client.ask(port, "GET", path)
        for plane in bed.planes.values()
        for shown, (client, port, path) in thief.clients(plane).items()
        if shown == "etcd" or plane in with_api(bed)
    }


def with_api(bed: AuthorityBed) -> list[BedPlane]:
    """Return the control planes that have an API server."""
    return [plane for plane in bed.planes.values() if API_SERVER in plane.processes]


def require_published(plane: BedPlane) -> None:
    """What pods believe is what the control plane of the controller manager believes."""
    path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
    believed = plane.paths.ca.read_text()
    wait_for(
        lambda: (
            believed in json.loads(admin_of(plane).tell(plane.ports["api"], "GET", path)[1]).get("data", {}).values()
        )
    )


def rotate(bed: AuthorityBed, directory: Path) -> list[AuthorityPhase]:
    """Go the whole way, asking as everybody before and after each step; return the phases."""
    first = bed.planes["cp-1"]
    (old,) = split(first.paths.ca.read_bytes())
    before, after = thief_of(bed, directory / "before"), None
    good = dict.fromkeys(answers(bed, before), OK)
    kubelet = BedKubelet(name="w-1", root=directory / "w-1")
    kubelet.take_ticket(first)
    rotation, now = AuthorityRotation(bed=bed, old=old, kubelets={"w-1": kubelet}), datetime.now(UTC)
    while (plan := rotation.plan(now)).phases:
        phase = plan.phases[0]
        if phase is RETIRE and RETIRE not in rotation.phases:
            assert answers(bed, before) == good
            now = waited(plan, now)
        if phase in (ISSUE, RETIRE, FORGET):
            assert after is not None
            assert answers(bed, after) == good, phase
        rotation.step(plan)
        if phase is MAKE:
            after = copied_successors(first, directory / "after", uid=before.uid)
        if phase in (TRUST, ISSUE):
            assert answers(bed, before) == good, phase
        for plane in with_api(bed):
            require_published(plane)
            assert kubelet.client().ask(plane.ports["api"], "GET", "/api") == OK, phase
    refused = {key: 0 if key[1] == "etcd" else UNAUTHORIZED for key in good}
    assert answers(bed, before) == refused
    assert rotation.plan(now).phases == (), "a second run finds nothing to do"
    return rotation.phases


def waited(plan: AuthorityPlan, now: datetime) -> datetime:
    """Return when a rotation goes on that may not be ended yet: tokens of the key before are good for an hour."""
    assert plan.waits_until is not None
    assert now < plan.waits_until <= datetime.now(UTC) + TOKEN_LIFE
    return plan.waits_until


def test_three_members_of_etcd_get_another_ca_and_never_stop_taking_what_is_written(
    members: AuthorityBed, tmp_path: Path
) -> None:
    with Worker(members) as worker:
        phases = rotate(members, tmp_path)
    assert phases == [MAKE, *[SHARE] * 2, *[TRUST] * 4, *[ISSUE] * 4, *[RETIRE] * 4, *[FORGET] * 3]
    assert (worker.lost, worker.taken > 0) == ([], True)
    stopped = [(name, component) for name, component in members.restarts if component == ETCD]
    assert stopped == [("cp-1", ETCD), ("cp-2", ETCD), ("cp-3", ETCD)] * 3


def test_what_a_lost_control_plane_held_opens_no_api_server_any_more(bed: AuthorityBed, tmp_path: Path) -> None:
    """A certificate of the old CA, headers of the old front proxy, a token of the old key: each was good before."""
    assert rotate(bed, tmp_path) == [MAKE, *[TRUST] * 2, *[ISSUE] * 2, *[RETIRE] * 2, FORGET]


def test_an_api_server_only_adds_to_what_extended_ones_believe_until_that_is_deleted(bed: AuthorityBed) -> None:
    """After a rotation it names the old CA still; written anew it names the one in force alone, of both kinds."""
    plane = bed.planes["cp-1"]
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    alone = {"client-ca-file": "ca.crt", "requestheader-client-ca-file": "front-proxy-ca.crt"}
    wanted = {key: set(split((plane.pki / name).read_bytes())) for key, name in alone.items()}

    def believed() -> dict[str, set[str]]:
        data = json.loads(admin_of(plane).tell(plane.ports["api"], "GET", path)[1]).get("data", {})
        return {key: set(split(data[key].encode())) for key in alone if key in data}

    assert {key: len(names) for key, names in believed().items()} == dict.fromkeys(alone, 2)
    assert admin_of(plane).ask(plane.ports["api"], "DELETE", path) == OK
    wait_for(lambda: believed() == wanted)


def copied_successors(plane: BedPlane, directory: Path, *, uid: str) -> Thief:
    """Return somebody with the new keys, which lie beside the files and sign nothing yet."""
    stems = {"cluster": "ca", "etcd": "etcd/ca", "front-proxy": "front-proxy-ca", "service-accounts": "sa"}
    (directory / "etcd").mkdir(parents=True)
    for name, successor in plane.files.staged().items():
        (directory / f"{stems[name]}.key").write_bytes(successor.private)
        (directory / f"{stems[name]}.crt").write_bytes(successor.public)
    return Thief(keys=directory, uid=uid)


def test_the_controller_manager_signs_with_the_new_key(bed: AuthorityBed) -> None:
    """It was told of a file with one CA; where two were in it, it did not start (the next test)."""
    plane = bed.planes["cp-1"]
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    spec = {
        "request": base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    document = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    document |= {"metadata": {"name": "somebody"}, "spec": spec}
    path, port, admin = "/apis/certificates.k8s.io/v1/certificatesigningrequests", plane.ports["api"], admin_of(plane)
    said = json.loads(admin.tell(port, "POST", path, json.dumps(document).encode())[1])
    said["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "x"}]}
    assert admin.ask(port, "PUT", f"{path}/somebody/approval", json.dumps(said).encode()) == OK
    wait_for(lambda: "certificate" in json.loads(admin.tell(port, "GET", f"{path}/somebody")[1])["status"])
    status = json.loads(admin.tell(port, "GET", f"{path}/somebody")[1])["status"]
    issued = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(plane.paths.ca.read_bytes()))


def test_why_it_has_a_file_of_its_own_to_sign_with(bed: AuthorityBed, tmp_path: Path) -> None:
    """With two CAs in that file this release of it ends at its start."""
    plane = bed.planes["cp-1"]
    both = tmp_path / "both.crt"
    both.write_bytes(plane.paths.ca.read_bytes() + (plane.root / "first/ca.crt").read_bytes())
    others = {"cluster-signing-cert-file": str(both), "leader-elect": "false", "secure-port": "0"}
    done = subprocess.run(
        plane.command(CONTROLLER_MANAGER, others), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "expected 1 certificate, found 2" in done.stderr
