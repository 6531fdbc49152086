# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to a disk: facts from the kernel and wipefs, changes with cryptsetup, mkfs and mount."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import DiskError, SystemFault
from ..reasons import Reason
from .luks_check import CIPHER, SECTOR_BYTES, STATE_DISK, XTS_KEY_BYTES, state_token
from .luks_header import AREA_BYTES, read_header
from .paths import NAME
from .plan import DiskFacts, Signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.command import Follower, Runner
    from ..keyservice.master import DiskKey
    from .luks_header import Header
    from .paths import StatePaths

    Progress = Callable[[int, int], None]


# The commands, with every parameter that determines the format of a disk: no default of a program is used.
#
# Keys are passed on standard input, 32 bytes each. If a command needs two keys, the existing key comes first.

KEY_BYTES = 32
FILESYSTEM = "ext4"
# A volume that is not verified yet is mounted so that nothing on it runs and no device file works.
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
    """Return the command that formats and wipes.

    It reads the first key and prints JSON every five seconds.
    """
    return ("cryptsetup", "luksFormat", "--batch-mode", *_SHAPE, *_PBKDF, *_KEY, "--uuid", uuid, *_PROGRESS, node)


def write_token(node: str, *, replace: bool) -> tuple[str, ...]:
    """Return the command that writes the LUKS2 token; it reads `token_bytes`."""
    words = ("--token-id", "0", *(("--token-replace",) if replace else ()), "--json-file", "-")
    return ("cryptsetup", "token", "import", *words, node)


def token_bytes(*, initialised: bool) -> bytes:
    """Return the LUKS2 token (JSON) that the command `write_token` reads."""
    return json.dumps(state_token(initialised=initialised)).encode("ascii")


def add_key(node: str, *, slot: int) -> tuple[str, ...]:
    """Return the command that adds a key to a free slot.

    It reads a key that opens the disk, then the new key.
    """
    return ("cryptsetup", "luksAddKey", "--batch-mode", "--key-slot", str(slot), *_PBKDF, *_KEY, *_NEW_KEY, node, "-")


def drop_key(node: str, *, slot: int) -> tuple[str, ...]:
    """Return the command that removes a slot; it reads a key, which must open another slot."""
    return ("cryptsetup", "luksKillSlot", *_KEY, node, str(slot))


def try_key(header: Path, *, slot: int) -> tuple[str, ...]:
    """Return the command that tries a key on a slot of a copied header; the exit code is the result."""
    words = ("--type", "luks2", "--disable-external-tokens", "--key-slot", str(slot), *_KEY)
    return ("cryptsetup", "open", "--test-passphrase", *words, str(header))


def open_disk(node: str, name: str, *, header: Path, slot: int = 0) -> tuple[str, ...]:
    """Return the command that maps the disk with a copy of its header only; it reads the key of ``slot``."""
    words = ("--type", "luks2", "--disable-external-tokens", "--key-slot", str(slot), *_KEY, "--header", str(header))
    return ("cryptsetup", "open", *words, node, name)


def close_disk(name: str) -> tuple[str, ...]:
    """Return the command that removes the mapping."""
    return ("cryptsetup", "close", name)


def erase_signatures(node: str) -> tuple[str, ...]:
    """Return the command that removes all signatures."""
    return ("wipefs", "--all", node)


def list_signatures(node: str) -> tuple[str, ...]:
    """Return the command that lists the signatures of a disk as JSON, without a change."""
    return ("wipefs", "--no-act", "--json", node)


def make_filesystem(mapped: str) -> tuple[str, ...]:
    """Return the command that makes the file system of a wiped volume."""
    return (f"mkfs.{FILESYSTEM}", "-q", "-F", "-L", str(STATE_DISK.label), "-E", "nodiscard", mapped)


def mount_volume(mapped: str, point: Path, *, options: str) -> tuple[str, ...]:
    """Return the command that mounts the volume."""
    return ("mount", "-t", FILESYSTEM, "-o", options, mapped, str(point))


