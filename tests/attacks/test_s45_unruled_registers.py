# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S45: whoever rules a machine extends registers that its loader does not write, and so proves a command line or kernel
that it was not booted with. The registers and logs agree; what lies is who is said to have measured."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.facts import boot_facts
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import replay
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    parse_firmware_log,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Loader, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import Verdict, decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.boot_facts import judged, learned
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile

THREAT = Threat(
    id="S45",
    title="Events in registers that nobody rules",
    case="a grub.cfg that hashes like a command line; PCR 8 or 11 of a machine whose loader does not write it",
    bed="bytes",
    stops=(
        ("policy/assertions.py", "BOOT_OPTION_UNKNOWN"),
        ("policy/assertions.py", "LOCKDOWN_NOT_PROVEN"),
        ("policy/assertions.py", "KERNEL_NOT_ACCEPTED"),
        ("policy/decision.py", "SBAT_TOO_OLD"),
    ),
)

GOOD = "root=LABEL=root ro lockdown=integrity"
BAD = "root=LABEL=root ro init=/bin/sh"
RELEASE = "6.12.117+deb13-cloud-amd64"
FILE = "/boot/vmlinuz-6.12.117+deb13-cloud-amd64"
ASSERTED = {
    "BOOT_OPTION_UNKNOWN": Assertions(boot_options=tuple(GOOD.split())),
    "LOCKDOWN_NOT_PROVEN": Assertions(lockdown=Lockdown.INTEGRITY),
    "KERNEL_NOT_ACCEPTED": Assertions(kernels=(RELEASE,)),
}
LINES = ("BOOT_OPTION_UNKNOWN", "LOCKDOWN_NOT_PROVEN")
BOOT_OF = {"grub": "deb13-grub-secureboot", "image": "deb13-base", "kernel": "deb13-base"}


def event(pcr: int, data: bytes, *, hashed: bytes | None = None) -> FirmwareEvent:
    digest = hashlib.sha256(data if hashed is None else hashed).digest()
    return FirmwareEvent(pcr=pcr, kind=kinds.EV_IPL, digests={ALG_SHA256: digest}, data=data)


def load_options(line: str) -> bytes:
    return f"{line}\x00".encode("utf-16-le")


def grub(line: str) -> list[FirmwareEvent]:
    """What GRUB measures of a kernel that it is told to start."""
    command, started = f"linux {FILE} {line}".encode(), f"{FILE} {line}".encode()
    return [
        event(8, b"grub_cmd: " + command, hashed=command),
        event(8, b"kernel_cmdline: " + started, hashed=started),
    ]


def sections(line: str) -> list[FirmwareEvent]:
    """What the stub of a unified kernel image measures."""
    parts = {".linux": b"kernel", ".cmdline": line.encode(), ".uname": RELEASE.encode()}
    return [
        one
        for name, content in parts.items()
        for one in (event(11, b"", hashed=f"{name}\x00".encode()), event(11, b"", hashed=content))
    ]


WRITTEN = {"grub": {8, 9, 14}, "image": {9, 11, 12}, "kernel": {9}}
"""What each loader, and what it starts, measures into; 0 to 7 are firmware's."""


FORMS = {
    "commands": grub(GOOD),
    "sections": sections(GOOD),
    "load options": [event(9, b"", hashed=load_options(GOOD))],
}
"""What GRUB, an image's stub or a kernel would measure of the good boot."""


def written(form: str, pcr: int) -> list[FirmwareEvent]:
    """What somebody extends into a register who rules the machine."""
    return [replace(one, pcr=pcr) for one in FORMS[form]]


@dataclass(frozen=True)
class Machine:
    """A machine that ``loader`` started with a command line, and what its registers hold."""

    loader: str
    log: FirmwareLog

    def judged_by(self, profile: MeasurementProfile) -> Verdict:
        """Return the verdict; the machine says that it was started with the good command line."""
        pcrs = {**dict.fromkeys(range(16), bytes(32)), **replay(self.log, ())}
        facts = boot_facts(self.log, quoted=pcrs, command_line=GOOD.encode())
        return decide([profile], pcrs, (), facts=facts)


def machine(
    loader: str, line: str, *, before: Sequence[FirmwareEvent] = (), after: Sequence[FirmwareEvent] = ()
) -> Machine:
    """Boot the recorded machine of ``loader`` with a command line, with events in front of the loader's or behind."""
    recorded = parse_firmware_log(boots.load(BOOT_OF[loader]).firmware)
    mine = [one for one in recorded.events if one.pcr not in {8, 9, 11}] + list(before)
    if loader == "grub":
        mine += [event(9, b"grub.cfg"), *grub(line), event(9, b"kernel"), event(9, b"initrd")]
        mine.append(event(9, b"", hashed=load_options(f"BOOT_IMAGE={FILE} {line}")))
    else:
        mine += sections(line) if loader == "image" else []
        mine += [event(9, b"", hashed=load_options(line)), event(9, b"initrd")]
    return Machine(loader, replace(recorded, events=(*mine, *after)))


