# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assertions: each holds on a proven fact alone, and each failure has its own code."""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import (
    AllowedValue,
    Assertions,
    BootFacts,
    Lockdown,
    MeasurementMismatch,
    MeasurementProfile,
    Posture,
    boot_options,
    decide,
    failed_assertions,
    given_options,
    register_selection,
)

VALUE = b"v" * 32
NOW = datetime(2026, 11, 22, tzinfo=UTC)
LINE = "/boot/vmlinuz-6.12 root=LABEL=root ro quiet lockdown=integrity"
FACTS = BootFacts(
    secure_boot=True,
    command_lines=(LINE,),
    firmware_version="2025.02-8+deb13u1",
    kernel=hashlib.sha256(b"6.12.117").digest(),
    sbat_level={"sbat": 2025021800, "shim": 4},
    source_signer="SHA256:admin",
    source_version=7,
)
EVERYTHING = Assertions(
    secure_boot=True,
    lockdown=Lockdown.INTEGRITY,
    boot_options=("root=*", "ro", "quiet", "lockdown=integrity"),
    firmware_minimum="2025.02-8",
    kernels=("6.1.0", "6.12.117"),
    sbat_minimum={"sbat": 2025021800, "shim": 4},
    source_signers=("SHA256:other", "SHA256:admin"),
    source_minimum=7,
)


def profile(**changes: Any) -> MeasurementProfile:
    whole = MeasurementProfile(
        name="p", posture=Posture.BOOT, registers={7: (AllowedValue(VALUE, "v"),)}, assertions=EVERYTHING
    )
    return dataclasses.replace(whole, **changes)


def refused(one: MeasurementProfile, facts: BootFacts | None, *, now: datetime | None = NOW) -> MeasurementMismatch:
    with pytest.raises(MeasurementMismatch) as caught:
        decide([one], {7: VALUE}, (), facts=facts, now=now)
    return caught.value


def test_a_boot_that_keeps_every_assertion_is_accepted() -> None:
    assert failed_assertions(EVERYTHING, FACTS) == ()
    assert decide([profile()], {7: VALUE}, (), facts=FACTS).profile == "p"


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        pytest.param({"secure_boot": False}, "SECURE_BOOT_OFF", "Secure Boot on, got it off", id="off"),
        pytest.param({"secure_boot": None}, "SECURE_BOOT_OFF", "does not prove it", id="unproven"),
        pytest.param({"command_lines": ("ro lockdown=none",)}, "LOCKDOWN_NOT_PROVEN", "got lockdown=none", id="none"),
        pytest.param({"command_lines": ("ro",)}, "LOCKDOWN_NOT_PROVEN", "got none", id="no lockdown"),
        pytest.param(
            {"command_lines": ("lockdown=integrity lockdown=none",)},
            "LOCKDOWN_NOT_PROVEN",
            "got lockdown=integrity and lockdown=none",
            id="a lockdown that is taken back",
        ),
        pytest.param({"command_lines": ()}, "LOCKDOWN_NOT_PROVEN", "no command line that the log proves", id="no line"),
        pytest.param(
            {"command_lines": (f"{LINE} init=/bin/sh",)}, "BOOT_OPTION_UNKNOWN", "got init=/bin/sh", id="another option"
        ),
        pytest.param(
            {"command_lines": (LINE, f"{LINE} rd.break")},
            "BOOT_OPTION_UNKNOWN",
            "got rd.break",
            id="second line",
        ),
        pytest.param(
            {"firmware_version": "2025.02-7"}, "FIRMWARE_TOO_OLD", "2025.02-8 or later, got '2025.02-7'", id="older"
        ),
        pytest.param({"firmware_version": ""}, "FIRMWARE_TOO_OLD", "no version that the log proves", id="no version"),
        pytest.param(
            {"kernel": VALUE},
            "KERNEL_NOT_ACCEPTED",
            f"releases 6.1.0, 6.12.117, got one whose hash is {VALUE.hex()}",
            id="another kernel",
        ),
        pytest.param({"kernel": b""}, "KERNEL_NOT_ACCEPTED", "got no release in the log", id="no release"),
        pytest.param(
            {"sbat_level": {"sbat": 2025021800, "shim": 3}}, "SBAT_TOO_OLD", "shim 4 or later, got 3", id="old"
        ),
        pytest.param({"sbat_level": {}}, "SBAT_TOO_OLD", "got none that the log proves", id="no level"),
        pytest.param(
            {"source_signer": "SHA256:stranger"}, "SOURCE_NOT_ACCEPTED", "got SHA256:stranger", id="a stranger's site"
        ),
        pytest.param(
            {"source_signer": ""}, "SOURCE_NOT_ACCEPTED", "got no site in front of the lock", id="nobody's site"
        ),
        pytest.param({"source_version": 6}, "SOURCE_TOO_OLD", "or later, got 6", id="an older site"),
        pytest.param({"source_version": 0}, "SOURCE_TOO_OLD", "got none in front of the lock", id="no site"),
    ],
)
def test_an_assertion_that_does_not_hold_is_refused_by_its_own_code(
    changes: dict[str, Any], code: str, told: str
) -> None:
    error = refused(profile(), dataclasses.replace(FACTS, **changes))
    assert error.code == code
    assert f"{told};" in error.message  # to the end of its clause
    assert error.registers == ()


