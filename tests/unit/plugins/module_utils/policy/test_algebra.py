# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true of every policy: more values never refuse more, order is nothing, what is retired never accepts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import decide
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
DIGESTS = [bytes([number]) * 32 for number in range(4)]
VALUES = st.builds(AllowedValue, st.sampled_from(DIGESTS), st.sampled_from(["old", "new"]))
REGISTERS = st.dictionaries(st.sampled_from([0, 4, 7]), st.lists(VALUES, max_size=3).map(tuple), max_size=3)
ENDS = st.sampled_from([None, NOW, NOW + timedelta(days=1)])
PROFILES = st.lists(
    st.builds(
        MeasurementProfile,
        name=st.sampled_from("abcdef"),
        posture=st.just(Posture.BOOT),
        registers=REGISTERS,
        expires=ENDS,
        retired=st.booleans(),
    ),
    max_size=4,
    unique_by=lambda profile: profile.name,
)
BOOTS = st.fixed_dictionaries({0: st.sampled_from(DIGESTS), 4: st.sampled_from(DIGESTS), 7: st.sampled_from(DIGESTS)})


def accepting(profiles, pcrs):
    """Return the name of the profile that accepts, or the code that refuses."""
    try:
        return decide(profiles, pcrs, (), now=NOW).profile
    except PolicyError as error:
        return error.code


def is_accepted(profiles, pcrs):
    return accepting(profiles, pcrs) in {profile.name for profile in profiles}


def allows(profile, pcrs):
    """Say by the words of the documentation, and by nothing of the code, whether a profile accepts a boot."""
    in_force = not profile.retired and (profile.expires is None or profile.expires > NOW)
    held = [pcrs[pcr] in {value.digest for value in allowed} for pcr, allowed in profile.registers.items()]
    return in_force and bool(held) and all(held)


@given(profiles=PROFILES, pcrs=BOOTS)
def test_a_boot_is_accepted_if_and_only_if_one_profile_allows_all_of_it(profiles, pcrs):
    allowing = sorted(profile.name for profile in profiles if allows(profile, pcrs))
    if allowing:
        assert accepting(profiles, pcrs) == allowing[0]
    else:
        assert accepting(profiles, pcrs) in {"POLICY_EMPTY", "PCR_MISMATCH", "PROFILE_EXPIRED"}


@given(profiles=PROFILES, pcrs=BOOTS, value=VALUES, data=st.data())
def test_one_more_value_never_refuses_more(profiles, pcrs, value, data):
    filled = [(index, pcr) for index, one in enumerate(profiles) for pcr, allowed in one.registers.items() if allowed]
    if not filled:
        return
    index, pcr = data.draw(st.sampled_from(filled))
    old = profiles[index]
    more = replace(old, registers={**old.registers, pcr: (*old.registers[pcr], value)})
    assert is_accepted([*profiles[:index], more, *profiles[index + 1 :]], pcrs) >= is_accepted(profiles, pcrs)


@given(profiles=PROFILES, pcrs=BOOTS, more=PROFILES)
def test_one_more_profile_never_refuses_more(profiles, pcrs, more):
    others = [replace(profile, name=f"{profile.name}+") for profile in more]
    assert is_accepted([*profiles, *others], pcrs) >= is_accepted(profiles, pcrs)


@given(profiles=PROFILES, pcrs=BOOTS)
def test_what_is_retired_never_accepts(profiles, pcrs):
    retired = [replace(profile, retired=True) for profile in profiles]
    assert accepting(retired, pcrs) == "POLICY_EMPTY"
    for index, profile in enumerate(profiles):
        without = [*profiles[:index], replace(profile, retired=True), *profiles[index + 1 :]]
        assert accepting(without, pcrs) != profile.name


@given(profiles=PROFILES, pcrs=BOOTS)
def test_the_order_of_profiles_decides_nothing(profiles, pcrs):
    assert accepting(profiles, pcrs) == accepting(list(reversed(profiles)), pcrs)


@pytest.mark.parametrize("register", [0, 4, 7])
@given(profiles=PROFILES, pcrs=BOOTS)
def test_a_register_that_was_not_quoted_is_never_allowed(register, profiles, pcrs):
    quoted = {pcr: value for pcr, value in pcrs.items() if pcr != register}
    accepted = accepting(profiles, quoted)
    assert not any(register in profile.registers for profile in profiles if profile.name == accepted)
