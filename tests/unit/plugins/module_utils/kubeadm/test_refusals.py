# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused around kubeadm: requests, versions, kubeconfigs, objects, leftovers."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admin import issue_admin_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import (
    embedded_credential,
    remaining_seconds,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.gateway import installed_version
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.reset import Reset
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Says:
    """A program that gives the same answer to everything."""

    def __init__(self, stdout=b"", stderr=b"", code=0):
        self.result = (code, stdout, stderr)
        self.calls = []

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del stdin, timeout_seconds, env, check
        self.calls.append(tuple(argv))
        code, stdout, stderr = self.result
        return CommandResult(argv=tuple(argv), returncode=code, stdout=stdout, stderr=stderr)


def _request(*names):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def _forged(request):
    der = bytearray(x509.load_pem_x509_csr(request).public_bytes(serialization.Encoding.DER))
    der[der.index(b"admin")] = ord("b")
    return x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(machine, clock):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(clock.now())
        .not_valid_after(clock.now() + dt.timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    machine.paths.ca.parent.mkdir(parents=True)
    machine.paths.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    machine.paths.ca.with_suffix(".key").write_bytes(key.private_bytes(*form))
    return certificate


def test_the_admins_certificate_is_short_and_not_of_system_masters(authority, machine, clock):
    pem = issue_admin_certificate(_request("admin"), paths=machine.paths, clock=clock, hours=24)
    made = x509.load_pem_x509_certificate(pem)
    made.verify_directly_issued_by(authority)
    names = {part.rfc4514_attribute_name: part.value for part in made.subject}
    assert names == {"O": "kubeadm:cluster-admins", "CN": "admin"}
    assert made.not_valid_after_utc == clock.now() + dt.timedelta(hours=24)


@pytest.mark.parametrize(
    "request_pem",
    [
        pytest.param(_request("system:masters"), id="a name of the system"),
        pytest.param(_request(), id="no name"),
        pytest.param(_request("admin", "other"), id="two names"),
        pytest.param(_forged(_request("admin")), id="a name changed after it was signed"),
        pytest.param(b"not PEM", id="no request at all"),
    ],
)
def test_a_request_for_an_admin_is_refused(request_pem, authority, machine, clock):
    del authority
    with pytest.raises(KubeadmError) as caught:
        issue_admin_certificate(request_pem, paths=machine.paths, clock=clock, hours=24)
    assert caught.value.code == "ADMIN_REQUEST_INVALID"


@pytest.mark.parametrize(
    ("wanted", "good"),
    [
        pytest.param("1.35", True, id="the minor"),
        pytest.param("1.35.4", True, id="the full version"),
        pytest.param("1.35.5", False, id="another patch"),
        pytest.param("1.3", False, id="a minor that only begins alike"),
    ],
)
def test_the_installed_kubeadm(wanted, good):
    kubeadm = Says(b"v1.35.4\n")
    if good:
        assert installed_version(kubeadm, wanted=wanted) == "1.35.4"
        return
    with pytest.raises(KubeadmError, match=f"expected kubeadm {wanted}, found 1.35.4") as caught:
        installed_version(kubeadm, wanted=wanted)
    assert caught.value.code == "RELEASE_NOT_PREPARED"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"{unclosed", id="no YAML"),
        pytest.param(b"users: []", id="no user"),
        pytest.param(b"users: [{user: {client-certificate-data: '%%%', client-key-data: ''}}]", id="no base64"),
        pytest.param(b"users: [{user: {client-certificate-data: ''}}]", id="no key"),
    ],
)
def test_a_malformed_kubeconfig_is_refused(text):
    with pytest.raises(KubeadmError) as caught:
        embedded_credential(text)
    assert caught.value.code == "KUBECONFIG_MALFORMED"


def test_a_credential_that_is_no_certificate_is_refused(machine, clock):
    machine.paths.kubelet_credential.parent.mkdir(parents=True)
    machine.paths.kubelet_credential.write_bytes(b"not PEM")
    with pytest.raises(KubeadmError) as caught:
        remaining_seconds(machine.paths, clock=clock)
    assert caught.value.code == "KUBECONFIG_MALFORMED"


def test_an_api_server_that_does_not_answer_is_told_with_kubectls_own_words(tmp_path):
    kubectl = Kubectl(Says(stderr=b"The connection was refused", code=1), kubeconfig=tmp_path / "admin.conf")
    for call in (lambda: kubectl.read(["nodes"]), lambda: kubectl.apply(["kind: Namespace"])):
        with pytest.raises(KubeadmError, match="The connection was refused") as caught:
            call()
        assert caught.value.code == "KUBECTL_FAILED"


def test_objects_that_are_there_already_are_not_written(tmp_path):
    program = Says()
    outcome = Kubectl(program, kubeconfig=tmp_path / "admin.conf").apply(["kind: Namespace"])
    assert (outcome.changed, [words[3] for words in program.calls]) == (False, ["diff"])


def test_reading_returns_the_items(tmp_path):
    program = Says(json.dumps({"items": [{"kind": "Node"}]}).encode())
    assert Kubectl(program, kubeconfig=tmp_path / "admin.conf").read(["nodes"]) == [{"kind": "Node"}]


def test_a_reset_that_leaves_something_names_it(machine, programs):
    programs.links.add("cni0")
    programs.answers[("ip", "link", "delete")] = (1, b"busy")
    reset = Reset(machine)
    with pytest.raises(KubeadmError, match="cni0") as caught:
        reset.apply(reset.plan())
    assert caught.value.code == "RESET_INCOMPLETE"


def test_a_kubeadm_that_cannot_reset_is_told(machine, programs):
    (machine.paths.kubernetes / "manifests").mkdir(parents=True)
    programs.answers[("kubeadm", "reset")] = (1, b"no such socket")
    reset = Reset(machine)
    with pytest.raises(KubeadmError, match="no such socket") as caught:
        reset.apply(reset.plan())
    assert caught.value.code == "RESET_INCOMPLETE"


def test_after_a_reset_there_is_nothing_left_to_do(machine, programs):
    (machine.paths.kubelet / "pki").mkdir(parents=True)
    programs.links.add("cni0")
    reset = Reset(machine)
    reset.apply(reset.plan())
    assert not reset.plan()
