# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image beside what a machine boots: tried once, kept where it came up, refused where it could not.

The firmware is played here, in the words of a real efibootmgr; tests/system/vm_bed/test_boot_image.py has real ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import SHA256, X509
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import NextBoot
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.pe import parse_program, read_image
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_entry import (
    PARTITIONS,
    STATES,
    Entries,
    Machine,
    find_next,
    run,
    run_default,
    run_installed,
    run_next,
)
from ansible_collections.attested.kubernetes.tests.support import pe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GRUB = r"HD(1,GPT,aaaaaaaa-2222-3333-4444-555555555555,0x800,0x30000)/File(\EFI\debian\shimx64.efi)"
OURS = r"HD(1,GPT,aaaaaaaa-2222-3333-4444-555555555555,0x800,0x30000)/File(\EFI\LINUX\FLEET-1.EFI)"
NEWER = r"HD(1,GPT,aaaaaaaa-2222-3333-4444-555555555555,0x800,0x30000)/\EFI\Linux\fleet-1.efi"
IMAGE = pe.image(stub=252)
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DATABASE = "sys/firmware/efi/efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"


@dataclasses.dataclass(kw_only=True)
class Firmware:
    """efibootmgr, findfs and findmnt of one machine."""

    told: dict[str, str] = dataclasses.field(default_factory=lambda: {"0003": f"debian\t{GRUB}", "0001": "UEFI Disk"})
    order: list[str] = dataclasses.field(default_factory=lambda: ["0003", "0001"])
    current: str = "0003"
    following: str = ""
    labels: tuple[str, ...] = ("LABEL=root", "UUID=7", "PARTLABEL=root", "PARTUUID=8")
    forgets: bool = False
    inactive: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    partition: str = "aaaaaaaa-2222-3333-4444-555555555555"
    seen: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Do what the program of this name does."""
        assert (stdin, env, timeout_seconds) == (None, None, 60)
        words = tuple(argv)
        if words[:3] == ("findmnt", "--noheadings", "--output=PARTUUID"):
            assert words[3:] == ("--mountpoint=/boot/efi",)
            return CommandResult(argv=words, returncode=0, stdout=f"{self.partition}\n".encode(), stderr=b"")
        if words[0] == "findmnt":
            assert words[:3] == ("findmnt", "--noheadings", "--output=SOURCE")
            assert words[3].removeprefix("--mountpoint=") in PARTITIONS
            return CommandResult(argv=words, returncode=0, stdout=b"/dev/vda1\n", stderr=b"")
        if words[0] == "findfs":
            assert not check
            return CommandResult(argv=words, returncode=int(words[1] not in self.labels), stdout=b"", stderr=b"")
        assert check
        if words != ("efibootmgr", "-v"):
            self.seen.append(words)
            self.change(words)
        return CommandResult(argv=words, returncode=0, stdout=self.text().encode(errors="surrogateescape"), stderr=b"")

    def change(self, words: tuple[str, ...]) -> None:
        """Do what the words say."""
        if words[1] == "--create-only" and not self.forgets:
            self.told["0004"] = f"{words[words.index('--label') + 1]}\t{OURS}"
        elif words[1] == "--bootnext":
            self.following = words[2]
        elif words[1] == "--bootorder":
            self.order = words[2].split(",")

    def text(self) -> str:
        """Return what it prints."""
        lines = [f"BootNext: {self.following}"] if self.following else []
        lines += [f"BootCurrent: {self.current}", "Timeout: 0 seconds", f"BootOrder: {','.join(self.order)}"]
        for number, told in sorted(self.told.items()):
            lines.append(f"Boot{number}{' ' if number in self.inactive else '*'} {told}")
            lines += ["      dp: 04 01 2a 00", *(["    data: 66 6f 6f"] if number in self.data else [])]
        return "\n".join(lines) + "\n"

    def boot(self) -> None:
        """Start what is next; firmware forgets it first."""
        self.current, self.following = self.following or self.order[0], ""


@pytest.fixture
def firmware() -> Firmware:
    return Firmware()


@pytest.fixture
def machine(tmp_path: Path, firmware: Firmware) -> Machine:
    """A machine with an EFI system partition, on the first partition of its disk."""
    root = tmp_path / "root"
    for folder in ("boot/efi", "proc/self", "sys/class/block", "sys/devices/vda/vda1", "dev"):
        (root / folder).mkdir(parents=True)
    (root / "proc/self/mounts").write_text("/dev/vda2 / ext4 rw 0 0\n/dev/vda1 /boot/efi vfat rw 0 0\n")
    (root / "sys/devices/vda/vda1/partition").write_text("1\n")
    (root / "sys/class/block/vda1").symlink_to("../../devices/vda/vda1")
    return Machine(runner=firmware, root=root)


@pytest.fixture
def order(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "image.efi").write_bytes(IMAGE)
    return {"name": "fleet-1", "image": str(tmp_path / "image.efi"), "partition": None}


def placed(machine: Machine) -> Path:
    return machine.root / "boot/efi/EFI/Linux/fleet-1.efi"


def refused(order: dict[str, Any], machine: Machine, run: Any = run_installed) -> AttestedError:
    before = len(machine.runner.seen)  # type: ignore[attr-defined]
    with pytest.raises(AttestedError) as caught:
        run(order, False, machine=machine)
    assert len(machine.runner.seen) == before  # type: ignore[attr-defined]
    return caught.value


def test_the_image_is_tried_once_and_the_order_stays(order: dict[str, Any], machine: Machine) -> None:
    firmware = machine.runner
    assert isinstance(firmware, Firmware)
    result = run_installed(order, False, machine=machine)
    assert placed(machine).read_bytes() == IMAGE
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (placed(machine), placed(machine).parent)]
    assert modes == [0o644, 0o755]
    assert (firmware.order, firmware.following) == (["0003", "0001"], "0004")
    create = ("--disk", "/dev/vda", "--part", "1", "--label", "Linux fleet-1", "--loader", r"\EFI\Linux\fleet-1.efi")
    assert firmware.seen == [("efibootmgr", "--create-only", *create), ("efibootmgr", "--bootnext", "0004")]
    assert result.changed
    assert result.values == {
        "path": "/boot/efi/EFI/Linux/fleet-1.efi",
        "entry": "0004",
        "running": False,
        "is_default": False,
        "is_next": True,
    }
    assert result.diff is not None
    assert (result.diff.before, result.diff.after) == (
        {"order": "0003,0001", "next": ""},
        {"order": "0003,0001", "next": "0004"},
    )
    assert not run_installed(order, False, machine=machine).changed


def test_check_mode_touches_nothing(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    result = run_installed(order, True, machine=machine)
    assert (result.changed, result.values["entry"], firmware.seen) == (True, "", [])
    assert not placed(machine).exists()
    assert not result.values["running"]
    assert not result.values["is_default"]
    assert not result.values["is_next"]


def test_a_machine_whose_firmware_names_no_boot_runs_nothing_of_ours(
    order: dict[str, Any], machine: Machine, firmware: Firmware
) -> None:
    firmware.current = ""
    values = run_installed(order, True, machine=machine).values
    assert [values[name] for name in ("running", "is_default", "is_next")] == [False, False, False]
    assert refused(order, machine, run_default).code == "BOOT_FELL_BACK"


def test_a_file_that_is_gone_is_put_back_without_another_try(
    order: dict[str, Any], machine: Machine, firmware: Firmware
) -> None:
    run_installed(order, False, machine=machine)
    firmware.boot()
    placed(machine).unlink()
    before = list(firmware.seen)
    result = run_installed(order, False, machine=machine)
    assert (result.changed, result.values["is_next"], firmware.seen) == (True, False, before)
    assert placed(machine).read_bytes() == IMAGE


def test_an_entry_that_is_gone_is_made_again(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    run_installed(order, False, machine=machine)
    firmware.following = ""
    del firmware.told["0004"]
    assert run_installed(order, True, machine=machine).changed
    result = run_installed(order, False, machine=machine)
    assert (result.changed, firmware.following) == (True, "0004")


def test_an_image_that_came_up_becomes_the_default(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    run_installed(order, False, machine=machine)
    firmware.boot()
    assert run_installed(order, False, machine=machine).values["running"] is True
    assert firmware.following == ""
    assert run_default(order, True, machine=machine).changed
    assert firmware.order == ["0003", "0001"]
    result = run_default(order, False, machine=machine)
    assert (result.changed, result.values["is_default"]) == (True, True)
    assert firmware.order == ["0004", "0003", "0001"]
    assert firmware.seen[-1] == ("efibootmgr", "--bootorder", "0004,0003,0001")
    before = list(firmware.seen)
    assert not run_default(order, False, machine=machine).changed
    again = run_installed(order, False, machine=machine)
    assert (again.changed, again.values["is_next"], firmware.seen) == (False, False, before)


def test_a_default_that_does_not_run_now_is_not_tried_again(
    order: dict[str, Any], machine: Machine, firmware: Firmware
) -> None:
    run_installed(order, False, machine=machine)
    firmware.boot()
    run_default(order, False, machine=machine)
    firmware.current = "0003"
    assert not run_installed(order, False, machine=machine).changed


def test_an_image_that_did_not_come_up_is_not_kept(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    """Firmware went back to the order of before; installing makes it the next boot again."""
    run_installed(order, False, machine=machine)
    firmware.boot()
    firmware.boot()
    error = refused(order, machine, run_default)
    assert error.code == "BOOT_FELL_BACK"
    assert "started by debian" in error.message
    assert firmware.order == ["0003", "0001"]
    assert run_installed(order, False, machine=machine).changed
    assert firmware.following == "0004"


def test_an_image_without_an_entry_is_no_default(order: dict[str, Any], machine: Machine) -> None:
    assert refused(order, machine, run_default).code == "BOOT_FELL_BACK"


def test_a_boot_that_the_firmware_does_not_name_is_nobodys(
    order: dict[str, Any], machine: Machine, firmware: Firmware
) -> None:
    firmware.current = "0009"
    assert "an entry that is gone" in refused(order, machine, run_default).message


def test_an_image_never_changes_under_its_name(order: dict[str, Any], machine: Machine) -> None:
    run_installed(order, False, machine=machine)
    Path(order["image"]).write_bytes(pe.image(stub=252, linux=pe.kernel(b"next")))
    assert refused(order, machine).code == "BOOT_IMAGE_EXISTS"
    assert placed(machine).read_bytes() == IMAGE


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("root=LABEL=root rw", True),
        ("root=LABEL=other root=LABEL=root", True),
        ("root=LABEL=root root=LABEL=other", False),
        ("root=UUID=7 rw", True),
        ("root=PARTLABEL=root", True),
        ("root=PARTUUID=8", True),
        ("root=UUID=1234 rw", False),
        ("root=/dev/vda2", True),
        ("root=/dev/sdz2", False),
        ("root=tmpfs", False),
        ("roothash=abcd root=/dev/mapper/root", True),
        ("quiet", True),
    ],
)
def test_the_root_of_the_image_has_to_be_on_the_machine(
    line: str, fits: bool, order: dict[str, Any], machine: Machine
) -> None:
    (machine.root / "dev/vda2").touch()
    Path(order["image"]).write_bytes(pe.image(stub=252, cmdline=line.encode()))
    if fits:
        assert run_installed(order, True, machine=machine).changed
        return
    error = refused(order, machine)
    last = [word for word in line.split() if word.startswith("root=")][-1]
    assert (error.code, f"{last} on this machine" in error.message) == ("BOOT_IMAGE_UNFIT", True)


CERTIFICATE, OTHERS = b"the certificate of the site", b"a certificate of somebody"


def database(*lists: tuple[bytes, ...]) -> bytes:
    """Return signature lists (kind, then entries of one size each), as the firmware's variable has them."""
    found = b"\x27\x00\x00\x00"
    for kind, *contents in lists:
        entries = b"".join(bytes(16) + content for content in contents)
        found += kind + struct.pack("<III", 28 + len(entries), 0, 16 + len(contents[0])) + entries
    return found


