# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator scenarios: an unknown machine, a firmware update, a new mainboard, a revocation. See docs/walk.md.

Each test continues after the previous one in the cluster of this directory; the fleet ends with other firmware.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road, Run

FLEET = ("cp-1", "w-1", "w-2")
NEW = "w-3"
OLD_PROFILE, NEW_PROFILE = "lab", "lab-2022"
FIRMWARE = "boot=deb13-firmware"
EVENT = (
    "PCR 0 event 1 (EV_S_CRTM_VERSION): expected \"firmware version '2025.02-8+deb13u1'\", got \"firmware version ''\""
)
MIRROR, BUNDLE = "mirror.service", "/srv/bundles/kubernetes"
ADMIN = "--kubeconfig=/etc/kubernetes/admin.conf"


def test_an_unknown_machine_waits_is_approved_with_kubectl_and_joins(road: Road) -> None:
    """It is listed by `kubectl get attested`, gets no ticket before approval, and its name with the approval."""
    set_in_site(road, "attested_unknown_machines", "queue")
    road.play("init", "-e", "over_ssh=true")
    unpack(road)
    refused(road, NEW)
    waiting = [one for one in objects(road, "nodeidentities") if one["spec"]["admission"] == "Pending"]
    assert [one["metadata"]["annotations"]["attested-kubernetes.dev/claims-node"] for one in waiting] == [NEW]
    name = waiting[0]["metadata"]["name"]
    assert re.search(rf"nodeidentity\S*/{name} .* Pending", road.kubectl("get", "attested"))
    refusal(road, "IDENTITY_UNKNOWN", machine=name)
    admit = json.dumps({"spec": {"admission": "Approved", "nodeName": NEW}})
    road.kubectl("patch", "nodeidentity", name, "--type=merge", f"--patch={admit}")
    assert join(road)["status"]["lastAttestation"]["profile"] == OLD_PROFILE


def test_a_firmware_update_is_refused_with_the_very_event(road: Road) -> None:
    """Register, event by number and type, both texts, the nearest profile; shown to the admin by the playbook."""
    road.play("lab_machine", "-e", f"machine={NEW}", "-e", FIRMWARE)
    run = refused(road, NEW)
    assert "EV_S_CRTM_VERSION" in run.output
    told = refusal(road, "PCR_MISMATCH", machine=live(road, NEW)["metadata"]["name"])
    assert told.startswith(f"expected a boot that a profile allows (nearest: {OLD_PROFILE}), got PCR 0: expected")
    assert EVENT in told
    assert "PCR 7 event 4 (EV_EFI_VARIABLE_DRIVER_CONFIG): expected 'EFI variable SecureBoot = empty'" in told


def test_its_profile_is_learned_and_staged_and_the_machine_joins(road: Road) -> None:
    """The new profile is added; the other machines still need the old one."""
    road.play("enroll", f"--limit={NEW}", "-e", f"profile={NEW_PROFILE}")
    set_in_site(road, "attested_profiles", f"[{OLD_PROFILE}, {NEW_PROFILE}]")
    road.play("policy")
    assert join(road)["status"]["lastAttestation"]["profile"] == NEW_PROFILE


def test_the_old_profile_is_retired_once_no_machine_needs_it(road: Road) -> None:
    """Before the update, policy lists the machines that would fail and changes nothing; afterwards all nodes verify."""
    alone = json.dumps({"attested_profiles": [NEW_PROFILE]})
    early = road.finish("policy", road.start("policy", "-e", alone))
    assert early.returncode != 0
    assert "POLICY_WOULD_REFUSE" in early.output
    assert set(re.findall(r"([a-z0-9-]+) would fail", early.output)) == set(FLEET)
    update_the_fleet(road)
    retire(road, OLD_PROFILE)
    road.play("policy")
    profiles = {
        one["metadata"]["name"]: one["spec"].get("retired", False) for one in objects(road, "measurementprofiles")
    }
    assert profiles == {OLD_PROFILE: True, NEW_PROFILE: False}
    table = road.play("verify").output
    for node in (*FLEET, NEW):
        assert re.search(rf"{node} +\S+ +verified +{NEW_PROFILE} ", table), table[-3000:]


