# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Scenarios of a state disk in a kernel with dm-integrity (`uml.py`): /dev/ubdb is the disk.

Usage, in that kernel: python tests/support/disk_bed.py life|flipped|told|cuts|rekeys NUMBER ...
Writes SCENARIO.json.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.preflight import read_disk_view
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import Hooks, StateDisk
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.gateway import LinuxDevice
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import parse_record
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import KmsgLog, damage_now
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Target, Wanted
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.process import read_key
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import inspect, run
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Step

DISK = "/dev/ubdb"
DEVICE = "/dev/disk/by-id/virtio-state"
UUID = "71111111-2222-4333-8444-555555555555"
KEY = bytes(range(100, 132))
KEY_FILE = Path("/run/disk.key")
PATHS = StatePaths(
    memory=Path("/run/state-disk"),
    journal=Path("/run/out/journal.json"),
    mount_point=Path("/run/point"),
    directories=(Path("/run/kubelet"), Path("/run/etcd")),
)
HEADER_BEFORE = Path("/run/header.before")
DATA = PATHS.directories[1] / "member"
TPM = Path("/run/tpm")
_NAMES = Path("/sys/class/block")
BLOCK, BLOCKS, FLIPPED = 4096, 16, 5
_BLOCK_PLACE, _BLOCK_SIZE = 1, 2  # FIBMAP and FIGETBSZ of <linux/fs.h>
STEPS = 15
"""The number of steps from a blank disk to a disk in use."""
NEW_KEY = bytes(range(200, 232))
NEW_KEY_FILE = Path("/run/new.key")
NAME = "2-9f2c1d5e9f2c1d5e"
REKEY_STEPS = 7
"""The number of steps from one key to another."""


class FileCounter:
    """A counter in a file, in place of the TPM if only the order of steps is tested."""

    path = Path("/run/counter")

    def define(self) -> int:
        """Return the value; initially 7."""
        if not self.path.exists():
            self.path.write_text("7", encoding="ascii")
        return int(self.path.read_text(encoding="ascii"))

    def read(self) -> int | None:
        """Return the value, or None."""
        return self.define() if self.path.exists() else None

    def increment(self) -> int:
        """Increment and return the value."""
        self.path.write_text(str(self.define() + 1), encoding="ascii")
        return self.define()


def life() -> dict[str, Any]:
    """Take a disk from blank to refused, with the module's code and a real TPM; return the observations."""
    with SoftTpm(), ProcessWatch() as watch:
        seen: dict[str, Any] = {
            "blank": inspect({"device": DEVICE, "uuid": UUID, "memory": str(PATHS.memory)}, True).values
        }
        seen["preflight"] = [_preflight()]
        seen["check"] = _module("formatted", check_mode=True)
        seen["formatted"] = [_module("formatted") for _again in range(2)]
        seen["random"] = PATHS.first_key.stat().st_mode & 0o777
        seen["opened"] = [_module("opened") for _again in range(2)]
        seen["preflight"].append(_preflight())
        (PATHS.directories[1] / "member").write_text("etcd was here", encoding="ascii")
        seen["first"] = _record()
        _module("closed")
        shutil.copyfile(DISK, "/run/out/snapshot")
        seen["again"] = _module("opened")
        seen["data"] = (PATHS.directories[1] / "member").read_text(encoding="ascii")
        seen["second"] = _record()
        seen["info"] = inspect({"device": DEVICE, "uuid": UUID, "memory": str(PATHS.memory)}, True).values
        seen["table"] = subprocess.run(["dmsetup", "table"], capture_output=True, check=True).stdout.decode()
        _module("closed")
        shutil.copyfile(DISK, "/run/out/last")
        _copy("/run/out/snapshot", DISK)
        seen["put back"] = _module("opened")
        _copy("/run/out/last", DISK)
        argv = [
            "cryptsetup",
            "luksChangeKey",
            "-q",
            "--key-slot",
            "0",
            "--key-file",
            str(KEY_FILE),
            "--pbkdf",
            "pbkdf2",
        ]
        subprocess.run([*argv, "--pbkdf-force-iterations", "1000", DISK, str(KEY_FILE)], check=True)
        seen["other header"] = _module("opened")
        seen["mapped"] = sorted(path.name for path in Path("/dev/mapper").iterdir())
        seen["destroyed"] = [_module("destroyed") for _again in range(2)]
        seen["gone"] = inspect({"device": DEVICE, "uuid": UUID, "memory": str(PATHS.memory)}, True).values["contents"]
        seen["made anew"] = _module("formatted", check_mode=True)
        seen["leaked"] = _leaked(watch)
    return seen


