# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide who vouches for a machine's TPM: the admin, the TPM maker's certificates, or (insecure) its first use."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._deps.crypto import exceptions, rsa, serialization, unreadable, x509
from ..core.documents import load_document, load_json
from ..core.files import read_bytes
from ..errors import AttestedError, Refusal, SiteError
from ..evidence.ek_profile import parse_certificate, parse_ek_certificate, spki_of
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason
from ..tpm.structures import Public, Reader
from ..tpm.templates import verify_endorsement_key
from .identities import BY_CONSOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..evidence.ek_profile import EkCertificate
    from ..evidence.verify import VerifiedMachine
    from .identities import InventoryNode


# Read the delivered endorsement keys: an EK certificate, a public key, or a list of machines.
#
# Such a file says which endorsement key a machine must prove; it proves nothing by itself. A list is YAML (serial
# number to hash), CSV, the answers of a Keylime registrar, or resources of Redfish (DMTF DSP2046: Chassis,
# TrustedComponent, Certificate). Each machine has one key in it, under the serial number of its maker or the UUID of
# its agent.

_LIMIT = 4 << 20
_LIST_LIMIT = 32 << 20
_MAX_NAME = 64
_MAX_PUBLIC = 1024
_EK = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_SERIAL, _HASH, _CERTIFICATE, _PUBLIC = "serial", "ek_sha256", "ek_certificate", "ek_tpm"
_CHASSIS = re.compile(r"(/redfish/v1/Chassis/[^/]+)/TrustedComponents/[^/]+/Certificates/[^/]+")


@dataclass(frozen=True, slots=True)
class Delivered:
    """The endorsement key in a file (SHA-256 of its SubjectPublicKeyInfo, hex), and the label that is recorded."""

    ek_sha256: str
    label: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """A list's entry for one machine, parsed only when it is used, so that a malformed entry affects no other.

    ``form``: a hash, a certificate (PEM or base64 of DER), or a public area (base64 of TPM2B_PUBLIC, or PEM).
    """

    form: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryList:
    """A list of machines: its ``name`` for messages, and the entries by serial number."""

    name: str
    entries: Mapping[str, _Entry]

    def find(self, serial: str) -> Delivered:
        """Return the key of one machine; raises `SiteError` EK_SOURCE_UNUSABLE if none can be read."""
        if serial not in self.entries:
            raise _unusable(f"the serial number {serial!r}", self.name, f"{len(self.entries)} others")
        if not serial.isprintable():
            raise _unusable("a serial number that can be printed", self.name, repr(serial[:80]))
        label = f"delivery list {self.name}, serial {serial[:_MAX_NAME]}"
        return Delivered(_hash_of(self.entries[serial], f"{self.name}, serial {serial[:_MAX_NAME]}"), label)


def read_delivered(path: str | Path, *, serial: str = "") -> Delivered:
    """Return the key in a file for one machine; raises `SiteError` EK_SOURCE_UNUSABLE.

    A list needs the machine's ``serial``; a certificate or a public key (PEM or DER) is for one machine.
    """
    file = Path(path)
    if file.suffix.lower() in _LISTS:
        return read_list(file).find(serial)
    name = _name(file)
    kind, spki = _key(read_bytes(file, limit=_LIMIT), name)
    return Delivered(hashlib.sha256(spki).hexdigest(), f"{kind} {name}")


def read_list(path: str | Path) -> DeliveryList:
    """Return a list of machines; raises `SiteError` EK_SOURCE_UNUSABLE, also if two machines have one key.

    ``.yml``, ``.yaml``: serial number to hash. ``.csv``: the column serial, and ek_sha256 or ek_certificate.
    ``.json``: the same mapping; a registrar's answer with agents by UUID; resources of Redfish by their @odata.id;
    or a list of such objects.
    """
    file = Path(path)
    suffix, name = file.suffix.lower(), _name(file)
    if suffix not in _LISTS:
        raise _unusable(f"a list that ends in {', '.join(_LISTS)}", name, "another name")
    reader, limit = _LISTS[suffix]
    entries = _unique(reader(read_bytes(file, limit=limit), name), name)
    owners: dict[_Entry, str] = {}
    for serial, entry in entries.items():
        if owners.setdefault(entry, serial) != serial:
            raise _unusable("a key of its own for each machine", name, f"one for {owners[entry]!r} and {serial!r}")
    return DeliveryList(name=name, entries=entries)


