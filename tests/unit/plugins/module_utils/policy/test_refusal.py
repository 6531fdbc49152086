# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a denial says, on recorded boots: register, event, expected values with labels, what came, what to do next."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import merge_profiles
from ansible_collections.attested.kubernetes.tests.support.boot_facts import judged, learned, refused

BASE = learned("deb13-base")
PLAIN = "root=LABEL=root rw console=ttyS0 quiet systemd.show_status=auto"
NEXT = "next: ansible-playbook attested.kubernetes.policy"


def clauses(name: str, *profiles: object) -> list[str]:
    error = refused(name, *(profiles or (BASE,)))  # type: ignore[arg-type]
    head, mark, told = error.message.partition(", got ")
    assert (head, mark) == (f"expected a boot that a profile allows (nearest: {error.nearest})", ", got ")
    return told.split("; ")


@pytest.mark.parametrize(
    ("boot", "registers", "event"),
    [
        pytest.param(
            "deb13-cmdline",
            [4, 9, 11],
            f"PCR 9 event 41 (EV_EVENT_TAG): expected 'kernel command line (load options): {PLAIN}', "
            f"got 'kernel command line (load options): {PLAIN} systemd.unit=multi-user.target attested.tampered=1'",
            id="the command line was changed: both texts",
        ),
        pytest.param(
            "deb13-initrd",
            [4, 9, 11],
            "PCR 9 event 42 (EV_EVENT_TAG) 'initrd' (logged, not proven): expected c0b20b29",
            id="the initrd was changed: its digests",
        ),
        pytest.param(
            "deb13-firmware",
            [0, 7],
            "PCR 0 event 1 (EV_S_CRTM_VERSION): expected \"firmware version '2025.02-8+deb13u1'\", "
            "got \"firmware version ''\"",
            id="the firmware was changed: its versions",
        ),
        pytest.param(
            "deb13-firmware",
            [0, 7],
            "PCR 7 event 4 (EV_EFI_VARIABLE_DRIVER_CONFIG): expected 'EFI variable SecureBoot = empty', "
            "got 'EFI variable SecureBoot = 00'",
            id="a firmware that has the variable",
        ),
        pytest.param(
            "deb13-secureboot",
            [0, 4, 7],
            "PCR 7 event 5 (EV_EFI_VARIABLE_DRIVER_CONFIG): expected 'EFI variable PK = empty', "
            "got 'EFI variable PK = CN=attested corpus PK (sha256 f69846d74a0147bf)'",
            id="Secure Boot's keys were changed: which key",
        ),
        pytest.param(
            "deb13-grub",
            [4, 7, 9, 11],
            r"PCR 4 event 27 (EV_EFI_BOOT_SERVICES_APPLICATION) 'EFI program \\EFI\\BOOT\\BOOTX64.EFI' "
            "(logged, not proven): expected a89f099a",
            id="another boot loader: which program",
        ),
    ],
)
def test_a_denial_names_what_was_changed(boot: str, registers: list[int], event: str) -> None:
    told = clauses(boot)
    values = [one for one in told if one.startswith("PCR") and " event " not in one]
    assert [int(one.split()[1].rstrip(":")) for one in values] == registers
    assert any(one.startswith(event) for one in told), "\n".join(told)
    assert told[-1] == NEXT


def test_expected_values_carry_their_labels_and_what_came_stands_beside() -> None:
    merged = merge_profiles("fleet", [BASE, learned("deb13-cmdline")])
    assert clauses("deb13-initrd", merged)[0] == (
        f"PCR 4: expected {BASE.registers[4][0].digest.hex()} (deb13-base) or "
        f"{learned('deb13-cmdline').registers[4][0].digest.hex()} (deb13-cmdline), "
        f"got {judged('deb13-initrd').pcrs[4].hex()}"
    )


def test_readable_events_stand_before_digests() -> None:
    told = [one for one in clauses("deb13-cmdline") if " event " in one]
    assert ["tampered" in one for one in told] == [True, True, False]


def test_the_nearest_profile_is_the_one_that_is_explained() -> None:
    error = refused("deb13-initrd", learned("deb13-grub"), BASE)
    assert (error.nearest, {one.pcr for one in error.registers}) == ("deb13-base", {4, 9, 11})


def test_a_denial_by_an_assertion_names_it_and_the_next_command() -> None:
    error = refused("deb13-secbootfw-off", learned("deb13-grub-secureboot"), pcrs=judged("deb13-grub-secureboot").pcrs)
    assert error.code == "SECURE_BOOT_OFF"
    assert "got assertion: expected Secure Boot on, got it off" in error.message
    assert error.message.endswith("next: ansible-playbook attested.kubernetes.policy --check --diff")
