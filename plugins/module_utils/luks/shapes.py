# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a state disk must look like: ours, and Constellation's, as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CIPHER = "aes-xts-plain64"
INTEGRITY = "hmac(sha256)"
SECTOR_BYTES = 4096
XTS_KEY_BYTES = 64
MAC_KEY_BYTES = 32
LABEL = "attested-state"
STATE_TOKEN = "attested-state-disk"  # noqa: S105  # the type of a note in the header
STATE_TOKEN_VERSION = 1
CONSTELLATION_TOKEN = "constellation-state-disk"  # noqa: S105  # the same of theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class KdfBounds:
    """The one kind of key derivation, and how much it may cost whoever tries a key."""

    type: str
    hash: str
    cost: tuple[int, int]
    memory_kib: tuple[int, int]
    threads: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskShape:
    """The pinned part of a header: ``label`` None takes any; ``integrity`` names the kinds that may be.

    ``token`` and ``token_version`` (0: none is written) say which note there must be, ``flag`` which of its members
    tells that the disk was initialised.
    """

    label: str | None
    integrity: frozenset[str]
    kdf: KdfBounds
    token: str
    token_version: int
    flag: str
    keyslots_bytes: int = 16744448


STATE_DISK = DiskShape(
    label=LABEL,
    integrity=frozenset({INTEGRITY}),
    # the key is 32 random bytes, which nobody guesses: stretching it costs time at every boot and adds nothing
    kdf=KdfBounds(type="pbkdf2", hash="sha256", cost=(1000, 1000), memory_kib=(0, 0), threads=(1, 1)),
    token=STATE_TOKEN,
    token_version=STATE_TOKEN_VERSION,
    flag="initialised",
)
CONSTELLATION_DISK = DiskShape(
    label=None,
    integrity=frozenset({INTEGRITY, ""}),
    kdf=KdfBounds(type="argon2id", hash="", cost=(1, 100), memory_kib=(32, 1 << 20), threads=(1, 4)),
    token=CONSTELLATION_TOKEN,
    token_version=0,
    flag="diskIsInitialized",
)


def state_token(*, initialised: bool) -> dict[str, Any]:
    """Return the note that a state disk of ours carries: formatted, or in use."""
    return {"type": STATE_TOKEN, "keyslots": [], "version": STATE_TOKEN_VERSION, "initialised": initialised}
