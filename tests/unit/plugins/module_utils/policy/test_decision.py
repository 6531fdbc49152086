# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision and its explanation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch, decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import learn_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    Applicant,
    MeasuredEvent,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.tests.support import boots

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32


def profile(
    name: str = "good", registers: dict[int, tuple[bytes, ...]] | None = None, events: tuple[MeasuredEvent, ...] = ()
) -> MeasurementProfile:
    listed = {4: (A,), 7: (B,)} if registers is None else registers
    allowed = {
        pcr: tuple(AllowedValue(value, f"label-{value[:1].decode()}") for value in values)
        for pcr, values in listed.items()
    }
    return MeasurementProfile(name=name, posture=Posture.BOOT, registers=allowed, reference_events=events)


def event(digest: bytes, text: str, *, pcr: int = 4, rank: int = 9) -> MeasuredEvent:
    return MeasuredEvent(pcr=pcr, digest=digest, text=text, rank=rank, proven=True)


def mismatch(
    profiles: list[MeasurementProfile], pcrs: dict[int, bytes], events: tuple[MeasuredEvent, ...] = ()
) -> MeasurementMismatch:
    with pytest.raises(MeasurementMismatch) as caught:
        decide(profiles, pcrs, events)
    assert caught.value.code == "PCR_MISMATCH"
    return caught.value


def recorded(name: str) -> tuple[dict[int, bytes], tuple[MeasuredEvent, ...]]:
    boot = boots.load(name)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "log")
    return boot.pcrs, describe(firmware, userspace, command_line=boot.command_line)


def learned(name: str) -> MeasurementProfile:
    pcrs, events = recorded(name)
    return learn_profile(name, pcrs=pcrs, events=events)


def test_a_machine_that_matches_is_accepted_with_the_labels_of_its_values() -> None:
    verdict = decide([profile(registers={4: (A, C), 7: (B,)})], {4: C, 7: B, 9: A}, ())
    assert (verdict.profile, verdict.posture, verdict.labels) == ("good", Posture.KEYS, {4: "label-c", 7: "label-b"})


def test_one_matching_profile_is_enough() -> None:
    assert decide([profile("other", {4: (C,)}), profile()], {4: A, 7: B}, ()).profile == "good"


def test_profiles_are_not_mixed() -> None:
    """Each register matches some profile, all of them match none."""
    error = mismatch([profile("one", {4: (A,), 7: (B,)}), profile("two", {4: (C,), 7: (C,)})], {4: A, 7: C})
    assert error.nearest == "one"


@pytest.mark.parametrize(
    ("profiles", "named"),
    [
        pytest.param([], "no profile at all", id="no profile"),
        pytest.param([profile("hollow", {})], "hollow", id="a profile without registers"),
        pytest.param([profile("hollow", {4: ()})], "hollow", id="a register without values"),
        pytest.param([profile("half", {4: (A,), 7: ()})], "half", id="one register of two without values"),
    ],
)
def test_an_empty_policy_refuses_everybody_and_says_so(profiles: list[MeasurementProfile], named: str) -> None:
    """S13: closed by default."""
    with pytest.raises(PolicyError, match=f"at least one register, got {named}") as caught:
        decide(profiles, {4: A, 7: B}, ())
    assert caught.value.code == "POLICY_EMPTY"


def test_an_empty_profile_beside_a_good_one_accepts_nobody() -> None:
    assert mismatch([profile("hollow", {}), profile()], {4: C, 7: B}).nearest == "good"


def test_every_deviating_register_is_named() -> None:
    error = mismatch([profile(registers={4: (A, B), 7: (B,), 9: (C,)})], {4: C, 9: C})
    assert [str(one) for one in error.registers] == [
        f"PCR 4: expected {A.hex()} (label-a) or {B.hex()} (label-b), got {C.hex()}",
        f"PCR 7: expected {B.hex()} (label-b), not quoted",
    ]


def test_the_nearest_profile_has_the_fewest_deviations_and_then_the_first_name() -> None:
    far, near, tie = (
        profile("a-far", {4: (C,), 7: (C,)}),
        profile("c-near", {4: (A,), 7: (C,)}),
        profile("b-tie", {4: (A,)}),
    )
    assert mismatch([far, near], {4: A, 7: B}).nearest == "c-near"
    assert mismatch([near, tie], {4: B, 7: C}).nearest == "b-tie"


WORKER = Applicant(role=Role.WORKER, ek_sha256="1" * 64)
FOREIGN = replace(profile("foreign"), roles=(Role.CONTROL_PLANE,))


@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        pytest.param([FOREIGN], "foreign counts for control-plane", id="all are for others"),
        pytest.param(
            [FOREIGN, profile("own", {4: (C,), 7: (C,)})],
            "foreign counts for control-plane",
            id="one that counts does not allow it, one for others does",
        ),
        pytest.param(
            [replace(FOREIGN, registers=profile("x", {4: (C,)}).registers)],
            "foreign counts for control-plane",
            id="the one for others does not allow it either",
        ),
    ],
)
def test_a_profile_for_others_admits_nobody_else(profiles: list[MeasurementProfile], told: str) -> None:
    with pytest.raises(PolicyError) as caught:
        decide(profiles, {4: A, 7: B}, (), applicant=WORKER)
    assert caught.value.code == "PROFILE_NOT_FOR_MACHINE"
    assert caught.value.message == (
        f"expected a profile that counts for the worker with the endorsement key {'1' * 20}…, got {told}"
    )