def remount_volume(point: Path) -> tuple[str, ...]:
    """Return the command that remounts a verified volume for use."""
    return ("mount", "-o", f"remount,{USED}", str(point))


def bind(source: Path, target: Path) -> tuple[str, ...]:
    """Return the command that bind-mounts a directory of the volume over a directory of the machine."""
    return ("mount", "--bind", str(source), str(target))


def unmount(point: Path) -> tuple[str, ...]:
    """Return the command that unmounts ``point``."""
    return ("umount", str(point))


_BLOCK_SECTOR_SIZE = 0x1268  # BLKSSZGET, linux/fs.h
_BEGIN_BYTES = 16 << 20
_END_BYTES = 1 << 20
_COPY_BYTES = AREA_BYTES + STATE_DISK.keyslots_bytes
_NO_KEY = 2  # cryptsetup's exit code for a key that does not open the slot
_TRY_SECONDS = 120.0
_OPEN_SECONDS = 180.0
_WIPE_SECONDS = 7 * 86400.0  # a disk of 20 TB at 40 MB/s


class Device(Protocol):
    """One disk and its volume; `LinuxDevice` on a machine, a disk in memory in unit tests."""

    def facts(self, uuid: str) -> DiskFacts | None:
        """Return the facts of the disk, or None if it does not exist.

        ``uuid`` identifies the state disk's mapping.
        """

    def opens(self, slot: int, key: DiskKey) -> bool:
        """Return whether ``key`` opens ``slot`` of the header copied last, which the caller has verified."""

    def erase(self) -> None:
        """Remove all signatures."""

    def discard(self) -> None:
        """Overwrite the headers, all key slots and the end of the disk."""

    def format(self, *, uuid: str, key: DiskKey, progress: Progress) -> None:
        """Format and wipe, with one key in slot 0 and no token."""

    def write_token(self, *, initialised: bool) -> None:
        """Write the LUKS2 token of a state disk, or replace it."""

    def add_key(self, *, slot: int, known: DiskKey, new: DiskKey) -> None:
        """Put ``new`` into a free slot; ``known`` opens the disk."""

    def drop_key(self, *, slot: int, known: DiskKey) -> None:
        """Remove ``slot``; ``known`` opens another slot."""

    def copy_header(self) -> Header:
        """Copy the header and the key slots to tmpfs, and return the strictly parsed header of the copy."""

    def open(self, key: DiskKey, *, slot: int = 0) -> None:
        """Map the volume with the header that was copied last."""

    def close(self) -> None:
        """Remove the mounts and the mapping, if they exist."""

    def make_filesystem(self) -> None:
        """Make an empty file system in the mapped volume."""

    def mounted(self) -> bool:
        """Return whether the volume is mounted at its mount point."""

    def mount(self, *, checked: bool) -> None:
        """Mount the volume: for use if ``checked``, else read-only, so that nothing on it runs."""

    def bound(self, target: Path) -> bool:
        """Return whether a directory of the volume is bind-mounted at ``target``."""

    def bind(self, target: Path) -> None:
        """Bind-mount a directory of the volume at ``target``."""


