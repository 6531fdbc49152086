# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`os_update`: which node is drained, changed, rebooted and uncordoned when, what is never rebooted, and who approves.

The playbook is real, and so is the one that applies the policy. What changes or reads a machine is replaced by a fleet
of which each machine has a boot that it is in and one that it boots next; kubectl is one that keeps the Nodes. How a
next boot is judged: tests/unit/plugins/module_utils/evidence/image/test_next_boot.py and the virtual machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.replaced_module import replace_modules

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PLANES, WORKERS = ("cp-1", "cp-2"), ("w-1", "w-2")
NODES = (*PLANES, *WORKERS)
PLACE = ("site", "policy_directory", "profiles", "endorsement_authorities")
MODULES = {
    "attestation_policy": (*PLACE, "exceptions", "records", "confirm_refusals", "reinstate", "port"),
    "attestation_verification": (*PLACE, "purpose", "insecure_first_use", "learn_profile", "preset"),
    "boot_image": ("state", "name", "image"),
    "cluster_info": (),
    "cluster_objects": ("manifests",),
    "etcd_member_info": (),
    "measurement_profile": (*PLACE, "name", "manifests"),
    "measurement_profile_info": (*PLACE, "next_boot", "image", "shown", "learned"),
    "next_boot_info": (),
    "node_identity": ("site", "records"),
    "node_status_info": (),
    "policy_record": ("policy",),
    "slurp": ("src",),
    "trace": ("what", "name", "state", "reboot_timeout"),
}
PROGRAM = '''
import base64
import hashlib
import json
import re
from pathlib import Path


def call(root, name, host, params):
    """Answer for one module: ``boots`` says who is in which boot and who boots which next."""
    place = Path(root, "fleet.json")
    fleet = json.loads(place.read_text())
    trace = []
    done = answer(fleet, trace, name, host, params)
    place.write_text(json.dumps(fleet))
    with Path(root, "trace").open("a") as file:
        file.writelines(f"{line}\\n" for line in trace)
    return done


def answer(fleet, trace, name, host, params):
    machine = fleet["machines"].get(host, {})
    allowed = [one for one in params.get("profiles", []) if one in fleet["written"]]
    accepted = [boot for profile in allowed for boot in fleet["written"][profile]]
    if name == "slurp":
        return {"content": base64.b64encode(Path(params["src"]).read_bytes()).decode()}
    if name == "node_status_info":
        return {"phase": machine.get("phase", "Joined"), "kubelet_active": True}
    if name == "attestation_verification" and params.get("purpose") == "enroll":
        assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", params["learn_profile"]), params["learn_profile"]
        return {"profile_manifest": machine["boot"]}
    if name == "attestation_verification" and machine["boot"] in accepted:
        return {"profile": next(one for one in allowed if machine["boot"] in fleet["written"][one])}
    if name == "attestation_verification":
        return {"failed": True, "reason": "PCR_MISMATCH", "msg": f"PCR_MISMATCH: expected old, got {machine['boot']}"}
    if name == "next_boot_info":
        return {"next_boot": {"path": machine["next"]}}
    if name == "measurement_profile_info" and params.get("learned"):
        digest = hashlib.sha256(params["learned"].encode()).hexdigest()
        return {"learned": {"digest": digest, "differences": [f"PCR 9: {params['learned']}"]}}
    if name == "measurement_profile_info":
        boot = Path(params["image"]).stem if params.get("image") else params["next_boot"]["path"]
        verdict = "allowed" if boot in accepted else "unknown" if boot.startswith("grub") else "refused"
        return {"judged": {"verdict": verdict, "profile": boot, "why": f"{boot} is in no profile"}}
    if name == "measurement_profile":
        fleet["written"][params["name"]] = params["manifests"]
        Path(params["policy_directory"], f"{params['name']}.yml").touch()
        trace.append(f"write {params['name']}")
        return {"changed": True}
    if name == "boot_image" and params["state"] == "installed":
        machine["next"] = params["name"]
        return {"changed": True}
    if name == "boot_image":
        runs = machine["boot"] == params["name"]
        return {"running": True, "path": machine["next"]} if runs else {"failed": True, "msg": "BOOT_FELL_BACK"}
    if name == "attestation_policy":
        generation = len(params["profiles"])
        return {
            **dict.fromkeys(("postures", "failing", "unknown", "returning"), []),
            **{"generation": generation, "policy": {"generation": generation}, "manifests": "policy"},
        }
    if name == "policy_record":
        if params.get("policy"):
            fleet["generation"] = params["policy"]["generation"]
            trace.append(f"policy {host}")
        return {"generation": fleet["generation"], "reason": ""}
    if name == "etcd_member_info":
        return {"healthy": fleet["members"], "majority": 2}
    if name == "cluster_info":
        return {"nodes": [{"profile": one["boot"]} for one in fleet["machines"].values()]}
    if name != "trace":
        return {}
    if "reboot_timeout" in params:
        machine["boot"] = fleet["falls_back_to"] or machine["next"]
        trace.append(f"reboot {host}")
    elif params.get("what"):
        machine["next"] = params["what"]
        trace.append(f"change {host}")
    return {"changed": True}
'''
KUBECTL = """#!/usr/bin/env python3
import json, sys
from pathlib import Path

ROOT = Path({root!r})
words = sys.argv[1:]
nodes = json.loads((ROOT / "nodes.json").read_text())
trace = (ROOT / "trace").open("a")
said = [word for word in words if not word.startswith("-")]
dry = "--dry-run=server" in words
if said[:2] == ["get", "node"] and words[-1] == "--output=json":
    print(json.dumps(nodes[said[2]]))
elif said[:2] == ["get", "node"]:
    print("True", Path("/proc/sys/kernel/random/boot_id").read_text().strip())
elif said[0] == "patch":
    patch = json.loads(next(word for word in words if word.startswith("--patch=")).partition("=")[2])
    node = nodes[said[2]]
    if not dry:
        node["metadata"]["annotations"].update(patch["metadata"]["annotations"])
        node["spec"].update(patch["spec"])
        for part in (node["metadata"]["annotations"], node["spec"]):
            for key in [key for key, value in part.items() if value is None]:
                del part[key]
    told = "cordon" if patch["spec"]["unschedulable"] else "uncordon"
    trace.write(f"{{told}} {{said[2]}}{{' (dry)' if dry else ''}}\\n")
elif said[0] == "drain":
    trace.write(f"drain {{said[1]}}{{' (dry)' if dry else ''}}\\n")
    if said[1] in (ROOT / "blocked").read_text().split():
        sys.exit("error: Cannot evict pod as it would violate the pod's disruption budget.")
elif said[0] == "annotate" and not dry:
    key, _sign, value = said[-1].partition("=")
    annotations = nodes[said[2]]["metadata"]["annotations"]
    annotations.pop(key.removesuffix("-"), None)
    annotations.update({{key: value}} if value else {{}})
(ROOT / "nodes.json").write_text(json.dumps(nodes))
"""