def with_secure_boot(machine: Machine, state: bytes, keys: bytes | None) -> None:
    variables = {SECURE_BOOT: b"\x06\x00\x00\x00" + state, DATABASE: keys}
    for name, content in variables.items():
        (machine.root / name).parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            (machine.root / name).write_bytes(content)


def image_signed_by(signature: bytes) -> bytes:
    sections = {".text": b"x", ".cmdline": b"root=LABEL=root", ".linux": pe.kernel()}
    return pe.program(sections, signature=signature)


SITE = image_signed_by(b"\x00" * 8 + CERTIFICATE + b"\x00" * 5)


@pytest.mark.parametrize(
    ("state", "image", "keys", "told"),
    [
        pytest.param(b"\x01", SITE, database((X509, OTHERS), (X509, CERTIFICATE)), "", id="of a key in db"),
        pytest.param(b"\x01", SITE, database((X509, CERTIFICATE[::-1], CERTIFICATE)), "", id="of a key beside another"),
        pytest.param(b"\x00", image_signed_by(b""), None, "", id="Secure Boot is off"),
        pytest.param(
            b"\x01",
            image_signed_by(b""),
            database((SHA256, parse_program(image_signed_by(b"")).digest)),
            "",
            id="its hash is in db",
        ),
        pytest.param(
            b"\x01", image_signed_by(b""), database((X509, CERTIFICATE)), "without a signature", id="unsigned"
        ),
        pytest.param(b"\x01", SITE, database((X509, OTHERS)), "got one of another signer", id="of a key that db lacks"),
        pytest.param(b"\x01", SITE, database((SHA256, CERTIFICATE)), "of another signer", id="no certificate in db"),
        pytest.param(b"\x01", SITE, None, "db signed (empty)", id="no db"),
        pytest.param(
            b"\x01",
            image_signed_by(b""),
            database((X509, parse_program(image_signed_by(b"")).digest)),
            "without a signature",
            id="its hash in place of a certificate",
        ),
        pytest.param(b"\x01", SITE, b"\x27\x00\x00\x00" + bytes(40), "of another signer", id="a db that is none"),
    ],
)
def test_with_secure_boot_a_key_of_the_firmware_has_to_allow_the_image(
    state: bytes, image: bytes, keys: bytes | None, told: str, order: dict[str, Any], machine: Machine
) -> None:
    with_secure_boot(machine, state, keys)
    Path(order["image"]).write_bytes(image)
    if told:
        error = refused(order, machine)
        assert (error.code, told in error.message, placed(machine).exists()) == ("BOOT_IMAGE_UNFIT", True, False)
    else:
        assert run_installed(order, True, machine=machine).changed


