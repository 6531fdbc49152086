# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a profile accepts at all, and which registers it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Loader, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    FIRST_RESETTABLE_REGISTER,
    MAX_REFERENCE_EVENTS,
    AllowedValue,
    Applicant,
    MeasurementProfile,
    Posture,
    least,
    weaknesses,
)

VALUE = (AllowedValue(bytes(32), "x"),)


def profile(**changes: Any) -> MeasurementProfile:
    return MeasurementProfile(
        **{"name": "x", "posture": Posture.BOOT, "registers": {9: VALUE, 4: VALUE, 0: VALUE}, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "nobody"),
    [
        pytest.param({}, False, id="values in each register"),
        pytest.param({"retired": True}, True, id="retired"),
        pytest.param({"registers": {}}, True, id="no register"),
        pytest.param({"registers": {4: VALUE, 9: ()}}, True, id="a register without a value"),
    ],
)
def test_whom_a_profile_accepts(changes: dict[str, Any], nobody: bool) -> None:
    assert profile(**changes).accepts_no_machine is nobody


def test_registers_are_asked_for_in_their_order_and_not_once_retired() -> None:
    assert profile().demanded_registers == (0, 4, 9)
    assert profile(retired=True).demanded_registers == ()


def test_what_assertions_are_read_from_is_asked_for_too() -> None:
    asserting = profile(assertions=Assertions(secure_boot=True))
    assert asserting.assertions.registers == (7,)
    assert asserting.demanded_registers == (0, 4, 7, 9)


def test_software_may_reset_no_register_below_the_sixteenth() -> None:
    """TCG PC Client Platform TPM Profile, section 4.6: PCR 0 to 15 begin anew with the machine alone."""
    assert FIRST_RESETTABLE_REGISTER == 16


def test_a_profile_has_room_for_as_many_events_as_the_api_takes() -> None:
    """The schema of the object says the same: roles/control_plane/files/crds/measurementprofiles.yml."""
    assert MAX_REFERENCE_EVENTS == 1024


HELD = (AllowedValue(bytes(31) + b"v", "x"),)


def holding(*pcrs: int) -> dict[int, tuple[AllowedValue, ...]]:
    return dict.fromkeys(pcrs, HELD)


@pytest.mark.parametrize(
    ("registers", "loader", "reach"),
    [
        pytest.param(holding(7), None, Posture.KEYS, id="keys alone"),
        pytest.param(holding(4, 7), Loader.IMAGE, Posture.KEYS, id="programs, with a free command line"),
        pytest.param(holding(7, 9, 11), Loader.IMAGE, Posture.KEYS, id="what any program may have measured"),
        pytest.param(holding(4, 9), Loader.IMAGE, Posture.ROOT, id="an image and how it was started"),
        pytest.param(holding(4, 9), Loader.KERNEL, Posture.ROOT, id="a kernel and how it was started"),
        pytest.param(holding(4, 9), Loader.GRUB, Posture.KEYS, id="GRUB with free commands"),
        pytest.param(holding(4, 8), Loader.GRUB, Posture.KEYS, id="GRUB with free files"),
        pytest.param(holding(4, 8, 9), Loader.GRUB, Posture.ROOT, id="GRUB with both"),
        pytest.param(holding(8, 9), Loader.GRUB, Posture.KEYS, id="GRUB's registers with another program"),
        pytest.param(holding(4), Loader.KERNEL, Posture.KEYS, id="a kernel with a free command line"),
        pytest.param(holding(9), Loader.KERNEL, Posture.KEYS, id="a command line of any kernel"),
        pytest.param(holding(4, 9), None, Posture.KEYS, id="nobody says who measured"),
        pytest.param(holding(4, 8), None, Posture.KEYS, id="nobody says it, and GRUB's files are free"),
        pytest.param(holding(8, 9), None, Posture.KEYS, id="nobody says it, and GRUB's registers of any program"),
        pytest.param(holding(4, 11), None, Posture.KEYS, id="nobody says it, and how it was started is free"),
        pytest.param(holding(9, 11), None, Posture.KEYS, id="nobody says it, and an image's registers of any program"),
        pytest.param(holding(4, 8, 9), None, Posture.BOOT, id="nobody says it, and both are held"),
        pytest.param(holding(4, 9, 11), None, Posture.BOOT, id="nobody says it, and an image's sections are held"),
        pytest.param(
            {**holding(4, 9), 11: (*HELD, *VALUE)}, None, Posture.KEYS, id="one of the values is that of no event"
        ),
        pytest.param({**holding(9), 4: VALUE}, Loader.IMAGE, Posture.KEYS, id="a register that nothing came into"),
    ],
)
def test_how_far_registers_reach(
    registers: dict[int, tuple[AllowedValue, ...]], loader: Loader | None, reach: Posture
) -> None:
    assert profile(registers=registers, loader=loader).reach is reach


