# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded boots of tests/vectors/boots as objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BOOTS = Path(__file__).resolve().parents[1] / "vectors" / "boots"
_REGISTER = re.compile(r"^\s*(\d+)\s*:\s*0x([0-9A-Fa-f]{64})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One recorded boot: its logs as bytes, its registers (SHA-256 bank) by index."""

    name: str
    firmware: bytes
    userspace: bytes
    command_line: bytes
    pcrs: dict[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One quote of the corpus; ``folder`` has its files of tpm2-tools."""

    name: str
    folder: Path
    boot: str
    key: str
    nonce: bytes

    @property
    def public(self) -> bytes:
        """The attestation key's TPMT_PUBLIC; all boots are of one machine, with one key of each kind."""
        return (BOOTS / "deb13-base" / "vector" / f"{self.key}.tpm2b_public").read_bytes()[2:]

    @property
    def pem(self) -> Path:
        """The attestation key in PEM."""
        return BOOTS / "deb13-base" / "vector" / f"{self.key}.pem"

    def file(self, kind: str) -> Path:
        """Return the file of the quote: ``tpms_attest``, ``tpmt_signature`` or ``pcrs``."""
        return self.folder / f"quote-{self.key}.{kind}"


def documents() -> list[Document]:
    """Return all quotes of the corpus."""
    return [
        Document(
            name=f"{path.parent.parent.name} {key}",
            folder=path.parent,
            boot=path.parent.parent.name,
            key=key,
            nonce=bytes.fromhex((path.parent / "nonce.hex").read_text(encoding="utf-8")),
        )
        for path in sorted(BOOTS.glob("*/*/quote-*.tpms_attest"))
        for key in [path.name.removeprefix("quote-").removesuffix(".tpms_attest")]
    ]


def facts(name: str) -> str:
    """Return the notes of the recording: versions, and the hashes of all inputs."""
    return (BOOTS / name / "boot.txt").read_text(encoding="utf-8")


def ima_templates(name: str) -> list[bytes]:
    """Return the template data of each entry of the boot's IMA log, whose SHA-256 was extended into PCR 10."""
    log, at, found = (BOOTS / name / "ima.bin").read_bytes(), 0, []
    while at < len(log):
        at += 4 + 20  # register, SHA-1 of the template data
        at += 4 + int.from_bytes(log[at : at + 4], "little")  # the template's name
        size = int.from_bytes(log[at : at + 4], "little")
        found.append(log[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def names() -> list[str]:
    """Return the names of all recorded boots."""
    return sorted(path.parent.name for path in BOOTS.glob("*/eventlog.bin"))


def load(name: str) -> Boot:
    """Return the boot ``name``, for example ``deb13-base``."""
    folder = BOOTS / name
    listed = _REGISTER.findall((folder / "pcrs.txt").read_text(encoding="utf-8"))
    return Boot(
        name=name,
        firmware=(folder / "eventlog.bin").read_bytes(),
        userspace=_optional(folder / "userspace.json"),
        command_line=_optional(folder / "cmdline.txt"),
        pcrs={int(index): bytes.fromhex(digest) for index, digest in listed},
    )


def _optional(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
