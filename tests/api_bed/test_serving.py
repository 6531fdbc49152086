# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates that kubelets serve with: asked for by a node's own credential, decided by real key services.

The API server is real, and so is the controller manager that signs. A kubelet is played by its certificate, and its
request by one of the same form; that a running one serves with what it gets was not tried.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import itertools
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ApiGateway, CredentialFiles
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries
from ansible_collections.attested.kubernetes.tests.support.service_bed import CHANGED_BOOT, GOOD_BOOT, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.serving_requests import (
    USAGES,
    Wanted,
    encoded,
    subject_of,
    weak_key,
)
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

RIGHTS = Path(__file__).parents[2] / "roles" / "key_service" / "files" / "serving.yml"
CSR = "certificatesigningrequests.certificates.k8s.io"
IDENTITIES = "nodeidentities.attested-kubernetes.dev"
SERVING, CLIENT = "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"
_LOCK = 15


def _deciding(api: ApiBed, name: str) -> ServiceBed:
    """Return the services of a control plane that decides about serving certificates."""
    made = ServiceBed(api, name=name)
    path = made.directory / "key.yml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kubelet_serving": True}))
    return made


@pytest.fixture(scope="module")
def rights(api: ApiBed) -> Iterator[None]:
    """What a site with serving certificates applies beside the rest; the other tests are of sites without."""
    api.kubectl("apply", "--server-side", "--field-manager=attested-site", "-f", str(RIGHTS))
    yield
    api.kubectl("delete", "-f", str(RIGHTS))


@pytest.fixture(scope="module")
def bed(api: ApiBed, rights: None) -> Iterator[ServiceBed]:
    """The services of one such control plane."""
    made = _deciding(api, "cp-7")
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture(scope="module")
def second(api: ApiBed, bed: ServiceBed) -> Iterator[ServiceBed]:
    """The key service of another control plane, which sees the same requests."""
    made = _deciding(api, "cp-8")
    try:
        made.start_key_service()
        made.adopt()
        yield made
    finally:
        assert made.stop() == 0


@dataclass(slots=True)
class Node:
    """A machine and its address, its kubelet's credential, and what it asks for."""

    api: ApiBed
    machine: Machine
    address: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def name(self) -> str:
        return self.machine.name

    def get_ticket(self) -> None:
        """Get a ticket, keep its certificate for the API, and lock."""
        material = self.machine.ask()
        (self.api.directory / f"{self.name}.crt").write_bytes(material.public.kubelet_certificate)
        (self.api.directory / f"{self.name}.key").write_bytes(material.kubelet_key.reveal())
        self.machine.lock()

    def appear(self) -> None:
        """Let the Node appear, and wait until the identity is joined."""
        self.api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        wait_for(lambda: self.machine.identity().get("status", {}).get("phase") == "Joined")

    def wanted(self, **changes: Any) -> Wanted:
        """Return what its kubelet asks for."""
        return Wanted(**{"node": self.name, "names": (self.name,), "addresses": (self.address,), **changes})

    def ask(self, wanted: Wanted | None = None, *, user: str = "", **spec: Any) -> str:
        """Create a request as its kubelet, or as another ``user``; return the request's name."""
        name = f"{self.name}-{next(self._numbers)}"
        document = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": encoded((wanted or self.wanted()).pem()),
                "signerName": SERVING,
                "usages": list(USAGES),
                **spec,
            },
        }
        self.api.kubectl("create", "-f", "-", stdin=json.dumps(document), user=user or self.name)
        return name


def conditions(api: ApiBed, name: str) -> list[tuple[str, str]]:
    """Return type and reason of each condition of a request."""
    return [(one["type"], one["reason"]) for one in api.get(CSR, name)["status"].get("conditions", ())]


def decided(api: ApiBed, name: str) -> tuple[str, str]:
    """Return type and reason of the one condition that a request gets."""
    wait_for(lambda: conditions(api, name) != [])
    (found,) = conditions(api, name)
    return found


@pytest.fixture
def make(api: ApiBed, machines: Callable[..., Machine], request: pytest.FixtureRequest) -> Callable[[], Node]:
    """Make nodes with an address of their own in the site; they have a ticket and have not appeared."""
    numbers = itertools.count(1)
    place = abs(hash(request.node.nodeid)) % 250

    def made() -> Node:
        node = Node(api, machines(enroll=False), f"10.9.{place}.{next(numbers)}")
        node.machine.enroll(addresses=[node.address])
        node.get_ticket()
        return node

    return made


@pytest.fixture
def node(make: Callable[[], Node]) -> Node:
    """A joined node in good standing."""
    found = make()
    found.appear()
    return found


