# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands, with every parameter that decides over a disk's shape: nothing is left to a program's defaults.

Keys come over standard input, 32 bytes each; where two are needed, the one that is known comes first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..luks import CIPHER, SECTOR_BYTES, STATE_DISK, XTS_KEY_BYTES, state_token

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
FILESYSTEM = "ext4"
# what is looked at before it is believed runs nothing and opens no device
CHECKED = "ro,nodev,nosuid,noexec"
USED = "rw,nodev,suid,exec"

_KEY = ("--key-file", "-", "--keyfile-size", str(KEY_BYTES))
_NEW_KEY = ("--new-keyfile-size", str(KEY_BYTES))
_PBKDF = (
    *("--pbkdf", STATE_DISK.kdf.type, "--hash", STATE_DISK.kdf.hash),
    *("--pbkdf-force-iterations", str(STATE_DISK.kdf.cost[0])),
)
_SHAPE = (
    *("--type", "luks2", "--cipher", CIPHER, "--key-size", str(8 * XTS_KEY_BYTES)),
    *("--integrity", "hmac-sha256", "--sector-size", str(SECTOR_BYTES)),
    *("--luks2-metadata-size", "16384", "--luks2-keyslots-size", str(STATE_DISK.keyslots_bytes)),
    *("--label", str(STATE_DISK.label), "--key-slot", "0"),
)
_PROGRESS = ("--progress-json", "--progress-frequency", "5")


def format_disk(node: str, *, uuid: str) -> tuple[str, ...]:
    """Format and wipe; standard input is the first key, the output has a line of JSON every five seconds."""
    return ("cryptsetup", "luksFormat", "--batch-mode", *_SHAPE, *_PBKDF, *_KEY, "--uuid", uuid, *_PROGRESS, node)


def write_token(node: str, *, replace: bool) -> tuple[str, ...]:
    """Write our note, which is standard input: `token_bytes`."""
    words = ("--token-id", "0", *(("--token-replace",) if replace else ()), "--json-file", "-")
    return ("cryptsetup", "token", "import", *words, node)


def token_bytes(*, initialised: bool) -> bytes:
    """Return the note that `write_token` reads."""
    return json.dumps(state_token(initialised=initialised)).encode("ascii")


def add_key(node: str, *, slot: int) -> tuple[str, ...]:
    """Add a key in a free slot; standard input is a key that opens the disk, then the new one."""
    return ("cryptsetup", "luksAddKey", "--batch-mode", "--key-slot", str(slot), *_PBKDF, *_KEY, *_NEW_KEY, node, "-")


def drop_key(node: str, *, slot: int) -> tuple[str, ...]:
    """Remove a slot; standard input is a key that opens another one, without which nothing is removed."""
    return ("cryptsetup", "luksKillSlot", *_KEY, node, str(slot))


def try_key(header: Path, *, slot: int) -> tuple[str, ...]:
    """Say by the exit code whether standard input opens a slot of a copied header."""
    words = ("--type", "luks2", "--disable-external-tokens", "--key-slot", str(slot), *_KEY)
    return ("cryptsetup", "open", "--test-passphrase", *words, str(header))


def open_disk(node: str, name: str, *, header: Path, slot: int = 0) -> tuple[str, ...]:
    """Map the disk by a copy of its header, and by that copy alone; standard input is the key of ``slot``."""
    words = ("--type", "luks2", "--disable-external-tokens", "--key-slot", str(slot), *_KEY, "--header", str(header))
    return ("cryptsetup", "open", *words, node, name)


def close_disk(name: str) -> tuple[str, ...]:
    """Take the mapping away."""
    return ("cryptsetup", "close", name)


def erase_signatures(node: str) -> tuple[str, ...]:
    """Remove what other programs would find on a disk."""
    return ("wipefs", "--all", node)


def list_signatures(node: str) -> tuple[str, ...]:
    """List what is found on a disk, as JSON, changing nothing."""
    return ("wipefs", "--no-act", "--json", node)


def make_filesystem(mapped: str) -> tuple[str, ...]:
    """Make the file system of a volume that was wiped."""
    return (f"mkfs.{FILESYSTEM}", "-q", "-F", "-L", str(STATE_DISK.label), "-E", "nodiscard", mapped)


def mount_volume(mapped: str, point: Path, *, options: str) -> tuple[str, ...]:
    """Mount the volume."""
    return ("mount", "-t", FILESYSTEM, "-o", options, mapped, str(point))


def remount_volume(point: Path) -> tuple[str, ...]:
    """Let a volume that was looked at be used."""
    return ("mount", "-o", f"remount,{USED}", str(point))


def bind(source: Path, target: Path) -> tuple[str, ...]:
    """Put a directory of the volume in the place of one of the machine."""
    return ("mount", "--bind", str(source), str(target))


def unmount(point: Path) -> tuple[str, ...]:
    """Take a mount away."""
    return ("umount", str(point))