def test_a_machine_with_a_new_mainboard_takes_its_place_and_keeps_its_disk(road: Road) -> None:
    """It is refused until the admin replaces the machine; then the old identity is revoked."""
    before = live(road, NEW)
    road.play("lab_machine", "-e", f"machine={NEW}", "-e", FIRMWARE, "-e", "mainboard=new")
    refused(road, NEW)
    refusal(road, "IDENTITY_NODE_TAKEN")
    road.play("replace", "-e", f"confirm={NEW}")
    after = join(road)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert after["status"]["diskId"] == before["status"]["diskId"]
    old = json.loads(road.kubectl("get", "nodeidentity", before["metadata"]["name"], "--output=json"))
    assert old["spec"]["admission"] == "Revoked"
    assert old["spec"]["replacedBy"] == after["metadata"]["name"]


def test_a_revoked_machine_is_drained_writes_nothing_and_never_comes_back(road: Road) -> None:
    """Its certificate is still valid, but writes of its user are denied; its Node is deleted and cannot be created."""
    machine = live(road, NEW)["metadata"]["name"]
    there = json.dumps({"spec": {"nodeSelector": {"kubernetes.io/hostname": NEW}}})
    road.kubectl("run", "walker", "--image=localhost/attested-tour:1", f"--overrides={there}")
    road.kubectl("wait", "pod/walker", "--for=condition=PodScheduled", "--timeout=60s")
    road.play("revoke", "-e", f"confirm={NEW}")
    found = road.kubectl("get", "nodes,pods", "--output=name").split()
    assert not {f"node/{NEW}", "pod/walker"} & set(found)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NEW}}
    assert f"the machine {machine} was revoked" in denied(road, "create", given=node)
    road.play("lab_machine", "-e", f"machine={NEW}", "-e", FIRMWARE)
    refused(road, NEW)
    refusal(road, "IDENTITY_REVOKED", machine=machine)
    road.inside("cp-1", "kubectl", ADMIN, "delete", "nodeidentity", machine, check=False)
    assert [one["spec"]["admission"] for one in identities_of(road, NEW)] == ["Revoked", "Revoked"]


def set_in_site(road: Road, name: str, value: str) -> None:
    """Change one line of the site's settings, like an admin with an editor."""
    settings = road.site / "group_vars" / "nodes" / "cluster.yml"
    changed, count = re.subn(rf"^{name}:.*$", f"{name}: {value}", settings.read_text(), flags=re.MULTILINE)
    assert count == 1
    settings.write_text(changed)


def unpack(road: Road) -> None:
    """Add a machine to the inventory; it prepares itself with its user data.

    The lab's image has no cloud-init: the test writes the files and runs the commands of the user data.
    """
    road.play("lab_machine", "-e", f"machine={NEW}")
    hosts = road.site / "hosts.yml"
    line = f"        {NEW}: {{ansible_host: {road.lab.loopback}.23, attested_node_ip: 10.89.7.23}}\n"
    hosts.write_text(hosts.read_text() + line)
    road.inside("cp-1", "systemd-run", f"--unit={MIRROR}", "python3", "-m", "http.server", "8000", "-d", BUNDLE)
    road.play("cloud_init", "-e", "attested_bundle_url=http://10.89.7.11:8000")
    data = yaml.safe_load((road.site / "cloud-init-workers.yml").read_text())
    for one in data["write_files"]:
        road.inside(
            NEW,
            "sh",
            "-c",
            'mkdir -p "$(dirname "$1")" && cat > "$1"',
            "sh",
            one["path"],
            given=one["content"].encode(),
        )
    for command in data["runcmd"]:
        road.inside(NEW, *command)
    wait_for(lambda: bool(road.inside(NEW, "ls", "/var/lib/attested/first-boot.done", check=False)))
    road.inside("cp-1", "systemctl", "stop", MIRROR)
    assert "first-boot" not in road.inside(NEW, "ls", "/var/lib/attested").split()


