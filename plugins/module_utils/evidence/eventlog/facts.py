# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derive the facts that a boot's logs prove, for assertions: statements that follow from digests in quoted registers.

A digest covers neither the type of an event nor its data, and later code may have extended more. So a fact is taken
only from data whose own hash is the digest, at a place in its register where only the expected code can have put it.
Such places are the first event of a register, the events before its separator, or the first event of a kind if all
events before it are proven too. A fact that is found at no such place is not proven.

The register does not prove that the expected code ran: if GRUB did not run, any root user of the machine can write PCR
8 from its beginning. So the measurements of boot loaders are kept separately for each loader.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ...errors import SystemFault
from ...policy.assertions import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    PROGRAM_REGISTER,
    SECURE_BOOT_REGISTER,
    BootFacts,
    Loader,
    boot_options,
    is_plain,
)
from ...source.version import Measured, parse_measured
from ...tpm.constants import ALG_SHA256
from . import kinds
from .kinds import load_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from .tcg import FirmwareEvent, FirmwareLog

_SEPARATOR = hashlib.sha256(bytes(4)).digest()
_LINUX_COMMANDS = ("linux ", "linuxefi ", "linux16 ")
_SECTION_NAMES = {hashlib.sha256(f"{name}\x00".encode()).digest(): name for name in kinds.SECTIONS}
_MAX_LEVEL = 4096
_MAX_DIGITS = 18
_IMAGE_AND_KERNEL = 2


def boot_facts(
    firmware: FirmwareLog, *, quoted: Collection[int], command_line: bytes = b"", source: str = ""
) -> BootFacts:
    """Return what ``firmware`` proves about the registers ``quoted``; the caller must have verified their replay.

    ``command_line`` (/proc/cmdline) is a hint that counts only if its hash matches; ``source`` is `LockReading.source`,
    which follows from the lock's register.
    """
    site = _site(source)
    by_register: dict[int, list[FirmwareEvent]] = {pcr: [] for pcr in quoted}
    for event in firmware.events:
        if event.pcr in by_register:
            by_register[event.pcr].append(event)
    keys = by_register.get(SECURE_BOOT_REGISTER, [])
    lines = _command_lines(by_register, command_line.decode(errors="replace").rstrip("\n\0"))
    loader = _traces(by_register, lines)
    secure_boot = _secure_boot(keys)
    signed_image = secure_boot is True and loader is Loader.IMAGE
    return BootFacts(
        secure_boot=secure_boot,
        command_lines=lines,
        firmware_version=_firmware_version(by_register.get(FIRMWARE_REGISTER, [])),
        kernel=_section_digest(by_register.get(IMAGE_REGISTER, []), ".uname"),
        sbat_level=_sbat_level(keys),
        source_signer=site.signer if site else "",
        source_version=site.version if site else 0,
        node_config=site.node_config if site else "",
        loader=loader,
        alone=signed_image and _starts_one_image(by_register.get(PROGRAM_REGISTER, []), keys),
    )


def _site(source: str) -> Measured | None:
    """Return what was measured about the site; None if the text is empty or has another form."""
    try:
        return parse_measured(source)
    except SystemFault:
        return None


def is_proven(event: FirmwareEvent) -> bool:
    """Whether the event's data is what was hashed into its register."""
    return hashlib.sha256(event.data).digest() == event.digests.get(ALG_SHA256)


def is_separator(event: FirmwareEvent) -> bool:
    """Whether the event is the separator between firmware and what it starts, by its digest."""
    return event.digests.get(ALG_SHA256) == _SEPARATOR


def _secure_boot(events: Sequence[FirmwareEvent]) -> bool | None:
    """Return the value of the variable SecureBoot, which is the first measurement in its register; None if unproven."""
    if not events or not is_proven(events[0]) or not any(is_separator(one) for one in events[1:]):
        return None
    variable = kinds.efi_variable(events[0].data)
    if variable is None or (variable.name, variable.vendor) != ("SecureBoot", kinds.GLOBAL_VARIABLE):
        return None
    return variable.value == b"\x01"


def _firmware_version(events: Sequence[FirmwareEvent]) -> str:
    if not events or events[0].kind != kinds.EV_S_CRTM_VERSION or not is_proven(events[0]):
        return ""
    return kinds.utf16(events[0].data)


