# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rotate_encryption_key` and `rotate_master_secret` as Ansible runs them: what they do where, and in which order.

Playbooks, role and plans are as they are. A module that changes a node changes a state in a file instead.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.attested.kubernetes.tests.component.playbooks.test_rotate_authorities import Site
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

KEY, NEW_KEY = "key-1", "key-2-00000000000000ab"
OLD, NEW = "1-abababababababab", "2-cdcdcdcdcdcdcdcd"
_RECIPIENT = ("kind", "site", "policy_directory", "profiles", "endorsement_authorities", "names", "offer")


class KeySite(Site):
    """Two control planes and a worker whose Secrets are encrypted with one key."""

    BOOK = "rotate_encryption_key"
    CLUSTER = "key_cluster.py"
    OPTIONS: ClassVar[dict[str, tuple[str, ...]]] = {
        "join_turn": ("holder", "state"),
        "node_status_info": (),
        "recovery_kit": ("site", "path", "policy_directory"),
        "rotation": ("kind", "old", "found", "site", "apply"),
        "rotation_info": ("kind", "device"),
        "rotation_phase": ("kind", "plan", "handle", "sealed"),
        "rotation_recipient": _RECIPIENT,
        "rotation_share": ("kind", "handle", "orders"),
        "state_disk_key": ("name", "device"),
        "stored_secrets": ("in_force",),
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root, planes=2)
        shutil.copytree(ROOT / "playbooks" / "tasks", self.collection / "playbooks" / "tasks")

    def first(self) -> dict[str, Any]:
        """Return what the cluster looks like before a rotation."""
        return {
            "kind": "encryption_key",
            "nodes": self.nodes,
            "planes": {name: [KEY] for name in self.planes},
            "stored": {KEY: 3},
            "site": [],
        }


class SecretSite(KeySite):
    """Two control planes and a worker under one version of the master secret; one control plane has no state disk."""

    BOOK = "rotate_master_secret"

    def first(self) -> dict[str, Any]:
        """Return what the cluster looks like before a rotation."""
        return {
            "kind": "master_secret",
            "nodes": self.nodes,
            "planes": {name: [OLD] for name in self.planes},
            "disks": {"cp-2": OLD, "w-1": OLD},
            "stored": {},
            "site": [OLD],
        }

    def variables(self, name: str) -> dict[str, str]:
        """Return the state disk of a host, and where the kit is."""
        kit = {"attested_recovery_kit": "/kit"}
        return kit if name == "cp-1" else {**kit, "attested_state_disk": f"/dev/disk/by-id/{name}"}


def of_planes(phase: str) -> list[str]:
    return [f"{phase} on cp-1", f"{phase} on cp-2"]


def test_the_encryption_key_is_replaced_phase_by_phase_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    site, confirm = KeySite(tmp_path), ("-e", f"confirm={KEY}")
    called, said = site.run("--check", *confirm)
    assert (called, "rewrite: encrypt every Secret again with it" in said) == ([], True)
    assert "Secrets in etcd: key-1 3" in said

    site.write(sick="rewrite")
    called, _said = site.run(*confirm, ends=2, hosts=("w-2",))
    assert called[0] == "make on cp-1"
    assert [sorted(called[at : at + 2]) for at in (1, 3)] == [of_planes("share"), of_planes("lead")]
    assert site.state["planes"] == {name: [NEW_KEY, KEY] for name in site.planes}

    site.write(sick="")
    called, _said = site.run(*confirm)
    assert (called[0], sorted(called[1:])) == ("rewrite", of_planes("retire"))
    assert site.state["planes"] == {name: [NEW_KEY] for name in site.planes}

    called, said = site.run(*confirm)
    assert (called, "changed=0" in said) == ([], True)
    assert f"{KEY} is in no file and encrypts no Secret. New Secrets are encrypted with {NEW_KEY}." in said


def test_a_cluster_in_clear_is_encrypted(tmp_path: Path) -> None:
    site = KeySite(tmp_path)
    site.write(planes={name: ["identity"] for name in site.planes}, stored={"identity": 2})
    called, _said = site.run("-e", "confirm=identity")
    assert called[0] == "make on cp-1"
    assert site.state["planes"] == {name: [NEW_KEY] for name in site.planes}
    assert site.state["stored"] == {NEW_KEY: 2}


def test_the_master_secret_is_replaced_phase_by_phase_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    site, confirm = SecretSite(tmp_path), ("-e", f"confirm={OLD}")
    called, said = site.run("--check")
    assert (called, f"rotate_master_secret -e confirm={OLD}" in said) == ([], True)

    site.write(sick="rekey w-1")
    called, _said = site.run(*confirm, ends=2)
    assert called[:2] == ["make in the site", "kit with 1 2"]
    assert [sorted(called[at : at + 2]) for at in (2, 4)] == [
        ["1 2 to cp-1", "1 2 to cp-2"],
        ["2 1 to cp-1", "2 1 to cp-2"],
    ]
    assert called[6:] == ["rekey cp-2"]

    site.write(sick="")
    called, said = site.run(*confirm)
    assert called[0] == "rekey w-1"
    assert sorted(called[1:3]) == ["2 to cp-1", "2 to cp-2"]
    assert called[3:] == ["forget in the site", "kit with 2"]
    assert f"use {NEW} alone" in said
    assert (site.state["site"], site.state["disks"]) == ([NEW], {"cp-2": NEW, "w-1": NEW})

    called, said = site.run(*confirm)
    assert (called, "changed=0" in said, f"Nothing is left of the version {OLD}" in said) == ([], True, True)


def test_a_node_that_does_not_answer_ends_it_before_anything_is_made(tmp_path: Path) -> None:
    site = SecretSite(tmp_path)
    site.write(nodes=[*site.nodes, "w-9"])
    called, said = site.run("-e", f"confirm={OLD}", ends=2)
    assert (called, "ROTATION_NODES_UNREACHED" in said) == ([], True)
