# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recorded boot as a person reads it, line by line, each with whether it is proven."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds, reading
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import (
    described_authority,
    described_keys,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.reading import (
    TOPICS,
    BootLine,
    read_boot,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots


def lines(name: str) -> list[BootLine]:
    boot = boots.load(name)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "userspace log")
    return list(read_boot(firmware, userspace, command_line=boot.command_line))


def told(name: str, topic: str) -> list[tuple[str, bool]]:
    return [(line.text, line.proven) for line in lines(name) if line.topic == topic]


@pytest.mark.parametrize("name", [one for one in boots.names() if one.startswith("deb")])
def test_every_recorded_boot_tells_all_that_a_person_asks_for(name: str) -> None:
    topics = [line.topic for line in lines(name)]
    missing = {"user space", "authority"} if name.startswith("deb12") else {"authority"}
    missing |= {"user space"} if "grub" in name else {"boot loader"}  # firmware starts a unified image itself
    assert set(TOPICS) - set(topics) <= missing
    assert topics == sorted(topics, key=TOPICS.index)


def test_firmware_by_its_version_and_its_volumes() -> None:
    found = told("deb13-base", "firmware")
    assert found[0] == ("version '2025.02-8+deb13u1', vendor not measured", True)
    assert [proven for _text, proven in found[1:]] == [False, False]
    assert told("deb13-firmware", "firmware")[0] == ("version empty", True)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("deb13-base", "off (the firmware has no such variable)"),
        ("deb13-secbootfw-off", "off"),
        ("deb13-secureboot", "on"),
        ("deb13-grub-secureboot", "on"),
    ],
)
def test_secure_boot_by_its_state(name: str, state: str) -> None:
    assert told(name, "secure boot") == [(state, True)]


def test_keys_by_subject_and_the_one_that_was_used() -> None:
    keys = [text for text, proven in told("deb13-secureboot", "keys") if proven]
    assert [text.split(" (")[0] for text in keys] == [
        "PK: CN=attested corpus PK",
        "KEK: CN=attested corpus KEK",
        "db: CN=attested corpus db",
        "dbx: hash e3b0c44298fc1c14",
    ]
    authority = told("deb13-secureboot", "authority")
    assert [(text.split(" (")[0], proven) for text, proven in authority] == [("db: CN=attested corpus db", True)]


def test_shim_tells_its_revocation_level_and_its_own_key() -> None:
    texts = [text.split(" (")[0] for text, _proven in told("deb13-grub-secureboot", "authority")]
    assert texts[1:] == ["SbatLevel: sbat,1,2025021800 shim,4 grub,5", "MokListRT: CN=Debian Secure Boot CA"]


def test_programs_kernel_and_initrd_are_hints_with_their_digests() -> None:
    programs = told("deb13-grub-secureboot", "boot loader")
    assert programs[1][0].startswith(r"EFI program \EFI\BOOT\grubx64.efi, digest f5d16774")
    for topic in ("boot loader", "kernel", "initrd"):
        assert not any(proven for _text, proven in told("deb13-grub-secureboot", topic))
    assert ("/boot/vmlinuz-6.12.117+deb13-cloud-amd64, digest ed8f0dbdbefe3994") in told("deb13-grub", "kernel")[0][0]


def test_the_command_line_and_what_systemd_extended_are_proven() -> None:
    assert all(proven for _text, proven in told("deb13-base", "command line"))
    assert told("deb13-base", "user space") == [
        ("machine-id: machine-id:3d1f0f6a9c5b4e2f8a7d6c5b4a392817", True),
        ("phase: sysinit", True),
        ("phase: ready", True),
    ]


def test_a_line_says_where_it_stands_and_what_it_is_worth() -> None:
    state = next(line for line in lines("deb13-secureboot") if line.topic == "secure boot")
    volume = next(line for line in lines("deb13-secureboot") if "volume" in line.text)
    assert str(state) == "secure boot   on [PCR 7, proven]"
    assert str(volume).endswith("[PCR 0, a hint]")


def test_an_edited_variable_is_told_as_a_hint() -> None:
    firmware = parse_firmware_log(boots.load("deb13-secureboot").firmware)
    events = tuple(
        dataclasses.replace(one, data=one.data[:-1] + b"\x00")
        if (found := kinds.efi_variable(one.data)) and found.name == "SecureBoot"
        else one
        for one in firmware.events
    )
    read = read_boot(dataclasses.replace(firmware, events=events), ())
    assert [(line.text, line.proven) for line in read if line.topic == "secure boot"] == [("off", False)]


