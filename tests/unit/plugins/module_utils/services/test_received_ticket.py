# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening a ticket: only the very node, exchange, boot and cluster that it was made for can."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import kubelet
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import (
    JoinCa,
    load_signing_key,
    make_join_ca,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.issue import (
    ClusterFacts,
    Exchange,
    Issued,
    issue_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle, make_bundle
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import Registration
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.release import (
    Held,
    JoinRequest,
    Proven,
    decide_release,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import (
    TicketSecrets,
    parse_ticket,
    sign_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import (
    ClosedTicket,
    Expected,
    TicketMaterial,
    open_ticket,
    read_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.ticket_store import TicketStore
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import (
    OneTimeKey,
    open_sealed,
    seal,
)
from ansible_collections.attested.kubernetes.tests.support.control_plane import GivenControlPlane, shared_files
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.control_plane import (
        ControlPlaneMaterial,
    )

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DISK = DiskId("22222222-2222-4222-8222-222222222222")
CANARY = b"canary-canary-canary-canary-0003"
SECRET = b"s" * 32
BINDING = b"B" * 32
MASTER = MasterSecret(key=SecretBytes(CANARY), salt=SecretBytes(b"t" * 32))
JOIN_CA = make_join_ca("prod", now=NOW)
FOREIGN_CA = make_join_ca("prod", now=NOW)


def pem(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def bundle(ca: JoinCa = JOIN_CA, salt: bytes = b"m" * 32) -> KeyBundle:
    return make_bundle(
        master=MASTER,
        measurement_salt=salt,
        join_ca_key=SecretBytes(ca.private_key),
        join_ca_certificate=ca.certificate,
        policy_key=POLICY_KEY,
    )


def cluster_ca() -> kubelet.ClusterCa:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    return kubelet.ClusterCa(made.sign(key, hashes.SHA256()), key)


class Node:
    """A node that asked, and the key service's answer to it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.one_time_key = OneTimeKey.generate()
        self.ca = cluster_ca()

    def request(self, role: Role = Role.WORKER) -> JoinRequest:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, "system:node:w-1"),
            ]
        )
        csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(self.key, hashes.SHA256())
        der = csr.public_bytes(serialization.Encoding.DER)
        asks = role is Role.CONTROL_PLANE
        return JoinRequest(disk_id="", certificate_request=der, is_control_plane=asks, event_logs=b"")

    def issued(
        self,
        made_from: KeyBundle | None = None,
        held: Held | None = None,
        *,
        role: Role = Role.WORKER,
        control_plane: ControlPlaneMaterial | None = None,
    ) -> Issued:
        identity = NodeIdentity(ek_sha256="ab" * 32, node_name="w-1", role=role, admission=Admission.APPROVED)
        decision = decide_release(
            self.request(role),
            proven=Proven(ak_name=b"ak", clock=1, reset_count=1, restart_count=1, profile="base", posture="boot"),
            registration=Registration(identity=identity, revision="1"),
            held=held,
            fresh_disk=DISK,
            now=NOW,
        )
        keys = made_from or bundle()
        join_ca = JoinCa(certificate=keys.join_ca_certificate, private_key=keys.join_ca_key.reveal())
        return issue_ticket(
            decision,
            bundle=keys,
            facts=ClusterFacts(kubernetes_version="1.35.4", api_endpoint="api.prod.example:6443"),
            ca=self.ca,
            signing_key=load_signing_key(join_ca),
            exchange=Exchange(secret=SECRET, binding=BINDING, recipient=self.one_time_key.public),
            now=NOW,
            control_plane=control_plane,
        )

    def answer(self, issued: Issued | None = None) -> bytes:
        given = issued or self.issued()
        message = message_class("join.IssueJoinTicketResponse")(ticket=given.ticket, ticket_signature=given.signature)
        return bytes(message.SerializeToString())

    def open(
        self, answer: bytes | None = None, expected: dict[str, Any] | None = None, **changes: Any
    ) -> TicketMaterial:
        return open_ticket(answer or self.answer(), **self.known(expected, **changes))

    def read(self) -> ClosedTicket:
        return read_ticket(self.answer(), **self.known(None))

    def known(self, expected: dict[str, Any] | None, **changes: Any) -> dict[str, Any]:
        """Return what this node knows of the exchange, with some of it changed."""
        known = {
            "cluster_id": bundle().cluster_id,
            "node_name": "w-1",
            "disk_id": "",
            "binding": BINDING,
            "kubelet_key": SecretBytes(pem(self.key)),
        }
        good = {
            "pins": JoinCaPins.from_pem(JOIN_CA.certificate),
            "secret": SECRET,
            "one_time_key": self.one_time_key,
            "now": NOW,
        }
        return {"expected": Expected(**{**known, **(expected or {})}), **good, **changes}


@pytest.fixture
def node() -> Node:
    return Node()


def test_the_node_gets_what_it_needs(node: Node) -> None:
    material = node.open()
    assert material.public.node_name == "w-1"
    assert material.public.role is Role.WORKER
    assert material.public.kubernetes_version == "1.35.4"
    assert material.public.api_endpoint == "api.prod.example:6443"
    assert material.public.disk_id == DISK.uuid
    assert material.secrets.disk_key == disk_key(MASTER, DISK)
    assert material.secrets.measurement_secret == bundle().measurement_secret()
    certificate = x509.load_pem_x509_certificate(material.public.kubelet_certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(material.public.cluster_ca))


CONTROL_PLANE = {"role": Role.CONTROL_PLANE}


def test_a_control_plane_gets_what_it_shares_with_the_others(node: Node, store: TicketStore) -> None:
    given = GivenControlPlane().read()
    answer = node.answer(node.issued(**CONTROL_PLANE, control_plane=given))
    material = node.open(answer, CONTROL_PLANE)
    assert material.public.role is Role.CONTROL_PLANE
    assert material.secrets.control_plane_files == given.files
    assert KeyBundle.from_bytes(material.secrets.key_service_bundle.reveal()) == bundle()
    assert material.secrets.policy == given.policy
    assert store.load(store.put(material)) == material
    for secret in (shared_files()["pki/ca.key"].splitlines()[1], CANARY, JOIN_CA.private_key.splitlines()[1]):
        assert secret not in answer
        assert secret.decode() not in repr(material)


@pytest.mark.parametrize(
    ("role", "control_plane"),
    [
        pytest.param(Role.WORKER, GivenControlPlane().read(), id="a worker gets what is a control plane's"),
        pytest.param(Role.CONTROL_PLANE, None, id="a control plane gets nothing"),
    ],
)
def test_a_ticket_of_one_role_with_the_secrets_of_another_is_not_made(
    node: Node, role: Role, control_plane: ControlPlaneMaterial | None
) -> None:
    with pytest.raises(AttestedError) as caught:
        node.issued(role=role, control_plane=control_plane)
    assert caught.value.code == "TICKET_MALFORMED"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"policy": SecretBytes(b"")}, "TICKET_MALFORMED", id="without a policy"),
        pytest.param({"control_plane_files": {}}, "TICKET_MALFORMED", id="without files"),
        pytest.param(
            {"key_service_bundle": SecretBytes(bundle(salt=b"n" * 32).to_bytes())},
            "TICKET_NOT_OURS",
            id="with the keys of another cluster",
        ),
        pytest.param({"key_service_bundle": SecretBytes(b"\xff")}, "MESSAGE_MALFORMED", id="with keys that are none"),
    ],
)
def test_a_control_plane_refuses_secrets_that_make_none(node: Node, change: dict[str, Any], code: str) -> None:
    """Signed and sealed for this very exchange by a key service that is wrong."""
    good = node.issued(**CONTROL_PLANE, control_plane=GivenControlPlane().read())
    public, box = parse_ticket(good.ticket)
    key = {"secret": SECRET, "binding": BINDING}
    plain = TicketSecrets.from_bytes(open_sealed(box, **key, one_time_key=node.one_time_key))
    changed = dataclasses.replace(plain, **change)
    ticket = public.to_bytes(seal(changed.to_bytes(), **key, recipient=node.one_time_key.public))
    signing = load_signing_key(JOIN_CA)
    signature = sign_ticket(signing, cluster_id=bundle().cluster_id, binding=BINDING, ticket=ticket)
    with pytest.raises(AttestedError) as caught:
        node.open(node.answer(dataclasses.replace(good, ticket=ticket, signature=signature)), CONTROL_PLANE)
    assert caught.value.code == code


def test_a_worker_refuses_what_is_a_control_planes(node: Node) -> None:
    """Also where the public part says worker and the box says more."""
    good = node.issued(**CONTROL_PLANE, control_plane=GivenControlPlane().read())
    public, box = parse_ticket(good.ticket)
    ticket = dataclasses.replace(public, role=Role.WORKER).to_bytes(box)
    signing = load_signing_key(JOIN_CA)
    signature = sign_ticket(signing, cluster_id=bundle().cluster_id, binding=BINDING, ticket=ticket)
    with pytest.raises(AttestedError) as caught:
        node.open(node.answer(dataclasses.replace(good, ticket=ticket, signature=signature)))
    assert caught.value.code == "TICKET_MALFORMED"


def test_the_same_ticket_again_is_the_same_certificate_sealed_anew(node: Node) -> None:
    first = node.issued()
    second = node.issued(held=first.held)
    one, two = node.open(node.answer(first)), node.open(node.answer(second))
    assert one == two
    assert first.ticket != second.ticket


def test_no_secret_shows_in_the_ticket_or_in_a_repr(node: Node) -> None:
    key = disk_key(MASTER, DISK).reveal()
    assert key not in node.answer()
    assert bundle().measurement_secret().reveal() not in node.answer()
    assert repr(key)[2:-1] not in repr(node.open())


def test_a_second_pin_serves_while_the_ca_is_replaced(node: Node) -> None:
    pins = JoinCaPins.from_pem(FOREIGN_CA.certificate + JOIN_CA.certificate)
    assert node.open(pins=pins).public.node_name == "w-1"


def flipped(answer: bytes) -> bytes:
    message = message_class("join.IssueJoinTicketResponse").FromString(answer)
    ticket = message_class("attested.v1.Ticket").FromString(message.ticket)
    ticket.node_name = "w-2"
    message.ticket = ticket.SerializeToString()
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(lambda node: {"secret": b"x" * 32}, "SEAL_UNOPENABLE", id="a recorded ticket on another machine"),
        pytest.param(
            lambda node: {"one_time_key": OneTimeKey.generate()},
            "SEAL_UNOPENABLE",
            id="a recorded ticket on the right machine after another boot",
        ),
        pytest.param(
            lambda node: {"expected": {"binding": b"C" * 32}}, "TICKET_SIGNATURE", id="a ticket of another exchange"
        ),
        pytest.param(
            lambda node: {"pins": JoinCaPins.from_pem(FOREIGN_CA.certificate)},
            "TICKET_SIGNATURE",
            id="a ticket of a foreign join service",
        ),
        pytest.param(lambda node: {"answer": flipped(node.answer())}, "TICKET_SIGNATURE", id="a changed public field"),
        pytest.param(
            lambda node: {"expected": {"cluster_id": b"c" * 32}}, "TICKET_SIGNATURE", id="a ticket of another cluster"
        ),
        pytest.param(lambda node: {"answer": b"\x00"}, "MESSAGE_MALFORMED", id="an answer that is none"),
        pytest.param(
            lambda node: {"answer": node.answer(dataclasses.replace(node.issued(), signature=b""))},
            "TICKET_SIGNATURE",
            id="no signature",
        ),
        pytest.param(
            lambda node: {"expected": {"node_name": "w-2"}}, "TICKET_NOT_OURS", id="a ticket for another node"
        ),
        pytest.param(
            lambda node: {"expected": {"role": Role.CONTROL_PLANE}},
            "TICKET_NOT_OURS",
            id="a worker's ticket for a control plane",
        ),
        pytest.param(
            lambda node: {"expected": {"disk_id": "11111111-1111-4111-8111-111111111111"}},
            "TICKET_NOT_OURS",
            id="another disk than the one that we have",
        ),
        pytest.param(
            lambda node: {"expected": {"kubelet_key": SecretBytes(pem(ec.generate_private_key(ec.SECP256R1())))}},
            "TICKET_NOT_OURS",
            id="a certificate over another key",
        ),
        pytest.param(lambda node: {"now": NOW + timedelta(minutes=15)}, "TICKET_EXPIRED", id="a ticket that ended"),
    ],
)
def test_a_ticket_cannot_be_used(node: Node, make: Any, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        node.open(**make(node))
    assert caught.value.code == code


def signed_anew(node: Node, **changes: Any) -> bytes:
    """Return an answer of the right join service whose ticket says something else in public."""
    issued = node.issued()
    message = message_class("attested.v1.Ticket").FromString(issued.ticket)
    for name, value in changes.items():
        setattr(message, name, value)
    ticket = message.SerializeToString()
    signature = sign_ticket(load_signing_key(JOIN_CA), cluster_id=bundle().cluster_id, binding=BINDING, ticket=ticket)
    return node.answer(dataclasses.replace(issued, ticket=ticket, signature=signature))


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        pytest.param(
            {"cluster_id": b"C" * 32},
            "TICKET_NOT_OURS",
            f"the cluster id {bundle().cluster_id.hex()} in the ticket, got {(b'C' * 32).hex()}",
            id="another cluster",
        ),
        pytest.param(
            {"role": "control-plane"},
            "TICKET_NOT_OURS",
            "the role 'worker' in the ticket, got 'control-plane'",
            id="another role",
        ),
        pytest.param(
            {"node_name": "n" * 101},
            "TICKET_NOT_OURS",
            f"the node name 'w-1' in the ticket, got '{'n' * 100}'",
            id="a long name, of which a part is told",
        ),
        pytest.param({"disk_uuid": "../disk"}, "DISK_ID_MALFORMED", "'../disk'", id="a disk id that is none"),
    ],
)
def test_what_the_right_service_signed_must_be_ours_all_the_same(
    node: Node, changes: dict[str, Any], code: str, said: str
) -> None:
    with pytest.raises(AttestedError) as caught:
        node.open(signed_anew(node, **changes))
    assert caught.value.code == code
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("off", "said"),
    [
        pytest.param(timedelta(hours=1), "45 min or more ahead", id="an hour"),
        pytest.param(timedelta(days=365), "364 d or more ahead", id="a year"),
    ],
)
def test_a_fresh_ticket_tells_a_clock_that_is_ahead(node: Node, off: timedelta, said: str) -> None:
    """Both times are told: a ticket of this very exchange cannot be old."""
    with pytest.raises(AttestedError) as caught:
        node.open(now=NOW + off)
    assert caught.value.code == "TICKET_EXPIRED"
    assert said in caught.value.message
    assert f"{NOW + off:%Y-%m-%dT%H:%M:%SZ}" in caught.value.message
    assert "2026-11-21T12:15:00Z" in caught.value.message


@pytest.mark.parametrize("off", [timedelta(hours=-1), timedelta(days=-365), timedelta(minutes=14)])
def test_no_other_clock_keeps_a_ticket_from_being_used(node: Node, off: timedelta) -> None:
    """What is proven is proven by nonces and bindings; the date only ends what lies around."""
    assert node.open(now=NOW + off).public.node_name == "w-1"


def test_secrets_that_derive_another_cluster_are_refused(node: Node) -> None:
    """A key service with the right join CA and cluster id, but with another master secret behind them."""
    lying = dataclasses.replace(bundle(salt=b"n" * 32), cluster_id=bundle().cluster_id)
    with pytest.raises(AttestedError) as caught:
        node.open(node.answer(node.issued(lying)))
    assert caught.value.code == "TICKET_NOT_OURS"


def test_a_signed_ticket_without_a_certificate_is_refused(node: Node) -> None:
    issued = node.issued(held=Held(key_sha256="", expires=NOW, certificate=b""))
    message = message_class("attested.v1.Ticket").FromString(issued.ticket)
    message.kubelet_certificate = b"no PEM"
    ticket = message.SerializeToString()
    key = load_signing_key(JOIN_CA)
    signature = sign_ticket(key, cluster_id=bundle().cluster_id, binding=BINDING, ticket=ticket)
    with pytest.raises(AttestedError) as caught:
        node.open(node.answer(dataclasses.replace(issued, ticket=ticket, signature=signature)))
    assert caught.value.code == "TICKET_MALFORMED"


@pytest.fixture
def store(tmp_path: Path) -> TicketStore:
    return TicketStore(tmp_path / "tickets", require_memory=lambda directory: None)


def test_a_stored_ticket_comes_back_by_its_handle(node: Node, store: TicketStore) -> None:
    material = node.open()
    handle = store.put(material)
    assert store.load(handle) == material
    assert store.handles() == (handle,)
    assert store.discard(handle) is True
    assert store.discard(handle) is False
    with pytest.raises(SystemFault) as caught:
        store.load(handle)
    assert caught.value.code == "TICKET_HANDLE_UNKNOWN"


@pytest.mark.parametrize("handle", ["", "../kubelet-key", "A" * 32, "0" * 31])
def test_what_is_no_handle_opens_no_file(store: TicketStore, handle: str) -> None:
    with pytest.raises(SystemFault) as caught:
        store.load(handle)
    assert caught.value.code == "TICKET_HANDLE_UNKNOWN"


def test_the_kubelets_key_is_made_once_and_is_roots_alone(store: TicketStore, tmp_path: Path) -> None:
    assert store.kubelet_key() == store.kubelet_key()
    directory = tmp_path / "tickets"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}
    first = store.kubelet_key()
    assert store.discard_kubelet_key() is True
    assert store.kubelet_key() != first


def test_nothing_is_stored_outside_memory(tmp_path: Path) -> None:
    def refuse(directory: Path) -> None:
        raise SystemFault(f"{directory} is on a disk", reason=Reason.NOT_TMPFS)

    with pytest.raises(SystemFault):
        TicketStore(tmp_path / "tickets", require_memory=refuse).kubelet_key()
    assert not list((tmp_path / "tickets").iterdir())
