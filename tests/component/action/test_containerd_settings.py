# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A password in the settings of containerd is refused, and Ansible's output does not hold it at any verbosity."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.two_ways import BY_MODULE, HERE

if TYPE_CHECKING:
    from collections.abc import Mapping

CRI = "io.containerd.grpc.v1.cri"


def play(site: Path, way: Mapping[str, str], **settings: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the tasks that `prepare` and `upgrade` run, in check mode: nothing of this machine is changed."""
    role = {"name": "attested.kubernetes.kubernetes_node", "tasks_from": "containerd"}
    task = {"ansible.builtin.include_role": role, "vars": {"kubernetes_node_keep_sandbox_image": True, **settings}}
    plays = [{"hosts": "all", "gather_facts": False, "environment": dict(way), "tasks": [task]}]
    (site / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
    host = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    (site / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"w-1": host}}}), encoding="utf-8")
    places = {"ANSIBLE_HOME": str(site / "home"), "ANSIBLE_REMOTE_TEMP": str(site / "there")}
    return subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "hosts.yml", "play.yml", "-vvv", "--check", "--diff"],
        cwd=site,
        env={**os.environ, **places, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        check=False,
    )


def test_what_the_module_is_called_with_is_shown_with_vvv(tmp_path: Path) -> None:
    """The search is tried first: it finds a setting that is no secret."""
    planted = secrets.token_hex(16)
    done = play(tmp_path, BY_MODULE, kubernetes_node_registries=[{"server": planted}])
    assert planted.encode() in done.stdout


@pytest.mark.parametrize("way", [HERE, BY_MODULE], ids=["here", "by the module"])
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"registries": [{"server": "quay.io", "password": "SECRET"}]}, id="of a registry"),
        pytest.param({"registries": [{"server": "quay.io", "mirrors": [{"auth": "SECRET"}]}]}, id="of a mirror"),
        pytest.param({"registries": [{"server": "a", "mirrors": [{"url": "https://u:SECRET@m"}]}]}, id="in a URL"),
        pytest.param({"registries": [{"server": "u:SECRET@quay.io"}]}, id="in a server"),
        pytest.param({"registries": ["server=quay.io password=SECRET"]}, id="in a text instead of a mapping"),
        pytest.param({"containerd_runtimes": [{"name": "a", "options": {"token": "SECRET"}}]}, id="of a runtime"),
        pytest.param(
            {"containerd_drop_ins": {"a": f'[plugins."{CRI}".registry.configs.r.auth]\npassword = "SECRET"\n'}},
            id="where containerd takes it",
        ),
        pytest.param({"containerd_drop_ins": '{"a": {"password": "SECRET"}}'}, id="in JSON"),
    ],
)
def test_a_password_is_refused_and_not_shown(tmp_path: Path, way: Mapping[str, str], settings: Any) -> None:
    secret = secrets.token_hex(16)
    planted = yaml.safe_load(yaml.safe_dump(settings).replace("SECRET", secret))
    done = play(tmp_path, way, **{f"kubernetes_node_{name}": value for name, value in planted.items()})
    assert done.returncode == 2, done.stdout
    assert b"CONFIG_INVALID" in done.stdout
    assert [one for one in spellings(secret.encode()) if one in done.stdout + done.stderr] == []


@pytest.mark.parametrize("way", [HERE, BY_MODULE], ids=["here", "by the module"])
@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param({"host": "quay.io", "username": "nodes", "password": "SECRET"}, b"sandbox_image", id="a password"),
        pytest.param({"host": "quay.io", "token": "SECRET"}, b"sandbox_image", id="a token"),
        pytest.param({"host": "quay.io", "token": "SECRET", "username": "a"}, b"CONFIG_INVALID", id="too much"),
        pytest.param({"host": "quay.io", "username": "a", "password": ["SECRET"]}, b"", id="a list"),
        pytest.param({"host": "quay.io", "username": "a", "pass": "SECRET"}, b"", id="another name"),
        pytest.param("host=quay.io username=a password=SECRET", b"", id="a text"),
    ],
)
def test_a_credential_of_a_registry_is_not_shown(tmp_path: Path, way: Mapping[str, str], row: Any, code: bytes) -> None:
    """This machine has no configuration of ours: what is well-formed gets as far as the sandbox image."""
    secret = secrets.token_hex(16)
    planted = yaml.safe_load(yaml.safe_dump([row]).replace("SECRET", secret))
    done = play(tmp_path, way, kubernetes_node_registry_credentials=planted)
    assert code in done.stdout
    assert [one for one in spellings(secret.encode()) if one in done.stdout + done.stderr] == []
