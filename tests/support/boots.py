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
