# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the changed tasks of a playbook in check mode with those of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CALLBACKS = Path(__file__).resolve().parents[1] / "system" / "check_mode" / "callbacks"
Changes = frozenset[tuple[str, str]]
"""Pairs of host and task."""

LIFE = (
    ("preflight",),
    ("secrets",),
    ("bundle",),
    ("prepare",),
    ("enroll", "-e", "profile=lab"),
    ("init",),
    ("node",),
    ("policy",),
    ("verify",),
    ("status",),
    ("versions",),
    ("support_bundle",),
    ("rotate_certificates", "-e", "attested_certificates_at_once=true"),
    ("rotate_encryption_key", "-e", "confirm=key-1"),
    ("reset", "-e", "confirm=w-1"),
    ("node",),
    ("revoke", "-e", "confirm=w-2"),
    ("remove", "-e", "confirm=w-1"),
)
"""Playbooks of one cluster's life with arguments, in order."""
CHANGES = frozenset(
    {"secrets", "prepare", "enroll", "init", "rotate_certificates", "rotate_encryption_key"}
    | {"reset", "revoke", "remove"}
)
"""Playbooks that must change something, otherwise the comparison is empty."""
BY_PHASES = frozenset({"rotate_encryption_key"})
"""Check mode shows all phases in one task, a run executes each: only hosts are compared."""
_IDS = "Record the assigned disk ids"
AFTERWARDS = {
    "init": frozenset(
        {
            "Update the admin's kubeconfig",
            "Compare the site's policy with the nodes",
            "Apply profiles, identities and the policy",
            "Update the policy record of each control plane",
            _IDS,
        }
    ),
    "node": frozenset({_IDS}),
}
"""Tasks whose precondition the run itself creates, so check mode cannot show them."""
APART = {
    "addons": "needs charts and a cluster, tests/api_bed/test_addons.py",
    "answering": "asks, and is imported by others",
    "approve": "needs a machine that waits",
    "backup": "writes one file of the admin's, tests/api_bed/test_backup.py",
    "boot_image": "needs a kernel and a stub to make an image of, tests/component/playbooks/test_boot_image.py",
    "cilium_values": "writes one file of the admin's, tests/component/roles",
    "cloud_init": "writes one file of the admin's, tests/component/playbooks/test_cloud_init.py",
    "enroll_list": "needs a list of machines, tests/component/playbooks/test_enroll_list.py",
    "kubeconfig": "writes files of the admin's, tests/component/playbooks/test_kubeconfig.py",
    "lab": "makes the lab",
    "lab_down": "takes the lab away",
    "lab_machine": "makes the lab",
    "lab_machines": "makes the lab",
    "lab_tour": "shows the lab",
    "machine_init": "is run by a machine itself, never in check mode",
    "machine_member": "is run by a machine itself, never in check mode",
    "os_update": "needs a machine that reboots, tests/component/playbooks/test_os_update.py",
    "recover": "needs a locked disk, tests/component/playbooks/test_recover.py",
    "replace": "needs another machine in the place of one",
    "rescue": "needs disks of Constellation, tests/component/playbooks/test_rescue_playbook.py",
    "rotate_master_secret": "its confirmation is the name of a version, which each site makes for itself",
    "rotate_authorities": "takes two runs an hour apart, tests/component/playbooks/test_rotate_authorities.py",
    "restore": "needs an etcd that is lost, tests/system/control_planes/test_restored.py",
    "upgrade": "needs a second release, tests/system/control_planes/test_release.py",
    "scaffold": "writes a new directory of the admin's, tests/component/playbooks/test_site.py",
}
"""Playbooks that are not compared here, with the reason."""


def settings(told: Path) -> Mapping[str, str]:
    """Return environment variables for the callback that writes changed tasks to the file ``told``."""
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "changed_tasks",
        "ATTESTED_CHANGED_TASKS": str(told),
    }


def changes_in(told: Path) -> Changes:
    """Return the changes in the file ``told``."""
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    return frozenset((host, task) for host, task in map(json.loads, lines))


def compared(playbook: str, changes: Changes) -> frozenset[object]:
    """Return the changes that check mode must show as well."""
    if playbook in BY_PHASES:
        return frozenset(host for host, _task in changes)
    left_out = AFTERWARDS.get(playbook, frozenset())
    return frozenset((host, task) for host, task in changes if task.rpartition(" : ")[2] not in left_out)
