# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `prepare` and `node` make of a site's `attested_api_proxy`, read by those who read it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service import ApiEndpointConfig

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
ROLE = ROOT / "roles" / "api_endpoint"
HOSTS = {
    "control_planes": {"hosts": {"cp-1": {"attested_node_ip": "10.0.0.11"}, "cp-2": {"ansible_host": "fd00::12"}}},
    "workers": {"hosts": {"w-1": {}}},
}


def play_of(playbook: str, place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text("utf-8"))[place]
    return found


def task(playbook: str, role: str) -> dict[str, Any]:
    tasks = [one for outer in play_of(playbook)["tasks"] for one in (outer, *outer.get("block", ()))]
    return next(
        one for one in tasks if one.get("ansible.builtin.include_role", {}).get("name") == f"attested.kubernetes.{role}"
    )


def play(directory: Path, tasks: list[dict[str, Any]], **site: Any) -> subprocess.CompletedProcess[str]:
    """Run ``tasks`` as `prepare` would for two control planes and a worker of a site."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    known = {**local, "attested_api_endpoint": "api.prod.example:6443"}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": known, "children": HOSTS}}))
    files = [str(ROLE / name / "main.yml") for name in ("defaults", "vars")]
    names = {**play_of("prepare")["vars"]}
    book = {"hosts": "nodes", "gather_facts": False, "vars": names, "vars_files": files, "tasks": tasks}
    (directory / "book.yml").write_text(yaml.safe_dump([book]))
    argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "-e", json.dumps(site), "book.yml"]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


def configuration(directory: Path, **site: Any) -> ApiEndpointConfig:
    """Write the configuration by the role's template and the playbook's variables, and read it as the program does."""
    copy = {
        "content": f"{{{{ lookup('ansible.builtin.template', '{ROLE}/templates/api-endpoint.yml.j2') }}}}",
        "dest": f"{directory}/{{{{ inventory_hostname }}}}.yml",
        "mode": "0600",
    }
    let = task("prepare", "api_endpoint")
    done = play(directory, [{"ansible.builtin.copy": copy, "vars": let["vars"], "when": let["when"]}], **site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(directory.glob("cp-*.yml")), "a control plane has an API server of its own"
    return load_config(ApiEndpointConfig, directory / "w-1.yml")


def test_a_worker_knows_the_control_planes_and_the_endpoint(tmp_path: Path) -> None:
    found = configuration(tmp_path, attested_api_proxy=True)
    assert found.control_planes == ("10.0.0.11:6443", "[fd00::12]:6443")
    assert (found.endpoint, found.listen_port) == ("api.prod.example:6443", 6444)


def test_the_port_is_the_sites(tmp_path: Path) -> None:
    assert configuration(tmp_path, attested_api_proxy=True, attested_api_proxy_port=6445).listen_port == 6445


def test_addresses_go_before_the_inventorys(tmp_path: Path) -> None:
    found = configuration(tmp_path, attested_api_proxy=True, api_endpoint_addresses=["10.9.9.9:443"])
    assert found.control_planes == ("10.9.9.9:443",)


@pytest.mark.parametrize(
    ("site", "uses"),
    [
        pytest.param({}, {"w-1": ""}, id="off unless the site says so"),
        pytest.param({"attested_api_proxy": False}, {"w-1": ""}, id="off"),
        pytest.param({"attested_api_proxy": True}, {"w-1": "127.0.0.1:6444"}, id="on"),
        pytest.param(
            {"attested_api_proxy": True, "attested_api_proxy_port": 6445}, {"w-1": "127.0.0.1:6445"}, id="its port"
        ),
    ],
)
def test_what_a_worker_is_told_over_ssh_and_by_itself(
    tmp_path: Path, site: dict[str, Any], uses: dict[str, str]
) -> None:
    """The playbook `node` and the bootstrapper's configuration say the same."""
    told = {
        "node": play_of("node")["vars"]["__node_api_proxy"],
        "bootstrapper": task("prepare", "bootstrapper")["vars"]["bootstrapper_api_proxy"],
    }
    write = {
        "ansible.builtin.copy": {
            "content": "{{ {'node': node, 'bootstrapper': bootstrapper} | to_json }}",
            "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json",
            "mode": "0600",
        },
        "vars": told,
    }
    done = play(tmp_path, [write], **site)
    assert done.returncode == 0, done.stdout + done.stderr
    for host, expected in uses.items():
        assert json.loads((tmp_path / f"{host}.json").read_text()) == {"node": expected, "bootstrapper": expected}
    assert json.loads((tmp_path / "cp-1.json").read_text())["bootstrapper"] == ""


@pytest.mark.parametrize(
    ("port", "good"),
    [
        pytest.param(6444, True, id="the default"),
        pytest.param(29999, True, id="below the NodePorts"),
        pytest.param(30000, False, id="the first NodePort"),
        pytest.param(32767, False, id="the last NodePort"),
        pytest.param(32768, True, id="above the NodePorts"),
        pytest.param(443, False, id="a port that takes a capability"),
        pytest.param(65536, False, id="no port"),
    ],
)
def test_a_port_that_a_service_could_take_is_refused(tmp_path: Path, port: int, good: bool) -> None:
    check = yaml.safe_load((ROLE / "tasks/main.yml").read_text("utf-8"))[:1]
    done = play(tmp_path, check, api_endpoint_listen_port=port)
    assert (done.returncode == 0) is good, done.stdout
    assert ("CONFIG_INVALID" in done.stdout) is not good