def flipped() -> dict[str, Any]:
    """Change one sector of the disk: below a file of the kubelet, then below the record of unlocks."""
    with SoftTpm():
        seen: dict[str, Any] = {"made": _module("opened")}
        data = PATHS.directories[0] / "data"
        data.write_bytes(b"".join(bytes([number]) * BLOCK for number in range(BLOCKS)))
        place = _place(data, FLIPPED)
        _module("closed")
        _flip(place)
        seen["opened"] = _module("opened")
        seen["blocks"] = [_block(data, number) for number in range(BLOCKS)]
        record = _place(PATHS.record, 0)
        _module("closed")
        _flip(record)
        seen["record"] = _module("opened")
        seen["mapped"] = sorted(path.name for path in Path("/dev/mapper").iterdir())
    return seen


def told() -> dict[str, Any]:
    """Change one sector below a file and read it; return the kernel's log before and after."""
    open_disk = state_disk()
    open_disk.apply(open_disk.plan())
    DATA.write_bytes(b"".join(bytes([number]) * BLOCK for number in range(BLOCKS)))
    place = _place(DATA, FLIPPED)
    linux_device().close()
    seen: dict[str, Any] = {"closed": list(damage_now(KmsgLog()).sectors)}
    _flip(place)
    again = state_disk()
    again.apply(again.plan())
    Path("/dev/kmsg").write_text(
        f"device-mapper: crypt: {_below()}: INTEGRITY AEAD ERROR, sector 8\n", encoding="ascii"
    )
    seen["before"] = list(damage_now(KmsgLog()).sectors)
    seen["blocks"] = [_block(DATA, number) for number in range(BLOCKS)]
    seen["after"] = list(damage_now(KmsgLog()).sectors)
    seen["place"] = place // 512
    seen["below"] = _below()
    seen["words"] = [line.decode("ascii", "replace") for line in KmsgLog().records() if b"AEAD" in line]
    seen["status"] = subprocess.run(["dmsetup", "status"], capture_output=True, check=True).stdout.decode()
    return seen


def _below() -> str:
    """Return the kernel's name of the mapping of dm-integrity."""
    names = {path.parent.parent.name: path.read_text(encoding="ascii").strip() for path in _NAMES.glob("dm-*/dm/name")}
    return next(device for device, name in names.items() if name.endswith("_dif"))


