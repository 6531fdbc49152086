# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All presets, learned from all recorded boots, and the changes of a boot that each profile refuses.

A changed boot is the recorded log with other digests for the changed part, replayed to register values. Keys do not
change: the same signer signs the changed part. `docs/profiles.md` shows the table.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import replay
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.boot_facts import Judged, judged, learned

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
        MeasuredEvent,
        MeasurementProfile,
    )

CHANGES = ("initrd", "command line", "kernel", "loader", "root")
"""The changed parts; the root file system is not measured."""

_MEASURED = {
    "initrd": ((9, r"^initrd$|^/boot/initrd"), (11, r"section \.initrd")),
    "command line": (
        (8, r"^grub_cmd: (menuentry|linux) |^kernel_cmdline: "),
        (9, r"/grub/grub\.cfg$|^kernel command line"),
        (11, r"section \.cmdline"),
    ),
    "kernel": ((9, r"^/boot/vmlinuz"), (11, r"section \.(linux|uname)")),
    "loader": (),
    "root": (),
}
"""The events that measure a part alone: register, and a pattern for the text of `describe`."""

_PROGRAM = "EFI program "
_INNER_KERNEL = "EFI program without a file path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One preset on the recorded ``boots``; no ``registers`` if it is refused with PRESET_UNMET."""

    boots: tuple[str, ...]
    preset: Preset
    registers: tuple[int, ...]
    posture: str
    refused: tuple[str, ...]


@functools.cache
def recorded() -> tuple[str, ...]:
    """Return the boots of real machines."""
    return tuple(name for name in boots.names() if not name.startswith("synthetic"))


@functools.cache
def changed(name: str, change: str) -> Judged:
    """Return the boot ``name`` with another initrd, command line, kernel or loader, or another root file system."""
    boot, before = boots.load(name), judged(name)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    programs = _programs(change, before.events)
    moved = {
        number
        for number, told in enumerate(before.events[: len(firmware.events)])
        if told in programs or _holds(change, told)
    }
    events = tuple(
        dataclasses.replace(
            event, digests={ALG_SHA256: hashlib.sha256(b"another " + event.digests[ALG_SHA256]).digest()}
        )
        if number in moved
        else event
        for number, event in enumerate(firmware.events)
    )
    log = dataclasses.replace(firmware, events=events)
    registers = {firmware.events[number].pcr for number in moved}
    replayed = replay(log, userspace)
    return Judged(
        pcrs={**before.pcrs, **{pcr: replayed[pcr] for pcr in registers}},
        events=describe(log, userspace, command_line=boot.command_line),
        facts=boot_facts(log, quoted=boot.pcrs, command_line=boot.command_line),
    )


def _holds(change: str, told: MeasuredEvent) -> bool:
    """Return whether the event has the digest of a changed part; the name of a section does not change."""
    named = told.text.startswith("kernel image has a section")
    return not named and any(told.pcr == pcr and re.search(text, told.text) for pcr, text in _MEASURED[change])


def _programs(change: str, events: tuple[MeasuredEvent, ...]) -> list[MeasuredEvent]:
    """Return the changed programs in PCR 4: not shim, and an image changes with any of its parts."""
    programs = [one for one in events if one.pcr == 4 and one.text.startswith(_PROGRAM)]
    kernels = [one for one in programs if one.text == _INNER_KERNEL]
    loaders = [one for one in programs if one not in kernels]
    with_grub = any(one.pcr == 8 for one in events)
    found = kernels if change == "kernel" else []
    if change != "root" and (change == "loader" or not with_grub):
        found = [*found, loaders[-1]]
    return found


def refused_changes(name: str, profile: MeasurementProfile) -> tuple[str, ...]:
    """Return the changes of the boot ``name`` that ``profile`` refuses."""
    return tuple(change for change in CHANGES if not _accepted(changed(name, change), profile))


def _accepted(boot: Judged, profile: MeasurementProfile) -> bool:
    try:
        decide([profile], boot.pcrs, boot.events, facts=boot.facts)
    except PolicyError:
        return False
    return True


def row(name: str, preset: Preset) -> Row:
    """Return the result of ``preset`` for the boot ``name``."""
    try:
        profile = learned(name, preset)
    except PolicyError as error:
        return Row(boots=(name,), preset=preset, registers=(), posture=error.code, refused=())
    return Row(
        boots=(name,),
        preset=preset,
        registers=tuple(sorted(profile.registers)),
        posture=profile.posture.value,
        refused=refused_changes(name, profile),
    )


def rows() -> list[Row]:
    """Return the rows of all boots and presets; boots with equal results share a row of each preset."""
    groups: dict[tuple[Row, ...], list[str]] = {}
    for name in recorded():
        made = tuple(dataclasses.replace(row(name, preset), boots=()) for preset in Preset)
        groups.setdefault(made, []).append(name)
    return [dataclasses.replace(one, boots=tuple(names)) for made, names in groups.items() for one in made]


def table() -> str:
    """Return the rows as Markdown."""
    lines = [
        f"| recorded boots | preset | holds PCR | posture | {' | '.join(f'another {change}' for change in CHANGES)} |",
        f"|---|---|---|---|{'---|' * len(CHANGES)}",
    ]
    before: tuple[str, ...] = ()
    for one in rows():
        held = ", ".join(map(str, one.registers)) or f"`{one.posture}`"
        posture = f"`{one.posture}`" if one.registers else ""
        told = [("refused" if change in one.refused else "accepted") if one.registers else "" for change in CHANGES]
        names = ", ".join(f"`{name}`" for name in one.boots if one.boots != before)
        before = one.boots
        lines.append(f"| {names} | `{one.preset.value}` | {held} | {posture} | {' | '.join(told)} |")
    return "\n".join(lines)