def test_without_facts_nothing_holds() -> None:
    """Closed by default: whoever forgets to hand the facts over refuses everybody."""
    assert [one.reason.name for one in refused(profile(), None).assertions] == [
        "SECURE_BOOT_OFF",
        "LOCKDOWN_NOT_PROVEN",
        "BOOT_OPTION_UNKNOWN",
        "FIRMWARE_TOO_OLD",
        "KERNEL_NOT_ACCEPTED",
        "SBAT_TOO_OLD",
        "SBAT_TOO_OLD",
        "SOURCE_NOT_ACCEPTED",
        "SOURCE_TOO_OLD",
    ]


@pytest.mark.parametrize(
    ("demanded", "given", "holds"),
    [
        pytest.param(Lockdown.INTEGRITY, "lockdown=integrity", True, id="just what is demanded"),
        pytest.param(Lockdown.INTEGRITY, "lockdown=confidentiality", True, id="more than what is demanded"),
        pytest.param(Lockdown.CONFIDENTIALITY, "lockdown=confidentiality", True, id="the most"),
        pytest.param(Lockdown.CONFIDENTIALITY, "lockdown=integrity", False, id="less than what is demanded"),
    ],
)
def test_a_stronger_lockdown_is_enough_and_a_weaker_one_is_not(demanded: Lockdown, given: str, holds: bool) -> None:
    facts = BootFacts(command_lines=(f"ro {given}",))
    assert (failed_assertions(Assertions(lockdown=demanded), facts) == ()) is holds


def test_any_value_of_an_option_is_not_the_option_without_a_value() -> None:
    allowed = Assertions(boot_options=("root=*",))
    assert failed_assertions(allowed, BootFacts(command_lines=("root=/dev/a",))) == ()
    assert [one.got for one in failed_assertions(allowed, BootFacts(command_lines=("root",)))] == ["root"]


@pytest.mark.parametrize(
    ("least", "version", "holds"),
    [
        pytest.param("1.9", "1.9", True, id="the minimum itself"),
        pytest.param("1.9", "1.10", True, id="numbers and not letters"),
        pytest.param("1.9", "1.8", False, id="an older one"),
        pytest.param("any", "", False, id="a minimum without a number, and no version"),
    ],
)
def test_versions_are_compared_number_by_number(least: str, version: str, holds: bool) -> None:
    found = failed_assertions(Assertions(firmware_minimum=least), BootFacts(firmware_version=version))
    assert (found == ()) is holds


def test_components_that_are_too_old_are_told_in_order() -> None:
    found = failed_assertions(Assertions(sbat_minimum={"shim": 4, "grub": 3}), BootFacts())
    assert [one.expected for one in found] == ["SBAT level grub 3 or later", "SBAT level shim 4 or later"]


@pytest.mark.parametrize(
    ("demanded", "registers"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({"secure_boot": True}, (7,), id="Secure Boot"),
        pytest.param({"sbat_minimum": {"shim": 4}}, (7,), id="a revocation level"),
        pytest.param({"lockdown": Lockdown.INTEGRITY}, (8, 9, 11), id="lockdown"),
        pytest.param({"boot_options": ()}, (8, 9, 11), id="no boot option at all"),
        pytest.param({"firmware_minimum": "1"}, (0,), id="a firmware version"),
        pytest.param({"kernels": ("6.1.0",)}, (11,), id="a kernel"),
        pytest.param({"source_signers": ("SHA256:x",), "source_minimum": 7}, (), id="a site, in the lock's register"),
        pytest.param({"secure_boot": True, "boot_options": ()}, (7, 8, 9, 11), id="two of them, ascending"),
    ],
)
def test_an_assertion_demands_the_registers_that_its_facts_are_read_from(
    demanded: dict[str, Any], registers: tuple[int, ...]
) -> None:
    assert Assertions(**demanded).registers == registers


