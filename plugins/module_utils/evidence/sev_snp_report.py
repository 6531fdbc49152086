# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the attestation report of SEV-SNP strictly; `sev_snp` verifies it.

Source: SEV Secure Nested Paging Firmware ABI Specification (AMD 56860), ATTESTATION_REPORT, versions 2 to 5; all
numbers are little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Refusal
from ..reasons import Reason

REPORT_BYTES = 0x4A0
SIGNED_BYTES = 0x2A0
VERSIONS = range(2, 6)

VCEK, VLEK = 0, 1
"""The signing key of a report: derived from the chip, or issued by AMD to a provider."""

_ECDSA_P384_SHA384 = 1
_FAMILY_TURIN = 0x1A
_COMPONENT_BYTES = 72
_POLICY_RESERVED_ONE = 1 << 17
_POLICY_BITS = 25
_SMT, _MIGRATION, _DEBUG = 1 << 16, 1 << 18, 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbVersion:
    """Security versions of the firmware's parts; ``fmc`` only on Turin."""

    bootloader: int = 0
    tee: int = 0
    snp: int = 0
    microcode: int = 0
    fmc: int = 0

    @classmethod
    def parse(cls, data: bytes, *, turin: bool) -> TcbVersion:
        """Return the TCB_VERSION of eight bytes; raises `Refusal` EVIDENCE_MALFORMED for reserved bytes."""
        used = (0, 1, 2, 3, 7) if turin else (0, 1, 6, 7)
        if any(data[index] for index in range(len(data)) if index not in used):
            raise _malformed("reserved bytes of zero in a TCB version", data.hex())
        if turin:
            return cls(fmc=data[0], bootloader=data[1], tee=data[2], snp=data[3], microcode=data[7])
        return cls(bootloader=data[0], tee=data[1], snp=data[6], microcode=data[7])

    def below(self, minimum: TcbVersion) -> list[str]:
        """Return the names of the parts that are older than in ``minimum``."""
        parts = ("bootloader", "tee", "snp", "microcode", "fmc")
        return [part for part in parts if getattr(self, part) < getattr(minimum, part)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpReport:
    """A parsed report. ``signed`` are the bytes that the signature (``r``, ``s``) covers."""

    version: int
    guest_svn: int
    policy: int
    vmpl: int
    signing_key: int
    chip_key_masked: bool
    report_data: bytes
    measurement: bytes
    host_data: bytes
    report_id: bytes
    reported_tcb: TcbVersion
    launch_tcb: TcbVersion
    chip_id: bytes
    signed: bytes
    r: int
    s: int

    @property
    def debug(self) -> bool:
        """Whether the host may read the guest's memory."""
        return bool(self.policy & _DEBUG)

    @property
    def migratable(self) -> bool:
        """Whether a migration agent may move the guest elsewhere."""
        return bool(self.policy & _MIGRATION)

    @property
    def smt(self) -> bool:
        """Whether simultaneous multithreading is allowed."""
        return bool(self.policy & _SMT)

    @classmethod
    def parse(cls, data: bytes) -> SnpReport:
        """Return the report of ``data``; raises `Refusal` EVIDENCE_MALFORMED."""
        if len(data) != REPORT_BYTES:
            raise _malformed(f"{REPORT_BYTES} bytes", f"{len(data)}")
        version, flags = _number(data, 0x000, 4), _number(data, 0x048, 4)
        if version not in VERSIONS or _number(data, 0x034, 4) != _ECDSA_P384_SHA384:
            raise _malformed("version 2 to 5 signed with ECDSA P-384", f"version {version}")
        _require_reserved(data, version)
        policy, turin = _policy(data), version > VERSIONS[0] and data[0x188] >= _FAMILY_TURIN
        return cls(
            version=version,
            guest_svn=_number(data, 0x004, 4),
            policy=policy,
            vmpl=_number(data, 0x030, 4),
            signing_key=flags >> 2 & 7,
            chip_key_masked=bool(flags & 2),
            report_data=data[0x050:0x090],
            measurement=data[0x090:0x0C0],
            host_data=data[0x0C0:0x0E0],
            report_id=data[0x140:0x160],
            reported_tcb=TcbVersion.parse(data[0x180:0x188], turin=turin),
            launch_tcb=TcbVersion.parse(data[0x1F0:0x1F8], turin=turin),
            chip_id=data[0x1A0:0x1E0],
            signed=data[:SIGNED_BYTES],
            r=_number(data, SIGNED_BYTES, _COMPONENT_BYTES),
            s=_number(data, SIGNED_BYTES + _COMPONENT_BYTES, _COMPONENT_BYTES),
        )


def _policy(data: bytes) -> int:
    policy = _number(data, 0x008, 8)
    if not policy & _POLICY_RESERVED_ONE or policy >> _POLICY_BITS:
        raise _malformed("a guest policy with its reserved bits as demanded", f"{policy:#x}")
    return policy


def _require_reserved(data: bytes, version: int) -> None:
    """Refuse a report with reserved or unsigned bytes that are not zero as this version demands."""
    family = 0x18B if version > VERSIONS[0] else 0x188
    vectors = 0x208 if version == VERSIONS[-1] else 0x1F8
    ranges = ((0x04C, 0x050), (family, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0), (vectors, SIGNED_BYTES))
    tail = SIGNED_BYTES + 2 * _COMPONENT_BYTES
    if any(any(data[first:end]) for first, end in (*ranges, (tail, REPORT_BYTES))) or _number(data, 0x048, 4) >> 5:
        raise _malformed("reserved bytes of zero", "others")


def _number(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} in an SEV-SNP report, got {got}", reason=Reason.EVIDENCE_MALFORMED)
