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
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import (
    Assertions,
    BootFacts,
    Loader,
    Lockdown,
    boot_options,
    failed_assertions,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch, decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import register_selection
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

VALUE = b"v" * 32
PCRS = {4: VALUE, 7: VALUE}
NOW = datetime(2026, 11, 22, tzinfo=UTC)
LINE = "root=LABEL=root ro quiet lockdown=integrity"
FACTS = BootFacts(
    secure_boot=True,
    command_lines={Loader.IMAGE: (LINE,)},
    firmware_version="2025.02-8+deb13u1",
    kernel=hashlib.sha256(b"6.12.117").digest(),
    sbat_level={"sbat": 2025021800, "shim": 4},
    source_signer="SHA256:admin",
    source_version=7,
    node_config="ab" * 32,
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
    node_configs=("cd" * 32, "ab" * 32),
)


def holding(*pcrs: int) -> dict[int, tuple[AllowedValue, ...]]:
    return {pcr: (AllowedValue(VALUE, "v"),) for pcr in pcrs}


def lines(*told: str) -> dict[Loader, tuple[str, ...]]:
    """What the kernel in an image, or one alone, measured."""
    return {Loader.IMAGE: told, Loader.KERNEL: told}


def failed(assertions: Assertions, facts: BootFacts, *, by: Loader | None = Loader.IMAGE) -> tuple[Any, ...]:
    return failed_assertions(assertions, facts, measured_by=by)


def profile(**changes: Any) -> MeasurementProfile:
    whole = MeasurementProfile(
        name="p", posture=Posture.BOOT, registers=holding(4, 7), assertions=EVERYTHING, loader=Loader.IMAGE
    )
    return dataclasses.replace(whole, **changes)


def refused(one: MeasurementProfile, facts: BootFacts | None, *, now: datetime | None = NOW) -> MeasurementMismatch:
    with pytest.raises(MeasurementMismatch) as caught:
        decide([one], PCRS, (), facts=facts, now=now)
    return caught.value


def test_a_boot_that_keeps_every_assertion_is_accepted() -> None:
    assert failed(EVERYTHING, FACTS) == ()
    assert decide([profile()], PCRS, (), facts=FACTS).profile == "p"


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        pytest.param({"secure_boot": False}, "SECURE_BOOT_OFF", "Secure Boot on, got it off", id="off"),
        pytest.param({"secure_boot": None}, "SECURE_BOOT_OFF", "does not prove it", id="unproven"),
        pytest.param(
            {"command_lines": lines("ro lockdown=none")}, "LOCKDOWN_NOT_PROVEN", "got lockdown=none", id="none"
        ),
        pytest.param({"command_lines": lines("ro")}, "LOCKDOWN_NOT_PROVEN", "got none", id="no lockdown"),
        pytest.param(
            {"command_lines": lines("lockdown=integrity lockdown=none")},
            "LOCKDOWN_NOT_PROVEN",
            "got lockdown=integrity and lockdown=none",
            id="a lockdown that is taken back",
        ),
        pytest.param(
            {"command_lines": lines("ro -- lockdown=integrity")},
            "LOCKDOWN_NOT_PROVEN",
            "got none",
            id="a lockdown that init is told, not the kernel",
        ),
        pytest.param({"command_lines": {}}, "LOCKDOWN_NOT_PROVEN", "no command line that the log proves", id="no line"),
        pytest.param(
            {"command_lines": {Loader.GRUB: (LINE,)}},
            "LOCKDOWN_NOT_PROVEN",
            "no command line that the log proves",
            id="a line of a loader that did not run",
        ),
        pytest.param(
            {"command_lines": lines(f"{LINE} init=/bin/sh")},
            "BOOT_OPTION_UNKNOWN",
            "got init=/bin/sh",
            id="another option",
        ),
        pytest.param(
            {"command_lines": lines(LINE, f"{LINE} rd.break")},
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
        pytest.param({"source_signer": ""}, "SOURCE_NOT_ACCEPTED", "got no site before the lock", id="nobody's site"),
        pytest.param({"source_version": 6}, "SOURCE_TOO_OLD", "or later, got 6", id="an older site"),
        pytest.param({"source_version": 0}, "SOURCE_TOO_OLD", "got none before the lock", id="no site"),
        pytest.param(
            {"node_config": "ef" * 32},
            "NODE_CONFIG_NOT_ACCEPTED",
            f"{'ab' * 32}, got {'ef' * 32}",
            id="another node.yml",
        ),
        pytest.param(
            {"node_config": ""}, "NODE_CONFIG_NOT_ACCEPTED", "got none before the lock", id="no node.yml measured"
        ),
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
        "NODE_CONFIG_NOT_ACCEPTED",
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
    facts = BootFacts(command_lines=lines(f"ro {given}"))
    assert (failed(Assertions(lockdown=demanded), facts) == ()) is holds


def test_any_value_of_an_option_is_not_the_option_without_a_value() -> None:
    allowed = Assertions(boot_options=("root=*",))
    assert failed(allowed, BootFacts(command_lines=lines("root=/dev/a"))) == ()
    assert [one.got for one in failed(allowed, BootFacts(command_lines=lines("root")))] == ["root"]


@pytest.mark.parametrize("word", ["/vmlinuz", "(hd0)/vmlinuz", "BOOT_IMAGE=/vmlinuz"])
def test_no_word_is_let_through_by_its_first_letter(word: str) -> None:
    """What GRUB puts in front is left out where it is read; a line may not choose what of it is judged."""
    found = failed(Assertions(boot_options=("ro",)), BootFacts(command_lines=lines(f"{word} ro")))
    assert [one.got for one in found] == [word]


NO_LOADER = "a profile that does not name the loader that measured it (loader, with PCR 4 held)"


def test_without_a_pinned_loader_no_command_line_and_no_kernel_counts() -> None:
    found = failed(EVERYTHING, FACTS, by=None)
    assert [(one.reason.name, one.got) for one in found] == [
        ("LOCKDOWN_NOT_PROVEN", NO_LOADER),
        ("BOOT_OPTION_UNKNOWN", NO_LOADER),
        ("KERNEL_NOT_ACCEPTED", NO_LOADER),
    ]


@pytest.mark.parametrize("by", [Loader.GRUB, Loader.KERNEL])
def test_a_release_counts_where_the_stub_of_an_image_measured_it(by: Loader) -> None:
    kernels = Assertions(kernels=("6.12.117",))
    assert failed(kernels, FACTS) == ()
    assert [one.got for one in failed(kernels, FACTS, by=by)] == ["no release in the log"]


GRUB_FACTS = BootFacts(secure_boot=True, command_lines={Loader.GRUB: ("ro",)})


@pytest.mark.parametrize(
    ("changes", "secure_boot", "accepted"),
    [
        pytest.param({}, True, True, id="PCR 4 is held, and signed modules alone run"),
        pytest.param({"registers": holding(7, 9)}, True, False, id="nobody holds the loader"),
        pytest.param({"loader": None}, True, False, id="nobody says which loader it is"),
        pytest.param({"loader": Loader.KERNEL}, True, False, id="it is another loader"),
        pytest.param({}, False, False, id="without Secure Boot any module runs in GRUB"),
        pytest.param({}, None, False, id="nor where it is not proven"),
        pytest.param({"registers": holding(4, 9)}, False, True, id="but for files that are all held"),
    ],
)
def test_grubs_commands_count_for_a_profile_that_holds_grub(
    changes: dict[str, Any], secure_boot: bool | None, accepted: bool
) -> None:
    one = profile(**{"loader": Loader.GRUB, "assertions": Assertions(boot_options=("ro",)), **changes})
    facts = dataclasses.replace(GRUB_FACTS, secure_boot=secure_boot)
    if accepted:
        assert decide([one], dict.fromkeys((4, 7, 9), VALUE), (), facts=facts).profile == "p"
        return
    with pytest.raises(MeasurementMismatch) as caught:
        decide([one], dict.fromkeys((4, 7, 9), VALUE), (), facts=facts)
    assert caught.value.code == "BOOT_OPTION_UNKNOWN"


@pytest.mark.parametrize(
    ("least", "version", "holds"),
    [
        pytest.param("1.9", "1.9", True, id="the minimum itself"),
        pytest.param("1.9", "1.10", True, id="numbers and not letters"),
        pytest.param("1.9", "1.8", False, id="an older one"),
        pytest.param("1.9", "1.09", True, id="zeros in front"),
        pytest.param("1.9", "1.0", False, id="nothing but a zero"),
        pytest.param("1.0.0", "1.000.0", True, id="zeros alone"),
        pytest.param("1.10", "1.9", False, id="ten is more than nine"),
        pytest.param("1.0.1", "1.1", True, id="a zero that counts"),
        pytest.param("1.9", "1." + "9" * 9000, True, id="a number of thousands of digits"),
        pytest.param("1.9", "0." + "9" * 9000, False, id="thousands of digits behind an older one"),
        pytest.param("any", "", False, id="a minimum without a number, and no version"),
    ],
)
def test_versions_are_compared_number_by_number(least: str, version: str, holds: bool) -> None:
    found = failed(Assertions(firmware_minimum=least), BootFacts(firmware_version=version))
    assert (found == ()) is holds


def test_components_that_are_too_old_are_told_in_order() -> None:
    found = failed(Assertions(sbat_minimum={"shim": 4, "grub": 3}), BootFacts())
    assert [one.expected for one in found] == ["SBAT level grub 3 or later", "SBAT level shim 4 or later"]


@pytest.mark.parametrize(
    ("demanded", "registers"),
    [
        pytest.param({}, (), id="nothing"),
        pytest.param({"secure_boot": True}, (7,), id="Secure Boot"),
        pytest.param({"sbat_minimum": {"shim": 4}}, (7,), id="a revocation level"),
        pytest.param({"lockdown": Lockdown.INTEGRITY}, (8, 9), id="lockdown"),
        pytest.param({"boot_options": ()}, (8, 9), id="no boot option at all"),
        pytest.param({"firmware_minimum": "1"}, (0,), id="a firmware version"),
        pytest.param({"kernels": ("6.1.0",)}, (11,), id="a kernel"),
        pytest.param(
            {"source_signers": ("SHA256:x",), "source_minimum": 7, "node_configs": ("ab",)},
            (),
            id="a site, in the lock's register",
        ),
        pytest.param({"secure_boot": True, "boot_options": ()}, (7, 8, 9), id="two of them, ascending"),
    ],
)
def test_an_assertion_demands_the_registers_that_its_facts_are_read_from(
    demanded: dict[str, Any], registers: tuple[int, ...]
) -> None:
    assert Assertions(**demanded).registers == registers


def test_all_failures_are_told_at_once_and_the_register_gives_the_code() -> None:
    with pytest.raises(MeasurementMismatch) as caught:
        decide([profile()], {**PCRS, 7: b"w" * 32}, (), facts=BootFacts())
    assert caught.value.code == "PCR_MISMATCH"
    assert caught.value.message.count("assertion: expected") == 10


def test_a_fitting_profile_is_taken_before_one_whose_assertions_fail() -> None:
    plain = profile(name="q", assertions=Assertions())
    assert decide([profile(), plain], PCRS, (), facts=BootFacts()).profile == "q"


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
        assert decide([exception], PCRS, (), facts=FACTS, now=now).profile == "p"
    else:
        error = refused(exception, FACTS, now=now)
        assert error.code == "PROFILE_EXPIRED"
        assert "it expired at 2026-11-22T00:00:00+00:00" in error.message


def test_a_retired_profile_never_accepts() -> None:
    with pytest.raises(PolicyError) as caught:
        decide([profile(retired=True)], PCRS, (), facts=FACTS)
    assert caught.value.code == "POLICY_EMPTY"


def test_the_registers_of_facts_are_quoted_and_those_of_a_retired_profile_are_not() -> None:
    """A fact of a register that is not quoted would be nobody's word."""
    assert register_selection([profile()], lock_register=15) == (0, 4, 7, 8, 9, 11, 15)
    assert register_selection([profile(assertions=Assertions())], lock_register=15) == (4, 7, 15)
    assert register_selection([profile(retired=True)], lock_register=15) == (15,)


@pytest.mark.parametrize(
    ("claimed", "changes", "line", "reached"),
    [
        pytest.param(Posture.BOOT, {}, "roothash=ab", Posture.BOOT, id="a profile says what it claims and no more"),
        pytest.param(Posture.KEYS, {}, "roothash=ab", Posture.KEYS, id="nor more than the least that it claims"),
        pytest.param(Posture.ROOT, {}, "roothash=ab", Posture.ROOT, id="a measured root hash, and the initrd held"),
        pytest.param(
            Posture.ROOT,
            {"registers": holding(4, 8, 9), "loader": Loader.GRUB},
            "roothash=ab",
            Posture.ROOT,
            id="the same with GRUB",
        ),
        pytest.param(Posture.RUNTIME, {}, "roothash=ab", Posture.ROOT, id="nobody judges what runs"),
        pytest.param(Posture.ROOT, {}, "ro", Posture.BOOT, id="no root hash"),
        pytest.param(Posture.ROOT, {}, "xroothash=ab", Posture.BOOT, id="another option"),
        pytest.param(Posture.ROOT, {}, None, Posture.BOOT, id="no proven command line"),
        pytest.param(
            Posture.ROOT, {"registers": holding(9)}, "roothash=ab", Posture.KEYS, id="a line without its loader"
        ),
        pytest.param(Posture.ROOT, {"registers": holding(4, 7)}, "roothash=ab", Posture.KEYS, id="a free initrd"),
        pytest.param(
            Posture.ROOT,
            {"registers": holding(4, 9), "loader": Loader.GRUB},
            "roothash=ab",
            Posture.KEYS,
            id="free commands of GRUB",
        ),
        pytest.param(Posture.ROOT, {"registers": holding(7)}, "roothash=ab", Posture.KEYS, id="keys alone"),
        pytest.param(
            Posture.ROOT,
            {"registers": holding(7), "assertions": Assertions(boot_options=("roothash=ab",))},
            "roothash=ab",
            None,
            id="a root hash among the options of a line that nobody holds",
        ),
        pytest.param(
            Posture.ROOT,
            {"registers": holding(4, 9, 11), "loader": None},
            "roothash=ab",
            Posture.BOOT,
            id="nobody says who measured",
        ),
        pytest.param(
            Posture.BOOT,
            {"registers": {**holding(4, 9), 11: (AllowedValue(bytes(32), "v"),)}, "loader": None},
            "ro",
            Posture.KEYS,
            id="a register that nothing was measured into holds nothing",
        ),
    ],
)
def test_the_posture_is_never_exceeded(
    claimed: Posture, changes: dict[str, Any], line: str | None, reached: Posture | None
) -> None:
    told = {"registers": holding(4, 9, 11), "assertions": Assertions(), **changes}
    one = profile(posture=claimed, **told)
    facts = BootFacts(command_lines={} if line is None else dict.fromkeys(Loader, (line,)))
    values = {pcr: allowed[0].digest for pcr, allowed in one.registers.items()}
    if reached is None:
        assert code_of(lambda: decide([one], values, (), facts=facts)) == "BOOT_OPTION_UNKNOWN"
    else:
        assert decide([one], values, (), facts=facts).posture is reached


def test_every_line_that_a_kernel_was_started_with_needs_a_root_hash() -> None:
    one = profile(posture=Posture.ROOT, registers=holding(4, 9), assertions=Assertions())
    facts = BootFacts(command_lines=lines("roothash=ab", "ro"))
    assert decide([one], dict.fromkeys((4, 9), VALUE), (), facts=facts).posture is Posture.BOOT


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


@pytest.mark.parametrize(
    ("held", "code"),
    [((4,), ""), ((7,), ""), ((0, 4, 7), ""), ((0,), "SBAT_TOO_OLD"), ((0, 9), "SBAT_TOO_OLD")],
)
def test_a_revocation_level_counts_where_shim_or_its_register_is_held(held: tuple[int, ...], code: str) -> None:
    one = profile(registers=holding(*held), assertions=Assertions(sbat_minimum={"shim": 4}, firmware_minimum="2025"))
    values = dict.fromkeys(held, VALUE)
    if code:
        assert code_of(lambda: decide([one], values, (), facts=FACTS)) == code
    else:
        assert decide([one], values, (), facts=FACTS).profile == "p"


def test_one_root_hash_among_other_options_is_one() -> None:
    one = profile(posture=Posture.ROOT, registers=holding(4, 9), assertions=Assertions())
    facts = BootFacts(command_lines=lines("ro roothash=ab quiet"))
    assert decide([one], dict.fromkeys((4, 9), VALUE), (), facts=facts).posture is Posture.ROOT


@pytest.mark.parametrize("loader", [Loader.IMAGE, Loader.KERNEL])
def test_what_a_kernel_measures_counts_without_secure_boot_too(loader: Loader) -> None:
    """Its program is held by PCR 4, and runs nothing else before it has measured."""
    one = profile(registers=holding(4), assertions=Assertions(boot_options=("ro",)), loader=loader)
    facts = BootFacts(secure_boot=False, command_lines=lines("ro"))
    assert decide([one], {4: VALUE}, (), facts=facts).profile == "p"