@contextlib.contextmanager
def signer(api: ApiBed) -> Iterator[None]:
    """Run the controller manager's signer alone, with what the rendered configuration tells it."""
    program = binaries() / "kube-controller-manager"
    if not program.is_file():
        pytest.skip(f"no kube-controller-manager in {program.parent}: build the bundle first (playbook bundle)")
    d = api.directory
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.server, "certificate-authority": str(d / "ca.crt")}}],
        "users": [{"name": "u", "user": {"client-certificate": f"{d}/admin.crt", "client-key": f"{d}/admin.key"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (d / "manager.conf").write_text(json.dumps(config))
    argv = [
        str(program),
        f"--kubeconfig={d / 'manager.conf'}",
        f"--cluster-signing-cert-file={d / 'ca.crt'}",
        f"--cluster-signing-key-file={d / 'ca.key'}",
        "--cluster-signing-duration=72h0m0s",
        "--controllers=certificatesigningrequest-signing-controller",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    with (d / "manager.log").open("ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_a_node_in_good_standing_gets_a_certificate_for_its_name_and_address(api: ApiBed, node: Node) -> None:
    name = node.ask()
    assert decided(api, name) == ("Approved", "Attested")
    with signer(api):
        wait_for(lambda: "certificate" in api.get(CSR, name)["status"])
    made = x509.load_pem_x509_certificate(base64.b64decode(api.get(CSR, name)["status"]["certificate"]))
    made.verify_directly_issued_by(api.ca.certificate)
    assert made.subject == subject_of(node.name)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert (
        names.get_values_for_type(x509.DNSName),
        [str(one) for one in names.get_values_for_type(x509.IPAddress)],
    ) == ([node.name], [node.address])
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert made.not_valid_after_utc - made.not_valid_before_utc <= dt.timedelta(hours=72, minutes=10)


def authority(builder: x509.CertificateSigningRequestBuilder) -> x509.CertificateSigningRequestBuilder:
    return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)


CHANGED = [
    pytest.param({"group": "system:masters"}, {}, "CSR_NAME_MISMATCH", id="another group"),
    pytest.param({"names": ("kubernetes",)}, {}, "SERVING_SAN_REFUSED", id="the name of the API server"),
    pytest.param({"addresses": ("10.9.255.1",)}, {}, "SERVING_SAN_REFUSED", id="another node's address"),
    pytest.param(
        {"others": (x509.UniformResourceIdentifier("spiffe://x"),)}, {}, "SERVING_SAN_REFUSED", id="a URI as well"
    ),
    pytest.param({"also": authority}, {}, "SERVING_EXTENSION_REFUSED", id="to be an authority"),
    pytest.param({"key": None}, {}, "CSR_KEY_UNSUPPORTED", id="a weak key"),
    pytest.param({}, {"usages": [*USAGES, "client auth"]}, "SERVING_USAGE_REFUSED", id="to be a client as well"),
    pytest.param({}, {"user": "admin"}, "SERVING_REQUESTER_REFUSED", id="asked for by an admin"),
]


@pytest.mark.parametrize(("wanted", "spec", "code"), CHANGED)
def test_one_changed_point_is_denied(
    api: ApiBed, bed: ServiceBed, node: Node, wanted: dict[str, Any], spec: dict[str, Any], code: str
) -> None:
    changes = {**wanted, "key": weak_key()} if "key" in wanted else dict(wanted)
    if group := changes.pop("group", ""):
        changes["subject"] = subject_of(node.name, group=group)
    name = node.ask(node.wanted(**changes), **spec)
    assert decided(api, name) == ("Denied", code)
    wait_for(lambda: (name, code) in {(one.get("request"), one.get("reason")) for one in bed.lines("key")})
    assert decided(api, node.ask()) == ("Approved", "Attested")  # and nothing of it is held against the node


def test_another_nodes_name_is_not_even_taken_by_the_api_server(node: Node) -> None:
    with pytest.raises(RuntimeError, match=f"can only create a node CSR with CN=system:node:{node.name}"):
        node.ask(node.wanted(node="w-of-nobody"))


def test_evidence_that_was_refused_denies_until_other_evidence_is_good(api: ApiBed, node: Node) -> None:
    machine, good = node.machine, node.machine.tpm.pcrs
    machine.boot = boots.load(CHANGED_BOOT)
    machine.tpm.pcrs = {**machine.boot.pcrs, _LOCK: good[_LOCK]}
    with pytest.raises(AttestedError):
        machine.reattest()
    machine.boot, machine.tpm.pcrs = boots.load(GOOD_BOOT), good
    assert decided(api, node.ask()) == ("Denied", "REATTESTATION_FAILED")
    machine.reattest()
    assert decided(api, node.ask()) == ("Approved", "Attested")


def test_evidence_that_is_too_old_denies(api: ApiBed, node: Node) -> None:
    yesterday = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    patch = json.dumps({"status": {"lastAttestation": {"time": yesterday}}})
    identity = node.machine.identity()["metadata"]["name"]
    api.kubectl("patch", IDENTITIES, identity, "--subresource=status", "--type=merge", "-p", patch)
    assert decided(api, node.ask()) == ("Denied", "REATTESTATION_OVERDUE")


def test_who_has_not_joined_waits_and_gets_it_once_he_has(api: ApiBed, make: Callable[[], Node], node: Node) -> None:
    early = make()
    waiting = early.ask()
    assert decided(api, node.ask()) == ("Approved", "Attested")  # asked for later: the first one was looked at
    assert conditions(api, waiting) == []
    early.appear()
    assert decided(api, waiting) == ("Approved", "Attested")


def test_who_is_revoked_while_he_waits_is_denied_and_asks_no_more(api: ApiBed, make: Callable[[], Node]) -> None:
    node = make()
    waiting = node.ask()
    node.machine.enroll(addresses=[node.address], admission="Revoked")
    assert decided(api, waiting) == ("Denied", "IDENTITY_REVOKED")
    wait_for(lambda: _is_denied_by_the_api(node))


def _is_denied_by_the_api(node: Node) -> bool:
    try:
        node.ask()
    except RuntimeError as error:
        return "was revoked" in str(error)
    return False


def test_two_control_planes_conclude_each_request_once(
    api: ApiBed, bed: ServiceBed, second: ServiceBed, node: Node
) -> None:
    good = [node.ask() for _unused in range(4)]
    bad = [node.ask(node.wanted(names=("kubernetes",))) for _unused in range(4)]
    assert [decided(api, name) for name in good] == [("Approved", "Attested")] * 4
    assert [decided(api, name) for name in bad] == [("Denied", "SERVING_SAN_REFUSED")] * 4

    def told() -> list[str]:
        lines = [one for made in (bed, second) for one in made.lines("key") if one["event"] == "serving_certificate"]
        return sorted(one["request"] for one in lines if one["request"] in {*good, *bad})

    wait_for(lambda: told() == sorted([*good, *bad]))


class Fixed:
    """A credential that never changes."""

    def __init__(self, api: ApiBed, user: str) -> None:
        self._files = CredentialFiles(api.directory / f"{user}.crt", api.directory / f"{user}.key")

    def current(self) -> CredentialFiles:
        return self._files


def test_requests_of_other_signers_are_let_be_and_could_not_be_approved(api: ApiBed, node: Node) -> None:
    other = node.ask(
        node.wanted(names=(), addresses=()), signerName=CLIENT, usages=["digital signature", "client auth"]
    )
    assert decided(api, node.ask()) == ("Approved", "Attested")
    assert conditions(api, other) == []
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    gateway = ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=Fixed(api, "key-service"))
    condition = {"type": "Approved", "status": "True", "reason": "Mine", "message": "x"}
    revision = api.get(CSR, other)["metadata"]["resourceVersion"]
    with pytest.raises(AttestedError) as caught:
        gateway.conclude_request(other, condition, revision=revision)
    assert caught.value.code == "API_FORBIDDEN"
    assert conditions(api, other) == []


ALLOWED = {
    ("list", CSR, ""),
    ("watch", CSR, ""),
    ("patch", f"{CSR}/approval", ""),
    ("approve", "signers.certificates.k8s.io", SERVING),
}
ASKED = [
    *((verb, f"{CSR}{sub}", "") for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
      for sub in ("", "/approval", "/status")),
    *((verb, "signers.certificates.k8s.io", name) for verb in ("approve", "sign", "attest")
      for name in (SERVING, CLIENT, "kubernetes.io/kube-apiserver-client", "kubernetes.io/legacy-unknown", "")),
]  # fmt: skip


def test_the_key_services_user_has_exactly_its_verbs_of_requests(api: ApiBed, bed: ServiceBed) -> None:
    reviews = [_review(*asked) for asked in ASKED]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    words = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}{'\\n'}")
    answers = api.kubectl(*words, stdin=text).split()
    assert {asked for asked, answer in zip(ASKED, answers, strict=True) if answer == "true"} == ALLOWED


def _review(verb: str, text: str, name: str) -> dict[str, Any]:
    path, _unused, sub = text.partition("/")
    resource, _unused, group = path.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "attested:key-service", "groups": ["system:authenticated"], "resourceAttributes": attributes},
    }


def test_rights_that_were_applied_show_no_difference_when_they_are_applied_again(api: ApiBed, rights: None) -> None:
    assert api.kubectl("diff", "--server-side", "--field-manager=attested-site", "-f", str(RIGHTS)) == ""


@pytest.mark.parametrize("address", ["w-1.example", "10.0.0.021", "FD00::1", "fe80::1%eth0", "::ffff:10.0.0.1", ""])
def test_an_identity_with_what_is_no_address_is_refused(
    api: ApiBed, machines: Callable[..., Machine], address: str
) -> None:
    with pytest.raises(RuntimeError, match="addresses"):
        machines(enroll=False).enroll(addresses=[address])