def measured(kind: int, data: bytes, pcr: int) -> FirmwareEvent:
    return FirmwareEvent(pcr=pcr, kind=kind, digests={ALG_SHA256: bytes(32)}, data=data)


def program(path: str) -> FirmwareEvent:
    """An event of a program at ``path``, of none for an empty one (UEFI 2.10, 10.3.5.4)."""
    name = f"{path}\0".encode("utf-16-le")
    node = bytes([4, 4]) + (4 + len(name)).to_bytes(2, "little") + name
    return measured(kinds.EV_EFI_BOOT_SERVICES_APPLICATION, bytes(32) + (node if path else b""), 4)


def read_ipl(text: str, pcr: int = 9) -> FirmwareEvent:
    return measured(kinds.EV_IPL, text.encode(), pcr)


@pytest.mark.parametrize(
    ("events", "topics"),
    [
        pytest.param([program("\\EFI\\BOOT\\grubx64.efi")], ["boot loader"], id="a loader"),
        pytest.param(
            [program("\\EFI\\BOOT\\grubx64.efi"), program("")], ["boot loader", "kernel"], id="what a loader starts"
        ),
        pytest.param([program("")], ["boot loader"], id="what firmware starts without a path may be anything"),
        pytest.param([program("\\EFI\\debian\\vmlinuz.efi")], ["kernel"], id="a kernel that firmware starts itself"),
        pytest.param(
            [program("\\EFI\\Linux\\x.efi"), measured(kinds.EV_IPL, ".osrel\0".encode("utf-16-le"), 11)],
            ["kernel"],
            id="an image whose sections follow",
        ),
        pytest.param(
            [read_ipl("grub_cmd: linux /kernel-6 ro", 8), read_ipl("/kernel-6"), read_ipl("/grub.cfg")],
            ["kernel", "boot loader"],
            id="the file that GRUB was told to start",
        ),
    ],
)
def test_a_kernel_is_not_called_a_boot_loader(events: list[FirmwareEvent], topics: list[str]) -> None:
    read = read_boot(FirmwareLog(events=tuple(events), startup_locality=0), ())
    told = [line.topic for line in read if line.topic in {"boot loader", "kernel"}]
    assert sorted(told) == sorted(topics)


def hash_list(*hashes: bytes) -> bytes:
    """A signature list of SHA-256 hashes (UEFI 2.10, 32.4.1)."""
    kind = bytes.fromhex("2616c4c14c509240aca941f936934328")
    entries = b"".join(bytes(16) + one for one in hashes)
    sizes = (28 + len(entries), 0, 48)
    return kind + b"".join(size.to_bytes(4, "little") for size in sizes) + entries


def test_a_boot_is_read_once_from_beginning_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is looked at once for being a separator, however long the log is."""
    looked: list[int] = []
    real = reading.is_separator
    monkeypatch.setattr(reading, "is_separator", lambda event: (looked.append(event.number), real(event))[1])
    firmware = parse_firmware_log(boots.load("deb13-secureboot").firmware)
    read_boot(dataclasses.replace(firmware, events=firmware.events * 40), ())
    assert len(looked) == 40 * len(firmware.events)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(b"", "empty", id="no key"),
        pytest.param(
            hash_list(b"a" * 32, b"b" * 32), f"hash {b'a'.hex() * 8} | hash {b'b'.hex() * 8}", id="a few hashes"
        ),
        pytest.param(
            hash_list(*[b"a" * 32] * 16, b"b" * 32), f"17 hashes | the last {b'b'.hex() * 8}", id="many hashes"
        ),
        pytest.param(b"x" * 28, "28 bytes", id="a list that says nonsense of its size"),
        pytest.param(bytes(16) + bytes([28, 0, 0, 0]) + bytes(8), "28 bytes", id="entries of no size"),
        pytest.param(
            bytes(16) + (45).to_bytes(4, "little") + bytes(4) + (17).to_bytes(4, "little") + bytes(17),
            "1 other entries",
            id="an unknown kind of entry",
        ),
    ],
)
def test_what_is_no_list_of_keys_is_counted(value: bytes, text: str) -> None:
    assert described_keys(value) == text


def test_a_program_that_is_allowed_by_its_hash_is_told_by_it() -> None:
    assert described_authority(bytes(16) + b"a" * 32) == f"hash {b'a'.hex() * 8}"