class LinuxDevice:
    """A block device of this machine, named by its path below /dev/disk/by-id."""

    def __init__(self, device: str, *, paths: StatePaths, runner: Runner, follower: Follower) -> None:
        """Resolve ``device`` once: this run uses the same node even if the link changes."""
        self._device = device
        self._node = os.path.realpath(device)
        self._paths = paths
        self._runner = runner
        self._follower = follower
        self._mapped = f"/dev/mapper/{NAME}"

    def facts(self, uuid: str) -> DiskFacts | None:
        """Return the facts of the disk, or None if there is no such block device."""
        try:
            descriptor = os.open(self._node, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._node, error) from error
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
                return None
            size = stream.seek(0, os.SEEK_END)
            sector = int.from_bytes(fcntl.ioctl(descriptor, _BLOCK_SECTOR_SIZE, bytes(4)), "little")
            stream.seek(0)
            begin = stream.read(_BEGIN_BYTES)
            stream.seek(max(0, size - _END_BYTES))
            blank = not any(begin) and not any(stream.read(_END_BYTES))
        mapped = self._is_mapped(uuid)
        return DiskFacts(
            device=self._device,
            node=self._node,
            size_bytes=size,
            sector_bytes=sector,
            signatures=self._signatures(),
            blank=blank,
            begin=begin[:AREA_BYTES],
            users=() if mapped else self._users(),
            mapped=mapped,
        )

    def opens(self, slot: int, key: DiskKey) -> bool:
        """Return whether the key opens the slot, by a try on the header and key slots copied last."""
        argv = try_key(self._paths.header, slot=slot)
        done = self._runner.run(argv, stdin=key.reveal(), timeout_seconds=_TRY_SECONDS, check=False)
        if done.returncode not in {0, _NO_KEY}:
            output = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise SystemFault(f"cryptsetup ended with {done.returncode}: {output}", reason=Reason.COMMAND_FAILED)
        return done.returncode == 0

    def erase(self) -> None:
        """Remove all signatures."""
        self._runner.run(erase_signatures(self._node))

    def discard(self) -> None:
        """Overwrite both headers, all key slots and the end of the disk with zeros, and sync."""
        try:
            with Path(self._node).open("r+b", buffering=0) as disk:
                size = disk.seek(0, os.SEEK_END)
                for start, length in ((0, _BEGIN_BYTES), (max(0, size - _END_BYTES), _END_BYTES)):
                    disk.seek(start)
                    disk.write(bytes(min(length, size)))
                os.fsync(disk.fileno())
        except OSError as error:
            raise _unusable(self._node, error) from error

    def format(self, *, uuid: str, key: DiskKey, progress: Progress) -> None:
        """Format and wipe; calls ``progress`` with the bytes done and the size of the disk."""

        def report_line(line: str) -> None:
            if line.startswith("{"):
                members = json.loads(line)
                progress(int(members["device_bytes"]), int(members["device_size"]))

        argv = format_disk(self._node, uuid=uuid)
        self._follower.follow(argv, stdin=key.reveal(), on_line=report_line, timeout_seconds=_WIPE_SECONDS)

    def write_token(self, *, initialised: bool) -> None:
        """Write the LUKS2 token of a state disk, or replace it."""
        argv = write_token(self._node, replace=initialised)
        self._runner.run(argv, stdin=token_bytes(initialised=initialised))

    def add_key(self, *, slot: int, known: DiskKey, new: DiskKey) -> None:
        """Put ``new`` into a free slot; ``known`` opens the disk."""
        argv = add_key(self._node, slot=slot)
        self._runner.run(argv, stdin=known.reveal() + new.reveal(), timeout_seconds=_TRY_SECONDS)

    def drop_key(self, *, slot: int, known: DiskKey) -> None:
        """Remove ``slot``; ``known`` opens another slot."""
        argv = drop_key(self._node, slot=slot)
        self._runner.run(argv, stdin=known.reveal(), timeout_seconds=_TRY_SECONDS)

    def copy_header(self) -> Header:
        """Copy the header and the key slots to tmpfs; raises as `read_header` does, and FILE_UNUSABLE."""
        try:
            with Path(self._node).open("rb") as disk:
                copied = disk.read(_COPY_BYTES)
            descriptor = os.open(self._paths.header, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as copy:
                copy.write(copied)
        except OSError as error:
            raise _unusable(self._node, error) from error
        return read_header(copied[:AREA_BYTES])

    def open(self, key: DiskKey, *, slot: int = 0) -> None:
        """Map the volume with the header that was copied last."""
        argv = open_disk(self._node, NAME, header=self._paths.header, slot=slot)
        self._runner.run(argv, stdin=key.reveal(), timeout_seconds=_OPEN_SECONDS)

    def close(self) -> None:
        """Remove the mounts and the mapping, if they exist; raises COMMAND_FAILED if they are in use."""
        for target in reversed(self._paths.directories):
            if self.bound(target):
                self._runner.run(unmount(target))
        if self.mounted():
            self._runner.run(unmount(self._paths.mount_point))
        if Path(self._mapped).exists():
            self._runner.run(close_disk(NAME), timeout_seconds=_OPEN_SECONDS)

    def make_filesystem(self) -> None:
        """Make an empty file system in the mapped volume."""
        self._runner.run(make_filesystem(self._mapped), timeout_seconds=_OPEN_SECONDS)

    def mounted(self) -> bool:
        """Return whether the volume, and nothing else, is mounted at its mount point."""
        try:
            return self._paths.mount_point.stat().st_dev == Path(self._mapped).stat().st_rdev
        except FileNotFoundError:
            return False

    def mount(self, *, checked: bool) -> None:
        """Mount the volume, or remount a mounted volume for use if ``checked``."""
        point = self._paths.mount_point
        if self.mounted():
            if checked:
                self._runner.run(remount_volume(point))
            return
        point.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = USED if checked else CHECKED
        self._runner.run(mount_volume(self._mapped, point, options=options))

    def bound(self, target: Path) -> bool:
        """Return whether a directory of the volume is bind-mounted at ``target``."""
        try:
            here, there = target.stat(), self._paths.inside(target).stat()
        except FileNotFoundError:
            return False
        return self.mounted() and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def bind(self, target: Path) -> None:
        """Bind-mount a directory of the volume at ``target``; a new directory gets the mode of ``target``."""
        inside = self._paths.inside(target)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not inside.exists():
            inside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            inside.mkdir()
            inside.chmod(stat.S_IMODE(target.stat().st_mode))
        self._runner.run(bind(inside, target))

    def _signatures(self) -> tuple[Signature, ...]:
        output = self._runner.run(list_signatures(self._node)).stdout.strip()
        rows = json.loads(output)["signatures"] if output else []
        return tuple(Signature(type=str(row["type"]), offset=int(row["offset"], 16)) for row in rows)

    def _block(self, *parts: str) -> Path:
        return Path("/sys/class/block", Path(self._node).name, *parts)

    def _is_mapped(self, uuid: str) -> bool:
        """Return whether the state disk's mapping exists on this disk, for the volume with ``uuid``."""
        holders = [_dm(Path("/sys/class/block", name), "uuid") for name in _names(self._block("holders"))]
        if not Path(self._mapped).exists():
            return False
        number = Path(self._mapped).stat().st_rdev
        top = _dm(Path("/sys/dev/block", f"{os.major(number)}:{os.minor(number)}"), "uuid")
        plain = uuid.replace("-", "")
        return holders == [f"CRYPT-INTEGRITY-{plain}-{NAME}_dif"] and top == f"CRYPT-LUKS2-{plain}-{NAME}"

    def _users(self) -> tuple[str, ...]:
        names = _names(self._block("holders"))
        holders = tuple(sorted(_dm(Path("/sys/class/block", name), "name") or name for name in names))
        try:
            os.close(os.open(self._node, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise _unusable(self._node, error) from error
            return holders or ("a mount, swap or another program of this machine",)
        return holders


def read_begin(device: str) -> bytes:
    """Return the current header area of a disk; raises FILE_UNUSABLE."""
    try:
        with Path(device).open("rb") as disk:
            return disk.read(AREA_BYTES)
    except OSError as error:
        raise _unusable(device, error) from error


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []


def _dm(block: Path, name: str) -> str:
    """Return the name or uuid of a mapping from its directory in sysfs, "" for any other device."""
    try:
        return (block / "dm" / name).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def _unusable(node: str, error: OSError) -> DiskError:
    return DiskError(f"cannot read {node}: {error.strerror}", reason=Reason.FILE_UNUSABLE)