def _place(path: Path, number: int) -> int:
    """Return the offset in bytes of a file's block in the volume."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        size = struct.unpack("i", fcntl.ioctl(stream, _BLOCK_SIZE, struct.pack("i", 0)))[0]
        block = struct.unpack("i", fcntl.ioctl(stream, _BLOCK_PLACE, struct.pack("i", number)))[0]
    return int(size) * int(block)


def _flip(place: int) -> None:
    """Change one byte of the disk below a sector of the closed volume.

    After the sector is written again, the journal and the tags change before it: the last difference is the sector.
    """
    before = Path(DISK).read_bytes()
    subprocess.run(["cryptsetup", "open", "--key-file", str(KEY_FILE), DISK, "probe"], check=True)
    with Path("/dev/mapper/probe").open("r+b") as volume:
        volume.seek(place)
        volume.write(os.urandom(BLOCK))
        volume.flush()
        os.fsync(volume.fileno())
    subprocess.run(["cryptsetup", "close", "probe"], check=True)
    after = Path(DISK).read_bytes()
    block = max(at for at in range(0, len(after), BLOCK) if after[at : at + BLOCK] != before[at : at + BLOCK])
    last = max(at for at in range(block, block + BLOCK) if after[at] != before[at])
    with Path(DISK).open("r+b") as disk:
        disk.seek(last)
        disk.write(bytes([after[last] ^ 1]))
        disk.flush()
        os.fsync(disk.fileno())


def _block(path: Path, number: int) -> str:
    """Return the result of reading a block of the file: "as written", "other data", or the name of the error."""
    with path.open("rb", buffering=0) as stream:
        try:
            found = os.pread(stream.fileno(), BLOCK, number * BLOCK)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "as written" if found == bytes([number]) * BLOCK else "other data"


def cuts(numbers: list[int]) -> dict[str, Any]:
    """Kill the process before the step of each number, odd ones with a reboot; run again and return the results."""
    return {str(number): _cut(number) for number in numbers}


def _cut(number: int) -> dict[str, Any]:
    _blank()
    killed = _killed_at(number, lambda hooks: state_disk(hooks=hooks))
    if number % 2:
        linux_device().close()
        shutil.rmtree(PATHS.memory)
    return {**killed, **finished()}


def _killed_at(number: int, make: Callable[[Hooks], StateDisk]) -> dict[str, Any]:
    begun: list[str] = []

    def before(step: Step) -> None:
        if len(begun) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        begun.append(step.name)

    def die() -> None:
        disk = make(Hooks(before=before))
        disk.apply(disk.plan())

    _ended, status = os.waitpid(_forked(die), 0)
    return {"signal": os.WTERMSIG(status)}


def rekeys(numbers: list[int]) -> dict[str, Any]:
    """Change the key of a disk in use, killed before the step of each number; return the results."""
    return {str(number): _rekey(number) for number in numbers}


def _rekey(number: int) -> dict[str, Any]:
    _blank()
    for path in (NEW_KEY_FILE, HEADER_BEFORE):
        path.unlink(missing_ok=True)
    give_second_key()
    state_disk().apply(state_disk().plan())
    digest = write_data()
    copy_header(HEADER_BEFORE)
    with ProcessWatch() as watch:
        killed = _killed_at(number, lambda hooks: state_disk(Target.REKEYED, hooks=hooks))
        if number % 2:
            linux_device().close()
            shutil.rmtree(PATHS.memory)
            again = state_disk()
            again.apply(again.plan())
        rest = state_disk(Target.REKEYED)
        rest.apply(rest.plan())
    return {
        **killed,
        **rekeyed(),
        "data": data_digest() == digest,
        "leaked": _words(watch),
    }


def give_second_key() -> None:
    """Add the key of the other version beside the first one."""
    NEW_KEY_FILE.touch(mode=0o600)
    NEW_KEY_FILE.write_bytes(NEW_KEY)


def write_data() -> str:
    """Write a file to the volume with fsync, and return its digest."""
    DATA.write_bytes(os.urandom(1 << 20))
    os.sync()
    return data_digest()


def data_digest() -> str:
    """Return the digest of the file."""
    return hashlib.sha256(DATA.read_bytes()).hexdigest()


def copy_header(target: Path) -> None:
    """Copy the header of the disk with all key slots."""
    with Path(DISK).open("rb") as disk:
        target.write_bytes(disk.read(16 << 20))


def rekeyed() -> dict[str, Any]:
    """Return what cryptsetup reports about header and record: which keys open which slots, now and before."""
    current = Path("/run/header.now")
    copy_header(current)
    record = parse_record(PATHS.record.read_bytes())
    with Path(DISK).open("rb") as disk:
        digest = read_header(disk.read(32768)).digest.hex()
    return {
        "left": [step.name for step in state_disk(Target.REKEYED).plan().steps],
        "now": [_opens(current, KEY), _opens(current, NEW_KEY)],
        "before": [_opens(HEADER_BEFORE, KEY), _opens(HEADER_BEFORE, NEW_KEY)],
        "record": [record.generation == FileCounter().read(), record.header == digest, record.key],
    }


def _opens(header: Path, key: bytes) -> bool:
    """Return whether cryptsetup opens any slot of a header with a key."""
    argv = ["cryptsetup", "open", "--test-passphrase", "--key-file", "-", "--keyfile-size", "32", str(header)]
    return subprocess.run(argv, input=key, capture_output=True, check=False).returncode == 0


def _words(watch: ProcessWatch) -> list[str]:
    """Return the arguments or environments that contained a key."""
    return [name for name, said in watch.seen() for key in (KEY, NEW_KEY) for one in spellings(key) if one in said]


def reencryption() -> dict[str, Any]:
    """Return the result of `cryptsetup reencrypt` for a disk with integrity."""
    _blank()
    state_disk().apply(state_disk().plan())
    linux_device().close()
    argv = ["cryptsetup", "reencrypt", "--batch-mode", "--key-file", str(KEY_FILE), "--pbkdf", "pbkdf2", DISK]
    done = subprocess.run(argv, capture_output=True, check=False)
    return {"code": done.returncode, "said": (done.stdout + done.stderr).decode(errors="replace")}


def finished() -> dict[str, Any]:
    """Bring the disk into use; return its state, and whether record, counter and header agree."""
    disk = state_disk()
    disk.apply(disk.plan())
    record = _record()
    header = state_disk().volume()
    return {
        "left": [step.name for step in state_disk().plan().steps],
        "agrees": [record["generation"] == FileCounter().read(), record["header"] == header.sha256.hex()],
        "slots": list(header.slots),
        "initialised": header.initialised,
        "memory": sorted(path.name for path in PATHS.memory.iterdir()),
        "journal": PATHS.journal.exists(),
    }


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def linux_device() -> LinuxDevice:
    """Return the disk in the form of the module."""
    runner = SystemRunner()
    return LinuxDevice(DEVICE, paths=PATHS, runner=runner, follower=runner)


def state_disk(target: Target = Target.OPENED, *, hooks: Hooks | None = None) -> StateDisk:
    """Return the disk with the first key and, if its file exists, the second key, which leads for REKEYED."""
    rotated = target is Target.REKEYED
    wanted = Wanted(device=DEVICE, uuid=UUID, target=target, minimum_bytes=1 << 20, key_name=NAME if rotated else "")
    key = read_key(KEY_FILE, mounts=PATHS.mounts)
    other = (read_key(NEW_KEY_FILE, mounts=PATHS.mounts),) if NEW_KEY_FILE.exists() else ()
    lead, *former = (*other, key) if rotated else (key, *other)
    return StateDisk(linux_device(), wanted, paths=PATHS, counter=FileCounter(), key=lead, former=former, hooks=hooks)


def _blank() -> None:
    linux_device().close()
    shutil.rmtree(PATHS.memory, ignore_errors=True)
    for path in (PATHS.journal, FileCounter.path):
        path.unlink(missing_ok=True)
    with Path(DISK).open("r+b") as disk:
        size = disk.seek(0, os.SEEK_END)
        disk.seek(0)
        disk.write(bytes(size))
        os.fsync(disk.fileno())


def _module(state: str, *, check_mode: bool = False) -> Any:
    """Return the steps of the module, or its reason code."""
    params = {
        "device": DEVICE,
        "directories": [str(path) for path in PATHS.directories],
        "erase": None,
        "journal": str(PATHS.journal),
        "former_key_files": [],
        "key_file": str(KEY_FILE),
        "key_name": None,
        "memory": str(PATHS.memory),
        "minimum_bytes": 1 << 20,
        "mount_point": str(PATHS.mount_point),
        "state": state,
        "tcti": f"swtpm:path={TPM}/socket",
        "tpm_timeout_seconds": 60,
        "uuid": UUID,
        "volume": None,
    }
    try:
        return run(params, check_mode).values["steps"]
    except AttestedError as error:
        return error.code


def _preflight() -> dict[str, Any]:
    """Return the result of preflight for the disk."""
    runner = SystemRunner()
    return asdict(read_disk_view(DEVICE, runner=runner, follower=runner))


def _record() -> dict[str, Any]:
    record = parse_record(PATHS.record.read_bytes())
    return {"generation": record.generation, "header": record.header}


def _leaked(watch: ProcessWatch) -> list[str]:
    """Return the places of the permanent key besides its file: arguments, environments, disk, files in memory."""
    channels = list(watch.seen())
    files = [Path(DISK), Path("/run/out/snapshot"), *(path for path in Path("/run").rglob("*") if path.is_file())]
    channels += [(str(path), path.read_bytes()) for path in files if path != KEY_FILE]
    return [name for name, content in channels for needle in spellings(KEY) if needle in content]


def _copy(source: str, target: str) -> None:
    with Path(source).open("rb") as old, Path(target).open("r+b") as new:
        shutil.copyfileobj(old, new, 1 << 20)
        new.flush()
        os.fsync(new.fileno())


class SoftTpm:
    """A software TPM in this kernel, with its state in the directory ``tpm`` of the test."""

    def __enter__(self) -> None:
        """Start it and wait for its socket."""
        TPM.mkdir()
        words = [
            "swtpm",
            "socket",
            "--tpm2",
            "--tpmstate",
            "dir=/run/out/tpm",
            "--flags",
            "not-need-init,startup-clear",
        ]
        server = f"type=unixio,path={TPM}/socket"
        self._process = subprocess.Popen([*words, "--server", f"{server},disconnect", "--ctrl", f"{server}.ctrl"])
        while not (TPM / "socket").exists():
            time.sleep(0.01)

    def __exit__(self, *unused: object) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def set_up() -> None:
    """Name the disk by its id, and give the permanent key."""
    Path("/dev/disk/by-id").mkdir(parents=True, exist_ok=True)
    Path(DEVICE).symlink_to("../../ubdb")
    KEY_FILE.touch(mode=0o600)
    KEY_FILE.write_bytes(KEY)


def main() -> None:
    """Run one scenario."""
    set_up()
    scenario, numbers = sys.argv[1], [int(word) for word in sys.argv[2:]]
    scenarios: dict[str, Callable[[], dict[str, Any]]] = {
        "cuts": lambda: cuts(numbers),
        "flipped": flipped,
        "life": life,
        "reencryption": reencryption,
        "rekeys": lambda: rekeys(numbers),
        "told": told,
    }
    found = scenarios[scenario]()
    Path(f"/run/out/{scenario}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