def profile_of(loader: str, assertions: Assertions, *, held: tuple[int, ...] = (4, 7)) -> MeasurementProfile:
    """Return a profile that holds programs and keys, names the loader, and asserts the rest."""
    base = learned(BOOT_OF[loader], Preset.STRICT)
    pcrs = judged(BOOT_OF[loader]).pcrs
    values = {pcr: (AllowedValue(pcrs[pcr], "learned"),) for pcr in held}
    return replace(base, registers=values, assertions=assertions, loader=Loader(loader))


MATRIX = [
    (loader, pcr, code)
    for loader, written in WRITTEN.items()
    for pcr in range(8, 16)
    if pcr not in written
    for code in ASSERTED
    if (loader, code) != ("image", "KERNEL_NOT_ACCEPTED")
]
"""Each loader, each register that it does not write, each assertion; an image's stub measures the release itself."""


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize(("loader", "pcr", "code"), MATRIX)
def test_what_a_register_says_that_the_loader_does_not_write(loader: str, pcr: int, code: str, form: str) -> None:
    profile = profile_of(loader, ASSERTED[code])
    if code != "KERNEL_NOT_ACCEPTED":  # neither GRUB nor a kernel alone measures a release, so nothing proves it
        assert machine(loader, GOOD).judged_by(profile).profile
    assert code_of(lambda: machine(loader, BAD).judged_by(profile)) == code
    forged = machine(loader, BAD, after=written(form, pcr))
    assert code_of(lambda: forged.judged_by(profile)) == code


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("code", LINES)
@pytest.mark.parametrize("loader", list(BOOT_OF))
def test_what_is_written_behind_the_loader(loader: str, code: str, form: str) -> None:
    """A register that the loader does write, after it has: what it began with stays, and what is added counts too."""
    profile = profile_of(loader, ASSERTED[code])
    assert machine(loader, GOOD).judged_by(profile).profile
    forged = [machine(loader, BAD, after=written(form, pcr)) for pcr in WRITTEN[loader]]
    assert {code_of(functools.partial(one.judged_by, profile)) for one in forged} == {code}


@pytest.mark.parametrize("code", LINES)
def test_a_configuration_of_grub_that_hashes_like_a_command_line(code: str) -> None:
    """The first file that GRUB reads, and the first event of PCR 9: GRUB 2.06 runs it, whatever it is in UTF-16."""
    profile = profile_of("grub", ASSERTED[code])
    assert machine("grub", GOOD).judged_by(profile).profile
    polyglot = event(9, b"(hd0,gpt1)/EFI/debian/grub.cfg", hashed=load_options(GOOD))
    assert code_of(lambda: machine("grub", BAD, before=[polyglot]).judged_by(profile)) == code


def test_a_release_that_the_stub_measured() -> None:
    assert machine("image", GOOD).judged_by(profile_of("image", ASSERTED["KERNEL_NOT_ACCEPTED"])).profile


@pytest.mark.parametrize("loader", list(BOOT_OF))
@pytest.mark.parametrize("code", LINES)
def test_nobody_holds_the_loader(loader: str, code: str) -> None:
    """With keys alone held, another signed program may have started the machine, and measured nothing."""
    assert machine(loader, GOOD).judged_by(profile_of(loader, ASSERTED[code])).profile
    free = profile_of(loader, ASSERTED[code], held=(7,))
    assert code_of(lambda: machine(loader, GOOD).judged_by(free)) == code


def test_a_revocation_level_of_a_shim_that_did_not_run() -> None:
    """The variable as shim measures it, extended behind the keys of a machine that starts its image without shim."""
    name, value = "SbatLevel".encode("utf-16-le"), b"sbat,1,2025021800\nshim,4\n"
    sizes = (len(name) // 2).to_bytes(8, "little") + len(value).to_bytes(8, "little")
    level = event(7, kinds.SHIM_LOCK + sizes + name + value)
    asserted = Assertions(sbat_minimum={"shim": 4})
    assert machine("grub", GOOD).judged_by(profile_of("grub", asserted)).profile
    loose = profile_of("image", asserted, held=(0,))
    assert machine("image", GOOD).judged_by(replace(loose, assertions=Assertions())).profile
    assert code_of(lambda: machine("image", GOOD).judged_by(loose)) == "SBAT_TOO_OLD"
    assert code_of(lambda: machine("image", GOOD, after=[level]).judged_by(loose)) == "SBAT_TOO_OLD"


@pytest.mark.parametrize("word", ["/sbin/evil", "(hd0)x", "BOOT_IMAGE=evil"])
@pytest.mark.parametrize("loader", ["image", "kernel"])
def test_a_word_that_looks_like_the_name_of_a_kernel(loader: str, word: str) -> None:
    """Where no boot loader puts a file in front, the first word is an option as any other."""
    profile = profile_of(loader, ASSERTED["BOOT_OPTION_UNKNOWN"])
    assert machine(loader, GOOD).judged_by(profile).profile
    line = f"{word} {GOOD}"
    other = machine(loader, line)
    pcrs = {**dict.fromkeys(range(16), bytes(32)), **replay(other.log, ())}
    facts = boot_facts(other.log, quoted=pcrs, command_line=line.encode())
    assert code_of(lambda: decide([profile], pcrs, (), facts=facts)) == "BOOT_OPTION_UNKNOWN"
