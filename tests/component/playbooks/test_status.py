# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `status`, run whole: red while machines are down, green once all are back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.image.next_boot import NextBoot
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
NAMES = ("cp-1", "cp-2", "w-1")
GOOD = {
    "phase": "Joined",
    "needs_person": False,
    "to_do": "Nothing.",
    "reason": None,
    "locked": True,
    "certificate_expires": "2026-11-24T12:00:00+00:00",
}
AWAY = {"failed": True, "msg": "KUBECTL_FAILED: expected the API server to answer"}


PROFILE = "deb13-grub"
BOOTED_KERNEL = "ed8f0dbdbefe3994093937f5ee934818ae902b88cb0b6bc423811c10d55b87b0"


def _boots(kernel: str, *, uefi: bool = True) -> dict[str, Any]:
    """Return the result of next_boot_info on a machine that boots this kernel next."""
    boot = NextBoot(path="/boot/efi/EFI/debian/shimx64.efi", kernel=bytes.fromhex(kernel))
    return {"next_boot": boot.to_mapping(), "uefi": uefi}


class Site:
    """A site of three machines, each of which may be down: nobody listens where it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(ROOT / "playbooks", collection / "playbooks")
        book = collection / "playbooks" / "status.yml"
        book.write_text(book.read_text().replace("/opt/attested/venv/bin/python", sys.executable))
        (collection / "roles").mkdir()
        (collection / "roles" / "node_status").symlink_to(ROOT / "roles" / "node_status")
        modules = {"node_status_info": (), "cluster_info": (), "next_boot_info": ()}
        replace_modules(collection, Path(__file__).with_name("traced.py"), root, modules)
        here = ("fleet_status", "measurement_profile_info")  # these are run as they are
        for part in ("plugin_utils", *(f"action/{name}.py" for name in here)):
            (collection / "plugins" / part).symlink_to(ROOT / "plugins" / part)
        (collection / "plugins" / "modules").mkdir()
        for name in (*modules, *here):
            shutil.copy(ROOT / "plugins" / "modules" / f"{name}.py", collection / "plugins" / "modules" / f"{name}.py")

    def run(self, *options: str, down: tuple[str, ...] = (), **answers: Any) -> tuple[int, str]:
        """Run the playbook; return exit code and output."""
        ready = [one for one in NAMES if one not in down]
        cluster = {"nodes": [_row(name, ready=name in ready) for name in NAMES], "policy": {}, "waiting": []}
        results = {"node_status_info": GOOD, "cluster_info": cluster, "next_boot_info": {}, **answers}
        (self.root / "answers.json").write_text(json.dumps({"results": results}))
        here = {name: {"ansible_connection": "local"} for name in ready}
        gone = {name: {"ansible_host": "127.0.0.1", "ansible_port": 1} for name in down}
        hosts = {name: {**(here | gone)[name], "ansible_remote_tmp": str(self.root / name)} for name in NAMES}
        planes = {name: hosts[name] for name in NAMES if name.startswith("cp")}
        groups = {"control_planes": {"hosts": planes}, "workers": {"hosts": {"w-1": hosts["w-1"]}}}
        (self.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"children": groups}}))
        done = subprocess.run(
            [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.status", *options],
            cwd=self.root,
            env={
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "HOME": str(self.root),
                "ANSIBLE_COLLECTIONS_PATH": str(self.root),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def _row(name: str, *, ready: bool) -> dict[str, Any]:
    return {
        "name": name,
        "registered": True,
        "ready": ready,
        "ready_message": "" if ready else "Kubelet stopped posting node status.",
        "standing": "EvidenceGood",
        "standing_message": "fine",
        "role": "control-plane" if name.startswith("cp") else "worker",
    }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    "down",
    [
        pytest.param(("w-1",), id="a worker"),
        pytest.param(("cp-1",), id="the first control plane, so the second one is asked"),
        pytest.param(("cp-1", "w-1"), id="the first machine of the list and the last"),
    ],
)
def test_it_is_red_while_machines_are_down_and_green_after(site: Site, down: tuple[str, ...]) -> None:
    ends, said = site.run(down=down)
    assert ends != 0, said
    for name in down:
        assert f"{name}: the Node is not Ready" in said
        assert f"{name}: Task failed: Failed to connect to the host via ssh" in said
    for name in set(NAMES) - set(down):
        assert f"{name}: " not in said.partition("A person is needed:")[2].partition("PLAY RECAP")[0]

    ends, said = site.run()
    assert ends == 0, said
    assert "A person is needed" not in said


def test_it_is_red_while_the_whole_cluster_is_down(site: Site) -> None:
    ends, said = site.run(down=NAMES)
    assert ends != 0, said
    assert all(f"{name}: Task failed: Failed to connect" in said for name in NAMES)
    assert "POLICY none" not in said


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        pytest.param(
            {"node_status_info w-1": {**GOOD, "needs_person": True, "reason": "EVIDENCE_REFUSED", "to_do": "Look."}},
            "w-1: EVIDENCE_REFUSED: Look.",
            id="a node that calls for a person",
        ),
        pytest.param(
            {"node_status_info cp-2": {"failed": True, "msg": "NODE_JOURNAL_MALFORMED: expected a journal"}},
            "cp-2: NODE_JOURNAL_MALFORMED",
            id="a node that cannot say",
        ),
    ],
)
def test_it_is_red_for_machines_that_are_up(site: Site, answers: dict[str, Any], told: str) -> None:
    ends, said = site.run(**answers)
    assert ends != 0, said
    assert told in said


def test_an_api_that_does_not_answer_is_red(site: Site) -> None:
    ends, said = site.run(cluster_info=AWAY)
    assert ends != 0, said
    assert "the cluster: KUBECTL_FAILED: expected the API server to answer; next, on cp-1: attested status" in said


def test_before_init_machines_call_for_a_person_and_no_cluster_does(site: Site) -> None:
    fresh = {**GOOD, "phase": "Fresh", "needs_person": True, "to_do": "Run the playbook init."}
    ends, said = site.run(cluster_info=AWAY, node_status_info=fresh)
    assert ends != 0, said
    assert "cp-1: Run the playbook init." in said
    assert "the cluster:" not in said


def test_the_report_that_was_asked_for_is_written_where_a_person_is_needed_too(site: Site) -> None:
    words = ("-e", "attested_status_report=now", "-e", "attested_cluster_name=prod")
    ends, said = site.run(*words, down=("w-1",))
    assert ends != 0, said
    assert all(f"report: {name}" in said for name in ("now.html", "now.json")), said
    report = json.loads((site.root / "now.json").read_bytes())
    assert [(one["name"], one["status"]) for one in report["nodes"]] == [
        ("w-1", "needs a person"),
        ("cp-1", "good"),
        ("cp-2", "good"),
    ]
    assert [one["what"] for one in report["needs"]] == ["Not reachable over ssh", "The Node is not Ready"]
    page = (site.root / "now.html").read_text(encoding="utf-8")
    assert "<h1>Status of cluster prod</h1>" in page
    assert "ansible nodes -m ansible.builtin.ping" in page


def test_check_mode_writes_no_report(site: Site) -> None:
    ends, said = site.run("--check", "-e", "attested_status_report=now.html")
    assert ends == 0, said
    assert not (site.root / "now.html").exists()


def test_a_next_boot_that_the_policy_in_force_does_not_allow_is_told_and_is_no_failure(site: Site) -> None:
    """Held against the profiles of the cluster's policy, by their manifests in the site; a machine may not answer."""
    (site.root / "policy").mkdir()
    (site.root / "policy" / f"{PROFILE}.yml").write_text(render_document(render_profile(learned(PROFILE))))
    cluster = {"nodes": [_row(name, ready=True) for name in NAMES], "waiting": []}
    policy = {"generation": 7, "profiles": [PROFILE], "revoked": 0}
    answers = {
        "cluster_info": {**cluster, "policy": policy},
        "next_boot_info": _boots(BOOTED_KERNEL),
        "next_boot_info w-1": _boots("00" * 32),
        "next_boot_info cp-2": {"failed": True, "msg": "COMMAND_MISSING: expected the program efibootmgr"},
    }
    ends, said = site.run(**answers)
    assert ends == 0, said
    assert "NEXT BOOT w-1: unknown: /boot/efi/EFI/debian/shimx64.efi: no active profile would accept" in said
    assert said.count("NEXT BOOT") == 1
    without_uefi = _boots("00" * 32, uefi=False)
    assert "NEXT BOOT" not in site.run(**{**answers, "next_boot_info w-1": without_uefi})[1]
    ends, said = site.run(**{**answers, "cluster_info": {**cluster, "policy": {**policy, "profiles": ["elsewhere"]}}})
    assert (ends, "NEXT BOOT" in said) == (0, False), said
