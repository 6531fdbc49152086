# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attestation structures and signatures of a TPM, parsed strictly; the evidence package verifies them."""

from __future__ import annotations

from dataclasses import dataclass

from .._deps.crypto import asymmetric_utils
from . import constants as c
from .structures import PcrSelection, Reader, malformed, marshal_selections, read_selections, sized, u8, u16, u32, u64

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
