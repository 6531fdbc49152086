# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a profile through the modules, run for real: merged, computed ahead, warned of, retired."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_profile,
)
from ansible_collections.attested.kubernetes.tests.support import pe
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned

PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    here: "{{ playbook_dir }}"
    fleet: "{{ query('ansible.builtin.file', here ~ '/deb13-base.in', here ~ '/deb13-cmdline.in') }}"
  tasks:
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: fleet, manifests: "{{ fleet }}"}
      register: merged
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: fleet, manifests: "{{ fleet }}"}
      register: again
    - attested.kubernetes.next_boot_info: {root: "{{ here }}"}
      register: found
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [fleet]
        next_boots: "{{ found.next_boots }}"
        image: "{{ here }}/boot/EFI/Linux/next.efi"
      register: before
    - attested.kubernetes.measurement_profile:
        site: "{{ here }}"
        name: next
        base: fleet
        image: "{{ here }}/boot/EFI/Linux/next.efi"
        label: "13.7"
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [fleet, next]
        next_boots: "{{ found.next_boots }}"
        image: "{{ here }}/boot/EFI/Linux/next.efi"
      register: staged
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [fleet]
        image: "{{ here }}/boot/EFI/Linux/next.efi"
        shown: {registers: {"0": "no hex"}, role: worker, ek_proven: "", profile: fleet}
      ignore_errors: true
      register: no_registers
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [fleet, next]
        next_boot: "{{ found.next_boots | first }}"
        shown: {registers: {"7": "{{ '00' * 32 }}"}, role: worker, ek_proven: "", profile: fleet}
      register: other_keys
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [next]
        next_boot: "{{ found.next_boot }}"
        learned: "{{ query('ansible.builtin.file', here ~ '/deb13-cmdline.in') | first }}"
      register: not_known
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: fleet, state: retired}
      register: retired
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: fleet, state: retired}
      register: retired_again
    - attested.kubernetes.measurement_profile:
        site: "{{ here }}"
        name: over
        base: next
        image: "{{ here }}/boot/EFI/Linux/next.efi"
        expires: "2026-01-01T00:00:00Z"
    - attested.kubernetes.measurement_profile_info:
        site: "{{ here }}"
        profiles: [fleet, over]
        next_boots: "{{ found.next_boots }}"
      register: out_of_force
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: next, state: absent}
      check_mode: true
      register: would_go
    - attested.kubernetes.measurement_profile: {site: "{{ here }}", name: fleet}
      ignore_errors: true
      register: nothing
    - ansible.builtin.copy:
        dest: "{{ here }}/told.json"
        mode: "0600"
        content: >-
          {{ {'merged': merged, 'again': again, 'before': before, 'staged': staged, 'retired': retired,
          'retired_again': retired_again, 'out_of_force': out_of_force, 'would_go': would_go,
          'nothing': nothing, 'no_registers': no_registers, 'other_keys': other_keys,
          'not_known': not_known} | to_json }}
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each task of the play answered."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    (folder / "hosts.yml").write_text("{}", encoding="utf-8")
    for boot in ("deb13-base", "deb13-cmdline"):
        text = render_document(render_profile(learned(boot, Preset.IMAGE)))
        (folder / f"{boot}.in").write_text(text, encoding="utf-8")
    image = folder / "boot" / "EFI" / "Linux" / "next.efi"
    image.parent.mkdir(parents=True)
    image.write_bytes(pe.image(stub=252))
    return {**_run(folder), "folder": folder}


def _run(folder: Path) -> dict[str, Any]:

    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "play.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers: dict[str, Any] = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    return answers


def profile(told: dict[str, Any], name: str) -> Any:
    text = (told["folder"] / "policy" / f"{name}.yml").read_text(encoding="utf-8")
    return parse_documents([(name, text)]).profiles[0]


def test_two_machines_become_one_profile_and_their_differences_are_told(told: dict[str, Any]) -> None:
    assert (told["merged"]["changed"], told["again"]["changed"]) == (True, False)
    assert [one.splitlines()[0].split(":")[0] for one in told["merged"]["differences"]] == ["PCR 4", "PCR 9", "PCR 11"]
    assert "attested.tampered=1" in told["merged"]["differences"][1]


def test_an_image_that_nobody_booted_is_warned_of_until_its_profile_is_staged(told: dict[str, Any]) -> None:
    (warning,) = told["before"]["warnings"]
    assert "next.efi: no active profile would accept the machine after booting it (fleet: PCR 4 will be" in warning
    assert told["staged"].get("warnings", []) == []
    assert [one["name"] for one in told["staged"]["profiles"]] == ["fleet", "next"]
    assert profile(told, "next").registers[11][0].label == "13.7"


def test_an_image_of_the_site_is_refused_until_its_profile_is_staged(told: dict[str, Any]) -> None:
    assert told["before"]["judged"]["verdict"] == "refused"
    assert "no active profile would accept the machine after booting it" in told["before"]["judged"]["why"]
    assert told["staged"]["judged"] == {"verdict": "allowed", "profile": "next", "why": ""}
    assert told["no_registers"]["reason"] == "OPTION_INVALID"


def test_of_a_machine_with_other_keys_the_next_boot_is_not_known(told: dict[str, Any]) -> None:
    judged = told["other_keys"]["judged"]
    assert (judged["verdict"], "PCR 7 is 0000" in judged["why"]) == ("unknown", True)


def test_a_machine_without_firmware_entries_boots_something_that_is_not_known(told: dict[str, Any]) -> None:
    assert told["not_known"]["judged"]["verdict"] == "unknown"


def test_learned_values_have_a_name_and_are_compared_event_by_event(told: dict[str, Any]) -> None:
    learned = told["not_known"]["learned"]
    assert len(learned["digest"]) == 64
    assert any("attested.tampered=1" in line for line in learned["differences"])


def test_a_profile_is_retired_once_and_kept(told: dict[str, Any]) -> None:
    assert (told["retired"]["changed"], told["retired_again"]["changed"]) == (True, False)
    assert profile(told, "fleet").accepts_no_machine


def test_profiles_out_of_force_do_not_silence_the_warning(told: dict[str, Any]) -> None:
    """Both would accept the image: one is retired, the other expired."""
    (warning,) = told["out_of_force"]["warnings"]
    assert "no active profile would accept the machine after booting it (fleet: retired; over: expired at" in warning


def test_check_mode_removes_nothing(told: dict[str, Any]) -> None:
    assert told["would_go"]["changed"]
    assert profile(told, "next").name == "next"


def test_an_order_without_a_source_is_refused_by_its_form(told: dict[str, Any]) -> None:
    assert told["nothing"]["failed"]
    assert "state is present but any of the following are missing: manifest, manifests, image" in told["nothing"]["msg"]
