# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events in words: what a text claims is believed only by its hash."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import (
    describe,
    described_certificate,
    printable,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    UserspaceRecord,
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.odd_names import odd_certificate
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasuredEvent

PLAIN = "root=LABEL=root rw console=ttyS0 quiet systemd.show_status=auto"


def described(name: str, *, command_line: bytes | None = None) -> tuple[MeasuredEvent, ...]:
    boot = boots.load(name)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    return describe(firmware, userspace, command_line=boot.command_line if command_line is None else command_line)


def texts(name: str, pcr: int) -> list[str]:
    return [event.text for event in described(name) if event.pcr == pcr]


def one(kind: int, data: bytes, digest: bytes | None = None, pcr: int = 11) -> MeasuredEvent:
    digests = {ALG_SHA256: hashlib.sha256(data).digest() if digest is None else digest}
    event = FirmwareEvent(pcr=pcr, kind=kind, digests=digests, data=data)
    return describe(FirmwareLog(events=(event,), startup_locality=0), ())[0]


def test_the_command_line_of_a_unified_kernel_image_is_proven_by_both_of_its_digests() -> None:
    proven = [event for event in described("deb13-base") if event.rank == 0]
    assert [(event.pcr, event.text, event.proven) for event in proven] == [
        (11, f"kernel command line (section .cmdline): {PLAIN}", True),
        (9, f"kernel command line (load options): {PLAIN}", True),
    ]


def test_a_false_command_line_is_not_shown() -> None:
    """The machine may send any text; only the hash makes it a statement about the boot."""
    lied = described("deb13-cmdline", command_line=PLAIN.encode())
    assert not any(PLAIN in event.text for event in lied)
    assert "kernel command line (load options), text not known" in [event.text for event in lied]


def test_grub_tells_the_command_line_itself() -> None:
    line = next(event for event in described("deb13-grub") if event.rank == 0)
    assert (line.pcr, line.proven) == (8, True)
    assert line.text.startswith("kernel_cmdline: /boot/vmlinuz-6.12.117+deb13-cloud-amd64 root=LABEL=root ro")


@pytest.mark.parametrize(
    ("boot", "pcr", "expected"),
    [
        ("deb13-base", 0, "firmware version '2025.02-8+deb13u1'"),
        ("deb13-base", 0, "firmware volume at 0x820000, 917504 bytes"),
        ("deb13-base", 1, "EFI variable BootOrder = 010000000200"),
        ("deb13-base", 1, "EFI variable Boot0001 = 78 bytes"),
        ("deb13-base", 1, "ACPI DATA"),
        ("deb13-base", 4, "Calling EFI Application from Boot Option"),
        ("deb13-base", 4, r"EFI program \EFI\BOOT\BOOTX64.EFI"),
        ("deb13-base", 4, "EFI program without a file path"),
        ("deb13-base", 5, "partition table with esp, root"),
        ("deb13-base", 7, "EFI variable SecureBoot = empty"),
        ("deb13-base", 7, "separator"),
        ("deb13-base", 9, "initrd"),
        ("deb13-base", 11, "kernel image has a section .linux"),
        ("deb13-base", 11, "contents of the kernel image's section .linux"),
        ("deb13-base", 11, "phase: ready"),
        ("deb13-secureboot", 7, "EFI variable SecureBoot = 01"),
        ("deb13-grub", 14, "MokList"),
        ("deb13-grub", 9, "(hd0,gpt1)/EFI/debian/grub.cfg"),
    ],
)
def test_recorded_events_in_words(boot: str, pcr: int, expected: str) -> None:
    assert expected in texts(boot, pcr)


@pytest.mark.parametrize("name", boots.names())
def test_every_event_of_a_recorded_boot_has_words(name: str) -> None:
    assert all(event.text and event.text.isprintable() for event in described(name))


def test_a_retyped_event_is_not_proven_by_its_text() -> None:
    """S9: a boot loader's digest behind an innocent text."""
    event = one(0x80000007, b"Exit Boot Services Invocation", digest=b"d" * 32)
    assert (event.proven, event.rank) == (False, 5)


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        pytest.param(0x0000000E, b"xyz", "EV_IPL_PARTITION_DATA (3 bytes)", id="a type without a layout"),
        pytest.param(0x12345678, b"", "event type 0x12345678 (0 bytes)", id="an unknown type"),
        pytest.param(0x80000001, b"short", "EV_EFI_VARIABLE_DRIVER_CONFIG (5 bytes)", id="a variable without layout"),
        pytest.param(0x80000003, b"short", "EFI program without a file path", id="an image event without path"),
        pytest.param(0x80000003, bytes(40), "EFI program without a file path", id="a device path of size zero"),
        pytest.param(0x80000003, bytes(32) + b"\x01\x01\x04\x00", "EFI program without a file path", id="no file node"),
        pytest.param(0x80000006, b"short", "partition table with no partition", id="a partition table without layout"),
        pytest.param(0x80000008, b"short", "firmware volume", id="a firmware volume without layout"),
        pytest.param(0x00000006, b"\x01\x00\x00\x00", "tagged event 0x1", id="an unknown tag"),
        pytest.param(0x0000000D, b"no label", "no label", id="a boot loader's text without label"),
        pytest.param(
            0x0000000D, ".much-too-long".encode("utf-16-le"), ".�m�u�c�h�-�t�o�o�-�l�o�n�g", id="no section name"
        ),
    ],
)
def test_odd_data_still_has_words(kind: int, data: bytes, text: str) -> None:
    assert one(kind, data).text == text


def test_an_event_without_the_bank_is_told_without_proof() -> None:
    event = FirmwareEvent(pcr=1, kind=4, digests={}, data=bytes(4))
    assert not describe(FirmwareLog(events=(event,), startup_locality=0), ())[0].proven


def test_a_userspace_text_that_is_no_unicode_is_told_without_proof() -> None:
    record = UserspaceRecord(pcr=11, digests={}, kind="phase", text="\ud800")
    told = describe(FirmwareLog(events=(), startup_locality=0), (record,))[0]
    assert (told.text, told.proven) == ("phase: �", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a\nb\x1b[31mc", "a�b�[31mc", id="line feeds and escapes go"),
        pytest.param("ü €", "ü €", id="letters of the world stay"),
        pytest.param("x" * 1025, "x" * 1024 + "…", id="a long text is cut"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """S30: what a machine sends never breaks a line of a log."""
    assert printable(text) == expected


def test_a_description_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        one(4, bytes(4)).proven = True  # type: ignore[misc]


def test_a_certificate_with_a_name_that_cannot_be_read_is_told_by_its_size() -> None:
    der = odd_certificate(ec.generate_private_key(ec.SECP256R1()))
    assert described_certificate(der) == f"{len(der)} bytes, no certificate"
