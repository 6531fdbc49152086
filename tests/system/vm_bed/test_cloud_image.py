# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bare cloud image and one snippet: a machine of the maker's list becomes a Ready node, another one is refused.

Nobody logs in to either. The profile is learned from one more machine of the same image, which has a login in its own
user data and never joins. In the order of one lab's life; what each scene took is printed, and fails nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.cloud_bed import (
    CloudMachine,
    identity_name,
    listed,
    with_login,
)
from ansible_collections.attested.kubernetes.tests.support.vm_bed import RARELY, HybridRoad, hybrid_road
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_CLOUD_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that has been through init; it is used and left."""

WORDS = ("-e", '{"lab_workers": 0}')
MIRROR, BUNDLE = "mirror.service", "/srv/bundles/kubernetes"
GROUP, PROFILE = "cloud", "cloud"
REFERENCE, GOOD, OTHER = "vw-1", "vw-2", "vw-3"
SERIAL = "7XK2T53"
LONG = 4500.0
"""Seconds; the machines are emulated and need the processors more than those who wait."""
PREPARED = "test -e /var/lib/attested/first-boot.done"
# the lab's settings are for containers; these are the defaults of the collection
METAL = {
    "attested_tcti": "device:/dev/tpmrm0",
    "attested_firmware_log": "/sys/kernel/security/tpm0/binary_bios_measurements",
    "attested_userspace_log": "/run/log/systemd/tpm2-measure.log",
    "attested_command_line": "/proc/cmdline",
    "attested_allow_cgroup_v1": False,
    "attested_restrict_oom_score": False,
    "attested_unmanaged_conntrack": False,
    "attested_bundle_url": "http://10.89.7.11:8000",
    "ansible_timeout": 60,
}


@pytest.fixture(scope="module")
def road() -> Iterator[HybridRoad]:
    """A cluster of one control plane, whose bundle is on a web server, and the user data of its workers."""
    with hybrid_road("lab", "init", of="attested-cloud:127.96.0", instead=USED_LAB, words=WORDS, disks=()) as one:
        into_site(one)
        one.inside("cp-1", "systemd-run", f"--unit={MIRROR}", "python3", "-m", "http.server", "8000", "-d", BUNDLE)
        one.play("cloud_init", *WORDS, "-e", f"group={GROUP}")
        yield one


@pytest.fixture(scope="module")
def machines(road: HybridRoad) -> dict[str, CloudMachine]:
    cache = Path(os.environ.get("ATTESTED_CACHE") or Path.home() / ".cache" / "attested-kubernetes")
    numbers = {REFERENCE: 51, GOOD: 52, OTHER: 53}
    return {name: CloudMachine(lab=road.lab, name=name, number=number, cache=cache) for name, number in numbers.items()}


@pytest.fixture(scope="module")
def keys(machines: dict[str, CloudMachine]) -> dict[str, bytes]:
    """The endorsement certificate of each machine, as its maker delivers it."""
    return {name: machine.deliver() for name, machine in machines.items()}


def into_site(road: HybridRoad) -> None:
    """Write the two machines into the site, like an admin with an editor; nobody knows the third one."""
    inventory = yaml.safe_load((road.site / "hosts.yml").read_text())
    hosts = {name: {"ansible_host": f"{road.lab.loopback}.{number}"} for name, number in ((REFERENCE, 51), (GOOD, 52))}
    hosts[GOOD]["attested_serial"] = SERIAL
    inventory["nodes"]["children"]["workers"] = {"children": {GROUP: {"hosts": hosts}}}
    (road.site / "hosts.yml").write_text(yaml.safe_dump(inventory))
    settings = road.site / "group_vars" / GROUP / "machines.yml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(yaml.safe_dump(METAL))


def snippet(road: HybridRoad) -> str:
    """Return the user data that the playbook wrote."""
    return (road.site / f"cloud-init-{GROUP}.yml").read_text()


def objects(road: HybridRoad, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(road.kubectl("get", kind, "--output=json"))["items"]
    return found


def polled(road: HybridRoad, kind: str) -> list[dict[str, Any]]:
    """Return the same, or nothing if the API server does not answer this time: emulated machines keep the host busy."""
    config = "--kubeconfig=/etc/kubernetes/admin.conf"
    said = road.inside(road.plane, "kubectl", config, "get", kind, "--output=json", check=False)
    found: list[dict[str, Any]] = json.loads(said)["items"] if said else []
    return found


@pytest.mark.usefixtures("took")
def test_a_machine_that_is_not_in_the_list_is_refused(
    road: HybridRoad, machines: dict[str, CloudMachine], keys: dict[str, bytes]
) -> None:
    """It starts beside the machine that the profile is learned from, with the snippet alone: no user, no ssh key."""
    text = snippet(road)
    assert set(yaml.safe_load(text)) == {"write_files", "runcmd"}
    ssh, own = road.lab.directory / "ssh" / "id_ed25519.pub", road.lab.directory / "machines" / REFERENCE / "machine"
    machines[REFERENCE].start(with_login(text, ssh, own / "ssh_host_ed25519_key"))
    machines[OTHER].start(text)
    refusal = ("IDENTITY_UNKNOWN", identity_name(keys[OTHER]))
    try:
        wait_for(lambda: refusal in refusals(road), seconds=LONG, every=RARELY)
    except AssertionError as error:
        raise AssertionError(machines[OTHER].console) from error
    finally:
        machines[OTHER].cut()
    assert OTHER not in {one["metadata"]["name"] for one in objects(road, "nodes")}
    assert refusal[1] not in {one["metadata"]["name"] for one in objects(road, "nodeidentities")}


@pytest.mark.usefixtures("took")
def test_the_profile_is_learned_from_a_machine_of_the_image(
    road: HybridRoad, machines: dict[str, CloudMachine]
) -> None:
    """It has prepared itself with the same snippet; the admin logs in to it once, with `enroll`."""
    wait_for(lambda: road.lab.ssh(REFERENCE, PREPARED).returncode == 0, seconds=LONG, every=RARELY)
    road.play("enroll", *WORDS, f"--limit={REFERENCE}", "-e", f"profile={PROFILE}")
    machines[REFERENCE].cut()
    assert (road.site / "policy" / f"{PROFILE}.yml").exists()


@pytest.mark.usefixtures("took")
def test_a_machine_of_the_list_becomes_a_node(
    road: HybridRoad, machines: dict[str, CloudMachine], keys: dict[str, bytes]
) -> None:
    """Nobody logs in to it: it has no user and no ssh key."""
    (road.site / "delivery.csv").write_text(listed({SERIAL: keys[GOOD]}))
    road.play("enroll_list", *WORDS, "-e", "machines=delivery.csv")
    road.play("policy", *WORDS, "-e", json.dumps({"attested_profiles": ["lab", PROFILE]}))

    began = time.monotonic()
    machines[GOOD].start(snippet(road))
    try:
        wait_for(lambda: is_ready(road, GOOD), seconds=LONG, every=RARELY)
    except AssertionError as error:
        raise AssertionError(machines[GOOD].console) from error
    print(f"power on to Ready: {time.monotonic() - began:.0f} s")
    (identity,) = [one for one in objects(road, "nodeidentities") if one["spec"]["nodeName"] == GOOD]
    assert identity["metadata"]["name"] == identity_name(keys[GOOD])
    assert identity["status"]["lastAttestation"]["profile"] == PROFILE


def is_ready(road: HybridRoad, name: str) -> bool:
    for node in polled(road, "nodes"):
        if node["metadata"]["name"] == name:
            conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
            return conditions.get("Ready") == "True"
    return False


def refusals(road: HybridRoad) -> set[tuple[str, str]]:
    """Return reason and machine of each refusal that the cluster has a record of."""
    return {(one["status"]["reason"], one["status"]["machine"]) for one in polled(road, "joinattempts")}
