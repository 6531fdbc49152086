# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a state disk costs beside plain cryptsetup: to format, to open, to use, up to a mounted one at boot; 200 keys.

Two disks in one kernel with dm-crypt and dm-integrity (`uml.py`), ours and one made by hand with plain words. Equal
device-mapper tables say that both cost the same in use; what was written and read beside is only shown. That kernel is
slow: its times are worth something beside each other alone.
Usage: python tests/bench/state_disk.py [--rounds N] [--mebibytes N]
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils._deps.crypto import hashes, hkdf
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import Hooks
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.node.state_disk import (
    DiskSettings,
    MachineDisk,
    VolumeFile,
)
from ansible_collections.attested.kubernetes.tests.support import disk_bed
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, interleaved, report
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.swtpm import SwtpmFactory, missing_tools
from ansible_collections.attested.kubernetes.tests.support.uml import missing_packages, run_in_uml
from ansible_collections.attested.kubernetes.tests.unit.fakes.state_disk import KEY, sealed_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Step
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import SealedSecrets

KEYS = 200
FORMAT, OPEN, BOOT = "format and wipe", "the step that opens", "boot step, to mounted"
LUKS_FORMAT, LUKS_OPEN, BY_HAND = "cryptsetup luksFormat", "cryptsetup open", "cryptsetup open, and mount"
WRITE, READ = "write", "read"
OURS, THEIRS = "ours", "made by hand"
OPENS = 4
"""How often both are opened, written and read for each time that they are formatted: it takes a part of a second."""
SAMPLE_BYTES = 16 << 20
BLOCK_BYTES = 1 << 20
SEALED: Callable[..., SealedSecrets] = sealed_key
"""The secrets of a ticket as they come, with `KEY` in them."""
HAND, HAND_NAME, HAND_POINT = "/dev/ubdc", "by-hand", Path("/run/hand")
NAME = "attested-state"
_UNLOCK = ("--key-file", "-", "--keyfile-size", "32")
_COST = ("--hash", "sha256", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
_PLACE = re.compile(r"\b\d+:\d+\b")
_SECRET = re.compile(r"\b[0-9a-f]{64,}\b")


# ---- inside of that kernel


def by_hand(*words: str) -> None:
    """Run what a person would type, with the key on standard input, by the runner that our own steps use."""
    SystemRunner().run(words, stdin=KEY.reveal(), timeout_seconds=600)


def format_by_hand() -> None:
    """Make a disk with integrity as a person would; what is not said is left to cryptsetup."""
    shape = ("--type", "luks2", "--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "4096")
    words = (*shape, "--integrity", "hmac-sha256", *_COST, *_UNLOCK, "--uuid", disk_bed.UUID)
    by_hand("cryptsetup", "luksFormat", "--batch-mode", *words, HAND)


def open_by_hand() -> None:
    """Open that disk."""
    by_hand("cryptsetup", "open", *_UNLOCK, HAND, HAND_NAME)


def close_by_hand() -> None:
    """Close it."""
    by_hand("cryptsetup", "close", HAND_NAME)


class Watched:
    """Milliseconds of each step of a disk's run, by its name."""

    def __init__(self) -> None:
        """Begin the first one with the run."""
        self.took: dict[str, float] = {}
        self._name = ""
        self._begun = 0.0

    def before(self, step: Step) -> None:
        """End the step that went before."""
        self.end()
        self._name = step.name

    def end(self) -> None:
        """End the last one."""
        now = time.perf_counter()
        if self._name:
            self.took[self._name] = (now - self._begun) * 1000
        self._begun = now


def apply_watched() -> dict[str, float]:
    """Bring the disk into use, from whatever it is now; return what its steps took."""
    watched = Watched()
    disk = disk_bed.state_disk(hooks=Hooks(before=watched.before))
    disk.apply(disk.plan())
    watched.end()
    return watched.took


def table_of(name: str) -> list[str]:
    """Return the device-mapper tables of a mapping and of the integrity below, without the number of the disk."""
    said = [SystemRunner().run(["dmsetup", "table", one]).stdout.decode() for one in (name, f"{name}_dif")]
    return [_SECRET.sub("KEY", _PLACE.sub("DEVICE", text)).strip() for text in said]


def megabytes_a_second(volume: str) -> dict[str, float]:
    """Write and read a part of a mapping directly, past the page cache."""
    buffer = mmap.mmap(-1, BLOCK_BYTES)
    buffer.write(os.urandom(BLOCK_BYTES))
    descriptor = os.open(volume, os.O_RDWR | os.O_DIRECT)
    took = {}
    moves: dict[str, Callable[[int], int]] = {
        WRITE: lambda at: os.pwritev(descriptor, [buffer], at),
        READ: lambda at: os.preadv(descriptor, [buffer], at),
    }
    for name, move in moves.items():
        begun = time.perf_counter()
        for at in range(0, SAMPLE_BYTES, BLOCK_BYTES):
            move(at)
        os.fsync(descriptor)
        took[name] = SAMPLE_BYTES / 1e6 / (time.perf_counter() - begun)
    os.close(descriptor)
    return took


class Measured:
    """Every value that was taken, by name."""

    def __init__(self) -> None:
        """Begin with none."""
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """Keep one."""
        self.values.setdefault(name, []).append(value)

    def clock(self, name: str, operation: Callable[[], object]) -> None:
        """Run ``operation`` and keep its milliseconds."""
        begun = time.perf_counter()
        operation()
        self.add(name, (time.perf_counter() - begun) * 1000)

    def medians(self) -> dict[str, float]:
        """Return one value of each name."""
        return {name: statistics.median(values) for name, values in self.values.items()}


def measure_formats(kept: Measured, *, rounds: int) -> None:
    """Format both disks in turn; ours has been in use at the end."""
    for count in range(rounds + 1):
        counted = kept if count else Measured()
        counted.clock(LUKS_FORMAT, format_by_hand)
        clear_begin()
        counted.add(FORMAT, apply_watched()["FORMAT"])
        disk_bed.linux_device().close()


def clear_begin() -> None:
    """Make the disk look as one that was never used."""
    shutil.rmtree(disk_bed.PATHS.memory, ignore_errors=True)
    with Path(disk_bed.DISK).open("r+b") as disk:
        disk.write(bytes(16 << 20))
        disk.seek(-(1 << 20), os.SEEK_END)
        disk.write(bytes(1 << 20))
        os.fsync(disk.fileno())


def measure_opens(kept: Measured, *, rounds: int) -> list[list[str]]:
    """Open both disks in turn, one at a time; return the tables of both."""
    tables: list[list[str]] = []
    for count in range(rounds + 1):
        counted = kept if count else Measured()
        counted.clock(LUKS_OPEN, open_by_hand)
        tables = [table_of(HAND_NAME)]
        close_by_hand()
        counted.add(OPEN, apply_watched()["OPEN"])
        tables.append(table_of(NAME))
        disk_bed.linux_device().close()
    return [[line.replace(HAND_NAME, NAME) for line in table] for table in tables]


def measure_boots(kept: Measured, *, rounds: int) -> None:
    """Open the disk as a boot does, with a sealed ticket, in a process of its own, counted by a TPM."""
    disk_bed.linux_device().close()
    open_by_hand()
    by_hand("mkfs.ext4", "-q", "-F", "-E", "nodiscard", f"/dev/mapper/{HAND_NAME}")
    close_by_hand()
    HAND_POINT.mkdir()

    def open_and_mount() -> None:
        open_by_hand()
        by_hand("mount", f"/dev/mapper/{HAND_NAME}", str(HAND_POINT))

    with disk_bed.SoftTpm():
        clear_begin()
        boot(member=False)
        for _round in range(rounds):
            disk_bed.linux_device().close()
            shutil.rmtree(disk_bed.PATHS.memory)  # as a reboot does
            kept.clock(BOOT, lambda: boot(member=True))
            kept.clock(BY_HAND, open_and_mount)
            by_hand("umount", str(HAND_POINT))
            close_by_hand()


def boot(*, member: bool) -> None:
    """Do what a node's step does."""
    disk = MachineDisk(
        DiskSettings(device=disk_bed.DEVICE, minimum_bytes=1 << 20),
        tcti=f"swtpm:path={disk_bed.TPM}/socket",
        paths=disk_bed.PATHS,
        volumes=VolumeFile(Path("/run/volume")),
    )
    disk.open(disk_id=disk_bed.UUID, key=SEALED(), member=member)


def measure_throughput(kept: Measured, *, rounds: int) -> None:
    """Write and read both volumes in turn; what they held is gone then."""
    disk_bed.linux_device().close()
    for count in range(rounds + 1):
        counted = kept if count else Measured()
        for whose, disk in ((THEIRS, HAND), (OURS, disk_bed.DISK)):
            by_hand("cryptsetup", "open", *_UNLOCK, disk, HAND_NAME)
            for name, speed in megabytes_a_second(f"/dev/mapper/{HAND_NAME}").items():
                counted.add(f"{name}, {whose}", speed)
            close_by_hand()


def inside(rounds: int) -> None:
    """Measure in that kernel, and leave the figures in its folder."""
    disk_bed.KEY = KEY.reveal()
    disk_bed.set_up()
    kept = Measured()
    measure_formats(kept, rounds=rounds)
    tables = measure_opens(kept, rounds=rounds * OPENS)
    measure_boots(kept, rounds=rounds)
    measure_throughput(kept, rounds=rounds * OPENS)
    found = {"tables": tables, "medians": kept.medians()}
    Path("/run/out/found.json").write_text(json.dumps(found), encoding="utf-8")


# ---- beside it


def measured(folder: Path, *, rounds: int, mebibytes: int) -> dict[str, Any]:
    """Run `inside` in a kernel with two blank disks and a TPM; return what it found."""
    shutil.copytree(SwtpmFactory(folder / "tpms").state("disk", certified=False), folder / "tpm")
    # the kernel calls its root after the first disk, which would make that one look mounted
    disks = [folder / "none.img", folder / "ours.img", folder / "hand.img"]
    for disk in disks:
        with disk.open("wb") as stream:
            stream.truncate(mebibytes << 20)
    program = f"{sys.executable} {ROOT}/tests/bench/{Path(__file__).name} --inside --rounds {rounds}"
    run_in_uml(f"export PYTHONPATH={SOURCES}\n{program}\n", folder=folder, disks=disks, timeout_seconds=3600)
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def require_equal(tables: list[list[str]]) -> None:
    """Print the tables; raise unless ours is that of a disk made by hand, since both would not cost the same then."""
    by_hand_, ours = tables
    print("\n".join(f"device-mapper: {line}" for line in ours), flush=True)
    if ours != by_hand_:
        raise RuntimeError(f"expected the tables of a disk made by hand, {by_hand_}, got {ours}")


def figures(took: dict[str, float]) -> Iterator[Figure]:
    """Return the figures of that kernel, each with its budget."""
    for name, baseline, times in ((FORMAT, LUKS_FORMAT, 1.05), (OPEN, LUKS_OPEN, 1.2), (BOOT, BY_HAND, 0)):
        beside = took[baseline]
        yield Figure(
            name=name,
            value=took[name],
            unit="ms",
            budget=times * beside,
            baseline=beside,
            baseline_name=f"ms, {baseline}",
        )
    for name in (WRITE, READ):
        yield Figure(
            name=f"{name} a volume",
            value=took[f"{name}, {OURS}"],
            unit="MB/s",
            baseline=took[f"{name}, {THEIRS}"],
            baseline_name=f"MB/s, {THEIRS}",
        )


def derivations() -> Figure:
    """Return what 200 keys cost beside as many bare derivations of the library, on this machine itself."""
    master = MasterSecret(key=SecretBytes(bytes(32)), salt=SecretBytes(bytes(range(32))))
    disks = [DiskId.from_random(number.to_bytes(16, "big")) for number in range(KEYS)]

    def bare() -> None:
        for disk in disks:
            hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=bytes(32), info=disk.info.encode()).derive(bytes(32))

    name, beside = f"{KEYS} keys of disks", f"{KEYS} times HKDF"
    took = interleaved({name: lambda: [disk_key(master, disk) for disk in disks], beside: bare}, rounds=30)
    return Figure(
        name=name, value=took[name], unit="ms", budget=50, baseline=took[beside], baseline_name=f"ms, {beside}"
    )


def main() -> None:
    """Measure and print; without such a kernel, the keys alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--mebibytes", type=int, default=128, help="of each disk; default: %(default)s")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside(given.rounds)
        return
    keys = derivations()
    if missing := missing_packages() + missing_tools():
        print(f"state_disk: no kernel with dm-integrity, no {', '.join(missing)}: only keys were measured")
        report(keys)
        return
    with tempfile.TemporaryDirectory(prefix="state-disk-") as directory:
        found = measured(Path(directory), rounds=given.rounds, mebibytes=given.mebibytes)
    require_equal(found["tables"])
    report(*figures(found["medians"]), keys)


if __name__ == "__main__":
    main()