def update_the_fleet(road: Road) -> None:
    """Reboot all machines with the other firmware; a control plane gets its keys by init, a worker by a ticket."""
    for worker in FLEET[1:]:
        road.play("lab_machine", "-e", f"machine={worker}", "-e", FIRMWARE)
    road.play("lab_machine", "-e", "machine=cp-1", "-e", FIRMWARE, "-e", "restart=false")
    before = road.boot_id("cp-1")
    road.lab.ssh("cp-1", "sudo systemctl reboot")
    deadline = time.monotonic() + 900
    while road.lab.ssh("cp-1", "cat /proc/sys/kernel/random/boot_id").stdout.strip() in {"", before}:
        assert time.monotonic() < deadline, "expected cp-1 to boot"
        time.sleep(0.3)
    road.play("init")
    road.play("node", "--limit=w-1,w-2")
    wait_for(lambda: {profile_of(road, name) for name in FLEET} == {NEW_PROFILE})  # cp-1 attests itself a moment later


def profile_of(road: Road, node: str) -> str:
    """Return the profile that the last evidence of a node met."""
    return str(live(road, node)["status"]["lastAttestation"]["profile"])


def refused(road: Road, machine: str) -> Run:
    """Wait until the machine got only a refusal for its ticket request; `node` shows the reason."""
    wait_for(lambda: "TICKET_REFUSED" in road.inside(machine, "attested", "status", check=False))
    run = road.finish("node", road.start("node", f"--limit={machine}", "-e", "attested_wait_seconds=1"))
    assert run.returncode != 0
    assert "TICKET_REFUSED" in run.output
    return run


def join(road: Road) -> dict[str, Any]:
    """Make the new machine a node and return its identity."""
    road.play("node", f"--limit={NEW}")
    road.wait_until_ready(NEW, boot_id=road.boot_id(NEW))
    (identity,) = [one for one in identities_of(road, NEW) if one["spec"]["admission"] == "Approved"]
    assert identity["status"]["phase"] == "Joined"
    return identity


def retire(road: Road, profile: str) -> None:
    """Retire a profile in the site, so that it accepts no machine."""
    program = str(Path(sys.executable).parent / "ansible")
    words = f"site={road.site} name={profile} state=retired"
    argv = [program, "localhost", "-m", "attested.kubernetes.measurement_profile", "-a", words]
    subprocess.run(argv, cwd=road.site, check=True, capture_output=True)


def objects(road: Road, kind: str) -> list[dict[str, Any]]:
    """Return all objects of a kind."""
    found: list[dict[str, Any]] = json.loads(road.kubectl("get", kind, "--output=json"))["items"]
    return found


def identities_of(road: Road, node: str) -> list[dict[str, Any]]:
    """Return all present and past identities of the node."""
    return [one for one in objects(road, "nodeidentities") if one["spec"]["nodeName"] == node]


def live(road: Road, node: str) -> dict[str, Any]:
    """Return the present identity of the node."""
    (found,) = [one for one in identities_of(road, node) if one["spec"]["admission"] == "Approved"]
    return found


def refusal(road: Road, code: str, *, machine: str = "") -> str:
    """Return the cluster's record of a refusal with this code; it is written shortly after the answer."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for seen in (one["status"] for one in objects(road, "joinattempts")):
            if seen["reason"] == code and machine in {"", seen["machine"]}:
                return str(seen["message"])
        time.sleep(0.5)
    raise AssertionError(f"expected a JoinAttempt with {code} of {machine or 'any machine'}")


def denied(road: Road, *words: str, given: dict[str, Any]) -> str:
    """Run kubectl on the new machine with its kubelet's credential; return the answer of the API server."""
    unpacked = "gunzip -c /srv/bundles/kubernetes/programs/kubectl-*.gz > /tmp/kubectl && chmod +x /tmp/kubectl"
    asked = f"/tmp/kubectl --kubeconfig=/etc/kubernetes/kubelet.conf {' '.join(words)} --filename=- 2>&1"
    return road.inside(NEW, "sh", "-c", f"{unpacked}; {asked}", given=json.dumps(given).encode(), check=False)