def test_what_is_no_image_is_refused(order: dict[str, Any], machine: Machine) -> None:
    Path(order["image"]).write_bytes(pe.kernel())
    assert refused(order, machine).code == "IMAGE_MALFORMED"


def test_a_partition_that_is_not_mounted_is_not_written_to(order: dict[str, Any], machine: Machine) -> None:
    (machine.root / "proc/self/mounts").write_text("/dev/vda2 / ext4 rw 0 0\n")
    error = refused(order, machine)
    assert (error.code, "/boot/efi or /boot or /efi" in error.message) == ("BOOT_PARTITION_UNUSABLE", True)


@pytest.mark.parametrize("place", ["/boot/efi", "/boot", "/efi"])
def test_the_partition_is_found_where_it_is_mounted(place: str, order: dict[str, Any], machine: Machine) -> None:
    (machine.root / place.lstrip("/")).mkdir(exist_ok=True)
    (machine.root / "proc/self/mounts").write_text(f"/dev/vda2 / ext4 rw 0 0\n/dev/vda1 {place} vfat rw 0 0\n")
    assert run_installed(order, False, machine=machine).values["path"] == f"{place}/EFI/Linux/fleet-1.efi"
    assert (machine.root / place.lstrip("/") / "EFI/Linux/fleet-1.efi").read_bytes() == IMAGE


