# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pinned join CA: how a machine without other trust anchors verifies the join service of its cluster.

The service's certificate must be signed directly by a pinned CA and name the cluster. Its address is not checked, so
that load balancers and changed addresses need no new certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._deps.crypto import exceptions, unreadable, x509
from ..core.host import span
from ..errors import SiteError, TransportError
from ..key_kinds import KeyUse, is_accepted
from ..reasons import Reason

if TYPE_CHECKING:
    from datetime import datetime

_MAX_PINS = 2
_ID_IN_NAME = 32
"""Hex digits of the cluster id in the name; a DNS label has at most 63 characters."""


@dataclass(frozen=True, slots=True)
class JoinCaPins:
    """One pinned CA certificate, or two while the CA is being replaced."""

    certificates: tuple[x509.Certificate, ...]

    def __post_init__(self) -> None:
        """Raise JOIN_CA_PIN_INVALID for another number, keys other than Ed25519, and certificates of no CA."""
        if not 0 < len(self.certificates) <= _MAX_PINS or not all(_is_join_ca(pin) for pin in self.certificates):
            raise SiteError(
                f"expected one or two Ed25519 CA certificates, got {len(self.certificates)} certificates, "
                f"{sum(_is_join_ca(pin) for pin in self.certificates)} of them of an Ed25519 CA",
                reason=Reason.JOIN_CA_PIN_INVALID,
            )

    @classmethod
    def from_pem(cls, text: bytes) -> JoinCaPins:
        """Return the pins in PEM ``text``; raises `SiteError` JOIN_CA_PIN_INVALID."""
        try:
            return cls(tuple(x509.load_pem_x509_certificates(text)))
        except unreadable() as error:
            raise SiteError("expected CA certificates in PEM, got none", reason=Reason.JOIN_CA_PIN_INVALID) from error


def join_service_name(cluster_id: bytes) -> str:
    """Return the DNS name in the certificates of this cluster's join services, ``join.<32 hex>.attested``."""
    return f"join.{cluster_id.hex()[:_ID_IN_NAME]}.attested"


def verify_service_certificate(leaf: x509.Certificate, *, pins: JoinCaPins, cluster_id: bytes, now: datetime) -> None:
    """Raise unless ``leaf`` is the certificate of a join service of this cluster.

    1. A pinned CA signed it directly (JOIN_CA_MISMATCH).
    2. It is no CA, is for servers, and has a key on P-256 (PEER_CERTIFICATE_MALFORMED).
    3. Its only name is `join_service_name` of ``cluster_id`` (JOIN_CLUSTER_MISMATCH).
    4. ``now`` is within its dates (CLOCK_SKEW before them, JOIN_CERTIFICATE_EXPIRED after them).

    The TLS handshake of the caller proves possession of the key.
    """
    _check_issuer(leaf, pins)
    _check_form(leaf)
    _check_name(leaf, join_service_name(cluster_id))
    _check_dates(leaf, now)


def _is_join_ca(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        return constraints.ca and is_accepted(KeyUse.JOIN_CA, certificate.public_key())
    except unreadable(x509.ExtensionNotFound):
        return False


def _check_issuer(leaf: x509.Certificate, pins: JoinCaPins) -> None:
    for pin in pins.certificates:
        try:
            leaf.verify_directly_issued_by(pin)
        except (ValueError, exceptions.InvalidSignature):
            continue
        return
    raise TransportError(
        f"expected a service certified by the pinned join CA, got one of {_issuer_of(leaf)}: a foreign "
        "service, or a load balancer that terminates TLS",
        reason=Reason.JOIN_CA_MISMATCH,
    )


def _check_form(leaf: x509.Certificate) -> None:
    try:
        constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        key = leaf.public_key()
    except unreadable(x509.ExtensionNotFound) as error:
        raise _malformed() from error
    if (
        constraints.ca
        or x509.oid.ExtendedKeyUsageOID.SERVER_AUTH not in usages
        or not is_accepted(KeyUse.TLS_PEER, key)
    ):
        raise _malformed()


def _check_name(leaf: x509.Certificate, expected: str) -> None:
    try:
        names = list(leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    if names != [x509.DNSName(expected)]:
        got = ", ".join(repr(str(name.value)) for name in names) or "no name"
        raise TransportError(
            f"expected a service named {expected}, got {got[:200]}", reason=Reason.JOIN_CLUSTER_MISMATCH
        )


def _check_dates(leaf: x509.Certificate, now: datetime) -> None:
    """Raise CLOCK_SKEW before the dates, when a clock must be wrong, and JOIN_CERTIFICATE_EXPIRED after them."""
    starts, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    mismatch = (
        f"expected a service certificate that is good at {_stamp(now)}, this machine's time, got one from "
        f"{_stamp(starts)} to {_stamp(ends)}"
    )
    if now < starts:
        by = span((starts - now).total_seconds())
        raise TransportError(
            f"{mismatch}: this clock is {by} or more behind that of the service, or the service's is ahead",
            reason=Reason.CLOCK_SKEW,
            retryable=True,
        )
    if now > ends:
        by = span((now - ends).total_seconds())
        raise TransportError(
            f"{mismatch}: this clock is {by} or more ahead, or the service has not renewed it for so long",
            reason=Reason.JOIN_CERTIFICATE_EXPIRED,
            retryable=True,
        )


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _malformed() -> TransportError:
    return TransportError(
        "expected a P-256 certificate for servers that is no CA, got another form",
        reason=Reason.PEER_CERTIFICATE_MALFORMED,
    )


def _issuer_of(leaf: x509.Certificate) -> str:
    try:
        return repr(leaf.issuer.rfc4514_string())[:200]
    except unreadable():
        return "a name that cannot be read"
