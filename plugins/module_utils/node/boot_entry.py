# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A unified kernel image beside what a machine boots now: tried once, and kept only where it came up.

The image gets a boot entry of the firmware that is in no boot order, and is the next boot alone (BootNext): firmware
forgets that before it starts it, so a reset leads back to the entry of before. Once the machine runs the image, its
entry becomes the first one of the order.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import AttestedError, PolicyError, SystemFault
from ..evidence.eventlog.kinds import SHA256, X509, described_keys, signature_lists
from ..evidence.image.next_boot import NextBoot, digest_of, find_next_boots
from ..evidence.image.pe import MAX_IMAGE_BYTES, parse_program, read_image, signature_of
from ..policy.assertions import boot_options
from ..reasons import Reason
from ..result import Diff, Result
from .boot_image import run_built, run_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.command import Runner

PARTITIONS = ("/boot/efi", "/boot", "/efi")
"""Where the EFI system partition is mounted."""

_FOLDER = "EFI/Linux"
_SPARE_BYTES = 1 << 20
_ENTRY = re.compile(r"^Boot([0-9A-Fa-f]{4})([* ]) ?(.*)$")
_VARIABLES = "sys/firmware/efi/efivars"
_GLOBAL = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_DATABASE = "db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
_BY_NAME = ("LABEL=", "UUID=", "PARTLABEL=", "PARTUUID=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The boot entries of the firmware: number to what efibootmgr says of it, and which of them boot."""

    descriptions: Mapping[str, str]
    current: str
    order: tuple[str, ...]
    next: str = ""
    inactive: frozenset[str] = frozenset()
    with_options: frozenset[str] = frozenset()

    @property
    def starts(self) -> str:
        """The number of the entry that the firmware starts next, empty where it has no active one."""
        known = (one for one in (self.next, *self.order) if one in self.descriptions)
        return next((one for one in known if one == self.next or one not in self.inactive), "")

    @classmethod
    def parse(cls, text: str) -> Entries:
        """Return what ``efibootmgr -v`` printed; raises `SystemFault` BOOT_ENTRIES_UNREADABLE."""
        lines = text.splitlines()
        single = {name: value.strip() for name, _colon, value in (line.partition(":") for line in lines)}
        found = [match.groups() for match in map(_ENTRY.match, lines) if match]
        if not found or not single.get("BootOrder"):
            raise SystemFault(
                "expected entries and their order from efibootmgr, got none", reason=Reason.BOOT_ENTRIES_UNREADABLE
            )
        return cls(
            descriptions={str(number).upper(): str(description) for number, _mark, description in found},
            current=single.get("BootCurrent", "").upper(),
            order=tuple(single["BootOrder"].upper().split(",")),
            next=single.get("BootNext", "").upper(),
            inactive=frozenset(str(number).upper() for number, mark, _description in found if mark == " "),
            with_options=_with_options(lines),
        )

    def of(self, loader: str) -> str:
        """Return the number of the entry that starts the file ``loader``, empty where there is none."""
        wanted = loader.lower()
        return next((number for number, text in self.descriptions.items() if _file_of(text) == wanted), "")


def _file_of(description: str) -> str:
    """Return the path in an entry, in lower case: FAT knows no other; efibootmgr writes File(PATH) or /PATH."""
    return _path_of(description).lower()


def _path_of(description: str) -> str:
    _before, slash, rest = description.partition("\\")
    return (slash + rest).partition(")")[0].strip()


def _with_options(lines: Sequence[str]) -> frozenset[str]:
    """Return the entries that give what they start options: behind File(PATH), or in a line of their own."""
    found, numbers = set(), []
    for line in lines:
        entry = _ENTRY.match(line)
        numbers += [entry[1].upper()] if entry else []
        behind = line.partition("File(")[2].partition(")")[2] if entry else line.strip().partition("data:")[2]
        found |= {*numbers[-1:]} if behind.strip() else set()
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is looked at of the machine; tests give another root and another runner."""

    runner: Runner
    root: Path = Path("/")

    def entries(self) -> Entries:
        """Return the firmware's entries."""
        return Entries.parse(self.runner.run(("efibootmgr", "-v")).stdout.decode(errors="replace"))

    def partition(self, chosen: str | None) -> Path:
        """Return where the EFI system partition is mounted; raises `SystemFault` BOOT_PARTITION_UNUSABLE."""
        mounts = self.root / "proc/self/mounts"
        places = [chosen] if chosen else list(PARTITIONS)
        table = mounts.read_text(encoding="utf-8").splitlines()
        mounted = {place for _source, place, kind, *_rest in map(str.split, table) if kind == "vfat"}
        found = [place for place in places if place in mounted]
        if not found:
            raise SystemFault(
                f"expected the EFI system partition on {' or '.join(places)}, found none mounted",
                reason=Reason.BOOT_PARTITION_UNUSABLE,
            )
        return Path(found[0])

    def below(self, path: Path) -> Path:
        """Return an absolute path below the root."""
        return self.root / path.relative_to("/")

    @property
    def is_uefi(self) -> bool:
        """Whether UEFI started the machine: otherwise it has no boot entries to read."""
        return (self.root / _VARIABLES).is_dir()

    def variable(self, name: str) -> int:
        """Return a variable of the firmware, behind its four bytes of attributes; 0 where there is none."""
        file = self.root / _VARIABLES / f"{name}-{_GLOBAL}"
        return int.from_bytes(file.read_bytes()[4:], "little") if file.exists() else 0

    def enforces_signatures(self) -> bool:
        """Whether Secure Boot is on, as the firmware says."""
        return self.variable("SecureBoot") == 1

    def trusted_keys(self) -> bytes:
        """Return the signature lists of db, which name the trusted signers of boot programs; empty without db."""
        file = self.root / _VARIABLES / _DATABASE
        return file.read_bytes()[4:] if file.exists() else b""

    def identity_of(self, partition: Path) -> str:
        """Return the unique name of the mounted partition (PARTUUID), empty where the system does not know it."""
        printed = self.runner.run(("findmnt", "--noheadings", "--output=PARTUUID", f"--mountpoint={partition}")).stdout
        return printed.decode().strip().lower()

    def disk_of(self, partition: Path) -> tuple[str, str]:
        """Return the disk and the number of the mounted partition, as efibootmgr takes them."""
        printed = self.runner.run(("findmnt", "--noheadings", "--output=SOURCE", f"--mountpoint={partition}")).stdout
        name = printed.decode().strip().removeprefix("/dev/")
        node = (self.root / "sys/class/block" / name).resolve()
        number = node / "partition"
        if not number.exists():
            raise SystemFault(
                f"expected a partition of a disk on {partition}, found {name}", reason=Reason.BOOT_PARTITION_UNUSABLE
            )
        return f"/dev/{node.parent.name}", number.read_text(encoding="utf-8").strip()


def require_bootable(image: bytes, machine: Machine) -> None:
    """Check that this machine can boot the image; raises `PolicyError` BOOT_IMAGE_UNFIT or IMAGE_MALFORMED.

    Its root file system has to be on this machine, and where Secure Boot is on a key of the firmware has to allow it.
    """
    if machine.enforces_signatures():
        require_trusted(image, machine.trusted_keys())
    options = boot_options(read_image(image).command_line)
    roots = [option.removeprefix("root=") for option in options if option.startswith("root=")]
    if any(option.startswith("roothash=") for option in options) or not roots:
        return  # dm-verity finds both of its partitions by the hash
    root = roots[-1]
    if root.startswith(_BY_NAME):
        found = not machine.runner.run(("findfs", root), check=False).returncode
    else:
        found = machine.below(Path(root)).exists() if root.startswith("/") else False
    if not found:
        raise PolicyError(
            f"expected the image's root file system root={root} on this machine, found none",
            reason=Reason.BOOT_IMAGE_UNFIT,
        )


def require_trusted(image: bytes, database: bytes) -> None:
    """Check that the signature database db allows the image; raises `PolicyError` BOOT_IMAGE_UNFIT.

    It has the certificate that stands in the image's signature, or the hash of the image. The signature itself is not
    verified: the firmware does that, and a reset leads back to the entry of before.
    """
    signature, digest = signature_of(image), parse_program(image).digest
    lists = tuple(signature_lists(database))
    if any(kind == SHA256 and digest in entries for kind, entries in lists):
        return
    if not signature:
        raise PolicyError(
            "expected a signed image on a machine with Secure Boot on, got one without a signature",
            reason=Reason.BOOT_IMAGE_UNFIT,
        )
    if not any(kind == X509 and any(one in signature for one in entries) for kind, entries in lists):
        raise PolicyError(
            f"expected an image that a certificate of the firmware's db signed ({described_keys(database)}), "
            "got one of another signer",
            reason=Reason.BOOT_IMAGE_UNFIT,
        )


# The work of the module ``boot_image`` with the states installed and default.


def run_installed(params: Mapping[str, Any], check_mode: bool, *, machine: Machine | None = None) -> Result:
    """Put the image beside what the machine boots, with an entry, and make it the next boot; nothing is rebooted.

    Values: path, entry (its number; empty in check mode before there is one), running (whether this boot is the
    image's), is_default (whether it is the first of the boot order), is_next (whether it is the next boot alone).
    """
    machine = machine or Machine(runner=SystemRunner())
    image = read_bytes(params["image"], limit=MAX_IMAGE_BYTES)
    require_bootable(image, machine)
    partition = machine.partition(params["partition"])
    before, loader = machine.entries(), _loader(params["name"])
    placed = _place(machine, partition / _FOLDER / f"{params['name']}.efi", image, check_mode=check_mode)
    number, created = before.of(loader), not before.of(loader)
    if created and not check_mode:
        number = _create(machine, partition, params["name"])
    try_it = created or (number not in {before.current, before.order[0], before.next})
    if try_it and not check_mode:
        machine.runner.run(("efibootmgr", "--bootnext", number))
    after = dataclasses.replace(before, next=number) if try_it else before
    return _said(placed or try_it, params, partition, number, before=before, after=after)


def run_default(params: Mapping[str, Any], check_mode: bool, *, machine: Machine | None = None) -> Result:
    """Make the image the first of the boot order; raises BOOT_FELL_BACK where it did not start this machine."""
    machine = machine or Machine(runner=SystemRunner())
    before = machine.entries()
    number = before.of(_loader(params["name"]))
    if not number or before.current != number:
        description = before.descriptions.get(before.current, "an entry that is gone")
        raise PolicyError(
            f"expected this machine to run the image {params['name']}, it was started by {description}",
            reason=Reason.BOOT_FELL_BACK,
        )
    after = dataclasses.replace(before, order=(number, *(one for one in before.order if one != number)))
    if after != before and not check_mode:
        machine.runner.run(("efibootmgr", "--bootorder", ",".join(after.order)))
    return _said(after != before, params, machine.partition(params["partition"]), number, before=before, after=after)


def _loader(name: str) -> str:
    return str(PureWindowsPath("/", _FOLDER, f"{name}.efi"))


def _place(machine: Machine, path: Path, image: bytes, *, check_mode: bool) -> bool:
    """Write the image, unless it is there; an image never changes under its name, since a machine may boot it."""
    file = machine.below(path)
    if file.exists():
        if file.read_bytes() != image:
            raise PolicyError(f"expected no other image in {path}, found one", reason=Reason.BOOT_IMAGE_EXISTS)
        return False
    space = os.statvfs(machine.below(path.parents[2]))
    free = space.f_bavail * space.f_frsize
    if free < len(image) + _SPARE_BYTES:
        raise SystemFault(
            f"expected {len(image) + _SPARE_BYTES} free bytes on {path.parents[2]}, found {free}",
            reason=Reason.BOOT_PARTITION_UNUSABLE,
        )
    if not check_mode:
        make_directory(file.parent, mode=0o755)
        write_atomic(file, image, mode=0o644)
    return True


def _create(machine: Machine, partition: Path, name: str) -> str:
    disk, part = machine.disk_of(partition)
    where = ("--disk", disk, "--part", part)
    machine.runner.run(("efibootmgr", "--create-only", *where, "--label", f"Linux {name}", "--loader", _loader(name)))
    number = machine.entries().of(_loader(name))
    if not number:
        raise SystemFault(
            f"expected a boot entry of {_loader(name)}, found none", reason=Reason.BOOT_ENTRIES_UNREADABLE
        )
    return number


def _said(
    changed: bool, params: Mapping[str, Any], partition: Path, number: str, *, before: Entries, after: Entries
) -> Result:
    values = {
        "path": str(partition / _FOLDER / f"{params['name']}.efi"),
        "entry": number,
        "running": bool(number) and before.current == number,
        "is_default": after.order[0] == number,
        "is_next": bool(number) and after.next == number,
    }
    shown = [{"order": ",".join(one.order), "next": one.next} for one in (before, after)]
    return Result(changed=changed, values=values, diff=Diff(before=shown[0], after=shown[1], header="boot entries"))


# The work of the module ``next_boot_info``: what the firmware starts next, and what lies ready to be started.

_REMOVABLE = {"x86_64": "BOOTX64.EFI", "aarch64": "BOOTAA64.EFI"}
_GRUB = ("shim", "grub")
_DISK = re.compile(r"GPT,([0-9A-Fa-f-]{36})")


def run_next(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Return what the machine below ``params["root"]`` boots; values: ``next_boot``, ``next_boots``, ``uefi``."""
    machine = Machine(runner=SystemRunner(), root=Path(params["root"]))
    found = find_next_boots(machine.root)
    return Result(
        values={
            "next_boot": find_next(machine).to_mapping(),
            "next_boots": [one.to_mapping() for one in found],
            "uefi": machine.is_uefi,
        }
    )


def find_next(machine: Machine, *, architecture: str | None = None) -> NextBoot:
    """Return what the firmware starts next; its problem says why it is not known what that will be measured as."""
    try:
        return _next(machine, _REMOVABLE.get(architecture or os.uname().machine))
    except (AttestedError, OSError) as error:
        return NextBoot(path="the next boot", problem=str(error))


def _next(machine: Machine, removable: str | None) -> NextBoot:
    """Read it.

    1. The firmware does nothing else before: no capsule, no menu.
    2. Its entry names a file of the mounted system partition, or none at all.
    3. The file is a unified kernel image that no options of the entry change, or GRUB.
    """
    asked = machine.variable("OsIndications")
    if asked:  # 1
        return NextBoot(path="the firmware", problem=f"is asked to do something else first (OsIndications {asked:#x})")
    entries = machine.entries()
    number = entries.starts
    if not number:
        return NextBoot(path="the firmware", problem="has no active boot entry")
    description = entries.descriptions[number]
    path = _path_of(description) or f"\\EFI\\BOOT\\{removable}"  # 2
    partition = machine.partition(None)
    disk = _DISK.search(description)
    if disk and machine.identity_of(partition) not in {"", disk[1].lower()}:
        return NextBoot(path=f"Boot{number}", problem=f"is on another partition than {partition}")
    place = partition.joinpath(*path.split("\\")[1:])
    data = read_bytes(machine.below(place), limit=MAX_IMAGE_BYTES)
    program = parse_program(data)
    if ".linux" in program.sections:  # 3
        options = f"Boot{number} gives it options" if number in entries.with_options else ""
        return NextBoot(path=str(place), image=read_image(data), problem=options)
    if not place.name.lower().startswith(_GRUB):
        return NextBoot(path=str(place), problem="is neither a unified kernel image nor GRUB")
    return _by_grub(machine, place, program.digest)


def _by_grub(machine: Machine, place: Path, program: bytes) -> NextBoot:
    """Return the files that shim and GRUB measure: programs, configuration, and the newest kernel with its initrd."""
    kernel = [one for one in find_next_boots(machine.root) if one.kernel]
    configuration = machine.root / "boot" / "grub"
    if not kernel or not (configuration / "grub.cfg").exists():
        return NextBoot(path=str(place), problem="boots no kernel by /boot/grub/grub.cfg")
    folder = machine.below(place).parent
    second = folder.glob("grub*.efi") if place.name.lower().startswith("shim") else ()
    files = {str(place): program}
    files |= {one.name: parse_program(read_bytes(one, limit=MAX_IMAGE_BYTES)).digest for one in second}
    read = (folder / "grub.cfg", configuration / "grub.cfg", configuration / "grubenv")
    files |= {f"{one.parent.name}/{one.name}": digest_of(one) for one in read if one.exists() and one.stat().st_size}
    return dataclasses.replace(kernel[-1], path=str(place), files=files)


# The work of the module ``boot_image``, by the state that is asked for.

STATES: Mapping[str, Callable[[Mapping[str, Any], bool], Result]] = {
    "built": run_built,
    "signed": run_signed,
    "installed": run_installed,
    "default": run_default,
}


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Do what ``params["state"]`` says."""
    return STATES[params["state"]](params, check_mode)