def test_another_file_system_there_is_no_system_partition(order: dict[str, Any], machine: Machine) -> None:
    (machine.root / "proc/self/mounts").write_text("/dev/vda1 /boot/efi ext4 rw 0 0\n")
    assert refused(order, machine).code == "BOOT_PARTITION_UNUSABLE"


def test_the_module_knows_these_states() -> None:
    assert list(STATES) == ["built", "signed", "installed", "default"]
    files = {name: f"/nowhere/{name}" for name in ("image", "path", "key", "certificate")}
    with pytest.raises(AttestedError) as caught:
        run({"state": "signed", **files}, False)
    assert caught.value.code == "FILE_UNUSABLE"


def test_without_another_one_it_is_this_machine(order: dict[str, Any]) -> None:
    """Which has no such root file system and runs no such image, whatever its firmware is."""
    Path(order["image"]).write_bytes(pe.image(stub=252, cmdline=b"root=/dev/attested-nowhere"))
    with pytest.raises(AttestedError) as caught:
        run_installed(order, True)
    assert caught.value.code == "BOOT_IMAGE_UNFIT"
    with pytest.raises(AttestedError):
        run_default(order, True)


def test_a_label_that_is_no_text_is_read_too(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    firmware.told["0001"] = "caf\udce9"
    assert run_installed(order, False, machine=machine).changed


def test_firmware_that_names_no_boot_is_read() -> None:
    found = Entries.parse("BootOrder: 0001\nBoot0001* disk\n")
    assert (found.current, found.next, found.order) == ("", "", ("0001",))


def test_a_chosen_partition_is_the_only_one_looked_for(order: dict[str, Any], machine: Machine) -> None:
    assert refused({**order, "partition": "/efi"}, machine).code == "BOOT_PARTITION_UNUSABLE"
    assert run_installed({**order, "partition": "/boot/efi"}, True, machine=machine).changed


def test_a_full_partition_is_told_before_anything_is_written(
    order: dict[str, Any], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough = len(IMAGE) + (1 << 20)

    class Space:
        f_bavail = enough - 1
        f_frsize = 1

    monkeypatch.setattr(os, "statvfs", {machine.root / "boot/efi": Space}.__getitem__)
    error = refused(order, machine)
    assert (error.code, f"found {enough - 1}" in error.message) == ("BOOT_PARTITION_UNUSABLE", True)
    assert not placed(machine).exists()
    Space.f_bavail = enough
    assert run_installed(order, False, machine=machine).changed


def test_a_partition_that_no_disk_has_gets_no_entry(order: dict[str, Any], machine: Machine) -> None:
    (machine.root / "sys/devices/vda/vda1/partition").unlink()
    assert refused(order, machine).code == "BOOT_PARTITION_UNUSABLE"


def test_a_firmware_that_keeps_no_entry_is_told(order: dict[str, Any], machine: Machine, firmware: Firmware) -> None:
    firmware.forgets = True
    with pytest.raises(AttestedError, match=r"a boot entry of \\EFI\\Linux\\fleet-1.efi, found none") as caught:
        run_installed(order, False, machine=machine)
    assert caught.value.code == "BOOT_ENTRIES_UNREADABLE"
    assert firmware.following == ""


@pytest.mark.parametrize("told", [f"Linux fleet-1\t{OURS}", f"Linux fleet-1\t{NEWER}"], ids=["17", "18"])
def test_an_entry_is_found_in_the_words_of_both_versions(told: str) -> None:
    entries = Entries.parse(Firmware(told={"000a": told, "0001": "UEFI Disk"}, order=["000a"], current="000a").text())
    assert entries.of(r"\EFI\Linux\fleet-1.efi") == "000A"
    assert entries.of(r"\EFI\Linux\fleet-10.efi") == ""
    assert (entries.current, entries.order) == ("000A", ("000A",))


@pytest.mark.parametrize("text", ["", "BootOrder: 0001\n", "Boot0001* disk\n", "BootOrder:\nBoot0001* disk\n"])
def test_firmware_without_entries_is_told(text: str) -> None:
    with pytest.raises(AttestedError) as caught:
        Entries.parse(text)
    assert caught.value.code == "BOOT_ENTRIES_UNREADABLE"


# What the firmware starts next: a unified kernel image, GRUB, or something that nobody can know.

SHIM, SECOND, KERNEL = pe.kernel(b"shim"), pe.kernel(b"grub"), b"kernel"
FIRST_PLACE = "boot/efi/EFI/BOOT/BOOTX64.EFI"


def put(machine: Machine, files: dict[str, bytes]) -> None:
    for place, content in files.items():
        (machine.root / place).parent.mkdir(parents=True, exist_ok=True)
        (machine.root / place).write_bytes(content)


GRUB_FILES = {
    "boot/efi/EFI/debian/shimx64.efi": SHIM,
    "boot/efi/EFI/debian/grubx64.efi": SECOND,
    "boot/efi/EFI/debian/grub.cfg": b"stub",
    "boot/grub/grub.cfg": b"menu",
    "boot/vmlinuz-6.1.0": KERNEL,
    "boot/initrd.img-6.1.0": b"initrd",
}


def unknown(machine: Machine) -> str:
    found = find_next(machine, architecture="x86_64")
    assert found.problem
    return f"{found.path} {found.problem}"


def test_an_image_that_is_tried_once_is_the_next_boot(order: dict[str, Any], machine: Machine) -> None:
    put(machine, GRUB_FILES)
    run_installed(order, False, machine=machine)
    assert unknown(machine).startswith("the next boot FILE_UNUSABLE")  # FAT would find it in any case of its letters
    put(machine, {"boot/efi/EFI/LINUX/FLEET-1.EFI": IMAGE})
    found = find_next(machine)
    assert (found.image, found.problem) == (read_image(IMAGE), "")
    machine.runner.boot()  # type: ignore[attr-defined]
    assert find_next(machine).path == "/boot/efi/EFI/debian/shimx64.efi"


def test_grub_is_read_with_all_files_that_it_measures(machine: Machine) -> None:
    put(machine, {**GRUB_FILES, "boot/grub/grubenv": b""})
    found = find_next(machine)
    assert found.path == "/boot/efi/EFI/debian/shimx64.efi"
    assert (found.kernel, found.initrd) == (hashlib.sha256(KERNEL).digest(), hashlib.sha256(b"initrd").digest())
    assert found.files == {
        "/boot/efi/EFI/debian/shimx64.efi": parse_program(SHIM).digest,
        "grubx64.efi": parse_program(SECOND).digest,
        "debian/grub.cfg": hashlib.sha256(b"stub").digest(),
        "grub/grub.cfg": hashlib.sha256(b"menu").digest(),
    }
    put(machine, {"boot/grub/grubenv": b"next_entry=2"})
    assert find_next(machine).files["grub/grubenv"] == hashlib.sha256(b"next_entry=2").digest()
    assert NextBoot.of_mapping(found.to_mapping()) == found


@pytest.mark.parametrize(("architecture", "name"), [("x86_64", "BOOTX64.EFI"), ("aarch64", "BOOTAA64.EFI"), (None, "")])
def test_an_entry_without_a_path_starts_the_program_of_the_architecture(
    architecture: str | None, name: str, machine: Machine, firmware: Firmware
) -> None:
    firmware.order = ["0001"]
    own = {"x86_64": "BOOTX64.EFI", "aarch64": "BOOTAA64.EFI"}[os.uname().machine]
    put(machine, {f"boot/efi/EFI/BOOT/{name or own}": IMAGE})
    assert find_next(machine, architecture=architecture).path == f"/boot/efi/EFI/BOOT/{name or own}"


def test_grub_without_shim_is_one_program(machine: Machine, firmware: Firmware) -> None:
    put(machine, GRUB_FILES)
    firmware.told["0003"] = firmware.told["0003"].replace("shimx64", "grubx64")
    programs = [name for name in find_next(machine).files if name.endswith(".efi")]
    assert programs == ["/boot/efi/EFI/debian/grubx64.efi"]


def test_an_entry_that_is_not_active_is_passed_over(machine: Machine, firmware: Firmware) -> None:
    """One without a path starts the program of the removable path; the next boot alone is started even so."""
    put(machine, {**GRUB_FILES, FIRST_PLACE: IMAGE})
    firmware.inactive = ("0003",)
    assert find_next(machine, architecture="x86_64").path == "/boot/efi/EFI/BOOT/BOOTX64.EFI"
    firmware.following = "0003"
    assert find_next(machine).path == "/boot/efi/EFI/debian/shimx64.efi"
    firmware.following, firmware.inactive = "", ("0001", "0003")
    assert unknown(machine) == "the firmware has no active boot entry"


@pytest.mark.parametrize(
    ("files", "changes", "told"),
    [
        pytest.param({}, {"data": ("0001",)}, "Boot0001 gives it options", id="options of the entry"),
        pytest.param({}, {"told": {"0001": f"own\t{OURS}ro.o.t"}}, "options", id="options behind the path"),
        pytest.param({}, {"partition": "bbbbbbbb-2222-3333-4444-555555555555"}, "another partition", id="other disk"),
        pytest.param({"boot/efi/EFI/LINUX/FLEET-1.EFI": pe.kernel()}, {}, "is neither a unified", id="a kernel alone"),
        pytest.param({"boot/efi/EFI/LINUX/FLEET-1.EFI": b"MZ"}, {}, "IMAGE_MALFORMED", id="no program"),
    ],
)
def test_what_an_image_will_be_measured_as_is_not_known(
    files: dict[str, bytes], changes: dict[str, Any], told: str, machine: Machine, firmware: Firmware
) -> None:
    put(machine, {"boot/efi/EFI/LINUX/FLEET-1.EFI": IMAGE, FIRST_PLACE: IMAGE, **files})
    firmware.told, firmware.order = {"0001": f"own\t{OURS}"}, ["0001"]
    assert (find_next(machine).problem == "") is (not files)
    for name, value in changes.items():
        setattr(firmware, name, value)
    assert told in unknown(machine)


@pytest.mark.parametrize("missing", ["boot/grub/grub.cfg", "boot/vmlinuz-6.1.0"])
def test_grub_without_its_files_is_not_known(missing: str, machine: Machine) -> None:
    put(machine, {**GRUB_FILES, "boot/efi/EFI/Linux/a.efi": IMAGE})
    (machine.root / missing).unlink()
    assert "boots no kernel by /boot/grub/grub.cfg" in unknown(machine)


def test_a_firmware_that_does_something_else_first_is_not_known(machine: Machine) -> None:
    """A capsule with another firmware waits on the system partition (UEFI 8.5.5)."""
    put(machine, {**GRUB_FILES, SECURE_BOOT.replace("SecureBoot", "OsIndications"): b"\x07\0\0\0\x04" + bytes(7)})
    assert "OsIndications 0x4" in unknown(machine)
    put(machine, {SECURE_BOOT.replace("SecureBoot", "OsIndications"): b"\x07\0\0\0" + bytes(8)})
    assert find_next(machine).problem == ""


def test_where_the_system_does_not_name_its_partition_the_entry_is_believed(
    machine: Machine, firmware: Firmware
) -> None:
    put(machine, GRUB_FILES)
    firmware.partition = ""
    assert find_next(machine).problem == ""


def test_the_module_tells_the_next_boot_and_all_that_lies_ready(tmp_path: Path) -> None:
    """Of a folder with one image and no firmware: the next boot is not known."""
    (tmp_path / "efi/EFI/Linux").mkdir(parents=True)
    (tmp_path / "efi/EFI/Linux/a.efi").write_bytes(IMAGE)
    values = run_next({"root": str(tmp_path)}, False).values
    assert sorted(values) == ["next_boot", "next_boots", "uefi"]
    assert values["next_boot"]["problem"]
    assert not values["uefi"]
    (tmp_path / "sys/firmware/efi/efivars").mkdir(parents=True)
    assert run_next({"root": str(tmp_path)}, False).values["uefi"]
    assert [NextBoot.of_mapping(one).image for one in values["next_boots"]] == [read_image(IMAGE)]


def test_options_belong_to_the_entry_above_them() -> None:
    text = Firmware(data=("0003",)).text()
    assert Entries.parse(text).with_options == {"0003"}
    assert Entries.parse(f"data: 66\n{text}").with_options == {"0003"}


def test_a_machine_that_does_not_tell_its_mounts_is_not_known(machine: Machine) -> None:
    put(machine, GRUB_FILES)
    (machine.root / "proc/self/mounts").unlink()
    assert unknown(machine).startswith("the next boot")


def test_a_machine_without_entries_is_not_known(machine: Machine, firmware: Firmware) -> None:
    firmware.told = {}
    assert "BOOT_ENTRIES_UNREADABLE" in unknown(machine)
