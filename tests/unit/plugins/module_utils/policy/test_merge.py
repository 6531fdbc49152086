# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several reference machines: what differs, and the one profile that accepts each of them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import PolicyError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions, Loader, Lockdown
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import (
    Preset,
    differences,
    merge_profiles,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import Posture
from ansible_collections.attested.kubernetes.tests.support.boot_facts import accepted, learned, refused

NAMES = ("deb13-base", "deb13-cmdline", "deb13-initrd")


def test_what_differs_is_shown_by_register_and_event() -> None:
    found = differences([learned("deb13-base"), learned("deb13-firmware")])
    assert [one.pcr for one in found] == [0, 7]
    assert [value.label for value in found[0].values] == ["deb13-base", "deb13-firmware"]
    told = str(found[1])
    assert told.startswith("PCR 7: deb13-base has b5710bf5")
    assert "EFI variable SecureBoot = empty" in told
    assert "EFI variable SecureBoot = 00" in told


def test_machines_that_booted_the_same_do_not_differ() -> None:
    assert differences([learned("deb13-base"), learned("deb13-base-again")]) == ()


def test_a_merged_profile_accepts_each_of_its_machines_and_nobody_else() -> None:
    merged = merge_profiles("fleet", [learned(name) for name in NAMES])
    for name in NAMES:
        assert accepted(name, merged).labels[4] == name
    assert refused("deb12-base", merged).code == "PCR_MISMATCH"


def test_a_value_that_several_have_carries_all_labels() -> None:
    merged = merge_profiles("fleet", [learned(name) for name in NAMES])
    assert [value.label for value in merged.registers[0]] == [", ".join(NAMES)]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([learned("deb13-grub")], id="other registers"),
        pytest.param([dataclasses.replace(learned("deb13-cmdline"), retired=True)], id="one that accepts nobody"),
        pytest.param([dataclasses.replace(learned("deb13-cmdline"), roles=(Role.WORKER,))], id="another role"),
        pytest.param([dataclasses.replace(learned("deb13-cmdline"), machines=("1" * 64,))], id="other machines"),
    ],
)
def test_profiles_that_are_unlike_do_not_become_one(others: list[object]) -> None:
    with pytest.raises(PolicyError) as caught:
        merge_profiles("fleet", [learned("deb13-base"), *others])  # type: ignore[list-item]
    assert caught.value.code == "PROFILES_UNLIKE"


def test_a_merged_profile_counts_for_those_that_its_parts_count_for() -> None:
    limits = {"roles": (Role.WORKER,), "machines": ("1" * 64,)}
    parts = [dataclasses.replace(learned(name), **limits) for name in ("deb13-base", "deb13-cmdline")]
    merged = merge_profiles("fleet", parts)
    assert (merged.roles, merged.machines) == (limits["roles"], limits["machines"])


def test_a_merged_profile_demands_only_what_all_demand() -> None:
    """More values never refuse more: what one part accepts, the whole accepts."""
    strong = Assertions(
        secure_boot=True,
        lockdown=Lockdown.CONFIDENTIALITY,
        boot_options=("a",),
        kernels=("1",),
        sbat_minimum={"shim": 4},
        source_signers=("SHA256:a",),
        source_minimum=7,
        node_configs=("aa", "bb"),
    )
    weak = Assertions(
        lockdown=Lockdown.INTEGRITY,
        boot_options=("b",),
        kernels=("2",),
        sbat_minimum={"shim": 3, "other": 1},
        source_signers=("SHA256:b", "SHA256:a"),
        source_minimum=6,
        node_configs=("bb", "cc"),
    )
    base, soon = learned("deb13-base", Preset.IMAGE), datetime(2027, 1, 1, tzinfo=UTC)
    parts = [dataclasses.replace(base, assertions=strong, expires=soon), dataclasses.replace(base, assertions=weak)]
    merged = merge_profiles("fleet", parts)
    assert merged.assertions == Assertions(
        lockdown=Lockdown.INTEGRITY,
        boot_options=("a", "b"),
        kernels=("1", "2"),
        sbat_minimum={"shim": 3},
        source_signers=("SHA256:a", "SHA256:b"),
        source_minimum=6,
        node_configs=("aa", "bb", "cc"),
    )
    assert merged.expires == soon


def test_a_merged_profile_says_no_more_than_each_and_names_a_loader_that_is_everybodys() -> None:
    base = learned("deb13-base", Preset.STRICT)
    root = dataclasses.replace(base, posture=Posture.ROOT)
    same = merge_profiles("fleet", [root, learned("deb13-cmdline", Preset.STRICT)])
    assert (same.posture, same.loader) == (Posture.BOOT, Loader.IMAGE)
    mixed = merge_profiles("fleet", [base, learned("deb13-grub", Preset.STRICT)])
    assert (mixed.loader, mixed.reach) == (None, Posture.KEYS)
