# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of a dead control plane: a file of a real etcd read without it, and a partition opened and copied."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.component.rescue.test_rescue import (
    DERIVE,
    FORMAT,
    PROGRAM,
    TOKEN,
    UUID,
    rescue,
    secret,
)
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries
from ansible_collections.attested.kubernetes.tests.support.house import SOURCES
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_partitions import mbr_sector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["secret"]
VALUE = "canary-of-a-secret-in-etcd"


@pytest.fixture
def etcdctl(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A real etcd on loopback with its data in ``etcd``; call it with words for etcdctl, or none to stop etcd."""
    missing = [name for name in ("etcd", "etcdctl") if not (binaries() / name).is_file()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {binaries()}: build the bundle first (playbook bundle)")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _unused in range(2))
    argv = [str(binaries() / "etcd"), "--data-dir", str(tmp_path / "etcd"), "--snapshot-count", "10"]
    ports = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    ours = ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    with (tmp_path / "etcd.log").open("wb") as log:
        running = subprocess.Popen([*argv, *ports, *ours], stdout=log, stderr=log)

    def run(*words: str) -> str:
        if not words:
            running.terminate()
            running.wait(timeout=120)
            return ""
        command = [str(binaries() / "etcdctl"), "--endpoints", client, "--command-timeout=60s", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    until = time.monotonic() + 120
    while subprocess.run(
        [str(binaries() / "etcdctl"), "--endpoints", client, "endpoint", "health"], capture_output=True, check=False
    ).returncode:
        assert time.monotonic() < until
        time.sleep(0.5)
    yield run
    running.kill()
    running.wait()


def test_the_keys_of_a_real_etcd_are_listed_after_it_stopped(etcdctl: Callable[..., str], tmp_path: Path) -> None:
    for number in range(40):
        etcdctl("put", f"/registry/configmaps/default/c{number:02}", "x" * 900)
    etcdctl("put", "/registry/secrets/default/s", "first")
    etcdctl("put", "/registry/secrets/default/s", VALUE)
    etcdctl("put", "/registry/secrets/default/gone", VALUE)
    etcdctl("del", "/registry/secrets/default/gone")
    told = etcdctl("get", "/registry/", "--prefix", "--keys-only").split()
    etcdctl()
    done = rescue("etcd", "--data", str(tmp_path / "etcd"), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [row["key"] for row in shown["revision, bytes"]] == told
    assert len(told) == 41
    assert VALUE not in done.stdout
    got = tmp_path / "got" / "value"
    words = ("--get", "/registry/secrets/default/s", "--out", str(got))
    one = rescue("etcd", "--data", str(tmp_path / "etcd" / "member" / "snap" / "db"), *words)
    assert one.returncode == 0, one.stderr
    assert (got.read_text(encoding="utf-8"), got.stat().st_mode & 0o777) == (VALUE, 0o600)
    assert VALUE not in one.stdout + one.stderr
    none = rescue(
        "etcd", "--data", str(tmp_path / "etcd"), "--get", "/registry/secrets/default/gone", "--out", str(got)
    )
    assert (none.returncode, "etcd has none" in none.stderr) == (1, True)


START, SIZE = 1 << 20, 26 << 20
EXTRACT = f"""
losetup --offset {START} --sizelimit {SIZE} /dev/loop7 /dev/ubda
{DERIVE} > /run/key
{FORMAT} --integrity hmac-sha256 --key-file /run/key /dev/loop7
echo '{TOKEN}' | cryptsetup token import --token-id 0 --json-file - /dev/loop7
cryptsetup open --key-file /run/key /dev/loop7 state
mkfs.ext4 -q /dev/mapper/state
mount /dev/mapper/state /run/mnt
mkdir -p /run/mnt/kubernetes/pki /run/mnt/var/lib/etcd/member/snap
echo 'the key of the cluster' > /run/mnt/kubernetes/pki/ca.key
echo 'pages' > /run/mnt/var/lib/etcd/member/snap/db
umount /run/mnt
cryptsetup close state
losetup --detach /dev/loop7
rm /run/key
export PYTHONPATH=@SOURCES@ PYTHONDONTWRITEBYTECODE=1 TMPDIR=/run
@PROGRAM@ rescue extract --master-secret @SECRET@ --disk /dev/ubda --out /run/rescued
(cd /run/rescued && sha256sum --check --strict SHA256SUMS)
cp /run/rescued/kubernetes/pki/ca.key /run/out/ca.key
test ! -e /dev/mapper/rescue-{UUID}
losetup --list
"""


def test_a_disk_in_a_partition_is_opened_and_copied_in_one_command(secret: Path, tmp_path: Path) -> None:
    """With a real kernel's dm-crypt, dm-integrity and loop device; nothing stays open."""
    if missing := missing_packages():
        pytest.skip(f"no kernel with dm-integrity here: {', '.join(missing)} not installed")
    disk = tmp_path / "disk.img"
    with disk.open("wb") as stream:
        stream.write(mbr_sector((0x83, START // 512, SIZE // 512)))
        stream.truncate(START + SIZE)
    script = (
        EXTRACT.replace("@PROGRAM@", " ".join(PROGRAM))
        .replace("@SOURCES@", str(SOURCES))
        .replace("@SECRET@", str(secret))
    )
    shown = run_in_uml(script, folder=tmp_path, disks=[disk])
    assert f"disk              {UUID}" in shown
    assert "kubernetes/pki/ca.key: OK" in shown
    assert "/dev/loop" not in shown.partition("SHA256SUMS")[2]
    assert (tmp_path / "ca.key").read_text(encoding="utf-8") == "the key of the cluster\n"
