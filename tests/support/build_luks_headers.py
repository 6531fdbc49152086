# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write `tests/vectors/luks/*.bin` again: headers of the real cryptsetup, with a real dm-integrity.

Usage: python tests/support/build_luks_headers.py      (packages cryptsetup-bin, kmod, user-mode-linux; some minutes)

The commands are below; no code of the collection is used. Only the first 32 KiB of each disk are kept.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml

FOLDER = ROOT / "tests" / "vectors" / "luks"
KEPT_BYTES = 32768
MEBIBYTES = 20
NAMES = ("state-disk-fresh", "state-disk", "state-disk-two-slots", "constellation", "constellation-plain", "default")

SCRIPT = r"""
printf 'first key of thirty-two bytes...' > first
printf 'other key of thirty-two bytes...' > other
OURS="--type luks2 --label attested-state --cipher aes-xts-plain64 --key-size 512 --sector-size 4096
  --integrity hmac-sha256 --integrity-no-wipe --pbkdf pbkdf2 --pbkdf-force-iterations 1000"
THEIRS="--type luks2 --cipher aes-xts-plain64 --key-size 512 --sector-size 4096
  --pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 65536 --pbkdf-parallel 4"
PBKDF="--pbkdf pbkdf2 --pbkdf-force-iterations 1000"

for disk in a b c; do
  cryptsetup luksFormat -q $OURS --uuid 11111111-2222-4333-8444-55555555555$disk --key-file first /dev/ubd$disk
  echo '{"type":"attested-state-disk","keyslots":[],"version":1,"initialised":false}' |
    cryptsetup token import --token-id 0 --json-file - /dev/ubd$disk
done
cryptsetup luksChangeKey -q --key-slot 0 --key-file first $PBKDF /dev/ubdb other
echo '{"type":"attested-state-disk","keyslots":[],"version":1,"initialised":true}' |
  cryptsetup token import --token-id 0 --token-replace --json-file - /dev/ubdb
cryptsetup luksAddKey -q --key-slot 1 --key-file first $PBKDF /dev/ubdc other

cryptsetup luksFormat -q $THEIRS --integrity hmac-sha256 --integrity-no-wipe \
  --uuid 21111111-2222-4333-8444-555555555551 --key-file first /dev/ubdd
cryptsetup luksFormat -q $THEIRS --uuid 21111111-2222-4333-8444-555555555552 --key-file first /dev/ubde
for disk in d e; do
  echo '{"type":"constellation-state-disk","keyslots":[],"diskIsInitialized":true}' |
    cryptsetup token import --token-id 0 --json-file - /dev/ubd$disk
done
cryptsetup luksFormat -q --type luks2 --pbkdf-force-iterations 4 --pbkdf-memory 65536 \
  --uuid 31111111-2222-4333-8444-555555555555 --key-file first /dev/ubdf
cryptsetup --version
"""


def main() -> None:
    """Create all headers in one run and write the start of each disk."""
    if missing := missing_packages():
        sys.exit(f"expected the packages {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="luks-") as scratch:
        disks = [Path(scratch) / f"{name}.img" for name in NAMES]
        for disk in disks:
            with disk.open("wb") as stream:
                stream.truncate(MEBIBYTES << 20)
        print(run_in_uml(SCRIPT, folder=Path(scratch), disks=disks))
        for name, disk in zip(NAMES, disks, strict=True):
            with disk.open("rb") as stream:
                (FOLDER / f"{name}.bin").write_bytes(stream.read(KEPT_BYTES))


if __name__ == "__main__":
    main()
