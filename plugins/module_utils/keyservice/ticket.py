# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ticket of a node as bytes, and the join CA's signature over it.

    signature = Ed25519(join CA, length-prefixed(label "ticket", cluster id, B, SHA-256(ticket)))

The binding B binds a ticket to one exchange: to its TLS session, request, quote and one-time key.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._deps.crypto import ed25519, exceptions
from ..errors import Refusal
from ..policy.identity import Role
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from ..transport.sealed_box import OneTimeKey, open_sealed
from .derive import cluster_id
from .key_bundle import KeyBundle
from .master import DiskKey, MeasurementSecret, SecretBytes
from .ring import NamedDiskKey

if TYPE_CHECKING:
    from collections.abc import Mapping


TICKET_VERSION = 1

CONTROL_PLANE_FILES = (
    "pki/ca.crt",
    "pki/ca.key",
    "pki/etcd/ca.crt",
    "pki/etcd/ca.key",
    "pki/front-proxy-ca.crt",
    "pki/front-proxy-ca.key",
    "pki/sa.key",
    "pki/sa.pub",
)
"""Files that kubeadm creates once for all control planes, relative to /etc/kubernetes; a ticket has all of them."""
ENCRYPTION_FILE = "attested/encryption.yaml"
"""The API server's EncryptionConfiguration, relative to /etc/kubernetes; a ticket has it if the issuer has it."""
ADMISSION_FILE = "attested/admission.yaml"
"""The API server's AdmissionConfiguration, likewise."""
AUTHENTICATION_FILE = "attested/authentication.yaml"
"""The AuthenticationConfiguration, relative to /etc/kubernetes; a ticket has it if the site has issuers."""
AUDIT_WEBHOOK_FILE = "attested/audit-webhook.yaml"
"""The kubeconfig of the site's audit webhook; a ticket has it if the issuer has it."""
OPTIONAL_FILES = (ADMISSION_FILE, AUDIT_WEBHOOK_FILE, AUTHENTICATION_FILE, ENCRYPTION_FILE)
MAX_FILE_BYTES = 64 << 10
"""Maximum size of one file of a control plane."""

_TICKET = "attested.v1.Ticket"
_SECRETS = "attested.v1.TicketSecrets"
_USE = "ticket"


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketPublic:
    """The public part of a ticket; certificates are PEM, times are Unix seconds."""

    cluster_id: bytes
    node_name: str
    role: Role
    disk_id: str
    kubernetes_version: str
    api_endpoint: str
    cluster_ca: bytes
    kubelet_certificate: bytes
    expires_unix_seconds: int
    joined_before: bool

    def to_bytes(self, sealed: bytes) -> bytes:
        """Return the ticket with the sealed box of its secrets."""
        message = message_class(_TICKET)(
            version=TICKET_VERSION,
            cluster_id=self.cluster_id,
            node_name=self.node_name,
            role=self.role.value,
            disk_uuid=self.disk_id,
            kubernetes_version=self.kubernetes_version,
            api_endpoint=self.api_endpoint,
            cluster_ca=self.cluster_ca,
            kubelet_certificate=self.kubelet_certificate,
            expires_unix_seconds=self.expires_unix_seconds,
            sealed=sealed,
            joined_before=self.joined_before,
        )
        return bytes(message.SerializeToString(deterministic=True))


