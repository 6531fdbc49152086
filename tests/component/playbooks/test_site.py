# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks that work on the admin's machine alone, run for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "inventory" / "example"
PASSWORD = "correct horse"
EXAMPLE_VARIABLES = {
    "cluster_name": "prod",
    "api_endpoint": "api.prod.example:6443",
    "site_directory_control_planes": {"cp-1": "192.0.2.11"},
    "site_directory_workers": {"w-1": "192.0.2.21", "w-2": "192.0.2.22"},
    "site_directory_profiles": ["r650-debian13"],
}

NAMED = ("-e", "cluster_name=prod", "-e", "api_endpoint=api.prod.example:6443")


def play(name: str, *options: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook of the collection as an admin does."""
    program = Path(sys.executable).parent / "ansible-playbook"
    return subprocess.run(
        [program, f"attested.kubernetes.{name}", *options],
        cwd=cwd,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def scaffold(site: Path, **changes: object) -> subprocess.CompletedProcess[str]:
    variables = {**EXAMPLE_VARIABLES, "site": str(site), **changes}
    return play("scaffold", "-e", json.dumps(variables), cwd=site.parent)


def copy_example(site: Path) -> None:
    """Make the site that scaffold makes (the first test shows it) in no time: git holds no empty directories."""
    shutil.copytree(EXAMPLE, site)
    for name, mode in (("host_vars", 0o755), ("policy", 0o755), (".secrets", 0o700)):
        (site / name).mkdir(mode=mode)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sites") / "prod"
    done = scaffold(path)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def directories(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}


def test_example_in_the_repository_is_what_scaffold_writes(site: Path, tmp_path: Path) -> None:
    assert files(site) == files(EXAMPLE)
    copy = tmp_path / "prod"
    copy_example(copy)
    assert directories(site) == directories(copy)
    assert (site / ".secrets").stat().st_mode == (copy / ".secrets").stat().st_mode


def test_second_run_leaves_an_edit_alone_and_changes_nothing(site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "prod"
    shutil.copytree(site, copy)
    (copy / "hosts.yml").write_text("edited\n", encoding="utf-8")
    again = scaffold(copy, cluster_name="other")
    assert "changed=0" in again.stdout
    assert (copy / "hosts.yml").read_text(encoding="utf-8") == "edited\n"


def test_name_that_is_no_dns_label_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = scaffold(tmp_path / "bad", cluster_name="Prod_1")
    assert done.returncode != 0
    assert "OPTION_INVALID: expected cluster_name as a DNS label" in done.stdout
    assert not (tmp_path / "bad").exists()


def test_secrets_without_a_vault_password_are_refused_and_nothing_is_written(site: Path) -> None:
    done = play("secrets", cwd=site)
    assert done.returncode != 0
    assert "SITE_VAULT" in done.stdout
    assert not any((site / ".secrets").iterdir())


def test_secrets_may_be_in_a_directory_outside_of_the_site(tmp_path: Path) -> None:
    """Only what is public is in the site, for example in a project of AWX."""
    site, outside, password = tmp_path / "prod", tmp_path / "mounted", tmp_path / "password"
    copy_example(site)
    outside.mkdir(mode=0o700)
    (site / ".secrets").rmdir()
    (site / ".secrets").symlink_to(outside)
    password.write_text(PASSWORD, encoding="utf-8")
    done = play("secrets", "--vault-password-file", str(password), cwd=site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site / ".secrets").readlink() == outside
    made = files(outside)
    assert made
    assert all(data.startswith(b"$ANSIBLE_VAULT;") for data in made.values())
    assert {(outside / name).stat().st_mode & 0o777 for name in made} == {0o600}
    assert {path for path in files(site) if not path.startswith(".secrets/")} - set(files(EXAMPLE)) == {"cluster.yml"}
    for playbook in ("secrets", "scaffold"):
        again = play(playbook, "--vault-password-file", str(password), "-e", f"site={site}", *NAMED, cwd=site)
        assert "changed=0" in again.stdout, again.stdout
    assert (site / ".secrets").readlink() == outside


def clear_secrets(site: Path, vault: VaultLibrary) -> list[str]:
    """Return every secret of the site as it would look in a log: base64 halves and the PEM body."""
    bundle = secrets.load(Site.at(site), vault)
    halves = json.loads(bundle.master.to_json())
    return [halves["key"], halves["salt"], bundle.join_ca_key.reveal().decode().splitlines()[1]]


class VaultLibrary:
    """Opens the site's files with the test's password."""

    def __init__(self) -> None:
        from ansible.constants import DEFAULT_VAULT_ID_MATCH  # noqa: PLC0415  # costs a second: only where used
        from ansible.parsing.vault import VaultLib, VaultSecret  # noqa: PLC0415

        self._vault = VaultLib([(DEFAULT_VAULT_ID_MATCH, VaultSecret(PASSWORD.encode()))])

    def encrypt(self, data: bytes) -> bytes:
        return self._vault.encrypt(data)

    def decrypt(self, data: bytes) -> bytes:
        return self._vault.decrypt(data)


def leaks(canaries: list[str], outputs: tuple[str, ...], folders: tuple[Path, ...]) -> set[str]:
    """Return the canaries that stand in an output or in a file below a folder."""
    texts = [*outputs, *(data.decode("utf-8", "replace") for root in folders for data in files(root).values())]
    return {canary for canary in canaries if any(canary in text for text in texts)}


def test_no_secret_shows_at_full_verbosity_and_a_planted_one_would(site: Path, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    home = tmp_path / "home"
    done = play(
        "secrets", "-vvvv", "--diff", "--vault-password-file", str(password), cwd=site,
        HOME=str(home), ANSIBLE_HOME=str(home / ".ansible"), ANSIBLE_LOG_PATH=str(tmp_path / "log"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    canaries = clear_secrets(site, VaultLibrary())
    assert leaks(canaries, (done.stdout, done.stderr), (tmp_path, site)) == set()
    home.mkdir(exist_ok=True)
    (home / "planted").write_text(f"x{canaries[0]}x", encoding="utf-8")
    assert leaks(canaries, (f"x{canaries[1]}x",), (tmp_path, site)) == set(canaries[:2])
    again = play("secrets", "--vault-password-file", str(password), cwd=site)
    assert "changed=0" in again.stdout


POLICY_PLAY = """
- hosts: nodes
  gather_facts: false
  connection: local
  vars: {ansible_become: false}
  tasks:
    - attested.kubernetes.node_identity:
        site: "{{ inventory_dir }}"
        node: "{{ inventory_hostname }}"
        ek_sha256: "{{ inventory_hostname | hash('sha256') }}"
        known_by: certificate chain
    - attested.kubernetes.measurement_profile:
        site: "{{ inventory_dir }}"
        manifest: "{{ lookup('ansible.builtin.file', profile_file) }}"
        replace: "{{ replace | default(false) }}"
      run_once: true
    - attested.kubernetes.measurement_profile_info:
        site: "{{ inventory_dir }}"
        profiles: "{{ active | default(['deb13-base']) }}"
      run_once: true
    - attested.kubernetes.node_identity_info:
      run_once: true
      register: found
    - ansible.builtin.debug:
        msg: "not enrolled: {{ found.not_enrolled }}"
      run_once: true
"""


def policy_play(site: Path, *options: str, boot: str = "deb13-base") -> subprocess.CompletedProcess[str]:
    """Run a play over the site's files, with the profile of a recorded boot."""
    (site / "play.yml").write_text(POLICY_PLAY, encoding="utf-8")
    manifest = render_profile(learned(boots.load(boot))) | {"metadata": {"name": "deb13-base"}}
    (site / "profile.in").write_text(render_document(manifest), encoding="utf-8")
    program = Path(sys.executable).parent / "ansible-playbook"
    return subprocess.run(
        [program, "play.yml", "-e", f"profile_file={site}/profile.in", *options],
        cwd=site,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def policy_site(site: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "prod"
    shutil.copytree(site, copy)
    return copy


def test_identities_and_profile_are_written_once_and_read_back(policy_site: Path) -> None:
    first = policy_play(policy_site)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "not enrolled: ['cp-1', 'w-1', 'w-2']" in first.stdout  # host_vars are read when a play begins
    again = policy_play(policy_site)
    assert "changed=0" in again.stdout
    assert "changed=1" not in again.stdout
    assert "not enrolled: []" in again.stdout


def test_profile_that_differs_is_left_alone_until_it_is_replaced_on_purpose(policy_site: Path) -> None:
    assert policy_play(policy_site).returncode == 0
    before = (policy_site / "policy" / "deb13-base.yml").read_bytes()
    refused = policy_play(policy_site, boot="deb13-cmdline")
    assert "PROFILE_EXISTS" in refused.stdout
    assert (policy_site / "policy" / "deb13-base.yml").read_bytes() == before
    assert policy_play(policy_site, "-e", "replace=true", boot="deb13-cmdline").returncode == 0
    assert (policy_site / "policy" / "deb13-base.yml").read_bytes() != before


def test_check_mode_writes_nothing_and_shows_the_text(policy_site: Path) -> None:
    done = policy_play(policy_site, "--check", "--diff")
    assert "+attested_ek: sha256:" in done.stdout
    assert not list((policy_site / "host_vars").rglob("identity.yml"))


def test_profile_that_nobody_wrote_is_refused_by_name(policy_site: Path) -> None:
    done = policy_play(policy_site, "-e", '{"active": ["other"]}')
    assert done.returncode != 0
    assert "PROFILE_UNKNOWN" in done.stdout
