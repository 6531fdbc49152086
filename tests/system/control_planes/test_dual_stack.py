# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster with IPv4 and IPv6: nodes with two addresses, Pods and Services with an address of each family.

The lab's machines get their IPv6 address here. The tests are in the order of one lab's life and share it.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support import web_pods
from ansible_collections.attested.kubernetes.tests.support.road import Road, assert_one_lock_event, road_through
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

USED_LAB = "ATTESTED_DUAL_STACK_LAB"
"""Of a developer: NAME:LOOPBACK of such a lab that is up and has been through `lab`; it is used and left."""

WORDS = ("-e", '{"lab_control_planes": 2, "lab_workers": 2}')
NODES = {"cp-1": 11, "cp-2": 12, "w-1": 21, "w-2": 22}
NETWORKS = {
    "attested_pod_subnet": "10.244.0.0/16,fd00:10:244::/48",
    "attested_service_subnet": "10.96.0.0/16,fd00:10:96::/112",
}
UNIT = """
[Unit]
Before=network-online.target
[Service]
Type=oneshot
ExecStart=ip -6 address replace {address}/64 dev eth0 nodad
[Install]
WantedBy=network-online.target multi-user.target
"""
SECONDS = 900.0


SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"}, "ports": [{"port": web_pods.PORT}]},
}


@pytest.fixture(scope="module")
def road() -> Iterator[Road]:
    """Machines with two addresses that are prepared, and no cluster."""
    with road_through(of="attested-families:127.98.0", instead=USED_LAB, words=WORDS) as one:
        if not os.environ.get(USED_LAB):
            for node in NODES:
                unit = "/etc/systemd/system/second-address.service"
                one.inside(node, "sh", "-c", f"cat > {unit}", given=UNIT.format(address=second(node)).encode())
                one.inside(node, "systemctl", "enable", "--now", "second-address.service")
            into_site(one)
            one.play("lab", *WORDS)
        yield one


def second(node: str) -> str:
    return f"fd00:10:89:7::{NODES[node]}"


def into_site(road: Road) -> None:
    """Write the networks and the addresses into the site, like an admin with an editor."""
    for node in NODES:  # not into hosts.yml, which the lab writes again
        place = road.site / "host_vars" / node
        place.mkdir(parents=True, exist_ok=True)
        (place / "address.yml").write_text(f'attested_second_node_ip: "{second(node)}"\n')
    (road.site / "group_vars" / "nodes" / "families.yml").write_text(yaml.safe_dump(NETWORKS))


def nodes(road: Road) -> dict[str, dict[str, Any]]:
    found = json.loads(road.kubectl("get", "nodes", "--output=json"))["items"]
    return {one["metadata"]["name"]: one for one in found}


def test_preflight_names_networks_that_do_not_fit_together(road: Road) -> None:
    road.play("preflight", *WORDS)
    order = "attested_service_subnet=fd00:10:96::/112,10.96.0.0/16"
    wrong = road.finish("preflight", road.start("preflight", *WORDS, "-e", order))
    assert wrong.returncode != 0
    assert "expected pod and service subnets of the same address families in the same order" in wrong.output


def test_each_node_has_two_addresses_and_pods_of_both_families(road: Road) -> None:
    road.play("init", *WORDS)
    road.play("node", *WORDS)
    for name, number in NODES.items():
        road.wait_until_ready(name, boot_id=road.boot_id(name), seconds=SECONDS)
        assert_one_lock_event(road, name)
        node = nodes(road)[name]
        own = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
        assert own == [f"10.89.7.{number}", second(name)]
        assert [(":" in one) for one in node["spec"]["podCIDRs"]] == [False, True]


def test_a_kubelets_certificate_is_for_both_addresses(road: Road) -> None:
    def names(node: str) -> str:
        read = f"openssl s_client -connect [{second(node)}]:10250 </dev/null 2>/dev/null"
        return road.inside("cp-1", "sh", "-c", f"{read} | openssl x509 -noout -ext subjectAltName", check=False)

    def is_named(node: str) -> bool:
        return "IP Address" in names(node)

    for node, number in NODES.items():
        wait_for(partial(is_named, node), seconds=SECONDS)
        assert f"IP Address:10.89.7.{number}, IP Address:FD00:10:89:7:0:0:0:{number}" in names(node)


def test_pods_and_services_answer_at_both_families(road: Road) -> None:
    addresses = web_pods.start(road, NODES)
    assert set(addresses) == set(NODES)
    road.kubectl("apply", web_pods.IN_IT, "-f", "-", given=json.dumps(SERVICE).encode())
    service = json.loads(road.kubectl("get", web_pods.IN_IT, "service", "web", "--output=json"))["spec"]["clusterIPs"]
    for families in (*addresses.values(), service):
        assert [(":" in one) for one in families] == [False, True]
    for asking in NODES:
        for node, own in addresses.items():
            for address in own:
                web_pods.wait_for_answer(road, asking, address, node, seconds=SECONDS)
        for address in service:
            web_pods.wait_for_answer(road, asking, address, *NODES, seconds=SECONDS)


def test_the_evidence_is_accepted_and_the_playbooks_find_nothing_to_do(road: Road) -> None:
    road.play("verify", *WORDS)
    for playbook in ("prepare", "init", "node"):
        changes = road.play(playbook, *WORDS).changes()
        assert set(changes.values()) == {0}, changes


@pytest.mark.parametrize("node", ["w-1", "cp-2"])
def test_a_node_has_both_addresses_after_a_reboot(road: Road, node: str) -> None:
    road.wait_until_ready(node, boot_id=road.reboot(node), seconds=SECONDS)
    assert_one_lock_event(road, node)
    wait_for(lambda: [":" in one for one in web_pods.addresses(road)[node]] == [False, True], seconds=SECONDS)
    for address in web_pods.addresses(road)[node]:
        web_pods.wait_for_answer(road, "w-2", address, node, seconds=SECONDS)
