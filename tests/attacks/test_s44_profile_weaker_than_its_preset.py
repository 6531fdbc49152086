# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S44: a machine whose profile holds less than its preset says boots another initrd, command line, kernel or loader."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import replay
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import Posture
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots, preset_table
from ansible_collections.attested.kubernetes.tests.support.boot_facts import accepted, learned, refused
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

THREAT = Threat(
    id="S44",
    title="Profile weaker than its preset",
    case="GRUB under Secure Boot loads an initrd that nobody signed; it is measured into PCR 9 alone",
    bed="bytes",
    stops=(
        ("policy/decision.py", "PCR_MISMATCH"),
        ("policy/learning.py", "PRESET_UNMET"),
    ),
)

GRUB, SIGNED = "deb13-grub-secureboot", "deb13-secureboot"
MEASURED = [change for change in preset_table.CHANGES if change != "root"]


@pytest.mark.parametrize("change", MEASURED)
@pytest.mark.parametrize("boot", preset_table.recorded())
def test_the_default_refuses_another_part_of_the_boot(boot: str, change: str) -> None:
    profile = learned(boot)
    assert accepted(boot, profile).profile == boot
    other = preset_table.changed(boot, change)
    error = refused(boot, profile, pcrs=other.pcrs, events=other.events, facts=other.facts)
    assert error.code == "PCR_MISMATCH"


@pytest.mark.parametrize("boot", [GRUB, "deb13-grub", "deb13-secbootfw-off"])
def test_keys_alone_are_learned_from_a_signed_image_and_from_nothing_else(boot: str) -> None:
    assert accepted(SIGNED, learned(SIGNED, Preset.SECURE_BOOT)).profile == SIGNED
    assert code_of(lambda: learned(boot, Preset.SECURE_BOOT)) == "PRESET_UNMET"


@pytest.mark.parametrize("boot", preset_table.recorded())
def test_a_profile_that_holds_keys_alone_never_says_boot(boot: str) -> None:
    """As a default before learned it, and as it may lie in a site still."""
    strict = learned(boot, Preset.STRICT)
    assert accepted(boot, strict).posture is Posture.BOOT
    weak = dataclasses.replace(strict, registers={7: strict.registers[7]})
    assert (weak.posture, accepted(boot, weak).posture.value) == (Posture.BOOT, "keys")


@pytest.mark.parametrize(
    ("held", "posture"),
    [
        pytest.param((4, 7, 8, 9), "root", id="the initrd that enforces the root hash is held"),
        pytest.param((7, 8), "keys", id="the command line is held, and the initrd is free"),
        pytest.param((4, 7, 8), "keys", id="and so it is with the loader held"),
    ],
)
def test_a_root_hash_that_a_free_initrd_may_leave_out_is_no_root(held: tuple[int, ...], posture: str) -> None:
    firmware = parse_firmware_log(boots.load(GRUB).firmware)
    plain, hashed = b"root=LABEL=root", b"root=LABEL=root roothash=ab"
    events = []
    for event in firmware.events:
        data = event.data.replace(plain, hashed) if event.pcr == 8 else event.data
        text = data.rstrip(b"\x00").partition(b": ")[2]
        digests = event.digests if data == event.data else {ALG_SHA256: hashlib.sha256(text).digest()}
        events.append(dataclasses.replace(event, data=data, digests=digests))
    log = dataclasses.replace(firmware, events=tuple(events))
    pcrs = {**boots.load(GRUB).pcrs, 8: replay(log, ())[8]}
    strict = learned(GRUB, Preset.STRICT)
    values = {pcr: (dataclasses.replace(strict.registers[pcr][0], digest=pcrs[pcr]),) for pcr in held}
    profile = dataclasses.replace(strict, registers=values, posture=Posture.ROOT)
    verdict = decide([profile], pcrs, (), facts=boot_facts(log, quoted=pcrs))
    assert verdict.posture.value == posture
