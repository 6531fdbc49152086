# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the playbook boot_image does things: a machine that the policy would refuse is never rebooted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"
MACHINE: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / "tasks" / "boot_image.yml").read_text(encoding="utf-8"))
PLAYS: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / "boot_image.yml").read_text(encoding="utf-8"))
NAMES = [task["name"] for task in MACHINE]
POLICY = next(task for task in MACHINE if "block" in task)


def place(name: str) -> int:
    return NAMES.index(name)


def test_evidence_and_profiles_come_before_the_entry_and_the_reboot() -> None:
    order = [
        "Verify the machine as it booted now",
        "Compare the image with the active profiles",
        "Check that an active profile allows the image on this machine",
        "Copy the image",
        "Make the image the next boot",
        "Reboot the machine",
        "Keep the image",
    ]
    assert [place(name) for name in order] == sorted(place(name) for name in order)


def test_nothing_goes_on_after_a_check_that_failed() -> None:
    for task in MACHINE[: place("Reboot the machine")]:
        assert "ignore_errors" not in task
        assert "failed_when" not in task
    assert all(play["any_errors_fatal"] for play in PLAYS)
    assert PLAYS[-1]["serial"] == 1


def test_both_checks_say_why_the_machine_was_not_rebooted() -> None:
    (whole,) = (task for task in POLICY["block"] if "ansible.builtin.assert" in task)
    for task in (whole, MACHINE[place("Check that an active profile allows the image on this machine")]):
        assert task["ansible.builtin.assert"]["fail_msg"].startswith("NEXT_BOOT_REFUSED: expected ")


def test_the_policy_in_force_is_compared_even_with_a_limit_and_never_applied() -> None:
    assert POLICY["check_mode"] is True
    assert POLICY["block"][0]["delegate_to"] == "{{ groups['control_planes'] | first }}"
    assert place(POLICY["name"]) < place("Make the image the next boot")


def test_only_a_machine_that_runs_the_image_keeps_it() -> None:
    keep = MACHINE[place("Keep the image")]
    assert keep["attested.kubernetes.boot_image"]["state"] == "default"
    assert place("Reboot the machine") < place("Keep the image") < place("Wait until the machine is a member again")
