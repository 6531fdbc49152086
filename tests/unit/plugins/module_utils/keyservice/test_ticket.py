# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ticket's bytes and the signature that ties it to one exchange."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import (
    DiskKey,
    MeasurementSecret,
    SecretBytes,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import (
    CONTROL_PLANE_FILES,
    ENCRYPTION_FILE,
    MAX_FILE_BYTES,
    TicketPublic,
    TicketSecrets,
    parse_ticket,
    sign_ticket,
    verify_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from cryptography.hazmat.primitives.asymmetric import ed25519

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)
EXCHANGE = {"cluster_id": b"c" * 32, "binding": b"b" * 32, "ticket": b"a ticket"}
PUBLIC = TicketPublic(
    cluster_id=b"c" * 32,
    node_name="w-1",
    role=Role.WORKER,
    disk_id="00000000-0000-4000-8000-000000000000",
    kubernetes_version="1.35.4",
    api_endpoint="api.prod.example:6443",
    cluster_ca=b"PEM",
    kubelet_certificate=b"PEM",
    expires_unix_seconds=1_800_000_000,
    joined_before=False,
)


def test_a_ticket_survives_the_wire() -> None:
    assert parse_ticket(PUBLIC.to_bytes(b"box")) == (PUBLIC, b"box")
    later = dataclasses.replace(PUBLIC, joined_before=True, role=Role.CONTROL_PLANE)
    assert parse_ticket(later.to_bytes(b""))[0] == later


FILES = {name: SecretBytes(b"PEM of " + name.encode()) for name in CONTROL_PLANE_FILES}
WORKER = TicketSecrets(
    disk_key=DiskKey(b"d" * 32), measurement_secret=MeasurementSecret(b"m" * 32), measurement_salt=b"s" * 32
)
CONTROL_PLANE = dataclasses.replace(
    WORKER, control_plane_files=FILES, key_service_bundle=SecretBytes(b"bundle"), policy=SecretBytes(b"{}")
)


@pytest.mark.parametrize("secrets", [WORKER, CONTROL_PLANE])
def test_secrets_survive_the_wire(secrets: TicketSecrets) -> None:
    assert TicketSecrets.from_bytes(secrets.to_bytes()) == secrets


def test_no_secret_shows_in_a_repr() -> None:
    shown = repr(CONTROL_PLANE)
    for secret in ("dddd", "PEM", "bundle=", "policy="):
        assert secret not in shown


def test_secrets_are_those_of_their_role() -> None:
    WORKER.require_role(Role.WORKER)
    CONTROL_PLANE.require_role(Role.CONTROL_PLANE)
    encrypting = {**FILES, ENCRYPTION_FILE: SecretBytes(b"kind: EncryptionConfiguration")}
    dataclasses.replace(CONTROL_PLANE, control_plane_files=encrypting).require_role(Role.CONTROL_PLANE)


def with_file(name: str, size: int) -> TicketSecrets:
    return dataclasses.replace(CONTROL_PLANE, control_plane_files={**FILES, name: SecretBytes(b"x" * size)})


@pytest.mark.parametrize(
    ("secrets", "role"),
    [
        pytest.param(CONTROL_PLANE, Role.WORKER, id="a worker gets all of it"),
        pytest.param(dataclasses.replace(WORKER, control_plane_files=FILES), Role.WORKER, id="a worker gets files"),
        pytest.param(
            dataclasses.replace(WORKER, key_service_bundle=SecretBytes(b"b")), Role.WORKER, id="a worker gets the keys"
        ),
        pytest.param(
            dataclasses.replace(WORKER, policy=SecretBytes(b"{}")), Role.WORKER, id="a worker gets the policy"
        ),
        pytest.param(WORKER, Role.CONTROL_PLANE, id="a control plane gets nothing"),
        pytest.param(
            dataclasses.replace(CONTROL_PLANE, key_service_bundle=SecretBytes(b"")),
            Role.CONTROL_PLANE,
            id="a control plane gets no keys",
        ),
        pytest.param(
            dataclasses.replace(CONTROL_PLANE, policy=SecretBytes(b"")),
            Role.CONTROL_PLANE,
            id="a control plane gets no policy",
        ),
        *(
            pytest.param(
                dataclasses.replace(
                    CONTROL_PLANE, control_plane_files={one: data for one, data in FILES.items() if one != name}
                ),
                Role.CONTROL_PLANE,
                id=f"without {name}",
            )
            for name in CONTROL_PLANE_FILES
        ),
        pytest.param(with_file("../passwd", 1), Role.CONTROL_PLANE, id="a file that is not one of them"),
        pytest.param(with_file("pki/ca.key", 0), Role.CONTROL_PLANE, id="an empty file"),
        pytest.param(with_file("pki/ca.key", MAX_FILE_BYTES + 1), Role.CONTROL_PLANE, id="a file that is too large"),
    ],
)
def test_secrets_of_another_role_are_refused(secrets: TicketSecrets, role: Role) -> None:
    with pytest.raises(AttestedError) as caught:
        secrets.require_role(role)
    assert caught.value.code == "TICKET_MALFORMED"


def test_a_file_of_the_largest_size_is_taken() -> None:
    with_file("pki/ca.key", MAX_FILE_BYTES).require_role(Role.CONTROL_PLANE)


def test_a_file_that_comes_twice_is_refused() -> None:
    message = message_class("attested.v1.TicketSecrets").FromString(CONTROL_PLANE.to_bytes())
    message.control_plane_files.add(name="pki/ca.key", data=b"another")
    with pytest.raises(AttestedError) as caught:
        TicketSecrets.from_bytes(message.SerializeToString())
    assert caught.value.code == "TICKET_MALFORMED"


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        pytest.param("version", 2, "PROTOCOL_VERSION: a ticket of version", id="another version"),
        pytest.param("role", "admin", "TICKET_MALFORMED", id="an unknown role"),
    ],
)
def test_a_ticket_that_means_nothing_is_refused(field: str, value: object, code: str) -> None:
    message = message_class("attested.v1.Ticket").FromString(PUBLIC.to_bytes(b"box"))
    setattr(message, field, value)
    with pytest.raises(AttestedError) as caught:
        parse_ticket(message.SerializeToString())
    assert Coded(caught.value) == code


def test_the_join_cas_signature_is_accepted() -> None:
    verify_ticket(KEY.public_key(), sign_ticket(KEY, **EXCHANGE), **EXCHANGE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"ticket": b"a tickeT"}, id="a changed ticket"),
        pytest.param({"binding": b"B" * 32}, id="a ticket of another exchange"),
        pytest.param({"cluster_id": b"C" * 32}, id="a ticket of another cluster"),
    ],
)
def test_a_signature_over_something_else_is_refused(change: dict[str, bytes]) -> None:
    signature = sign_ticket(KEY, **EXCHANGE)
    with pytest.raises(AttestedError) as caught:
        verify_ticket(KEY.public_key(), signature, **{**EXCHANGE, **change})
    assert caught.value.code == "TICKET_SIGNATURE"


def test_a_foreign_join_cas_signature_is_refused() -> None:
    foreign = ed25519.Ed25519PrivateKey.from_private_bytes(b"f" * 32)
    for signature in (sign_ticket(foreign, **EXCHANGE), b"", b"\x00" * 64):
        with pytest.raises(AttestedError) as caught:
            verify_ticket(KEY.public_key(), signature, **EXCHANGE)
        assert caught.value.code == "TICKET_SIGNATURE"