def _command_lines(by_register: dict[int, list[FirmwareEvent]], hint: str) -> dict[Loader, tuple[str, ...]]:
    """Return the kernel command lines by the loader that measured them.

    GRUB measures its commands. Without GRUB the kernel's command line is the first event of the kernel's register. With
    GRUB that event is a file, which may be crafted to have the hash of a command line.
    """
    found: dict[Loader, tuple[str, ...]] = {}
    kernel = by_register.get(KERNEL_REGISTER, [])
    if kernel and kernel[0].digests.get(ALG_SHA256) in _hashes(hint) and is_plain(hint):
        found = {Loader.IMAGE: (hint,), Loader.KERNEL: (hint,)}
    grub = _grub_lines(by_register.get(GRUB_REGISTER, []))
    return {**found, Loader.GRUB: grub} if grub else found


def _grub_lines(commands: Sequence[FirmwareEvent]) -> tuple[str, ...]:
    """Return the kernel command lines of GRUB's commands, without the path of the kernel, which is their first word."""
    texts = [_command(event) for event in commands]
    proven = [text for text in texts if text is not None]
    if len(proven) != len(texts):
        return ()
    started = [text.removeprefix(command) for text in proven for command in _LINUX_COMMANDS if text.startswith(command)]
    # The label is not hashed, so the commands that load a kernel count whatever label the log gives them.
    made = (text for event, text in zip(commands, proven, strict=True) if _says_command_line(event))
    lines = tuple(dict.fromkeys((*started, *made)))
    if not all(map(is_plain, lines)):
        return ()
    return tuple(dict.fromkeys(" ".join(boot_options(line)[1:]) for line in lines))


def _traces(by_register: dict[int, list[FirmwareEvent]], lines: dict[Loader, tuple[str, ...]]) -> Loader | None:
    """Return the loader whose measurements the registers show; None if they show no loader, or two."""
    grub, kernel, image = (by_register.get(pcr, []) for pcr in (GRUB_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER))
    if grub:
        return Loader.GRUB if lines.get(Loader.GRUB) and kernel and not image else None
    if image:
        return Loader.IMAGE if kernel and image[0].digests.get(ALG_SHA256) in _SECTION_NAMES else None
    return Loader.KERNEL if lines.get(Loader.KERNEL) else None


def _starts_one_image(programs: Sequence[FirmwareEvent], keys: Sequence[FirmwareEvent]) -> bool:
    """Whether firmware started one program, which started only the kernel in it, and one key allowed both.

    If a second key was used (of an option ROM, of shim), a boot that uses only that key could extend the first later.
    """
    started = [one for one in programs if one.kind == kinds.EV_EFI_BOOT_SERVICES_APPLICATION]
    from_files = [one for one in started if kinds.image_path(one.data)]
    allowed = [one for one in keys if one.kind == kinds.EV_EFI_VARIABLE_AUTHORITY]
    return 0 < len(started) <= _IMAGE_AND_KERNEL and from_files == started[:1] and len(allowed) == 1


def _hashes(hint: str) -> set[bytes]:
    return {hashlib.sha256(one).digest() for one in load_options(hint)} if hint else set()


def _command(event: FirmwareEvent) -> str | None:
    """Return the text whose hash is the event's digest: all of the event's data, or the part after its label."""
    text = event.data.rstrip(b"\x00")
    _label, _mark, argument = text.partition(b": ")
    for candidate in (argument, text):
        if candidate and hashlib.sha256(candidate).digest() == event.digests.get(ALG_SHA256):
            return candidate.decode(errors="replace")
    return None


def _says_command_line(event: FirmwareEvent) -> bool:
    return event.data.startswith(b"kernel_cmdline: ")


def _section_digest(events: Sequence[FirmwareEvent], section: str) -> bytes:
    """Return the digest of a section's content; systemd-stub measures a section's name, then its content."""
    digests = [event.digests.get(ALG_SHA256, b"") for event in events]
    for name, content in zip(digests[::2], digests[1::2], strict=False):
        if name not in _SECTION_NAMES:
            break  # what follows may have been extended later by any root user
        if _SECTION_NAMES[name] == section:
            return content
    return b""


def _sbat_level(events: Sequence[FirmwareEvent]) -> dict[str, int]:
    """Return shim's revocation level: its first event after the separator, if all events before it are proven."""
    behind = False
    for event in events:
        if not is_proven(event):
            return {}
        if behind and event.data.startswith(kinds.SHIM_LOCK):
            variable = kinds.efi_variable(event.data)
            if variable is not None and variable.name == "SbatLevel":
                return dict(_levels(variable.value[:_MAX_LEVEL]))
        behind = behind or is_separator(event)
    return {}


def _levels(text: bytes) -> Iterator[tuple[str, int]]:
    """Yield the component and the last column of each line: its generation, or in the first line the level's date."""
    for line in text.decode(errors="replace").splitlines():
        columns = line.strip("\x00 ").split(",")
        number = columns[-1]
        if len(columns) > 1 and number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS:
            yield columns[0], int(number)