class Site:
    """Two control planes and two workers, all in the boot `old`, which the site's profile `old` allows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        collection = root / "ansible_collections" / "attested" / "kubernetes"
        shutil.copytree(ROOT / "playbooks", collection / "playbooks")
        for book in collection.glob("playbooks/**/*.yml"):
            text = book.read_text(encoding="utf-8").replace("/opt/attested/venv/bin/python", sys.executable)
            for name in ("systemd_service", "reboot"):
                text = text.replace(f"ansible.builtin.{name}", "attested.kubernetes.trace")
            text = text.replace("ansible.builtin.slurp", "attested.kubernetes.slurp")
            text = text.replace("dest: /var/lib/attested/boot-images/", f"dest: {root}/copied/")
            book.write_text(text.replace("delay: 10", "delay: 0"), encoding="utf-8")
        (root / "program.py").write_text(PROGRAM, encoding="utf-8")
        replace_modules(collection, root / "program.py", root, MODULES)
        (collection / "roles").mkdir()
        (collection / "roles/attestation_policy").symlink_to(ROOT / "roles/attestation_policy")
        for name in ("bin", "policy", "boot-images", "copied"):
            (root / name).mkdir()
        (root / "bin/kubectl").write_text(KUBECTL.format(root=str(root)))
        (root / "bin/kubectl").chmod(0o700)
        (root / "boot-images/fleet-2.efi").write_bytes(b"image")
        self.block()
        self.write("fleet", self.fleet())
        self.write("nodes", {name: {"metadata": {"annotations": {}}, "spec": {}} for name in NODES})

    @staticmethod
    def fleet() -> dict[str, Any]:
        """Return the fleet as it begins."""
        machines = {name: {"boot": "old", "next": "old"} for name in NODES}
        return {
            "machines": machines,
            "written": {"old": ["old"]},
            "generation": 1,
            "members": 3,
            "falls_back_to": "",
        }

    def write(self, name: str, data: Any) -> None:
        """Write a part of the world."""
        (self.root / f"{name}.json").write_text(json.dumps(data))

    def read(self, name: str) -> Any:
        """Read it."""
        return json.loads((self.root / f"{name}.json").read_text())

    def set(self, **values: Any) -> None:
        """Change the fleet."""
        self.write("fleet", {**self.read("fleet"), **values})

    def block(self, *nodes: str) -> None:
        """Let a budget keep the Pods on these nodes."""
        (self.root / "blocked").write_text(" ".join(nodes))

    def updates_to(self, boot: str) -> tuple[str, str]:
        """Return the words for a tasks file after which a machine boots ``boot``."""
        (self.root / "packages.yml").write_text(f"- attested.kubernetes.trace: {{what: {boot}}}\n")
        return ("-e", "tasks_file=packages.yml")

    def run(self, *options: str, ends: int = 0, **variables: Any) -> tuple[list[str], str]:
        """Return what was done, and what was printed."""
        hosts = {
            group: {"hosts": {name: {"ansible_remote_tmp": str(self.root / name)} for name in names}}
            for group, names in (("control_planes", PLANES), ("workers", WORKERS))
        }
        known = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        known |= {"attested_policy_dir": str(self.root / "policy"), "attested_profiles": ["old"], **variables}
        known["attested_boot_seconds"] = 20
        (self.root / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": known, "children": hosts}}))
        (self.root / "trace").unlink(missing_ok=True)
        done = subprocess.run(
            [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.os_update", "--forks=1", *options],
            cwd=self.root,
            env={
                "PATH": f"{self.root}/bin:{BIN}:{os.environ['PATH']}",
                "HOME": str(self.root),
                "ANSIBLE_COLLECTIONS_PATH": str(self.root),
                "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
                "ANSIBLE_STDOUT_CALLBACK": "default",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == ends, said
        trace = self.root / "trace"
        return trace.read_text().splitlines() if trace.exists() else [], " ".join(said.split())

    def is_as_before(self, node: str) -> bool:
        """Whether a node takes Pods, and nothing of the playbook is left on it."""
        return bool(self.read("nodes")[node] == {"metadata": {"annotations": {}}, "spec": {}})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def whole(*nodes: str) -> list[str]:
    """Return what is done to nodes, one after the other."""
    return [f"{what} {node}" for node in nodes for what in ("cordon", "drain", "change", "reboot", "uncordon")]


FEW = "--limit=w-1,cp-1"
"""A worker and a control plane, where the other nodes would show nothing more."""


def allow(site: Site, boot: str) -> dict[str, Any]:
    """Put a computed profile of ``boot`` in force; return the variables that name it."""
    site.set(written={"old": ["old"], boot: [boot]}, generation=2)
    return {"attested_profiles": ["old", boot]}


def test_canaries_come_first_then_workers_then_control_planes(site: Site) -> None:
    known = allow(site, "new")
    lines, printed = site.run(*site.updates_to("new"), **known, attested_os_update_canaries=["w-2"])
    assert lines == whole("w-2", "w-1", *PLANES)
    assert {one["boot"] for one in site.read("fleet")["machines"].values()} == {"new"}
    assert all(site.is_as_before(node) for node in NODES)
    assert "no node of the cluster uses the profile old; retire it with" in printed
    assert "state=retired" in printed
    assert "uses the profile new" not in printed


def test_check_mode_says_what_would_be_done_and_does_nothing(site: Site) -> None:
    known = allow(site, "new")
    before = site.read("fleet"), site.read("nodes")
    lines, printed = site.run("--check", "--limit=w-1,control_planes[0]", *site.updates_to("new"), **known)
    assert {line for line in lines if "(dry)" not in line} <= {
        f"{what} {n}" for n in NODES for what in ("change", "reboot")
    }
    assert "w-1: Pods are drained, then" in printed
    assert "boots old next, allowed by old" in printed
    assert site.read("nodes") == before[1]


def test_a_next_boot_that_no_profile_allows_is_never_started(site: Site) -> None:
    lines, printed = site.run(*site.updates_to("image-7"), FEW, "-e", "canary=w-1", ends=2)
    assert lines == ["cordon w-1", "drain w-1", "change w-1", "uncordon w-1"]
    assert "NEXT_BOOT_REFUSED: expected an active profile that allows what w-1 boots next, got image-7" in printed
    assert "unschedulable" not in site.read("nodes")["w-1"]["spec"]
    assert site.read("fleet")["machines"]["cp-1"]["next"] == "old"


def test_a_policy_that_is_not_in_force_yet_changes_nothing(site: Site) -> None:
    known = allow(site, "new")
    site.set(generation=1)
    lines, printed = site.run(*site.updates_to("new"), FEW, **known, ends=2)
    assert lines == []
    assert "NEXT_BOOT_REFUSED: expected the site's policy in force" in printed


def test_a_drain_that_fails_leaves_the_node_as_it_was(site: Site) -> None:
    known = allow(site, "new")
    site.block("w-1")
    lines, printed = site.run(*site.updates_to("new"), FEW, **known, ends=2)
    assert lines == ["cordon w-1", "drain w-1", "uncordon w-1"]
    assert "NODE_NOT_DRAINED" in printed
    assert "unschedulable" not in site.read("nodes")["w-1"]["spec"]
    site.block()
    assert site.run(*site.updates_to("new"), "--limit=w-1", **known)[0] == whole("w-1")


def test_a_control_plane_stays_where_etcd_would_lose_its_quorum_and_the_run_goes_on_later(site: Site) -> None:
    """By the same command with the nodes that are left; another one begins with all nodes."""
    known = allow(site, "new")
    site.set(members=2)
    lines, printed = site.run(*site.updates_to("new"), **known, ends=2)
    assert lines == whole(*WORKERS)
    assert "ETCD_QUORUM_AT_RISK" in printed
    site.set(members=3)
    lines, printed = site.run(*site.updates_to("new"), **known)
    assert lines == whole(*PLANES)
    assert "w-1: nothing to do" in printed
    assert site.run(*site.updates_to("new"), "--limit=w-1", **known)[0] == whole("w-1")


def test_an_unknown_next_boot_needs_a_canary_then_an_approval_and_the_others_follow(site: Site) -> None:
    words = (*site.updates_to("grub-7"), "--limit=workers,cp-1")
    lines, printed = site.run(*words, ends=2)
    assert lines == ["cordon w-1", "drain w-1", "change w-1", "uncordon w-1"]
    assert "NEXT_BOOT_UNKNOWN: expected a next boot that can be computed, or -e canary=w-1" in printed

    lines, printed = site.run(*words, "-e", "canary=w-1", ends=2)
    assert lines == ["cordon w-1", "drain w-1", "change w-1", "reboot w-1"]
    digest = hashlib.sha256(b"grub-7").hexdigest()
    assert f"BOOT_NOT_APPROVED: expected -e approve={digest}, got nothing" in printed
    assert "PCR 9: grub-7" in printed
    assert site.read("nodes")["w-1"]["spec"] == {"unschedulable": True}

    lines, printed = site.run(*words, ends=2)
    assert (lines, "BOOT_NOT_APPROVED" in printed) == ([], True)
    lines, printed = site.run(*words, "-e", "approve=9f2c", ends=2)
    assert (lines, "got 9f2c" in printed) == ([], True)

    lines, printed = site.run(*words, "-e", f"approve={digest}")
    name = f"os-{digest[:12]}"
    assert lines == [f"write {name}", "policy cp-1", "uncordon w-1", *whole("w-2", "cp-1")]
    assert all(site.is_as_before(node) for node in NODES)


def test_an_approved_control_plane_is_left_out_of_the_policy_until_it_is_back(site: Site) -> None:
    words = site.updates_to("grub-7")
    machines = site.read("fleet")["machines"]
    site.set(machines={name: {**one, "phase": "Asking"} if name in WORKERS else one for name, one in machines.items()})
    site.run(*words, "--limit=cp-1", "-e", "canary=cp-1", ends=2)
    digest = hashlib.sha256(b"grub-7").hexdigest()
    lines, _printed = site.run(*words, "-e", f"approve={digest}", "-e", "profile=new-kernel")
    assert lines[:3] == ["write new-kernel", "policy cp-2", "uncordon cp-1"]


def test_the_image_of_the_fleet_is_installed_and_a_second_run_does_nothing(site: Site) -> None:
    known = allow(site, "fleet-2")
    words = ("-e", "image=fleet-2", "--limit=w-1,cp-2,control_planes[0]")
    lines, _printed = site.run(*words, **known)
    assert lines == [line for line in whole("w-1", *PLANES) if "change" not in line]
    lines, printed = site.run(*words, **known)
    assert lines == []
    assert "cp-2: nothing to do" in printed


def test_an_image_that_no_profile_allows_is_not_even_copied(site: Site) -> None:
    lines, printed = site.run("-e", "image=fleet-2", FEW, ends=2)
    assert lines == []
    assert "NEXT_BOOT_REFUSED" in printed
    assert list((site.root / "copied").iterdir()) == []


def test_a_machine_that_fell_back_takes_pods_again_and_stops_the_run(site: Site) -> None:
    known = allow(site, "fleet-2")
    site.set(falls_back_to="old")
    lines, printed = site.run("-e", "image=fleet-2", FEW, **known, ends=2)
    assert lines == ["cordon w-1", "drain w-1", "reboot w-1", "uncordon w-1"]
    assert "BOOT_FELL_BACK" in printed


def test_a_cordon_of_an_admin_stays_and_a_machine_that_is_no_member_is_left_out(site: Site) -> None:
    known = allow(site, "new")
    nodes = site.read("nodes")
    nodes["w-1"]["spec"] = {"unschedulable": True}
    site.write("nodes", nodes)
    machines = site.read("fleet")["machines"]
    machines["w-2"]["phase"] = "Asking"
    site.set(machines=machines)
    lines, _printed = site.run(*site.updates_to("new"), "--limit=workers", **known)
    assert lines == ["drain w-1", "change w-1", "reboot w-1"]
    assert site.read("nodes")["w-1"]["spec"] == {"unschedulable": True}
