# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `prepare` and `node` make of a site's `attested_api_proxy`, read by those who read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service import ApiEndpointConfig
from ansible_collections.attested.kubernetes.tests.support.playbook_cases import FAILED, Case, run_cases

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "api_endpoint"
HOSTS = {
    "control_planes": {"hosts": {"cp-1": {"attested_node_ip": "10.0.0.11"}, "cp-2": {"ansible_host": "fd00::12"}}},
    "workers": {"hosts": {"w-1": {}}},
}
SITE = {"attested_api_endpoint": "api.prod.example:6443"}
ON = {"attested_api_proxy": True}
CONFIGURATIONS = {
    "the inventory's": ON,
    "another port": {**ON, "attested_api_proxy_port": 6445},
    "addresses": {**ON, "api_endpoint_addresses": ["10.9.9.9:443"]},
}
TOLD = {
    "unset": ({}, ""),
    "off": ({"attested_api_proxy": False}, ""),
    "on": (ON, "127.0.0.1:6444"),
    "its port": ({**ON, "attested_api_proxy_port": 6445}, "127.0.0.1:6445"),
}
PORTS = {
    "the default": (6444, True),
    "below the NodePorts": (29999, True),
    "the first NodePort": (30000, False),
    "the last NodePort": (32767, False),
    "above the NodePorts": (32768, True),
    "a port that needs a capability": (443, False),
    "no port": (65536, False),
}


def play_of(playbook: str, place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text("utf-8"))[place]
    return found


def task(playbook: str, role: str) -> dict[str, Any]:
    play = play_of(playbook)
    tasks = [one for outer in play.get("tasks", [play]) for one in (outer, *outer.get("block", ()))]
    return next(
        one for one in tasks if one.get("ansible.builtin.include_role", {}).get("name") == f"attested.kubernetes.{role}"
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """What all cases come to, as `prepare` would run them for two control planes and a worker of a site."""
    let = task("tasks/settings", "api_endpoint")
    template = {
        "record": {"text": f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/api-endpoint.yml.j2') }}}}"}
    }
    write = {**template, "vars": let["vars"], "when": let["when"]}
    tell = {
        "record": {
            "node": play_of("node")["vars"]["__node_api_proxy"],
            "bootstrapper": task("tasks/settings", "bootstrapper")["vars"]["bootstrapper_api_proxy"],
        }
    }
    check = yaml.safe_load((ROLE / "tasks/main.yml").read_text("utf-8"))[0]
    cases = {
        **{name: Case(tasks=[write], variables=site) for name, site in CONFIGURATIONS.items()},
        **{name: Case(tasks=[tell], variables=site) for name, (site, _uses) in TOLD.items()},
        **{
            name: Case(tasks=[check, {"record": {}}], variables={"api_endpoint_listen_port": port})
            for name, (port, _good) in PORTS.items()
        },
    }
    hosts = {"nodes": {"vars": SITE, "children": HOSTS}}
    files = [str(ROLE / name / "main.yml") for name in ("defaults", "vars")]
    return run_cases(
        tmp_path_factory.mktemp("cases"), cases, hosts=hosts, vars=play_of("tasks/settings")["vars"], vars_files=files
    )


@pytest.mark.parametrize(
    ("name", "control_planes", "listen_port"),
    [
        pytest.param(
            "the inventory's", ("10.0.0.11:6443", "[fd00::12]:6443"), 6444, id="control planes of the inventory"
        ),
        pytest.param("another port", ("10.0.0.11:6443", "[fd00::12]:6443"), 6445, id="the port of the site"),
        pytest.param("addresses", ("10.9.9.9:443",), 6444, id="addresses instead of the inventory's"),
    ],
)
def test_a_worker_knows_the_control_planes_and_the_endpoint(
    found: dict[str, Any], tmp_path: Path, name: str, control_planes: tuple[str, ...], listen_port: int
) -> None:
    """The program reads what the role's template and the playbook's variables make."""
    assert list(found[name]) == ["w-1"], "a control plane has an API server of its own"
    (tmp_path / "api-endpoint.yml").write_text(found[name]["w-1"]["text"], encoding="utf-8")
    read = load_config(ApiEndpointConfig, tmp_path / "api-endpoint.yml")
    assert read.control_planes == control_planes
    assert (read.endpoint, read.listen_port) == ("api.prod.example:6443", listen_port)


@pytest.mark.parametrize("name", TOLD)
def test_what_a_worker_is_told_over_ssh_and_by_itself(found: dict[str, Any], name: str) -> None:
    """The playbook `node` and the bootstrapper's configuration say the same."""
    _site, uses = TOLD[name]
    assert found[name]["w-1"] == {"node": uses, "bootstrapper": uses}
    assert found[name]["cp-1"]["bootstrapper"] == ""


@pytest.mark.parametrize("name", PORTS)
def test_a_port_that_a_service_could_take_is_refused(found: dict[str, Any], name: str) -> None:
    _port, good = PORTS[name]
    for said in found[name].values():
        assert ("CONFIG_INVALID" in said.get(FAILED, "")) is not good, said
    assert len(found[name]) == 3