def parse_ticket(data: bytes) -> tuple[TicketPublic, bytes]:
    """Return (public part, sealed box) of a ticket; raises PROTOCOL_VERSION, TICKET_MALFORMED, MESSAGE_MALFORMED."""
    message = parse(_TICKET, data)
    if message.version != TICKET_VERSION:
        raise Refusal(
            f"expected a ticket of version {TICKET_VERSION}, got {message.version}", reason=Reason.PROTOCOL_VERSION
        )
    try:
        role = Role(message.role)
    except ValueError as error:
        raise Refusal(
            f"expected the role control-plane or worker, got {message.role[:32]!r}", reason=Reason.TICKET_MALFORMED
        ) from error
    public = TicketPublic(
        cluster_id=message.cluster_id,
        node_name=message.node_name,
        role=role,
        disk_id=message.disk_uuid,
        kubernetes_version=message.kubernetes_version,
        api_endpoint=message.api_endpoint,
        cluster_ca=message.cluster_ca,
        kubelet_certificate=message.kubelet_certificate,
        expires_unix_seconds=message.expires_unix_seconds,
        joined_before=message.joined_before,
    )
    return public, message.sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketSecrets:
    """The secret part of a ticket, which is always sealed; the fields for control planes are empty for a worker.

    ``control_plane_files``: by name relative to /etc/kubernetes, all of `CONTROL_PLANE_FILES` and maybe
    `OPTIONAL_FILES`. ``key_service_bundle``: for `KeyBundle.from_bytes`. ``policy``: the signed AttestationPolicy as
    JSON, for `PolicyClient.adopt`. ``disk_key_name``: the version of the master secret that ``disk_key`` is derived
    from. During a rotation ``other_disk_keys`` has the key of the other version.
    """

    disk_key: DiskKey = field(repr=False)
    measurement_secret: MeasurementSecret = field(repr=False)
    measurement_salt: bytes
    control_plane_files: Mapping[str, SecretBytes] = field(default_factory=dict, repr=False)
    key_service_bundle: SecretBytes = field(default_factory=lambda: SecretBytes(b""), repr=False)
    policy: SecretBytes = field(default_factory=lambda: SecretBytes(b""), repr=False)
    disk_key_name: str = ""
    other_disk_keys: tuple[NamedDiskKey, ...] = field(default=(), repr=False)

    def disk_keys(self) -> tuple[NamedDiskKey, ...]:
        """Return all keys of the disk: first the key for a new disk, then the keys that an existing disk may have."""
        return (NamedDiskKey(name=self.disk_key_name, key=self.disk_key), *self.other_disk_keys)

    def to_bytes(self) -> bytes:
        """Return the message to seal."""
        message = message_class(_SECRETS)(
            disk_key=self.disk_key.reveal(),
            measurement_secret=self.measurement_secret.reveal(),
            measurement_salt=self.measurement_salt,
            key_service_bundle=self.key_service_bundle.reveal(),
            policy=self.policy.reveal(),
            disk_key_name=self.disk_key_name,
        )
        for one in self.other_disk_keys:
            message.other_disk_keys.add(name=one.name, key=one.key.reveal())
        for name, data in sorted(self.control_plane_files.items()):
            message.control_plane_files.add(name=name, data=data.reveal())
        return bytes(message.SerializeToString(deterministic=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> TicketSecrets:
        """Return the secrets of an opened box; raises MESSAGE_MALFORMED, and TICKET_MALFORMED for a file twice."""
        message = parse(_SECRETS, data)
        files = {entry.name: SecretBytes(entry.data) for entry in message.control_plane_files}
        if len(files) != len(message.control_plane_files):
            raise _malformed("each file of a control plane once", "one twice")
        return cls(
            disk_key=DiskKey(message.disk_key),
            measurement_secret=MeasurementSecret(message.measurement_secret),
            measurement_salt=message.measurement_salt,
            control_plane_files=files,
            key_service_bundle=SecretBytes(message.key_service_bundle),
            policy=SecretBytes(message.policy),
            disk_key_name=message.disk_key_name,
            other_disk_keys=tuple(NamedDiskKey(name=one.name, key=DiskKey(one.key)) for one in message.other_disk_keys),
        )

    def require_role(self, role: Role) -> None:
        """Raise TICKET_MALFORMED unless the fields for control planes fit ``role``.

        1. A worker gets none of them.
        2. A control plane gets each of `CONTROL_PLANE_FILES`, and no file except `OPTIONAL_FILES` in addition.
        3. Each file has 1 to `MAX_FILE_BYTES` bytes.
        4. A control plane gets the key service's bundle and the policy.
        """
        files = self.control_plane_files
        if role is not Role.CONTROL_PLANE:  # 1
            if files or self.key_service_bundle or self.policy:
                raise _malformed(f"nothing of a control plane in the ticket of a {role.value}", "some")
            return
        missing = sorted(set(CONTROL_PLANE_FILES) - set(files))  # 2
        if missing or set(files) - {*CONTROL_PLANE_FILES, *OPTIONAL_FILES}:
            raise _malformed("the files of a control plane", f"{len(files)}, without {', '.join(missing) or 'none'}")
        for name, data in files.items():  # 3
            if not 0 < len(data) <= MAX_FILE_BYTES:
                raise _malformed(f"{name} of 1 to {MAX_FILE_BYTES} bytes", f"{len(data)}")
        if not self.key_service_bundle or not self.policy:  # 4
            raise _malformed("the key service's bundle and the policy", "one that is empty")


def sign_ticket(key: ed25519.Ed25519PrivateKey, *, cluster_id: bytes, binding: bytes, ticket: bytes) -> bytes:
    """Return the join CA's signature over a ticket and its exchange, 64 bytes."""
    return key.sign(_signed(cluster_id, binding, ticket))


def verify_ticket(
    key: ed25519.Ed25519PublicKey, signature: bytes, *, cluster_id: bytes, binding: bytes, ticket: bytes
) -> None:
    """Raise TICKET_SIGNATURE unless ``signature`` is the join CA's signature over this ticket and this exchange."""
    try:
        key.verify(signature, _signed(cluster_id, binding, ticket))
    except (exceptions.InvalidSignature, ValueError) as error:
        raise Refusal(
            "expected the join CA's signature over this ticket and this exchange, got another one",
            reason=Reason.TICKET_SIGNATURE,
        ) from error


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected}, got {got}", reason=Reason.TICKET_MALFORMED)


def _signed(cluster_id: bytes, binding: bytes, ticket: bytes) -> bytes:
    return length_prefixed(label(_USE), cluster_id, binding, hashlib.sha256(ticket).digest())


# Sealed ticket secrets. A long-running process passes them on sealed; only a short-lived helper process decrypts them.


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecrets:
    """A sealed box with everything that is needed to open it.

    ``secret`` is the activation secret s of the exchange, ``binding`` its B; the secrets have to fit ``cluster_id`` and
    ``role``.
    """

    box: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    binding: bytes
    one_time_key: OneTimeKey
    cluster_id: bytes
    role: Role

    def opened(self) -> TicketSecrets:
        """Return the secrets; raises `Refusal`.

        1. The box opens with this exchange's secret and one-time key. SEAL_UNOPENABLE, PROTOCOL_VERSION,
           MESSAGE_MALFORMED
        2. The secrets derive the cluster id. TICKET_NOT_OURS
        3. The secrets fit the role, and a control plane's bundle is of this cluster. TICKET_MALFORMED,
           CLUSTER_ID_MISMATCH, FILE_VERSION_UNKNOWN, MESSAGE_MALFORMED, TICKET_NOT_OURS
        """
        plain = open_sealed(self.box, secret=self.secret, binding=self.binding, one_time_key=self.one_time_key)  # 1
        secrets = TicketSecrets.from_bytes(plain)
        self._require("cluster id", cluster_id(secrets.measurement_secret, secrets.measurement_salt))  # 2
        secrets.require_role(self.role)  # 3
        if self.role is Role.CONTROL_PLANE:
            bundle = KeyBundle.from_bytes(secrets.key_service_bundle.reveal())
            self._require("cluster id of the key service", bundle.cluster_id)
        return secrets

    def to_job(self) -> dict[str, str]:
        """Return all fields as text, only for the standard input of the process that opens the box."""
        return {
            "box": _text(self.box),
            "secret": _text(self.secret),
            "binding": _text(self.binding),
            "one_time_key": _text(self.one_time_key.export()),
            "cluster_id": _text(self.cluster_id),
            "role": self.role.value,
        }

    @classmethod
    def from_job(cls, job: Mapping[str, str]) -> SealedSecrets:
        """Return the secrets of a job that `to_job` returned."""
        return cls(
            box=_bytes(job, "box"),
            secret=_bytes(job, "secret"),
            binding=_bytes(job, "binding"),
            one_time_key=OneTimeKey.restore(_bytes(job, "one_time_key")),
            cluster_id=_bytes(job, "cluster_id"),
            role=Role(job["role"]),
        )

    def _require(self, what: str, got: bytes) -> None:
        if got != self.cluster_id:
            raise Refusal(
                f"expected the {what} {self.cluster_id.hex()} in the ticket, got {got.hex()}",
                reason=Reason.TICKET_NOT_OURS,
            )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _bytes(job: Mapping[str, str], name: str) -> bytes:
    return b64decode(job[name], validate=True)
