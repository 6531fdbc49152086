# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a log proves, and every way in which it may lie about it (S9): refused, or not proven."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe, load_options
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import (
    extend,
    replay,
    verify_replay,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import BootFacts, Loader
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import Measured
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN = "root=LABEL=root rw console=ttyS0 quiet systemd.show_status=auto"
GRUB_LINE = "root=LABEL=root ro console=ttyS0 quiet systemd.show_status=auto"
GRUB_FILE = "/boot/vmlinuz-6.12.117+deb13-cloud-amd64"
BY_KERNEL = dict.fromkeys((Loader.IMAGE, Loader.KERNEL), (PLAIN,))
BY_GRUB = {Loader.GRUB: (GRUB_LINE,)}
UTF16 = f"{PLAIN}\0".encode("utf-16-le")
EV_UNUSED = 2


def firmware_of(name: str) -> FirmwareLog:
    return parse_firmware_log(boots.load(name).firmware)


def facts_of(name: str, firmware: FirmwareLog | None = None, **options: Any) -> BootFacts:
    chosen = {"quoted": range(24), "command_line": boots.load(name).command_line, **options}
    return boot_facts(firmware or firmware_of(name), **chosen)


def event(pcr: int, data: bytes, *, hashed: bytes | None = None, kind: int = kinds.EV_IPL) -> FirmwareEvent:
    digest = hashlib.sha256(data if hashed is None else hashed).digest()
    return FirmwareEvent(pcr=pcr, kind=kind, digests={ALG_SHA256: digest}, data=data)


def with_events(name: str, *more: FirmwareEvent) -> FirmwareLog:
    firmware = firmware_of(name)
    return dataclasses.replace(firmware, events=(*firmware.events, *more))


def changed(
    name: str, which: Callable[[FirmwareEvent], bool], **changes: Any
) -> tuple[FirmwareLog, list[FirmwareEvent]]:
    """The log with ``changes`` in the events that ``which`` picks, and those events as they are now."""
    firmware = firmware_of(name)
    events = [dataclasses.replace(one, **changes) if which(one) else one for one in firmware.events]
    touched = [new for new, old in zip(events, firmware.events, strict=True) if which(old)]
    assert touched
    return dataclasses.replace(firmware, events=tuple(events)), touched


def variable(name: str) -> Callable[[FirmwareEvent], bool]:
    def holds(one: FirmwareEvent) -> bool:
        found = kinds.efi_variable(one.data)
        return found is not None and found.name == name

    return holds


@pytest.mark.parametrize(
    ("name", "secure_boot", "lines", "version", "level"),
    [
        ("deb13-base", False, BY_KERNEL, "2025.02-8+deb13u1", {}),
        ("deb13-firmware", False, BY_KERNEL, "", {}),
        ("deb13-secureboot", True, BY_KERNEL, "2025.02-8+deb13u1", {}),
        ("deb13-grub", False, BY_GRUB, "2025.02-8+deb13u1", {"sbat": 2021030218}),
        (
            "deb13-grub-secureboot",
            True,
            BY_GRUB,
            "2025.02-8+deb13u1",
            {"sbat": 2025021800, "shim": 4, "grub": 5},
        ),
        ("deb12-base", False, BY_KERNEL, "2025.02-8+deb13u1", {}),
    ],
)
def test_what_a_recorded_boot_proves(
    name: str, secure_boot: bool, lines: dict[Loader, tuple[str, ...]], version: str, level: dict[str, int]
) -> None:
    facts = facts_of(name)
    assert (facts.secure_boot, facts.command_lines, facts.firmware_version) == (secure_boot, lines, version)
    assert facts.sbat_level == level


def test_the_kernels_release_is_proven_where_the_stub_measures_it() -> None:
    """systemd-stub 252 does not measure the section."""
    assert facts_of("deb13-base").kernel == hashlib.sha256(b"6.12.117+deb13-cloud-amd64").digest()
    assert facts_of("deb12-base").kernel == b""


def test_a_register_that_was_not_quoted_proves_nothing() -> None:
    assert facts_of("deb13-secureboot", quoted=(4, 15)) == BootFacts()


@pytest.mark.parametrize("hint", [b"", b"root=LABEL=root rw", b"\xff\xfe"])
def test_a_false_hint_proves_no_command_line(hint: bytes) -> None:
    assert facts_of("deb13-base", command_line=hint).command_lines == {}


def test_retyped_events_of_secure_boot_still_say_what_was_measured() -> None:
    """S9: the type is not hashed, so it decides nothing: off stays off."""
    firmware, _touched = changed("deb13-secbootfw-off", lambda one: one.pcr == 7, kind=EV_UNUSED)
    assert replay(firmware, ()) == replay(firmware_of("deb13-secbootfw-off"), ())
    assert facts_of("deb13-secbootfw-off", firmware).secure_boot is False


def test_changed_data_of_the_secure_boot_event_is_not_proven() -> None:
    """S9: the log says on, its digest is that of off."""
    data = next(one.data for one in firmware_of("deb13-secureboot").events if variable("SecureBoot")(one))
    firmware, touched = changed("deb13-secbootfw-off", variable("SecureBoot"), data=data)
    assert facts_of("deb13-secbootfw-off", firmware).secure_boot is None
    told = next(one for one in describe(firmware, ()) if one.digest == touched[0].digests[ALG_SHA256])
    assert (told.text, told.proven) == ("EFI variable SecureBoot = 01", False)


def test_a_secure_boot_event_that_was_appended_counts_for_nothing() -> None:
    """S9: who rules the machine later extends the digest of on; firmware's own first event stays the first."""
    fake = next(one for one in firmware_of("deb13-secureboot").events if variable("SecureBoot")(one))
    assert facts_of("deb13-base", with_events("deb13-base", fake)).secure_boot is False


def test_a_secure_boot_event_without_a_separator_behind_it_is_not_proven() -> None:
    firmware = firmware_of("deb13-secureboot")
    kept = tuple(one for one in firmware.events if one.pcr != 7 or variable("SecureBoot")(one))
    assert facts_of("deb13-secureboot", dataclasses.replace(firmware, events=kept)).secure_boot is None


def test_secure_boot_is_known_from_its_event_and_the_separator_alone() -> None:
    firmware = firmware_of("deb13-secureboot")
    kept = tuple(one for one in firmware.events if one.pcr == 7 and (variable("SecureBoot")(one) or one.kind == 4))
    assert len(kept) == 2
    assert boot_facts(dataclasses.replace(firmware, events=kept), quoted=[7]).secure_boot is True


def log(*events: FirmwareEvent) -> FirmwareLog:
    return FirmwareLog(events=events, startup_locality=0)


def test_a_first_event_that_is_no_variable_is_not_secure_boot() -> None:
    assert boot_facts(log(event(7, b"x"), event(7, bytes(4))), quoted=[7]).secure_boot is None


VERSION = "2.0\0".encode("utf-16-le")


@pytest.mark.parametrize(
    ("first", "version"),
    [
        pytest.param(event(0, VERSION, kind=kinds.EV_S_CRTM_VERSION), "2.0", id="as it was hashed"),
        pytest.param(event(0, VERSION, hashed=b"1", kind=kinds.EV_S_CRTM_VERSION), "", id="another was hashed"),
        pytest.param(event(0, VERSION, kind=EV_UNUSED), "", id="of another type"),
    ],
)
def test_the_firmwares_version_is_what_was_hashed_first(first: FirmwareEvent, version: str) -> None:
    assert boot_facts(log(first), quoted=[0]).firmware_version == version


def test_a_variable_of_another_vendor_is_not_secure_boot() -> None:
    firmware = firmware_of("deb13-secureboot")
    first = next(one for one in firmware.events if one.pcr == 7)
    forged = event(7, kinds.SHIM_LOCK + first.data[16:])
    events = tuple(forged if one is first else one for one in firmware.events)
    assert facts_of("deb13-secureboot", dataclasses.replace(firmware, events=events)).secure_boot is None


def test_load_options_that_were_appended_prove_no_command_line() -> None:
    """The real ones are the first event of their register, and stay that whatever the log calls them."""
    name = "deb13-cmdline"
    tagged = kinds.TAG_LOAD_OPTIONS.to_bytes(4, "little") + bytes(4)
    fake = event(9, tagged, hashed=f"{PLAIN}\0".encode("utf-16-le"), kind=kinds.EV_EVENT_TAG)
    assert facts_of(name, with_events(name, fake), command_line=PLAIN.encode()).command_lines == {}


def test_a_command_line_that_grub_was_told_counts_under_any_label() -> None:
    """S9: the label in front of a command is not hashed."""
    name = "deb13-grub"
    other = f"{GRUB_LINE} init=/bin/sh"
    started = f"linux {GRUB_FILE} {other}"
    relabelled = event(8, f"grub_cmd: {started}".encode(), hashed=started.encode())
    assert facts_of(name, with_events(name, relabelled)).command_lines == {Loader.GRUB: (GRUB_LINE, other)}


@pytest.mark.parametrize("command", ["linux", "linuxefi", "linux16"])
@pytest.mark.parametrize("label", ["grub_cmd: ", ""])
def test_every_command_that_starts_a_kernel_counts_with_any_label_or_none(command: str, label: str) -> None:
    started = f"{command} /vmlinuz init=/bin/sh"
    told = event(8, f"{label}{started}\0".encode(), hashed=started.encode())
    found = facts_of("deb13-grub", with_events("deb13-grub", told)).command_lines
    assert found == {Loader.GRUB: (GRUB_LINE, "init=/bin/sh")}


def test_an_event_that_hashes_nothing_says_nothing() -> None:
    assert facts_of("deb13-grub", with_events("deb13-grub", event(8, b""))).command_lines == {}


def test_no_hint_is_no_command_line_even_where_none_was_given() -> None:
    for options in load_options(""):
        first = event(9, b"", hashed=options, kind=kinds.EV_EVENT_TAG)
        assert boot_facts(log(first), quoted=[9]).command_lines == {}


def test_a_hint_counts_without_the_end_of_its_line() -> None:
    first = event(9, b"", hashed="ro X\0".encode("utf-16-le"), kind=kinds.EV_EVENT_TAG)
    found = boot_facts(log(first), quoted=[9], command_line=b"ro X\n\0").command_lines
    assert found[Loader.KERNEL] == ("ro X",)


def test_a_line_that_grub_made_of_a_command_counts_beside_it() -> None:
    """GRUB puts quotes around what has blanks, so the line is another text than the command."""
    name = "deb13-grub"
    made = event(8, b'kernel_cmdline: /vmlinuz "a b" ro', hashed=b'/vmlinuz "a b" ro')
    command = event(8, b"grub_cmd: linux /vmlinuz a b ro", hashed=b"linux /vmlinuz a b ro")
    found = facts_of(name, with_events(name, command, made)).command_lines
    assert found == {Loader.GRUB: (GRUB_LINE, "a b ro", '"a b" ro')}


@pytest.mark.parametrize("line", [b"/vmlinuz a=\xc2\xa0init=/bin/sh", b"/vmlinuz ro\nquiet", b"/vmlinuz \xff"])
def test_a_line_that_the_kernel_reads_otherwise_leaves_no_command_line_proven(line: bytes) -> None:
    told = event(8, b"grub_cmd: linux " + line, hashed=b"linux " + line)
    assert facts_of("deb13-grub", with_events("deb13-grub", told)).command_lines == {}
    hint = line.decode(errors="replace")
    first = event(9, b"", hashed=f"{hint}\0".encode("utf-16-le"), kind=kinds.EV_EVENT_TAG)
    assert boot_facts(log(first), quoted=range(24), command_line=line).command_lines == {}
    assert boot_facts(log(first), quoted=range(24), command_line=b"ro").command_lines == {}


def test_a_configuration_of_grub_that_hashes_like_a_command_line_counts_for_no_grub() -> None:
    """GRUB 2.06 runs such a file; its own commands stand in its own register, and are all that counts with it."""
    firmware, _touched = changed(
        "deb13-grub", lambda one: one.pcr == 9 and one.number == 33, digests=event(9, b"", hashed=UTF16).digests
    )
    found = facts_of("deb13-grub", firmware, command_line=PLAIN.encode()).command_lines
    assert found == {**BY_KERNEL, **BY_GRUB}


@pytest.mark.parametrize(
    ("name", "loader", "alone"),
    [
        ("deb12-base", Loader.IMAGE, False),
        ("deb13-base", Loader.IMAGE, False),
        ("deb13-secureboot", Loader.IMAGE, True),
        ("deb13-grub", Loader.GRUB, False),
        ("deb13-grub-secureboot", Loader.GRUB, False),
    ],
)
def test_whose_traces_a_recorded_boot_shows(name: str, loader: Loader, alone: bool) -> None:
    facts = facts_of(name)
    assert (facts.loader, facts.alone) == (loader, alone)


def without(name: str, *pcrs: int) -> FirmwareLog:
    firmware = firmware_of(name)
    return dataclasses.replace(firmware, events=tuple(one for one in firmware.events if one.pcr not in pcrs))


COMMAND = event(8, b"grub_cmd: linux /vmlinuz ro", hashed=b"linux /vmlinuz ro")
SECTION = event(11, b"", hashed=b".linux\0")


@pytest.mark.parametrize(
    ("firmware", "loader"),
    [
        pytest.param(without("deb13-base", 11), Loader.KERNEL, id="a kernel alone"),
        pytest.param(without("deb13-base", 9), None, id="a kernel that measures nothing"),
        pytest.param(without("deb13-base", 9, 11), None, id="nobody measured"),
        pytest.param(without("deb13-grub", 9), None, id="GRUB that measures no file"),
        pytest.param(with_events("deb13-grub", SECTION), None, id="GRUB and an image"),
        pytest.param(with_events("deb13-base", COMMAND), None, id="an image and GRUB's command"),
        pytest.param(with_events("deb13-grub", event(8, b"x", hashed=b"y")), None, id="GRUB with an unknown command"),
        pytest.param(
            dataclasses.replace(
                firmware_of("deb13-base"), events=(event(11, b"", hashed=b"x"), *firmware_of("deb13-base").events)
            ),
            None,
            id="something else in front of an image's sections",
        ),
    ],
)
def test_traces_of_none_or_of_two_are_nobodys(firmware: FirmwareLog, loader: Loader | None) -> None:
    assert facts_of("deb13-base", firmware).loader is loader


def program(path: str) -> FirmwareEvent:
    """An image load event (UEFI_IMAGE_LOAD_EVENT) with one file path node."""
    name = f"{path}\0".encode("utf-16-le")
    data = bytes(32) + b"\x04\x04" + (4 + len(name)).to_bytes(2, "little") + name
    return event(4, data, kind=kinds.EV_EFI_BOOT_SERVICES_APPLICATION)


AUTHORITY = event(7, b"another key", kind=kinds.EV_EFI_VARIABLE_AUTHORITY)


@pytest.mark.parametrize(
    ("more", "alone"),
    [
        pytest.param([], True, id="as it was booted"),
        pytest.param([event(4, bytes(40), kind=kinds.EV_EFI_BOOT_SERVICES_APPLICATION)], True, id="the kernel in it"),
        pytest.param([event(4, bytes(40), kind=kinds.EV_EFI_BOOT_SERVICES_APPLICATION)] * 2, False, id="one more"),
        pytest.param([program("\\EFI\\Linux\\a.efi")], False, id="a boot manager that started another file"),
        pytest.param([AUTHORITY], False, id="a second key, that of an option ROM or of shim"),
    ],
)
def test_an_image_is_alone_where_firmware_and_one_key_started_it(more: list[FirmwareEvent], alone: bool) -> None:
    assert facts_of("deb13-secureboot", with_events("deb13-secureboot", *more)).alone is alone


def test_an_image_is_not_alone_without_secure_boot() -> None:
    assert facts_of("deb13-base", with_events("deb13-base", AUTHORITY)).alone is False


def test_a_kernel_without_an_image_is_none_that_is_alone() -> None:
    assert facts_of("deb13-secureboot", without("deb13-secureboot", 11)).alone is False


@pytest.mark.parametrize("pcr", [4, 7])
def test_an_image_of_which_a_register_was_not_quoted_is_not_known_to_be_alone(pcr: int) -> None:
    quoted = [one for one in range(24) if one != pcr]
    assert facts_of("deb13-secureboot", quoted=quoted).alone is False


def shim_variable(value: bytes, name: str = "SbatLevel", vendor: bytes = kinds.SHIM_LOCK) -> FirmwareEvent:
    text = name.encode("utf-16-le")
    return event(7, vendor + len(name).to_bytes(8, "little") + len(value).to_bytes(8, "little") + text + value)


def level_of(*events: FirmwareEvent) -> dict[str, int]:
    return boot_facts(log(*events), quoted=[7]).sbat_level


SEPARATOR = event(7, bytes(4))


@pytest.mark.parametrize(("digits", "level"), [(18, {"shim": int("9" * 18)}), (19, {}), (5000, {})])
def test_a_generation_of_more_digits_than_anybody_counts_is_none(digits: int, level: dict[str, int]) -> None:
    """Python refuses to read thousands of digits as a number."""
    assert level_of(SEPARATOR, shim_variable(b"shim," + b"9" * digits)) == level


@pytest.mark.parametrize(
    ("events", "level"),
    [
        pytest.param([SEPARATOR, shim_variable(b"shim,4")], {"shim": 4}, id="shim's variable"),
        pytest.param([shim_variable(b"shim,4"), SEPARATOR], {}, id="in front of the separator"),
        pytest.param([SEPARATOR, shim_variable(b"shim,4", vendor=b"v" * 16)], {}, id="of another vendor"),
        pytest.param([SEPARATOR, shim_variable(b"shim,4", "MokListRT")], {}, id="another variable of shim"),
        pytest.param(
            [SEPARATOR, event(7, kinds.SHIM_LOCK), shim_variable(b"shim,4")], {"shim": 4}, id="behind what is none"
        ),
        pytest.param(
            [SEPARATOR, shim_variable(b"shim,4"), shim_variable(b"shim,9")], {"shim": 4}, id="the first of two"
        ),
    ],
)
def test_the_revocation_level_is_shims_first_measurement_of_it(
    events: list[FirmwareEvent], level: dict[str, int]
) -> None:
    assert level_of(*events) == level


@pytest.mark.parametrize(
    ("value", "level"),
    [
        pytest.param(b"sbat,1,2025021800\nshim,4\n\0", {"sbat": 2025021800, "shim": 4}, id="as shim has it"),
        pytest.param(b"7\nshim,4", {"shim": 4}, id="a number without a component"),
        pytest.param(b"grub,x\nshim,4", {"shim": 4}, id="a component without a number"),
        pytest.param("grub,\u0663\nshim,4".encode(), {"shim": 4}, id="a number in other digits"),
        pytest.param(b"\xff\nshim,4", {"shim": 4}, id="bytes that are no text"),
        pytest.param(b"shim,4\n".ljust(4090) + b"\ngrub,", {"shim": 4}, id="four kibibytes"),
        pytest.param(b"shim,4\n".ljust(4090) + b"\ngrub,5", {"shim": 4}, id="and what stands behind them"),
        pytest.param(b"shim,4\n".ljust(4089) + b"\ngrub,5", {"shim": 4, "grub": 5}, id="and what ends with them"),
    ],
)
def test_the_lines_of_a_revocation_level(value: bytes, level: dict[str, int]) -> None:
    assert level_of(SEPARATOR, shim_variable(value)) == level


def test_an_event_of_grub_without_a_proven_text_leaves_no_command_line_proven() -> None:
    name = "deb13-grub"
    assert facts_of(name, with_events(name, event(8, b"grub_cmd: true", hashed=b"else"))).command_lines == {}


def test_a_section_without_a_digest_of_its_own_proves_no_kernel() -> None:
    bare = FirmwareEvent(pcr=11, kind=kinds.EV_IPL, digests={}, data=b"6.12")
    assert boot_facts(log(event(11, b"", hashed=b".uname\0"), bare), quoted=[11]).kernel == b""


def test_a_section_behind_the_image_counts_for_nothing() -> None:
    """Debian 12's stub measures no .uname: who extends its name and a digest later proves no kernel."""
    appended = (event(11, b"", hashed=b"x"), event(11, b"", hashed=b".uname\0"), event(11, b"", hashed=b"6.12"))
    assert facts_of("deb12-base", with_events("deb12-base", *appended)).kernel == b""


def test_an_unproven_event_in_front_leaves_the_revocation_level_unproven() -> None:
    name = "deb13-grub-secureboot"
    firmware, _touched = changed(name, variable("MokListRT"), data=b"x")
    assert facts_of(name, firmware).sbat_level["shim"] == 4
    firmware, _touched = changed(name, variable("dbx"), data=b"x")
    assert facts_of(name, firmware).sbat_level == {}


def test_swapped_types_of_loader_and_firmware_are_told_as_hints() -> None:
    """S9: neither a program's nor a volume's text was ever hashed, so nothing that it says is proven."""
    swapped = {
        kinds.EV_EFI_BOOT_SERVICES_APPLICATION: kinds.EV_EFI_PLATFORM_FIRMWARE_BLOB,
        kinds.EV_EFI_PLATFORM_FIRMWARE_BLOB: kinds.EV_EFI_BOOT_SERVICES_APPLICATION,
    }
    firmware = firmware_of("deb13-base")
    events = tuple(dataclasses.replace(one, kind=swapped.get(one.kind, one.kind)) for one in firmware.events)
    told = describe(dataclasses.replace(firmware, events=events), ())
    assert [one.proven for one, old in zip(told, firmware.events, strict=True) if old.kind in swapped] == [False] * 4


@pytest.mark.parametrize(
    ("lie", "pcr"),
    [
        pytest.param(lambda events: [one for one in events if not (one.pcr == 7 and one.kind == 4)], 7, id="separator"),
        pytest.param(lambda events: [*events, event(4, b"a program of nobody")], 4, id="an appended fake"),
        pytest.param(
            lambda events: [one for one in events if one.pcr != 4 or one.kind != kinds.EV_EFI_ACTION],
            4,
            id="an event that was retyped to one that extends nothing",
        ),
    ],
)
def test_a_log_that_leads_elsewhere_is_refused(lie: Callable[[Any], list[FirmwareEvent]], pcr: int) -> None:
    firmware = firmware_of("deb13-base")
    edited = dataclasses.replace(firmware, events=tuple(lie(firmware.events)))
    userspace = parse_records(boots.load("deb13-base").userspace, "userspace log")
    with pytest.raises(Refusal) as caught:
        verify_replay(boots.load("deb13-base").pcrs, edited, userspace)
    assert caught.value.code == "EVENT_LOG_MISMATCH"
    assert f"PCR {pcr}: logs give" in caught.value.message


def test_what_was_really_extended_later_is_shown_and_is_no_fact() -> None:
    """S9 with a TPM that agrees: the fake event stands in the register, so the log replays, and still says nothing."""
    boot, fake = boots.load("deb13-base"), event(7, b"Secure Boot is on, honestly")
    quoted = {**boot.pcrs, 7: extend(boot.pcrs[7], fake.digests[ALG_SHA256])}
    firmware = with_events("deb13-base", fake)
    verify_replay(quoted, firmware, parse_records(boot.userspace, "userspace log"))
    assert facts_of("deb13-base", firmware) == facts_of("deb13-base")


def test_the_site_that_was_measured_in_front_of_the_lock_is_proven() -> None:
    site = Measured(commit="cd" * 20, version=7, signer="SHA256:x", collection="0.1.0", bundle="ab", node_config="ef")
    facts = facts_of("deb13-base", source=site.to_text())
    assert (facts.source_signer, facts.source_version, facts.node_config) == ("SHA256:x", 7, "ef")


@pytest.mark.parametrize("text", ["", "the site", '{"attested.source":2,"version":7}', "[]"])
def test_a_text_of_another_form_proves_no_site(text: str) -> None:
    facts = facts_of("deb13-base", source=text)
    assert (facts.source_signer, facts.source_version, facts.node_config) == ("", 0, "")