def test_the_least_of_postures_is_the_one_that_says_least() -> None:
    assert least(Posture.RUNTIME, Posture.BOOT, Posture.ROOT) is Posture.BOOT
    assert least(Posture.BOOT, Posture.KEYS) is Posture.KEYS
    assert least(Posture.RUNTIME) is Posture.RUNTIME


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"registers": holding(4, 9, 11)}, "", id="says what it holds"),
        pytest.param({"registers": holding(7), "posture": Posture.KEYS}, "", id="says little and holds little"),
        pytest.param({"registers": holding(4, 9), "loader": Loader.IMAGE, "posture": Posture.ROOT}, "", id="root"),
        pytest.param({"registers": holding(4, 9), "loader": Loader.IMAGE, "posture": Posture.RUNTIME}, "", id="more"),
        pytest.param(
            {"registers": holding(7)},
            "profile x says posture boot and reaches keys: it holds PCR 7, so initrd or command line are free; "
            "learn it again (attested.kubernetes.enroll) or let it say keys",
            id="the default of a machine with shim and GRUB, before",
        ),
        pytest.param(
            {"registers": holding(11, 9, 4), "posture": Posture.ROOT},
            "profile x says posture root and reaches boot: it holds PCR 4, 9, 11, so no loader is named; learn "
            "it again (attested.kubernetes.enroll) or let it say boot",
            id="root without a loader",
        ),
        pytest.param({"registers": holding(7), "retired": True}, "", id="accepts nobody"),
        pytest.param(
            {"registers": holding(4, 9, 11), "assertions": Assertions(boot_options=(), kernels=("6",))},
            "profile x asserts bootOptions, kernels and so accepts no machine: such assertions hold only if PCR 4 is "
            "held and loader names the program that measured",
            id="asserts what no loader measured",
        ),
        pytest.param(
            {
                "registers": holding(7, 9),
                "posture": Posture.KEYS,
                "loader": Loader.GRUB,
                "assertions": Assertions(lockdown=Lockdown.INTEGRITY),
            },
            "profile x asserts lockdown and so accepts no machine: such assertions hold only if PCR 4 is held and "
            "loader names the program that measured",
            id="names a loader that it does not hold",
        ),
        pytest.param(
            {
                "registers": holding(4, 7),
                "posture": Posture.KEYS,
                "loader": Loader.GRUB,
                "assertions": Assertions(boot_options=("ro",)),
            },
            "",
            id="asserts what a held loader measured",
        ),
    ],
)
def test_what_a_profile_says_and_does_not_hold_is_named(changes: dict[str, Any], told: str) -> None:
    assert "; ".join(weaknesses(profile(**changes))) == told


OWN, OTHER = "1" * 64, "2" * 64
WORKER, PLANE = Applicant(role=Role.WORKER, ek_sha256=OWN), Applicant(role=Role.CONTROL_PLANE, ek_sha256=OWN)


@pytest.mark.parametrize(
    ("limits", "applicant", "counts"),
    [
        pytest.param({}, WORKER, True, id="no limit"),
        pytest.param({}, None, True, id="no limit, and nobody knows who it is"),
        pytest.param({"roles": (Role.WORKER,)}, WORKER, True, id="the own role"),
        pytest.param({"roles": (Role.CONTROL_PLANE, Role.WORKER)}, PLANE, True, id="one of two roles"),
        pytest.param({"roles": (Role.WORKER,)}, PLANE, False, id="another role"),
        pytest.param({"roles": (Role.WORKER,)}, None, False, id="a role, and nobody knows who it is"),
        pytest.param({"machines": (OTHER, OWN)}, WORKER, True, id="one of two machines"),
        pytest.param({"machines": (OTHER,)}, WORKER, False, id="another machine"),
        pytest.param({"machines": (OWN,)}, None, False, id="a machine, and nobody knows who it is"),
        pytest.param({"roles": (Role.WORKER,), "machines": (OWN,)}, WORKER, True, id="both"),
        pytest.param({"roles": (Role.WORKER,), "machines": (OWN,)}, PLANE, False, id="the machine alone"),
        pytest.param({"roles": (Role.WORKER,), "machines": (OTHER,)}, WORKER, False, id="the role alone"),
    ],
)
def test_for_whom_a_profile_counts(limits: dict[str, Any], applicant: Applicant | None, counts: bool) -> None:
    assert profile(**limits).counts_for(applicant) is counts


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        pytest.param({}, "every machine", id="no limit"),
        pytest.param({"roles": (Role.CONTROL_PLANE, Role.WORKER)}, "control-plane, worker", id="roles"),
        pytest.param({"machines": (OWN, OTHER)}, "2 machines", id="machines"),
        pytest.param({"roles": (Role.WORKER,), "machines": (OWN,)}, "1 machines of worker", id="both"),
    ],
)
def test_limits_in_words(limits: dict[str, Any], told: str) -> None:
    assert profile(**limits).limits == told


def test_whose_boot_is_judged_in_words() -> None:
    assert str(PLANE) == f"the control-plane with the endorsement key {OWN[:20]}…"
