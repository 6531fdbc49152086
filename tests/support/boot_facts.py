# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded boots in the form of policy: register values, described events, proven facts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch, decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset, learn_preset
from ansible_collections.attested.kubernetes.tests.support import boots

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import BootFacts
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import Verdict
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
        MeasuredEvent,
        MeasurementProfile,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One recorded boot, to be compared with profiles."""

    pcrs: dict[int, bytes]
    events: tuple[MeasuredEvent, ...]
    facts: BootFacts


def judged(name: str) -> Judged:
    """Return the boot ``name``."""
    boot = boots.load(name)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "userspace log")
    return Judged(
        pcrs=boot.pcrs,
        events=describe(firmware, userspace, command_line=boot.command_line),
        facts=boot_facts(firmware, quoted=boot.pcrs, command_line=boot.command_line),
    )


def learned(name: str, preset: Preset = Preset.AUTO) -> MeasurementProfile:
    """Return a profile learned from the boot and named after it."""
    boot = judged(name)
    return learn_preset(name, preset, pcrs=boot.pcrs, events=boot.events, facts=boot.facts, label=name)


def accepted(name: str, *profiles: MeasurementProfile, **changes: Any) -> Verdict:
    """Return the verdict on the boot ``name``, with ``changes`` of `Judged`."""
    boot = dataclasses.replace(judged(name), **changes)
    return decide(profiles, boot.pcrs, boot.events, facts=boot.facts)


def refused(name: str, *profiles: MeasurementProfile, **changes: Any) -> MeasurementMismatch:
    """Return the refusal of the boot ``name``, with ``changes`` of `Judged`."""
    try:
        verdict = accepted(name, *profiles, **changes)
    except MeasurementMismatch as error:
        return error
    raise AssertionError(f"{name} was accepted by {verdict.profile}")
