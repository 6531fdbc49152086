# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse and marshal public areas, names and register selections, without I/O.

Every parser is strict: bounded fields, known algorithms, no trailing bytes; `TpmError` TPM_MALFORMED otherwise.
``X.parse(b).marshal() == b`` holds for every byte string that is accepted (part 2, 10 to 12).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from .._deps.crypto import asymmetric_utils, ec, rsa, serialization
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c

if TYPE_CHECKING:
    from collections.abc import Iterable


# A big-endian reader and writer of TPM structures; the reader never reads past the end.


def malformed(expected: str, got: str) -> TpmError:
    """Return the error TPM_MALFORMED for bytes that are not the expected structure."""
    return TpmError(f"expected {expected}, got {got}", reason=Reason.TPM_MALFORMED)


class Reader:
    """Reads the fields of a structure in order.

    Every method raises `TpmError` TPM_MALFORMED if the bytes end too early or a size exceeds its limit.
    """

    __slots__ = ("_data", "_offset", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        """Start at the first byte of ``data``; ``what`` names the structure in errors."""
        self._data = data
        self._offset = 0
        self._what = what

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self._data) - self._offset

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > self.left:
            raise malformed(f"{size} more bytes in {self._what} at offset {self._offset}", f"{self.left}")
        start = self._offset
        self._offset += size
        return self._data[start : self._offset]

    def number(self, size: int) -> int:
        """Return the next unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def u8(self) -> int:
        """Return the next UINT8."""
        return self.number(1)

    def u16(self) -> int:
        """Return the next UINT16."""
        return self.number(2)

    def u32(self) -> int:
        """Return the next UINT32."""
        return self.number(4)

    def u64(self) -> int:
        """Return the next UINT64."""
        return self.number(8)

    def sized(self, limit: int) -> bytes:
        """Return the content of the next TPM2B, at most ``limit`` bytes."""
        size = self.u16()
        if size > limit:
            raise malformed(f"at most {limit} bytes in a field of {self._what}", f"{size}")
        return self.take(size)

    def count(self, limit: int) -> int:
        """Return the next list length (UINT32), at most ``limit``."""
        count = self.u32()
        if count > limit:
            raise malformed(f"at most {limit} elements in a list of {self._what}", f"{count}")
        return count

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(self.left)

    def end(self) -> None:
        """Raise TPM_MALFORMED if bytes are left."""
        if self.left:
            raise malformed(f"the end of {self._what}", f"{self.left} more bytes")


def u8(value: int) -> bytes:
    """Return a UINT8."""
    return value.to_bytes(1, "big")


def u16(value: int) -> bytes:
    """Return a UINT16."""
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """Return a UINT32."""
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    """Return a UINT64."""
    return value.to_bytes(8, "big")


def sized(data: bytes) -> bytes:
    """Return ``data`` as a TPM2B: its length in two bytes, then the data."""
    return u16(len(data)) + data


_DEFAULT_EXPONENT = 65537
_KEPT_KEYS = 256
"""The number of cached public keys; one exchange needs the same two keys nine times."""

_SIGNING_SCHEMES = (c.ALG_RSASSA, c.ALG_RSAPSS, c.ALG_ECDSA)


def digest(alg: int, data: bytes) -> bytes:
    """Return the hash ``alg`` (a TPM algorithm number) of ``data``."""
    name = c.HASH_NAMES.get(alg)
    if name is None:
        raise malformed("a SHA-1 or SHA-2 hash algorithm", f"{alg:#06x}")
    return hashlib.new(name, data).digest()


def read_point(reader: Reader) -> EccPoint:
    """Return the next TPMS_ECC_POINT."""
    return EccPoint(reader.sized(c.MAX_DIGEST), reader.sized(c.MAX_DIGEST))


@dataclass(frozen=True, slots=True)
class EccPoint:
    """A point of a curve, TPMS_ECC_POINT; the coordinates are the TPM's bytes."""

    x: bytes
    y: bytes

    def marshal(self) -> bytes:
        """Return both coordinates as TPM2B."""
        return sized(self.x) + sized(self.y)

    def uncompressed(self, size: int) -> bytes:
        """Return the uncompressed point as in certificates (SEC 1, 2.3.3), for a field of ``size`` bytes."""
        return b"\x04" + self.x.rjust(size, b"\0") + self.y.rjust(size, b"\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Symmetric:
    """The cipher with which a parent protects its children, TPMT_SYM_DEF_OBJECT; ALG_NULL for other keys."""

    alg: int = c.ALG_NULL
    key_bits: int = 0
    mode: int = 0

    @classmethod
    def read(cls, reader: Reader) -> Symmetric:
        """Return the next TPMT_SYM_DEF_OBJECT."""
        alg = reader.u16()
        if alg == c.ALG_NULL:
            return cls()
        if alg != c.ALG_AES:
            raise malformed("AES or no symmetric algorithm", f"{alg:#06x}")
        return cls(alg=alg, key_bits=reader.u16(), mode=reader.u16())

    def marshal(self) -> bytes:
        """Return the TPMT_SYM_DEF_OBJECT."""
        if self.alg == c.ALG_NULL:
            return u16(c.ALG_NULL)
        return u16(self.alg) + u16(self.key_bits) + u16(self.mode)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A signing scheme with its hash; ALG_NULL (hash 0) for keys that do not sign."""

    alg: int = c.ALG_NULL
    hash_alg: int = 0

    @classmethod
    def read(cls, reader: Reader) -> Scheme:
        """Return the next TPMT_RSA_SCHEME or TPMT_ECC_SCHEME."""
        alg = reader.u16()
        if alg == c.ALG_NULL:
            return cls()
        if alg not in _SIGNING_SCHEMES:
            raise malformed("RSASSA, RSAPSS, ECDSA or no scheme", f"{alg:#06x}")
        return cls(alg, reader.u16())

    def marshal(self) -> bytes:
        """Return the scheme and, unless it is ALG_NULL, its hash."""
        return u16(self.alg) if self.alg == c.ALG_NULL else u16(self.alg) + u16(self.hash_alg)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsaParameters:
    """TPMS_RSA_PARMS; exponent 0 stands for 65537."""

    symmetric: Symmetric
    scheme: Scheme
    key_bits: int
    exponent: int

    @classmethod
    def read(cls, reader: Reader) -> RsaParameters:
        """Return the next TPMS_RSA_PARMS."""
        symmetric, scheme = Symmetric.read(reader), Scheme.read(reader)
        return cls(symmetric=symmetric, scheme=scheme, key_bits=reader.u16(), exponent=reader.u32())

    def marshal(self) -> bytes:
        """Return the TPMS_RSA_PARMS."""
        return self.symmetric.marshal() + self.scheme.marshal() + u16(self.key_bits) + u32(self.exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class EccParameters:
    """TPMS_ECC_PARMS without key derivation scheme."""

    symmetric: Symmetric
    scheme: Scheme
    curve: int

    @classmethod
    def read(cls, reader: Reader) -> EccParameters:
        """Return the next TPMS_ECC_PARMS."""
        symmetric, scheme, curve = Symmetric.read(reader), Scheme.read(reader), reader.u16()
        kdf = reader.u16()
        if kdf != c.ALG_NULL:
            raise malformed("no key derivation scheme", f"{kdf:#06x}")
        return cls(symmetric=symmetric, scheme=scheme, curve=curve)

    def marshal(self) -> bytes:
        """Return the TPMS_ECC_PARMS."""
        return self.symmetric.marshal() + self.scheme.marshal() + u16(self.curve) + u16(c.ALG_NULL)


@dataclass(frozen=True, slots=True)
class DataParameters:
    """TPMS_KEYEDHASH_PARMS of a sealed object: no scheme."""

    @classmethod
    def read(cls, reader: Reader) -> DataParameters:
        """Return the next TPMS_KEYEDHASH_PARMS."""
        scheme = reader.u16()
        if scheme != c.ALG_NULL:
            raise malformed("a sealed object (no scheme)", f"{scheme:#06x}")
        return cls()

    def marshal(self) -> bytes:
        """Return the TPMS_KEYEDHASH_PARMS."""
        return u16(c.ALG_NULL)


Parameters: TypeAlias = RsaParameters | EccParameters | DataParameters
_PARAMETERS: dict[int, type[RsaParameters | EccParameters | DataParameters]] = {
    c.ALG_RSA: RsaParameters,
    c.ALG_ECC: EccParameters,
    c.ALG_KEYEDHASH: DataParameters,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """The public area of an object, TPMT_PUBLIC (part 2, 12.2.4).

    ``unique`` is the RSA modulus or the digest of sealed data as bytes, the point of an ECC key.
    """

    type: int
    name_alg: int
    attributes: int
    auth_policy: bytes
    parameters: Parameters
    unique: bytes | EccPoint

    @classmethod
    def parse(cls, data: bytes) -> Public:
        """Return the public area in ``data`` (TPMT_PUBLIC, without a size before it)."""
        reader = Reader(data, "TPMT_PUBLIC")
        kind, name_alg, attributes = reader.u16(), reader.u16(), reader.u32()
        auth_policy = reader.sized(c.MAX_DIGEST)
        if kind not in _PARAMETERS:
            raise malformed("an RSA key, an ECC key or a sealed object", f"type {kind:#06x}")
        parameters: Parameters = _PARAMETERS[kind].read(reader)
        unique = read_point(reader) if kind == c.ALG_ECC else reader.sized(c.MAX_BUFFER)
        reader.end()
        return cls(
            type=kind,
            name_alg=name_alg,
            attributes=attributes,
            auth_policy=auth_policy,
            parameters=parameters,
            unique=unique,
        )

    def marshal(self) -> bytes:
        """Return the TPMT_PUBLIC."""
        unique = sized(self.unique) if isinstance(self.unique, bytes) else self.unique.marshal()
        head = u16(self.type) + u16(self.name_alg) + u32(self.attributes) + sized(self.auth_policy)
        return head + self.parameters.marshal() + unique

    def name(self) -> bytes:
        """Return the Name: the hash algorithm and the hash of the public area (part 1, 16)."""
        return u16(self.name_alg) + digest(self.name_alg, self.marshal())

    def qualified_name(self, hierarchy: int) -> bytes:
        """Return the qualified name of this object as a primary key of ``hierarchy`` (part 1, 16)."""
        return u16(self.name_alg) + digest(self.name_alg, u32(hierarchy) + self.name())

    def key(self) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
        """Return the key as an object of `cryptography`; raises TPM_MALFORMED if its numbers are no key."""
        if isinstance(self.parameters, RsaParameters) and isinstance(self.unique, bytes):
            return _rsa_key(self.parameters, self.unique)
        if isinstance(self.parameters, EccParameters) and isinstance(self.unique, EccPoint):
            return ecc_key(self.parameters.curve, self.unique)
        raise malformed("a key", "sealed data")

    def spki(self) -> bytes:
        """Return the key as DER SubjectPublicKeyInfo (RFC 5280)."""
        return _spki(self)

    def spki_sha256(self) -> str:
        """Return SHA-256 of the SubjectPublicKeyInfo as 64 lower-case hex digits: the machine's name if it is an EK."""
        return hashlib.sha256(self.spki()).hexdigest()

    def as_template(self) -> Public:
        """Return the area without its key, for comparison with a template."""
        empty: bytes | EccPoint = b"" if isinstance(self.unique, bytes) else EccPoint(b"", b"")
        return replace(self, unique=empty)


@lru_cache(maxsize=_KEPT_KEYS)
def _spki(public: Public) -> bytes:
    return public.key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _rsa_key(parameters: RsaParameters, modulus: bytes) -> rsa.RSAPublicKey:
    number = int.from_bytes(modulus, "big")
    if number.bit_length() != parameters.key_bits:
        raise malformed(f"an RSA modulus of {parameters.key_bits} bits", f"{number.bit_length()}")
    try:
        return rsa.RSAPublicNumbers(parameters.exponent or _DEFAULT_EXPONENT, number).public_key()
    except ValueError as error:
        raise malformed("an RSA public key", str(error)) from error


@lru_cache(maxsize=_KEPT_KEYS)
def ecc_key(curve: int, point: EccPoint) -> ec.EllipticCurvePublicKey:
    """Return ``point`` as a public key on ``curve``; raises TPM_MALFORMED if it is not on the curve."""
    if curve not in {c.CURVE_P256, c.CURVE_P384}:
        raise malformed("curve P-256 or P-384", f"{curve:#06x}")
    kind = ec.SECP256R1() if curve == c.CURVE_P256 else ec.SECP384R1()
    x, y = int.from_bytes(point.x, "big"), int.from_bytes(point.y, "big")
    try:
        return ec.EllipticCurvePublicNumbers(x, y, kind).public_key()
    except ValueError as error:
        raise malformed(f"a point of {kind.name}", str(error)) from error


def ecc_point(key: ec.EllipticCurvePublicKey) -> EccPoint:
    """Return the point of ``key`` with coordinates padded to the size of the field."""
    numbers, size = key.public_numbers(), (key.curve.key_size + 7) // 8
    return EccPoint(numbers.x.to_bytes(size, "big"), numbers.y.to_bytes(size, "big"))


@dataclass(frozen=True, slots=True)
class PcrSelection:
    """Registers of one bank, TPMS_PCR_SELECTION: ``indices`` ascending, 0 to 23."""

    bank: int
    indices: tuple[int, ...]

    @classmethod
    def of(cls, indices: Iterable[int], *, bank: int = c.ALG_SHA256) -> PcrSelection:
        """Return the selection of ``indices``, in any order; raises TPM_MALFORMED for unknown registers."""
        wanted = tuple(sorted(set(indices)))
        if wanted and not (wanted[0] >= 0 and wanted[-1] < c.PCR_COUNT):
            raise malformed(f"registers 0 to {c.PCR_COUNT - 1}", f"{list(wanted)}")
        return cls(bank, wanted)

    @classmethod
    def read(cls, reader: Reader) -> PcrSelection:
        """Return the next TPMS_PCR_SELECTION of three octets, the form of every PC client TPM."""
        bank, size = reader.u16(), reader.u8()
        if size != c.PCR_COUNT // 8:
            raise malformed("a register bitmap of 3 bytes", f"{size}")
        bits = int.from_bytes(reader.take(size), "little")
        return cls(bank, tuple(index for index in range(c.PCR_COUNT) if bits >> index & 1))

    def marshal(self) -> bytes:
        """Return the TPMS_PCR_SELECTION."""
        bits = sum(1 << index for index in self.indices)
        return u16(self.bank) + b"\x03" + bits.to_bytes(3, "little")


def read_selections(reader: Reader) -> tuple[PcrSelection, ...]:
    """Return the next TPML_PCR_SELECTION."""
    return tuple(PcrSelection.read(reader) for _unused in range(reader.count(c.MAX_SELECTIONS)))


def marshal_selections(selections: Iterable[PcrSelection]) -> bytes:
    """Return a TPML_PCR_SELECTION."""
    listed = tuple(selections)
    return u32(len(listed)) + b"".join(selection.marshal() for selection in listed)


# Attestation structures and signatures of a TPM, parsed strictly; the evidence package verifies them.

_MAX_SIGNATURE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockInfo:
    """The TPM's time, TPMS_CLOCK_INFO: ``clock`` in milliseconds; counters of resets and restarts."""

    clock: int
    reset_count: int
    restart_count: int
    safe: bool

    @classmethod
    def read(cls, reader: Reader) -> ClockInfo:
        """Return the next TPMS_CLOCK_INFO."""
        clock, resets, restarts, safe = reader.u64(), reader.u32(), reader.u32(), reader.u8()
        if safe > 1:
            raise malformed("0 or 1 for safe in TPMS_CLOCK_INFO", f"{safe}")
        return cls(clock=clock, reset_count=resets, restart_count=restarts, safe=bool(safe))

    def marshal(self) -> bytes:
        """Return the TPMS_CLOCK_INFO."""
        return u64(self.clock) + u32(self.reset_count) + u32(self.restart_count) + u8(self.safe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest:
    """A statement of a TPM about itself, TPMS_ATTEST (part 2, 10.12.12).

    The caller must check that ``magic`` is GENERATED_MAGIC and ``type`` is TAG_ATTEST_QUOTE, and all other fields that
    it trusts. For other types than a quote, selections and digest are empty, and ``body`` has the attested data.
    """

    magic: int
    type: int
    qualified_signer: bytes
    extra_data: bytes
    clock_info: ClockInfo
    firmware_version: int
    pcr_selections: tuple[PcrSelection, ...]
    pcr_digest: bytes
    body: bytes = b""

    @classmethod
    def parse(cls, data: bytes) -> Attest:
        """Return the TPMS_ATTEST in ``data`` (without a size before it)."""
        reader = Reader(data, "TPMS_ATTEST")
        magic, kind = reader.u32(), reader.u16()
        signer, extra = reader.sized(c.MAX_DIGEST + 2), reader.sized(c.MAX_DIGEST + 2)
        clock_info, firmware_version = ClockInfo.read(reader), reader.u64()
        is_quote = kind == c.TAG_ATTEST_QUOTE
        selections = read_selections(reader) if is_quote else ()
        pcr_digest = reader.sized(c.MAX_DIGEST) if is_quote else b""
        body = b"" if is_quote else reader.rest()
        reader.end()
        return cls(
            magic=magic,
            type=kind,
            qualified_signer=signer,
            extra_data=extra,
            clock_info=clock_info,
            firmware_version=firmware_version,
            pcr_selections=selections,
            pcr_digest=pcr_digest,
            body=body,
        )

    def marshal(self) -> bytes:
        """Return the TPMS_ATTEST."""
        head = u32(self.magic) + u16(self.type) + sized(self.qualified_signer) + sized(self.extra_data)
        head += self.clock_info.marshal() + u64(self.firmware_version)
        if self.type != c.TAG_ATTEST_QUOTE:
            return head + self.body
        return head + marshal_selections(self.pcr_selections) + sized(self.pcr_digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, TPMT_SIGNATURE: ``parts`` is (signature,) for RSA and (r, s) for ECDSA."""

    alg: int
    hash_alg: int
    parts: tuple[bytes, ...]

    @classmethod
    def parse(cls, data: bytes) -> Signature:
        """Return the TPMT_SIGNATURE in ``data``."""
        reader = Reader(data, "TPMT_SIGNATURE")
        alg = reader.u16()
        if alg not in {c.ALG_RSASSA, c.ALG_RSAPSS, c.ALG_ECDSA}:
            raise malformed("an RSASSA, RSAPSS or ECDSA signature", f"{alg:#06x}")
        hash_alg = reader.u16()
        count, limit = (2, c.MAX_DIGEST) if alg == c.ALG_ECDSA else (1, _MAX_SIGNATURE)
        parts = tuple(reader.sized(limit) for _unused in range(count))
        reader.end()
        return cls(alg=alg, hash_alg=hash_alg, parts=parts)

    def marshal(self) -> bytes:
        """Return the TPMT_SIGNATURE."""
        return u16(self.alg) + u16(self.hash_alg) + b"".join(sized(part) for part in self.parts)

    def raw(self) -> bytes:
        """Return the signature in the form of `cryptography`: DER for ECDSA, the bytes themselves for RSA."""
        if self.alg != c.ALG_ECDSA:
            return self.parts[0]
        r, s = (int.from_bytes(part, "big") for part in self.parts)
        return asymmetric_utils.encode_dss_signature(r, s)
