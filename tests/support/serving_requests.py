# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for serving certificates like a kubelet's, and with one change."""

from __future__ import annotations

import base64
import copy
import textwrap
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtensionOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

NODE, ADDRESS, MACHINE = "w-1", "10.0.0.21", "ek-" + "ab" * 10
USAGES = ("digital signature", "server auth")


@cache
def own_key() -> ec.EllipticCurvePrivateKey:
    """Return a key like a kubelet's."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def weak_key() -> rsa.RSAPrivateKey:
    """Return a weak key."""
    return rsa.generate_private_key(65537, 1024)


def subject_of(node: str, *more: tuple[x509.ObjectIdentifier, str], group: str = "system:nodes") -> x509.Name:
    """Return a node's subject, followed by ``more``."""
    parts = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, f"system:node:{node}"), *more]
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The content of a request; by default a kubelet's. ``also`` changes the builder, ``text`` the PEM."""

    node: str = NODE
    subject: x509.Name | None = None
    names: tuple[str, ...] = (NODE,)
    addresses: tuple[str, ...] = (ADDRESS,)
    others: tuple[x509.GeneralName, ...] = ()
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = field(default_factory=own_key)
    also: Callable[[x509.CertificateSigningRequestBuilder], x509.CertificateSigningRequestBuilder] = lambda one: one
    text: Callable[[bytes], bytes] = lambda one: one

    def pem(self) -> bytes:
        """Return the request."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(
            subject_of(self.node) if self.subject is None else self.subject
        )
        general = [
            *(x509.DNSName(one) for one in self.names),
            *(x509.IPAddress(ip_address(one)) for one in self.addresses),
            *self.others,
        ]
        if general:
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        made = self.also(builder).sign(self.key, hashes.SHA256())
        return self.text(made.public_bytes(serialization.Encoding.PEM))


def twice(wanted: Wanted) -> bytes:
    """Return the request with a second list of alternative names in the same attribute, signed by its key.

    No library writes that: a second extension gets the name of the first one, and the request is signed again.
    """
    other = x509.UnrecognizedExtension(ExtensionOID.ISSUER_ALTERNATIVE_NAME, b"\x30\x00")
    made = x509.load_pem_x509_csr(
        replace(wanted, also=lambda builder: builder.add_extension(other, critical=False)).pem()
    )
    info = made.tbs_certrequest_bytes.replace(b"\x06\x03\x55\x1d\x12", b"\x06\x03\x55\x1d\x11")
    signature = own_key().sign(info, ec.ECDSA(hashes.SHA256()))
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")
    der = _tlv(0x30, info + algorithm + _tlv(0x03, b"\0" + signature))
    lines = textwrap.wrap(base64.b64encode(der).decode("ascii"), 64)
    return "\n".join(["-----BEGIN CERTIFICATE REQUEST-----", *lines, "-----END CERTIFICATE REQUEST-----", ""]).encode(
        "ascii"
    )


def _tlv(tag: int, value: bytes) -> bytes:
    size = len(value)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big") if size > 0xFF else bytes([0x81, size])
    return bytes([tag]) + length + value


def encoded(pem: bytes) -> str:
    """Return a request in the form of the API."""
    return base64.b64encode(pem).decode("ascii")


def spec_of(wanted: Wanted | None = None, **changes: Any) -> dict[str, Any]:
    """Return the spec of a request as the API server completes it, with ``changes`` of its fields."""
    asked = wanted or Wanted()
    return {
        "request": encoded(asked.pem()),
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": list(USAGES),
        "username": f"system:node:{NODE}",
        "groups": ["system:nodes", f"attested:{MACHINE}", "system:authenticated"],
        **changes,
    }


class Requests:
    """Requests in an API in memory, with the gateway's protocol; ``before_write`` runs before the next write."""

    def __init__(self, *, made: datetime) -> None:
        self.made = made
        self.before_write: Callable[[], None] | None = None
        self.writes = 0
        self.watched: list[int] = []
        self._revision = 0
        self._objects: dict[str, dict[str, Any]] = {}

    def add(self, name: str, spec: dict[str, Any]) -> None:
        """Create a request like a node."""
        created = self.made.strftime("%Y-%m-%dT%H:%M:%SZ")
        self._objects[name] = {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec, "status": {}}
        self._touch(name)

    def conditions(self, name: str) -> list[tuple[str, str]]:
        """Return type and reason of each condition of a request."""
        found = self._objects[name]["status"].get("conditions", ())
        return [(one["type"], one["reason"]) for one in found]

    def condition(self, name: str) -> dict[str, str]:
        """Return the one condition of a request."""
        (found,) = self._objects[name]["status"]["conditions"]
        return dict(found)

    def serving_requests(self, seconds: int) -> Iterator[dict[str, Any]]:
        """Yield the present requests."""
        self.watched.append(seconds)
        yield from copy.deepcopy(list(self._objects.values()))

    def conclude_request(self, name: str, condition: Mapping[str, Any], *, revision: str) -> None:
        """Write a condition, or raise API_CONFLICT."""
        if self.before_write is not None:
            change, self.before_write = self.before_write, None
            change()
        if self._objects[name]["metadata"]["resourceVersion"] != revision:
            raise ApiError("expected another revision", reason=Reason.API_CONFLICT)
        self._objects[name]["status"]["conditions"] = [dict(condition)]
        self.writes += 1
        self._touch(name)

    def _touch(self, name: str) -> None:
        self._revision += 1
        self._objects[name]["metadata"]["resourceVersion"] = str(self._revision)