def test_without_an_applicant_a_limited_profile_counts_for_nobody() -> None:
    with pytest.raises(PolicyError, match="counts for an unknown machine, got foreign") as caught:
        decide([FOREIGN], {4: A, 7: B}, ())
    assert caught.value.code == "PROFILE_NOT_FOR_MACHINE"


def test_a_profile_for_others_beside_one_that_counts_changes_nothing() -> None:
    own = replace(profile("own"), roles=(Role.WORKER,))
    assert decide([FOREIGN, own], {4: A, 7: B}, (), applicant=WORKER).profile == "own"


def test_what_deviates_is_told_from_a_profile_that_counts() -> None:
    """The nearest one is for others, and does not allow the boot either."""
    near, far = replace(FOREIGN, name="a-near"), profile("z-far", {4: (C,), 7: (C,), 9: (C,)})
    with pytest.raises(MeasurementMismatch) as caught:
        decide([near, far], {4: A, 7: C}, (), applicant=WORKER)
    assert caught.value.nearest == "z-far"


def test_events_of_registers_that_match_are_left_out() -> None:
    """Also those of registers without a reference."""
    reference = (event(A, "old", pcr=7),)
    got = (event(B, "new", pcr=7), event(B, "new", pcr=4))
    assert mismatch([profile(events=reference)], {4: C, 7: B}, got).events == ()


def test_readable_events_come_first() -> None:
    expected = (event(A, "a", pcr=4), event(A, "b", pcr=9))
    got = (event(B, "x", pcr=4, rank=5), event(B, "y", pcr=9, rank=0))
    error = mismatch([profile(registers={4: (A,), 9: (A,)}, events=expected)], {4: B, 9: B}, got)
    assert [one.pcr for one in error.events] == [9, 4]


def test_registers_are_told_in_their_order_whatever_that_of_the_profile() -> None:
    backwards = profile(registers={9: (A,), 4: (A,)})
    assert [one.pcr for one in mismatch([backwards], {4: B, 9: B}).registers] == [4, 9]
    assert list(decide([backwards], {4: A, 9: A}, ()).labels) == [4, 9]


def test_a_refusal_by_values_says_nothing_of_an_end() -> None:
    assert "expired" not in mismatch([profile()], {4: C, 7: B}).message


def test_the_base_boot_again_is_accepted() -> None:
    pcrs, events = recorded("deb13-base-again")
    assert decide([learned("deb13-base")], pcrs, events).labels == dict.fromkeys((0, 4, 7, 9, 11), "learned")


def test_a_changed_command_line_is_named_with_both_texts() -> None:
    """The refusal of the lab tour: the machine booted the same kernel with another command line."""
    pcrs, events = recorded("deb13-cmdline")
    error = mismatch([learned("deb13-base")], pcrs, events)
    plain = "root=LABEL=root rw console=ttyS0 quiet systemd.show_status=auto"
    tampered = f"{plain} systemd.unit=multi-user.target attested.tampered=1"
    assert [one.pcr for one in error.registers] == [4, 9, 11]
    assert [str(one) for one in error.events[:2]] == [
        f"PCR {pcr} event {index} ({kind}): expected 'kernel command line ({where}): {plain}', "
        f"got 'kernel command line ({where}): {tampered}'"
        for pcr, index, kind, where in (
            (9, 41, "EV_EVENT_TAG", "load options"),
            (11, 33, "EV_IPL", "section .cmdline"),
        )
    ]
    assert len(error.events) == 3
    assert error.message.startswith(
        "expected a boot that a profile allows (nearest: deb13-base), got PCR 4: expected 6689"
    )


@pytest.mark.parametrize(
    ("name", "registers"),
    [
        ("deb12-base", [4, 9, 11]),
        ("deb13-cmdline", [4, 9, 11]),
        ("deb13-firmware", [0, 7]),
        ("deb13-grub", [4, 7, 9, 11]),
        ("deb13-initrd", [4, 9, 11]),
        ("deb13-secureboot", [0, 4, 7]),
    ],
)
def test_recorded_boots_deviate_where_they_differ(name: str, registers: list[int]) -> None:
    error = mismatch([learned("deb13-base")], *recorded(name))
    assert [one.pcr for one in error.registers] == registers
    assert {one.pcr for one in error.events} == set(registers)


def test_a_learned_profile_holds_the_default_registers_and_their_events() -> None:
    base = learned("deb13-base")
    assert (base.posture, sorted(base.registers)) == (Posture.BOOT, [0, 4, 7, 9, 11])
    assert {event.pcr for event in base.reference_events} == {0, 4, 7, 9, 11}


def test_learning_nothing_is_refused() -> None:
    with pytest.raises(PolicyError, match="expected registers to learn, got none") as caught:
        learn_profile("x", pcrs={4: A}, events=(), registers=())
    assert caught.value.code == "POLICY_EMPTY"


def test_learning_a_register_that_was_not_quoted_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"a quote over \[4, 7\], it lacks \[7\]") as caught:
        learn_profile("x", pcrs={4: A}, events=(), registers=(7, 4))
    assert caught.value.code == "QUOTE_SELECTION"