def _name(file: Path) -> str:
    return file.name[:_MAX_NAME] if file.name.isprintable() else "file"


def _unique(pairs: Iterable[tuple[str, _Entry]], name: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for serial, entry in pairs:
        if serial in found:
            raise _unusable("each serial number once", name, f"{serial[:80]!r} twice")
        found[serial] = entry
    return found


def _hash_of(entry: _Entry, place: str) -> str:
    if entry.form == _HASH:
        found = _EK.fullmatch(entry.text)
        if found is None:
            raise _unusable("a SHA-256 in 64 lower-case hex digits", place, repr(entry.text[:80]))
        return found[1]
    try:
        spki = _FORMS[entry.form](entry.text, place)
    except SiteError:
        raise
    except AttestedError as error:
        raise _unusable("an endorsement key", place, error.message[:200]) from error
    return hashlib.sha256(spki).hexdigest()


def _certificate_in(text: str, place: str) -> bytes:
    if "-----BEGIN" in text:
        return _pem(text.encode(), place)[1]
    return _certified(_base64(text, place), place)


def _public_in(text: str, place: str) -> bytes:
    """Return the SubjectPublicKeyInfo of a TPM2B_PUBLIC (TPM 2.0 library, part 2, 12.2.5) of template L-1 or L-2."""
    if "-----BEGIN" in text:
        return _pem(text.encode(), place)[1]
    reader = Reader(_base64(text, place), "TPM2B_PUBLIC")
    public = Public.parse(reader.sized(_MAX_PUBLIC))
    reader.end()
    verify_endorsement_key(public)
    return public.spki()


def _base64(text: str, place: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _unusable("base64", place, "other characters") from error


_FORMS: dict[str, Callable[[str, str], bytes]] = {_CERTIFICATE: _certificate_in, _PUBLIC: _public_in}


def _yaml_rows(data: bytes, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        loaded = load_document(data)
    except ValueError as error:
        raise _unusable("YAML", name, type(error).__name__) from error
    if not isinstance(loaded, dict):
        raise _unusable("a mapping of serial numbers", name, type(loaded).__name__)
    return _hashes(loaded)


def _hashes(mapping: Mapping[Any, Any]) -> Iterator[tuple[str, _Entry]]:
    return ((str(serial), _Entry(_HASH, str(ek))) for serial, ek in mapping.items())


def _csv_rows(data: bytes, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise _unusable("CSV", name, type(error).__name__) from error
    for row in rows:
        form = next((one for one in (_HASH, _CERTIFICATE) if row.get(one)), None)
        if row.get(_SERIAL) is None or form is None:
            raise _unusable(f"the columns {_SERIAL} and {_HASH} or {_CERTIFICATE}", name, "others")
        yield row[_SERIAL].strip(), _Entry(form, row[form].strip())


def _json_rows(data: bytes, name: str) -> Iterator[tuple[str, _Entry]]:
    try:
        loaded = load_json(data, limit=_LIST_LIMIT)
    except ValueError as error:
        raise _unusable("JSON", name, f"{error}"[:80]) from error
    for part in loaded if isinstance(loaded, list) else [loaded]:
        if not isinstance(part, dict):
            raise _unusable("an object, or a list of objects", name, type(part).__name__)
        if "results" in part:
            yield from _registrar_rows(part["results"], name)
        elif any(str(key).startswith("/redfish/") for key in part):
            yield from _redfish_rows(part, name)
        else:
            yield from _hashes(part)


def _registrar_rows(results: Any, name: str) -> Iterator[tuple[str, _Entry]]:
    """Yield agents by UUID with the key that each proved to the registrar, which does not verify certificates."""
    agents = results if isinstance(results, dict) else {"": None}
    for uuid, agent in agents.items():
        if not isinstance(agent, dict) or not isinstance(agent.get(_PUBLIC), str):
            raise _unusable(f"agents by their UUID, each with {_PUBLIC}, in results", name, repr(uuid[:80]))
        yield uuid, _Entry(_PUBLIC, agent[_PUBLIC])


def _redfish_rows(resources: Mapping[str, Any], name: str) -> Iterator[tuple[str, _Entry]]:
    """Yield the serial number of each chassis of a BMC, with the endorsement certificate of its TPM.

    If a chassis has two certificates, the RSA key's is used, as the machine itself does.
    """
    found: dict[str, list[EkCertificate]] = {}
    for path, resource in resources.items():
        held = _CHASSIS.fullmatch(path)
        text = resource.get("CertificateString") if isinstance(resource, dict) else None
        endorsement = _endorsement(text) if held and isinstance(text, str) else None
        if held and endorsement is not None:
            found.setdefault(held[1], []).append(endorsement)
    for chassis, certificates in found.items():
        described = resources.get(chassis)
        serial = described.get("SerialNumber") if isinstance(described, dict) else None
        if not isinstance(serial, str) or not serial:
            raise _unusable(f"a SerialNumber of {chassis[:80]}", name, "none")
        chosen = min(certificates, key=_is_elliptic).certificate
        text = base64.b64encode(chosen.public_bytes(serialization.Encoding.DER)).decode()
        yield serial, _Entry(_CERTIFICATE, text)


def _endorsement(text: str) -> EkCertificate | None:
    """Return an endorsement certificate (PEM, the first of a chain), None for a certificate of another kind."""
    try:
        first = x509.load_pem_x509_certificate(text.encode())
        return parse_ek_certificate(first.public_bytes(serialization.Encoding.DER))
    except unreadable(Refusal):
        return None


def _is_elliptic(one: EkCertificate) -> bool:
    return not isinstance(serialization.load_der_public_key(one.spki), rsa.RSAPublicKey)


def _key(data: bytes, name: str) -> tuple[str, bytes]:
    """Return the kind of a file and the SubjectPublicKeyInfo in it."""
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


_LISTS: dict[str, tuple[Callable[[bytes, str], Iterator[tuple[str, _Entry]]], int]] = {
    ".csv": (_csv_rows, _LIST_LIMIT),
    ".json": (_json_rows, _LIST_LIMIT),
    ".yaml": (_yaml_rows, _LIMIT),
    ".yml": (_yaml_rows, _LIMIT),
}


BY_CHAIN = "certificate chain"
FIRST_USE = "insecure_first_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipKeys:
    """The endorsement keys of one TPM (hex): the one that names the machine, and the other if it is known."""

    ek_sha256: str
    alias: str


def known_first(
    machine: VerifiedMachine, second: VerifiedMachine | None, *, before: InventoryNode | None
) -> tuple[VerifiedMachine, VerifiedMachine | None]:
    """Return both, with the site's key of the machine first: a TPM may show another key than at the enrolment."""
    keys = _known_keys(before)
    if second is not None and second.ek_sha256 in keys and machine.ek_sha256 not in keys:
        return second, machine
    return machine, second


def chip_keys(
    machine: VerifiedMachine,
    second: VerifiedMachine | None,
    *,
    before: InventoryNode | None,
    others: Iterable[InventoryNode] = (),
    insecure_first_use: bool = False,
) -> ChipKeys:
    """Return the keys of a machine that `vouch` accepted; ``second`` proved the other key, None: not requested.

    A machine of the site keeps its name, whichever key it showed first. A second key must be the one that the site
    has, if it has one (EK_CHANGED). A new second key must never have been replaced (IDENTITY_REVOKED), and must be no
    key of the ``others`` (EK_ALIAS_TAKEN). It needs a certificate of its own, or ``insecure_first_use``
    (EK_NOT_VOUCHED_FOR), because a software key can activate credentials for any attestation key.
    """
    keys = _known_keys(before)
    name = keys[0] if machine.ek_sha256 in keys else machine.ek_sha256
    known = keys[1] if machine.ek_sha256 in keys else ""
    if second is None:
        return ChipKeys(ek_sha256=name, alias=known)
    alias = second.ek_sha256 if name == machine.ek_sha256 else machine.ek_sha256
    if {machine.ek_sha256, second.ek_sha256} != {name, known or alias}:
        raise Refusal(
            f"expected the TPM with the keys {name} and {known}, found {machine.ek_sha256} and {second.ek_sha256}",
            reason=Reason.EK_CHANGED,
        )
    if not known:
        _require_new(second, before=before, others=others)
        _require_certified(second, insecure_first_use=insecure_first_use)
    return ChipKeys(ek_sha256=name, alias=alias)


def vouch(
    machine: VerifiedMachine,
    *,
    before: InventoryNode | None,
    insecure_first_use: bool,
    replacing: bool = False,
    delivered: Delivered | None = None,
) -> tuple[str, str | None]:
    """Return by what ``machine`` is vouched for, and a warning if that is insecure.

    If the site already has a TPM for this host, it must be this one, by either of its keys (EK_CHANGED), unless the
    admin is ``replacing`` the machine. A TPM that was replaced is never accepted again (IDENTITY_REVOKED). A new TPM
    needs a certificate chain to a configured authority, or ``insecure_first_use`` (EK_NOT_VOUCHED_FOR). If a file says
    which TPM was ``delivered``, it must be this one (EK_NOT_AS_DELIVERED), and the file vouches for it.
    """
    if delivered is not None:
        _require_delivered(machine, delivered)
    if before is not None:
        _require_never_replaced(machine, before)
        if machine.ek_sha256 in _known_keys(before):
            return before.known_by or BY_CONSOLE, None
        if not replacing:
            _require_unknown(machine, before)
    if delivered is not None:
        return delivered.label, None
    if machine.certified is not None:
        return f"{BY_CHAIN} of {machine.certified.label}", None
    if insecure_first_use:
        return FIRST_USE, f"{machine.ek_sha256} is trusted on first use: no authority vouches for this TPM"
    raise Refusal(
        f"expected an authority that vouches for the TPM {machine.ek_sha256}, got none",
        reason=Reason.EK_NOT_VOUCHED_FOR,
    )


def _require_delivered(machine: VerifiedMachine, delivered: Delivered) -> None:
    if delivered.ek_sha256 != machine.ek_sha256:
        raise Refusal(
            f"expected the TPM {delivered.ek_sha256} ({delivered.label}), found {machine.ek_sha256}",
            reason=Reason.EK_NOT_AS_DELIVERED,
        )


def _require_never_replaced(machine: VerifiedMachine, before: InventoryNode) -> None:
    if machine.ek_sha256 in before.keys_before:
        raise Refusal(
            f"expected another TPM in {before.name}, {machine.ek_sha256} was replaced before",
            reason=Reason.IDENTITY_REVOKED,
        )


def _require_unknown(machine: VerifiedMachine, before: InventoryNode) -> None:
    """Refuse the TPM if the site already has another one for this host."""
    if before.ek_sha256 is not None:
        raise Refusal(
            f"expected the TPM {before.ek_sha256} in {before.name}, found {machine.ek_sha256}",
            reason=Reason.EK_CHANGED,
        )


def _known_keys(before: InventoryNode | None) -> tuple[str, str]:
    """Return the two keys that the site has for a host, empty if it has none."""
    return (before.ek_sha256 or "", before.ek_alias) if before is not None else ("", "")


def _require_new(second: VerifiedMachine, *, before: InventoryNode | None, others: Iterable[InventoryNode]) -> None:
    if before is not None:
        _require_never_replaced(second, before)
    for one in others:
        if second.ek_sha256 in {*_known_keys(one), *one.keys_before}:
            raise Refusal(
                f"expected a second key that no other machine has, {second.ek_sha256} is one of {one.name}",
                reason=Reason.EK_ALIAS_TAKEN,
            )


def _require_certified(second: VerifiedMachine, *, insecure_first_use: bool) -> None:
    if second.certified is None and not insecure_first_use:
        raise Refusal(
            f"expected a certificate for the second key {second.ek_sha256}, or its entry in "
            "attested_ek_aliases of the site, found neither",
            reason=Reason.EK_NOT_VOUCHED_FOR,
        )
