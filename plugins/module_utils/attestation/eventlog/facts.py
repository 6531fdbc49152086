# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a boot's logs prove, for assertions: statements that follow from digests in quoted registers.

A digest covers neither the type of an event nor its data, and who ruled the machine later may have extended more. So a
statement is taken only from data whose own hash is the digest, at a place of its register where nobody but the code
that rules there can have put it: the first event of a register, what stands in front of its separator, or the first of
its kind where everything before it is proven too. What is found nowhere is not proven.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ...errors import SystemFault
from ...policy import (
    FIRMWARE_REGISTER,
    GRUB_REGISTER,
    IMAGE_REGISTER,
    KERNEL_REGISTER,
    SECURE_BOOT_REGISTER,
    BootFacts,
)
from ...source import Measured, parse_measured
from ...tpm import ALG_SHA256
from . import kinds
from .describe import load_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from .types import FirmwareEvent, FirmwareLog

_SEPARATOR = hashlib.sha256(bytes(4)).digest()
_LINUX_COMMANDS = ("linux ", "linuxefi ", "linux16 ")
_SECTION_NAMES = {hashlib.sha256(f"{name}\x00".encode()).digest(): name for name in kinds.SECTIONS}
_MAX_LEVEL = 4096
_MIN_COLUMNS = 2


def boot_facts(
    firmware: FirmwareLog, *, quoted: Collection[int], command_line: bytes = b"", source: str = ""
) -> BootFacts:
    """Return what ``firmware`` proves of the registers ``quoted``, whose values the caller has replayed from it.

    ``command_line`` (/proc/cmdline) is a hint that is believed by its hash only; ``source`` is `LockReading.source`,
    which follows from the lock's register.
    """
    site = _site(source)
    by_register: dict[int, list[FirmwareEvent]] = {pcr: [] for pcr in quoted}
    for event in firmware.events:
        if event.pcr in by_register:
            by_register[event.pcr].append(event)
    keys = by_register.get(SECURE_BOOT_REGISTER, [])
    return BootFacts(
        secure_boot=_secure_boot(keys),
        command_lines=_command_lines(by_register, command_line.rstrip(b"\n\x00").decode(errors="replace")),
        firmware_version=_firmware_version(by_register.get(FIRMWARE_REGISTER, [])),
        kernel=_section_digest(by_register.get(IMAGE_REGISTER, []), ".uname"),
        sbat_level=_sbat_level(keys),
        source_signer=site.signer if site else "",
        source_version=site.version if site else 0,
    )


def _site(source: str) -> Measured | None:
    """Return what was measured of the site; a text of another form says nothing."""
    try:
        return parse_measured(source) if source else None
    except SystemFault:
        return None


def is_proven(event: FirmwareEvent) -> bool:
    """Whether the event's data is what was hashed into its register."""
    return hashlib.sha256(event.data).digest() == event.digests.get(ALG_SHA256)


def is_separator(event: FirmwareEvent) -> bool:
    """Whether the event is the separator between firmware and what it starts, by its digest."""
    return event.digests.get(ALG_SHA256) == _SEPARATOR


def _secure_boot(events: Sequence[FirmwareEvent]) -> bool | None:
    """Return the variable's value: firmware measures it first of all into its register."""
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


def _command_lines(by_register: dict[int, list[FirmwareEvent]], hint: str) -> tuple[str, ...]:
    """Return all that kernels were started with: by the first event of the kernel's register, or GRUB's commands."""
    kernel = by_register.get(KERNEL_REGISTER, [])
    if kernel and kernel[0].digests.get(ALG_SHA256) in _hashes(hint):
        return (hint,)
    commands = by_register.get(GRUB_REGISTER, [])
    texts = [_command(event) for event in commands]
    if not texts or any(text is None for text in texts):
        return ()
    told = [text for text in texts if text is not None]
    started = {text.removeprefix(command) for text in told for command in _LINUX_COMMANDS if text.startswith(command)}
    # The label in front is not hashed: a line counts because GRUB was told to load it, whatever the log calls it.
    lines = (text for event, text in zip(commands, told, strict=True) if text in started or _says_command_line(event))
    return tuple(dict.fromkeys(lines))


def _hashes(hint: str) -> set[bytes]:
    return {hashlib.sha256(one).digest() for one in load_options(hint)} if hint else set()


def _command(event: FirmwareEvent) -> str | None:
    """Return the text whose hash is in the register: the event's own, or what stands behind its label."""
    text = event.data.rstrip(b"\x00")
    _label, _mark, argument = text.partition(b": ")
    for candidate in (argument, text):
        if candidate and hashlib.sha256(candidate).digest() == event.digests.get(ALG_SHA256):
            return candidate.decode(errors="replace")
    return None


def _says_command_line(event: FirmwareEvent) -> bool:
    return event.data.startswith(b"kernel_cmdline: ")


def _section_digest(events: Sequence[FirmwareEvent], section: str) -> bytes:
    """Return the digest behind a section's name; systemd-stub measures a name, then what the section holds."""
    digests = [event.digests.get(ALG_SHA256, b"") for event in events]
    for name, content in zip(digests[::2], digests[1::2], strict=False):
        if name not in _SECTION_NAMES:
            break  # whatever comes here was extended later, by anybody
        if _SECTION_NAMES[name] == section:
            return content
    return b""


def _sbat_level(events: Sequence[FirmwareEvent]) -> dict[str, int]:
    """Return shim's revocation level: its first measurement behind the separator, if all before it is proven."""
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
    """Yield component and generation of each line; of the first one the date, which orders the levels."""
    for line in text.decode(errors="replace").splitlines():
        columns = line.strip("\x00 ").split(",")
        number = columns[2] if columns[0] == "sbat" and len(columns) > _MIN_COLUMNS else columns[-1]
        if len(columns) >= _MIN_COLUMNS and number.isascii() and number.isdigit():
            yield columns[0], int(number)
