# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was delivered, said beside the machine: an EK's certificate, its public key, or a list of serial numbers.

Such a file says which endorsement key a machine must prove; it proves nothing by itself.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, serialization, unreadable, x509
from ..core.documents import load_document
from ..core.files import read_bytes
from ..errors import Refusal, SiteError
from ..evidence.ek_profile import parse_certificate, spki_of
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT = 4 << 20
_MAX_NAME = 64
_EK = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_SERIAL, _HASH = "serial", "ek_sha256"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The endorsement key (SHA-256 of its SubjectPublicKeyInfo, hex) that a file names, and how that is recorded."""

    ek_sha256: str
    label: str


def read_delivered(path: str | Path, *, serial: str = "") -> Delivered:
    """Return the key that a file names for one machine; raises `SiteError` EK_SOURCE_UNUSABLE.

    A list (``.yml``, ``.yaml``: serial number to hash; ``.csv`` with the columns serial and ek_sha256) needs the
    machine's ``serial``; a certificate or a public key (PEM or DER) is for one machine.
    """
    file = Path(path)
    data = read_bytes(file, limit=_LIMIT)
    name = file.name[:_MAX_NAME] if file.name.isprintable() else "file"
    reader = _LISTS.get(file.suffix.lower())
    if reader is None:
        kind, spki = _key(data, name)
        return Delivered(hashlib.sha256(spki).hexdigest(), f"{kind} {name}")
    return Delivered(_listed(reader(data, name), serial, name), f"delivery list {name}, serial {serial[:_MAX_NAME]}")


def _listed(rows: dict[str, str], serial: str, name: str) -> str:
    if serial not in rows:
        raise _unusable(f"the serial number {serial!r}", name, f"{len(rows)} others")
    found = _EK.fullmatch(rows[serial])
    if found is None:
        raise _unusable("a SHA-256 in 64 lower-case hex digits", name, repr(rows[serial][:80]))
    return found[1]


def _yaml_rows(data: bytes, name: str) -> dict[str, str]:
    try:
        loaded = load_document(data)
    except ValueError as error:
        raise _unusable("YAML", name, type(error).__name__) from error
    if not isinstance(loaded, dict):
        raise _unusable("a mapping of serial numbers", name, type(loaded).__name__)
    return {str(serial): str(ek) for serial, ek in loaded.items()}


def _csv_rows(data: bytes, name: str) -> dict[str, str]:
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unusable("CSV", name, type(error).__name__) from error
    found: dict[str, str] = {}
    for row in rows:
        if row.get(_SERIAL) is None or row.get(_HASH) is None:
            raise _unusable(f"the columns {_SERIAL} and {_HASH}", name, "others")
        serial = row[_SERIAL].strip()
        if serial in found:
            raise _unusable("each serial number once", name, f"{serial[:80]!r} twice")
        found[serial] = row[_HASH].strip()
    return found


def _key(data: bytes, name: str) -> tuple[str, bytes]:
    """Return what a file is and the SubjectPublicKeyInfo in it."""
    if b"-----BEGIN" in data:
        return _pem(data, name)
    try:
        return "EK certificate", _certified(data, name)
    except Refusal:
        return "EK public key", _public(data, name, serialization.load_der_public_key)


def _pem(data: bytes, name: str) -> tuple[str, bytes]:
    if b"BEGIN CERTIFICATE" not in data:
        return "EK public key", _public(data, name, serialization.load_pem_public_key)
    try:
        (certificate,) = x509.load_pem_x509_certificates(data)
        der = certificate.public_bytes(serialization.Encoding.DER)
    except unreadable() as error:
        raise _unusable("one certificate", name, "none, or several") from error
    return "EK certificate", _certified(der, name)


def _certified(der: bytes, name: str) -> bytes:
    """Return the SubjectPublicKeyInfo of a certificate; raises EK_CERTIFICATE_MALFORMED, EK_SOURCE_UNUSABLE."""
    spki = spki_of(parse_certificate(der))
    _require_kind(serialization.load_der_public_key(spki), name)
    return spki


def _require_kind(key: Any, name: str) -> None:
    if not is_accepted(KeyUse.ENDORSEMENT, key):
        raise _unusable(f"a key of {KeyUse.ENDORSEMENT.wanted}", name, kind_of(key))


def _public(data: bytes, name: str, load: Callable[[bytes], Any]) -> bytes:
    try:
        key = load(data)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
        raise _unusable("a certificate or a public key in PEM or DER", name, "neither") from error
    _require_kind(key, name)
    encoded: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _unusable(expected: str, name: str, got: str) -> SiteError:
    return SiteError(f"expected {expected} in {name}, got {got}", reason=Reason.EK_SOURCE_UNUSABLE)


_LISTS: dict[str, Callable[[bytes, str], dict[str, str]]] = {
    ".csv": _csv_rows,
    ".yaml": _yaml_rows,
    ".yml": _yaml_rows,
}
