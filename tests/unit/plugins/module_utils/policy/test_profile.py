# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a profile accepts at all, and which registers it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import (
    AllowedValue,
    Assertions,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import FIRST_RESETTABLE_REGISTER

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
    assert profile(**changes).accepts_nobody is nobody


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
