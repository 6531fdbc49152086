# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role says before it touches anything."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import FAILED, Case, run_cases

DISKS = {"no state disk": "", "a state disk": "/dev/disk/by-id/virtio-state"}
LOOK = {
    "ansible.builtin.include_role": {"name": "attested.kubernetes.node_prerequisites"},
    "vars": {
        "node_prerequisites_packages": ["no-such-package-one", "no-such-package-two"],
        "node_prerequisites_state_disk": "{{ disk }}",
        "node_prerequisites_state_disk_packages": ["no-such-package-three"],
    },
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a machine that lacks packages hears."""
    known = {"ansible_python_interpreter": sys.executable}
    cases = {name: Case(tasks=[LOOK], variables={**known, "disk": disk}) for name, disk in DISKS.items()}
    found: dict[str, Any] = run_cases(
        tmp_path_factory.mktemp("cases"), cases, hosts={"all": {"hosts": {"localhost": {}}}}
    )
    return {name: " ".join(found[name]["localhost"][FAILED].split()) for name in DISKS}


def test_every_missing_package_is_named_at_once(said: dict[str, str]) -> None:
    assert said["no state disk"].startswith("NODE_PREREQUISITES_MISSING")
    assert "apt-get install no-such-package-one no-such-package-two'" in said["no state disk"]
    assert "dm_integrity" not in said["no state disk"]


def test_a_state_disk_asks_for_its_packages_too(said: dict[str, str]) -> None:
    text = said["a state disk"]
    assert text.startswith("NODE_PREREQUISITES_MISSING")
    assert "apt-get install no-such-package-one no-such-package-two no-such-package-three'" in text