def test_all_failures_are_told_at_once_and_the_register_gives_the_code() -> None:
    with pytest.raises(MeasurementMismatch) as caught:
        decide([profile()], {7: b"w" * 32}, (), facts=BootFacts())
    assert caught.value.code == "PCR_MISMATCH"
    assert caught.value.message.count("assertion: expected") == 9


def test_a_fitting_profile_is_taken_before_one_whose_assertions_fail() -> None:
    plain = profile(name="q", assertions=Assertions())
    assert decide([profile(), plain], {7: VALUE}, (), facts=BootFacts()).profile == "q"


@pytest.mark.parametrize(
    ("now", "accepted"),
    [
        pytest.param(NOW - timedelta(seconds=1), True, id="a second before"),
        pytest.param(NOW, False, id="at the moment itself"),
        pytest.param(None, False, id="without a clock"),
    ],
)
def test_an_expired_profile_accepts_nobody(now: datetime | None, accepted: bool) -> None:
    exception = profile(expires=NOW)
    if accepted:
        assert decide([exception], {7: VALUE}, (), facts=FACTS, now=now).profile == "p"
    else:
        error = refused(exception, FACTS, now=now)
        assert error.code == "PROFILE_EXPIRED"
        assert "it expired at 2026-11-22T00:00:00+00:00" in error.message


def test_a_retired_profile_never_accepts() -> None:
    with pytest.raises(PolicyError) as caught:
        decide([profile(retired=True)], {7: VALUE}, (), facts=FACTS)
    assert caught.value.code == "POLICY_EMPTY"


def test_the_registers_of_facts_are_quoted_and_those_of_a_retired_profile_are_not() -> None:
    """A fact of a register that is not quoted would be nobody's word."""
    assert register_selection([profile()], lock_register=15) == (0, 7, 8, 9, 11, 15)
    assert register_selection([profile(assertions=Assertions())], lock_register=15) == (7, 15)
    assert register_selection([profile(retired=True)], lock_register=15) == (15,)


@pytest.mark.parametrize(
    ("claimed", "line", "registers", "reached"),
    [
        pytest.param(Posture.BOOT, "roothash=ab", {9}, Posture.BOOT, id="a profile says what it claims and no more"),
        *(
            pytest.param(
                Posture.ROOT, "roothash=ab", {pcr}, Posture.ROOT, id=f"a measured root hash that PCR {pcr} holds"
            )
            for pcr in (8, 9, 11)
        ),
        pytest.param(Posture.ROOT, "roothash=ab", {7}, Posture.BOOT, id="a root hash that nothing holds"),
        pytest.param(Posture.ROOT, "quiet", {9}, Posture.BOOT, id="no root hash"),
        pytest.param(Posture.ROOT, None, {9}, Posture.BOOT, id="no proven command line"),
        pytest.param(Posture.RUNTIME, "roothash=ab", {9}, Posture.ROOT, id="nobody judges what runs"),
    ],
)
def test_the_posture_is_never_exceeded(
    claimed: Posture, line: str | None, registers: set[int], reached: Posture
) -> None:
    one = profile(
        posture=claimed, assertions=Assertions(), registers={pcr: (AllowedValue(VALUE, "v"),) for pcr in registers}
    )
    facts = BootFacts(command_lines=() if line is None else (line,))
    assert decide([one], dict.fromkeys(registers, VALUE), (), facts=facts).posture is reached


def test_a_root_hash_may_be_held_by_the_options() -> None:
    one = profile(posture=Posture.ROOT, assertions=Assertions(boot_options=("roothash=ab",)))
    assert decide([one], {7: VALUE}, (), facts=BootFacts(command_lines=("roothash=ab",))).posture is Posture.ROOT


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  a  b=c ", ("a", "b=c")),
        ('dyndbg="file a.c +p" x', ('dyndbg="file a.c +p"', "x")),
        ('a"b c', ('a"b c',)),
        ("", ()),
    ],
)
def test_a_command_line_is_parted_as_the_kernel_does(line: str, words: tuple[str, ...]) -> None:
    assert boot_options(line) == words


@pytest.mark.parametrize("first", ["/boot/vmlinuz-6.12", "(hd0,gpt2)/vmlinuz", "BOOT_IMAGE=/vmlinuz"])
def test_the_name_of_the_kernels_file_is_no_option(first: str) -> None:
    """It changes with every kernel update; what the file holds is another register's matter."""
    assert given_options(f"{first} quiet") == ("quiet",)
