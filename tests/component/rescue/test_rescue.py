# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue kit on disks that plain commands made: openssl derived their keys, cryptsetup formatted them.

Nothing of the kit took part in making them. Where a disk is mounted, a real kernel with dm-crypt and dm-integrity did
it (User Mode Linux, see tests/support/uml.py): many machines that run these tests cannot do it themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml

if TYPE_CHECKING:
    from pathlib import Path

UUID = "51111111-2222-4333-8444-555555555555"
KEY = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
SALT = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
TOKEN = '{"type":"constellation-state-disk","keyslots":[],"diskIsInitialized":true}'
DERIVE = (
    f"openssl kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt hexkey:{KEY} -kdfopt hexsalt:{SALT} "
    f"-kdfopt info:key-{UUID} -binary HKDF"
)
FORMAT = f"""cryptsetup luksFormat -q --type luks2 --cipher aes-xts-plain64 --key-size 512 --sector-size 4096 \
  --pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 1024 --pbkdf-parallel 1 --uuid {UUID}"""
NAME = "attested.kubernetes.plugins.module_utils.cli.command"
PROGRAM = (sys.executable, "-m", f"ansible_collections.{NAME}")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Constellation's file of those two values, written by openssl and printf."""
    path = tmp_path / "constellation-mastersecret.json"
    script = (
        f'b() {{ printf %s $1 | xxd -r -p | openssl base64 -A; }}; printf \'{{"key":"%s","salt":"%s"}}\' '
        f'"$(b {KEY})" "$(b {SALT})" > {path}'
    )
    if shutil.which("xxd") is None:
        script = script.replace("xxd -r -p", 'python3 -c "import sys; sys.stdout.buffer.write(bytes.fromhex(input()))"')
    subprocess.run(["sh", "-euc", script], check=True)
    return path


def rescue(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.run([*PROGRAM, "rescue", *words], capture_output=True, text=True, check=False, env=env)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image without integrity: what cryptsetup formats without device mapper."""
    if shutil.which("cryptsetup") is None:
        pytest.skip("no cryptsetup here (package cryptsetup-bin)")
    path = tmp_path / "disk.img"
    script = f"""
      truncate -s 20M {path}; {DERIVE} > {path}.key
      {FORMAT} --key-file {path}.key {path}
      echo '{TOKEN}' | cryptsetup token import --token-id 0 --json-file - {path}; rm {path}.key
    """
    subprocess.run(["sh", "-euc", script], check=True)
    return path


def test_the_derived_key_opens_an_image_that_plain_commands_made(image: Path, secret: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = rescue("keys", "--master-secret", str(secret), "--disk", str(image), "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["disks"] == [
        {"disk": UUID, "from": str(image), "header": "as it must be", "key": "opens the disk"}
    ]
    expected = subprocess.run(["sh", "-c", DERIVE], capture_output=True, check=True).stdout
    assert (out / f"{UUID}.key").read_bytes() == expected


def test_the_key_of_another_cluster_is_told_and_the_image_is_not_touched(image: Path, tmp_path: Path) -> None:
    before = image.read_bytes()
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"key": "A" * 43 + "=", "salt": "A" * 43 + "="}), encoding="utf-8")
    done = rescue("keys", "--master-secret", str(other), "--disk", str(image), "--json")
    assert (done.returncode, json.loads(done.stdout)["disks"][0]["key"]) == (1, "wrong")
    assert image.read_bytes() == before


def test_a_copy_of_the_header_is_enough_to_try_a_key(image: Path, secret: Path, tmp_path: Path) -> None:
    backup = tmp_path / "header.backup"
    subprocess.run(
        ["cryptsetup", "luksHeaderBackup", "-q", str(image), "--header-backup-file", str(backup)], check=True
    )
    done = rescue("keys", "--master-secret", str(secret), "--disk", str(backup), "--json")
    assert json.loads(done.stdout)["disks"][0]["key"] == "opens the disk"


def test_what_the_guide_says_to_do_by_hand_opens_it_too(image: Path, secret: Path) -> None:
    """Up to the first command that needs device mapper; the others are in the test below, typed by the kit."""
    text = (ROOT / "docs" / "rescue.md").read_text(encoding="utf-8").split("## By hand", 1)[1]
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    wanted = lines[: next(number for number, line in enumerate(lines) if "--readonly" in line)]
    script = "\n".join(wanted).replace("/dev/shm/disk.key", str(image.parent / "disk.key"))
    done = subprocess.run(["sh", "-euc", script], cwd=secret.parent, capture_output=True, text=True, check=False)
    assert done.stdout == "the key is right\n", done.stderr


MOUNT = f"""
{DERIVE} > /run/key
{FORMAT} --integrity hmac-sha256 --key-file /run/key /dev/ubda
echo '{TOKEN}' | cryptsetup token import --token-id 0 --json-file - /dev/ubda
cryptsetup open --key-file /run/key /dev/ubda state
mkfs.ext4 -q /dev/mapper/state
mount /dev/mapper/state /run/mnt
mkdir -p /run/mnt/kubernetes/pki /run/mnt/var/lib/etcd
echo 'the key of the cluster' > /run/mnt/kubernetes/pki/ca.key
umount /run/mnt
cryptsetup close state
rm /run/key
export PYTHONPATH=@SOURCES@ PYTHONDONTWRITEBYTECODE=1 TMPDIR=/run
@PROGRAM@ rescue mount --master-secret @SECRET@ --disk /dev/ubda --at /run/mnt
cp /run/mnt/kubernetes/pki/ca.key /run/out/ca.key
touch /run/mnt/written 2>/dev/null && exit 9
dmsetup table > /run/out/table
@PROGRAM@ rescue unmount --uuid {UUID} --at /run/mnt
test -z "$(ls /run/mnt)"
test ! -e /dev/mapper/rescue-{UUID}
"""


def test_a_disk_with_integrity_is_mounted_in_one_command(secret: Path, tmp_path: Path) -> None:
    if missing := missing_packages():
        pytest.skip(f"no kernel with dm-integrity here: {', '.join(missing)} not installed")
    disk = tmp_path / "disk.img"
    with disk.open("wb") as stream:
        stream.truncate(26 << 20)
    script = (
        MOUNT.replace("@PROGRAM@", " ".join(PROGRAM))
        .replace("@SOURCES@", str(SOURCES))
        .replace("@SECRET@", str(secret))
    )
    shown = run_in_uml(script, folder=tmp_path, disks=[disk])
    assert f"attested rescue unmount --uuid {UUID} --at /run/mnt" in shown
    assert (tmp_path / "ca.key").read_text(encoding="utf-8") == "the key of the cluster\n"
    table = (tmp_path / "table").read_text(encoding="utf-8")
    assert "capi:authenc(hmac(sha256),xts(aes))-plain64" in table
    assert " integrity " in table
