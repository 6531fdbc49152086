# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`cloud_init` as Ansible runs it: what the user data holds, what it leaves out, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from ansible_collections.attested.kubernetes.tests.support.site_variables import read_by_playbooks, variable

BIN = Path(sys.executable).parent
CANARY = "canary-4d1f"
MANIFEST = b'{"schema": "attested.bundle/1"}\n\n'
LEFT_OUT = {
    "attested_bundle": "a directory of the admin's machine; there is attested_bundle_url",
    "attested_bundle_on_node": "the unit sets it",
    "attested_node_ip": "of one machine; the unit finds it",
    "attested_second_node_ip": "of one machine; the unit finds it",
    "attested_cni": "of control planes",
    "attested_registry_credentials": "secrets; upgrade brings them to the member",
    "attested_founder": "says which control plane makes the cluster",
    "attested_audit_webhook": "of control planes",
    "attested_authenticators": "of control planes",
    "attested_backup_recipients": "of control planes",
    "attested_backup_schedule": "of control planes",
    "attested_backups_kept": "of control planes",
    "attested_control_plane_arguments": "of control planes",
    "attested_control_plane_certificates_renewed": "of control planes",
    "attested_exempt_namespaces": "of control planes",
    "attested_init_port": "of control planes",
    "attested_pod_security": "of control planes",
    "attested_recovery_kit_recipients": "of control planes",
    "attested_unknown_machines": "of control planes",
    "attested_bootstrapper": "a machine that prepares itself joins by itself",
    "attested_source_branch": "of the boot from the signed site",
    "attested_source_minimum": "of the boot from the signed site",
    "attested_source_signers": "of the boot from the signed site",
    "attested_source_transports": "of the boot from the signed site",
    "attested_source_url": "of the boot from the signed site",
}
"""Variables of `prepare` that the user data does not have, and why."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with a group of its own below the workers, and a password that no machine may get in its user data."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_bytes(MANIFEST)
    site = tmp_path / "site"
    (site / "group_vars").mkdir(parents=True)
    planes = {"cp-1": {"ansible_host": "192.0.2.11"}, "cp-2": {"ansible_host": "x", "attested_node_ip": "10.0.0.12"}}
    workers = {"hosts": {"w-1": {}}, "children": {"gpu": {"hosts": {}}}}
    nodes = {"children": {"control_planes": {"hosts": planes}, "workers": workers}}
    (site / "hosts.yml").write_text(yaml.safe_dump({"nodes": nodes}))
    settings = {
        "attested_bundle": str(tmp_path / "bundle"),
        "attested_bundle_url": "https://mirror.example/bundle/",
        "attested_cluster_name": "prod",
        "attested_tpm_endorsement_auth": CANARY,
    }
    (site / "group_vars" / "nodes.yml").write_text(yaml.safe_dump(settings))
    (site / "group_vars" / "gpu.yml").write_text("attested_containerd_runtimes: [{name: nvidia}]\n")
    (site / "cluster.yml").write_text("cluster_id: abcd\njoin_ca: |\n  text\n")
    return site


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.cloud_init", *words]
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(site), "ANSIBLE_COLLECTIONS_PATH": str(SOURCES)}
    return subprocess.run(argv, cwd=site, env=env, capture_output=True, text=True, check=False)


def user_data(site: Path, name: str) -> dict[str, Any]:
    text = (site / name).read_text()
    assert text.startswith("#cloud-config\n")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_it_holds_the_public_files_of_the_site_and_no_secret(site: Path) -> None:
    done = run(site)
    assert done.returncode == 0, done.stdout + done.stderr
    data = user_data(site, "cloud-init-workers.yml")
    files = {one["path"]: one["content"] for one in data["write_files"]}
    assert json.loads(files["/etc/attested/site/first-boot.json"]) == {
        "bundle_url": "https://mirror.example/bundle",
        "bundle_sha256": hashlib.sha256(MANIFEST).hexdigest(),
        "control_plane": "192.0.2.11",
    }
    inventory = json.loads(files["/etc/attested/site/hosts.json"])
    planes = {"cp-1": {"attested_node_ip": "192.0.2.11"}, "cp-2": {"attested_node_ip": "10.0.0.12"}}
    groups = {"control_planes": {"hosts": planes}, "workers": {}}
    assert inventory == {"nodes": {"vars": {"attested_cluster_name": "prod"}, "children": groups}}
    assert files["/etc/attested/site/cluster.yml"] == (site / "cluster.yml").read_text()
    script = (ROOT / "playbooks/files/first_boot.py").read_text(encoding="utf-8")
    assert files["/usr/local/lib/attested/first_boot.py"] == script
    unit = files["/etc/systemd/system/attested-first-boot.service"]
    assert "\nExecStart=/usr/bin/python3 /usr/local/lib/attested/first_boot.py\n" in unit
    assert data["runcmd"][-1][:4] == ["systemctl", "enable", "--now", "--no-block"]
    assert CANARY not in (site / "cloud-init-workers.yml").read_text()
    assert CANARY not in done.stdout + done.stderr
    assert "changed=0" in run(site).stdout


def test_machines_of_both_families_learn_both_addresses_of_the_control_planes(site: Path) -> None:
    inventory = yaml.safe_load((site / "hosts.yml").read_text())
    inventory["nodes"]["children"]["control_planes"]["hosts"]["cp-1"]["attested_second_node_ip"] = "fd00::11"
    (site / "hosts.yml").write_text(yaml.safe_dump(inventory))
    assert run(site).returncode == 0
    files = {one["path"]: one["content"] for one in user_data(site, "cloud-init-workers.yml")["write_files"]}
    assert json.loads(files["/etc/attested/site/first-boot.json"])["second_control_plane"] == "fd00::11"
    planes = json.loads(files["/etc/attested/site/hosts.json"])["nodes"]["children"]["control_planes"]["hosts"]
    assert planes["cp-1"] == {"attested_node_ip": "192.0.2.11", "attested_second_node_ip": "fd00::11"}
    assert planes["cp-2"] == {"attested_node_ip": "10.0.0.12"}


def test_a_group_has_its_own_variables_and_its_own_file(site: Path) -> None:
    done = run(site, "-e", "group=gpu")
    assert done.returncode == 0, done.stdout + done.stderr
    files = {one["path"]: one["content"] for one in user_data(site, "cloud-init-gpu.yml")["write_files"]}
    inventory = json.loads(files["/etc/attested/site/hosts.json"])
    assert inventory["nodes"]["vars"]["attested_containerd_runtimes"] == [{"name": "nvidia"}]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("-e", "group=nowhere"), "CONFIG_INVALID", id="no such group"),
        pytest.param(("-e", "group=control_planes"), "CONFIG_INVALID", id="control planes"),
        pytest.param(("-e", "attested_bundle_url=mirror"), "CONFIG_INVALID", id="no URL"),
        pytest.param(("-e", "attested_bundle=/nowhere"), "BUNDLE_INCOMPLETE", id="no bundle"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_written(site: Path, words: tuple[str, ...], code: str) -> None:
    done = run(site, *words)
    assert done.returncode != 0
    assert f"{code}: expected" in done.stdout + done.stderr
    assert list(site.glob("cloud-init-*")) == []


def test_a_site_without_a_cluster_file_is_named(site: Path) -> None:
    (site / "cluster.yml").unlink()
    assert "SITE_CLUSTER_FILE: expected" in run(site).stdout


def test_each_variable_of_prepare_is_in_the_user_data_or_is_left_out_for_a_reason() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/cloud_init.yml").read_text(encoding="utf-8"))
    names = set(play["vars"]["__cloud_init_names"])
    read = {name for name in read_by_playbooks() if "prepare" in variable(name).readers}
    assert names | set(LEFT_OUT) == read
    assert names & set(LEFT_OUT) == set()
    assert [name for name in names if re.search("auth$|secret|password", name)] == []
