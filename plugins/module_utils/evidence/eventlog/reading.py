# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A boot as lines for people: firmware, Secure Boot and keys, boot loader, kernel, initrd, command line, user space.

Each line says whether its digest proves it. A hint is stated by the log only: any program that can write the log can
have written the hint, and the register proves only its digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...policy.assertions import FIRMWARE_REGISTER, GRUB_REGISTER, IMAGE_REGISTER, KERNEL_REGISTER, SECURE_BOOT_REGISTER
from ...tpm.constants import ALG_SHA256
from . import kinds
from .facts import is_proven, is_separator
from .kinds import describe, described_authority, described_keys, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...policy.profile import MeasuredEvent
    from .tcg import FirmwareEvent, FirmwareLog, UserspaceRecord

TOPICS = (
    "firmware",
    "secure boot",
    "keys",
    "authority",
    "boot loader",
    "kernel",
    "initrd",
    "command line",
    "user space",
)
"""In the order of the lines."""

_SHORT_DIGEST = 16
_GRUB_LINUX = "grub_cmd: linux "


@dataclass(frozen=True, slots=True, kw_only=True)
class BootLine:
    """One line: its topic (of `TOPICS`), its text, its event, and whether the event's digest proves the text."""

    topic: str
    text: str
    pcr: int
    index: int
    proven: bool

    def __str__(self) -> str:
        """Return the line for a terminal."""
        return f"{self.topic:13} {self.text} [PCR {self.pcr}, {'proven' if self.proven else 'a hint'}]"


def read_boot(
    firmware: FirmwareLog, userspace: Sequence[UserspaceRecord], *, command_line: bytes = b""
) -> tuple[BootLine, ...]:
    """Return the lines of one boot by topic; the caller must verify that the logs lead to the quoted registers."""
    described = describe(firmware, userspace, command_line=command_line)
    kernels = _kernels(firmware.events, described)
    behind = _behind(firmware.events)
    lines = [
        BootLine(topic=topic, text=printable(text), pcr=words.pcr, index=event.number, proven=proven and words.proven)
        for index, (event, words) in enumerate(zip(firmware.events, described, strict=False))
        for topic, text, proven in _lines(event, words, behind=index in behind, kernel=index in kernels)
    ]
    lines += [
        BootLine(topic="user space", text=words.text, pcr=words.pcr, index=index, proven=words.proven)
        for index, words in enumerate(described[len(firmware.events) :])
    ]
    return tuple(sorted(lines, key=lambda line: TOPICS.index(line.topic)))


def _behind(events: Sequence[FirmwareEvent]) -> set[int]:
    """Return the indices of the events that follow the separator of their register."""
    ended: set[int] = set()
    found: set[int] = set()
    for index, event in enumerate(events):
        if event.pcr in ended:
            found.add(index)
        if is_separator(event):
            ended.add(event.pcr)
    return found


def _kernels(events: Sequence[FirmwareEvent], described: Sequence[MeasuredEvent]) -> set[int]:
    """Return the indices of the events that measure a kernel, as far as the log shows; other programs are boot loaders.

    A kernel is a file that GRUB's command ``linux`` names, a program whose sections systemd-stub measures next, a
    program without a path that another program starts, or a file with a usual name of Linux.
    """
    found: set[int] = set()
    named, started = "", False
    for place, (event, words) in enumerate(zip(events, described, strict=False)):
        if words.text.startswith(_GRUB_LINUX):
            named = words.text.removeprefix(_GRUB_LINUX).split(" ", maxsplit=1)[0]
        if event.kind == kinds.EV_EFI_BOOT_SERVICES_APPLICATION:
            path = kinds.image_path(event.data)
            has_sections = place + 1 < len(events) and kinds.section_name(events[place + 1].data) != ""
            if has_sections or _is_linux(path) or (started and not path):
                found.add(place)
            started = True
        elif event.pcr == KERNEL_REGISTER and (_is_linux(words.text) or (named and words.text == named)):
            found.add(place)
    return found


def _is_linux(path: str) -> bool:
    return path.replace("\\", "/").rpartition("/")[2].lower().startswith(("vmlinuz", "linux", "bzimage"))


def _lines(
    event: FirmwareEvent, words: MeasuredEvent, *, behind: bool, kernel: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield topic, text and whether the event's proof covers that text; nothing for events that are not shown."""
    digest = event.digests.get(ALG_SHA256, b"").hex()[:_SHORT_DIGEST]
    if event.pcr == FIRMWARE_REGISTER and event.kind == kinds.EV_S_CRTM_VERSION:
        version = kinds.utf16(event.data)
        yield "firmware", f"version {version!r}, vendor not measured" if version else "version empty", True
    elif event.kind == kinds.EV_EFI_PLATFORM_FIRMWARE_BLOB:
        yield "firmware", f"{words.text}, digest {digest}", False
    elif event.pcr == SECURE_BOOT_REGISTER:
        yield from _keys(event, behind=behind)
    elif event.kind == kinds.EV_EFI_BOOT_SERVICES_APPLICATION:
        yield "kernel" if kernel else "boot loader", f"{words.text}, digest {digest}", False
    elif event.pcr in {GRUB_REGISTER, KERNEL_REGISTER, IMAGE_REGISTER}:
        yield from _kernel(event, words, digest, kernel=kernel)


def _keys(event: FirmwareEvent, *, behind: bool) -> Iterator[tuple[str, str, bool]]:
    variable = kinds.efi_variable(event.data)
    if variable is None:
        return
    if behind:
        allowed = variable.value.decode() if variable.name == kinds.SBAT_LEVEL and variable.value.isascii() else ""
        text = " ".join(allowed.split()) or described_authority(variable.value)
        yield "authority", f"{variable.name}: {text}", True
    elif variable.name == "SecureBoot":
        state = "on" if variable.value == b"\x01" else "off"
        yield "secure boot", state if variable.value else "off (the firmware has no such variable)", True
    elif variable.name in kinds.KEY_DATABASES:
        yield "keys", f"{variable.name}: {described_keys(variable.value)}", True


def _kernel(
    event: FirmwareEvent, words: MeasuredEvent, digest: str, *, kernel: bool
) -> Iterator[tuple[str, str, bool]]:
    text = event.data.rstrip(b"\x00").decode(errors="replace")
    if words.text.startswith("kernel command line") or text.startswith("kernel_cmdline: "):
        yield "command line", words.text, True
    elif words.text == "initrd" or "initrd" in words.text:
        if not is_proven(event) and not words.proven:
            yield "initrd", f"{words.text}, digest {digest}", False
    elif words.text.endswith((" section .linux", " section .uname")) and not words.proven:
        yield "kernel", f"{words.text}, digest {digest}", False
    elif event.pcr == KERNEL_REGISTER and not words.proven:
        yield "kernel" if kernel else "boot loader", f"file {words.text}, digest {digest}", False
