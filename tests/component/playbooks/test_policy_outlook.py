# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `attestation_policy` and a node behind a real verification service, asked where a record cannot tell."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import applied_sha256
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.boot_facts import judged, learned
from ansible_collections.attested.kubernetes.tests.support.verification import SoftNode, running_node

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT = "deb13-grub-secureboot"
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - attested.kubernetes.attestation_policy: &asked
        site: "{{ playbook_dir }}"
        profiles: ["{{ profile }}"]
        records: "{{ records }}"
        reinstate: "{{ reinstate | default([]) }}"
        port: "{{ port }}"
        wait_seconds: 0
      check_mode: true
      register: told
    - attested.kubernetes.attestation_policy: *asked
      ignore_errors: true
      when: (told.failing + told.unknown) | length > 0
      register: applied
    - ansible.builtin.copy:
        dest: "{{ playbook_dir }}/told.json"
        mode: "0600"
        content: "{{ told | combine({'applied': applied.reason | default('')}) | to_json }}"
"""


async def run(folder: Path, play: str, *options: str) -> None:
    program = str(Path(sys.executable).parent / "ansible-playbook")
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    begun = await asyncio.create_subprocess_exec(
        program, play, "--vault-password-file", str(folder / "password"), *options,
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _nothing = await begun.communicate()
    assert begun.returncode == 0, said.decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with its secrets and two profiles: one asserts Secure Boot, one a firmware of the future."""
    folder = tmp_path_factory.mktemp("outlook")
    (folder / "password").write_text("correct horse", encoding="utf-8")
    variables = {
        "site": str(folder / "prod"), "cluster_name": "prod", "api_endpoint": "api.prod.example:6443",
        "site_directory_control_planes": {"cp-1": "192.0.2.11"}, "site_directory_workers": {"w-1": "127.0.0.1"},
        "site_directory_profiles": ["signed"],
    }  # fmt: skip
    asyncio.run(run(folder, "attested.kubernetes.scaffold", "-e", json.dumps(variables)))
    place = folder / "prod"
    (place / "password").write_text("correct horse", encoding="utf-8")
    asyncio.run(run(place, "attested.kubernetes.secrets"))
    signed = render_profile(learned(BOOT, Preset.AUTO))
    for name, demands in (("signed", {}), ("later", {"firmwareMinimum": "2999.1"})):
        changed = {**signed, "metadata": {"name": name}}
        changed["spec"] = {**signed["spec"], "assertions": {**signed["spec"]["assertions"], **demands}}
        (place / "policy" / f"{name}.yml").write_text(render_document(changed), encoding="utf-8")
    (place / "play.yml").write_text(PLAY, encoding="utf-8")
    return place


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port at which nobody listens and nobody else will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def node_of(site: Path) -> SoftNode:
    """Return the site's machine, booted with Secure Boot and locked to the site's cluster."""
    cluster_id = site_directory.parse(Site.at(site).cluster_file.read_bytes()).cluster_id
    node = SoftNode(boot=boots.load(BOOT), cluster_id=cluster_id, locked_to=cluster_id)
    place = site / "host_vars" / "w-1"
    place.mkdir(parents=True, exist_ok=True)
    ek = node.tpm.ek.public.spki_sha256()
    (place / "identity.yml").write_text(f"attested_ek: sha256:{ek}\n", encoding="utf-8")
    return node


async def told(
    site: Path, node: SoftNode, port: int, *, profile: str, reinstate: tuple[str, ...] = (), **seen: str
) -> dict[str, Any]:
    """Return what the module says when the record of the node holds the values of its boot, and no log."""
    registers = {str(pcr): value.hex() for pcr, value in judged(BOOT).pcrs.items()}
    identity = {
        "node": "w-1", "ek_sha256": node.tpm.ek.public.spki_sha256(), "admission": "Approved", "phase": "Joined",
        "profile": "before", "registers": registers, **seen,
    }  # fmt: skip
    variables = {
        "port": port, "profile": profile, "reinstate": list(reinstate),
        "records": [{"generation": 0, "revoked": [], "policy": {}, "identities": [identity]}],
    }  # fmt: skip
    await run(site, "play.yml", "-e", json.dumps(variables))
    answer: dict[str, Any] = json.loads((site / "told.json").read_text(encoding="utf-8"))
    return answer


async def test_fresh_evidence_says_that_the_assertions_hold(site: Path) -> None:
    node = node_of(site)
    async with running_node(node.attester, node.facts) as bed:
        found = await told(site, node, bed.port, profile="signed")
    assert (found["failing"], found["unknown"]) == ([], [])


async def test_fresh_evidence_says_that_an_assertion_fails(site: Path) -> None:
    node = node_of(site)
    async with running_node(node.attester, node.facts) as bed:
        found = await told(site, node, bed.port, profile="later")
    assert found["unknown"] == []
    assert "w-1 would fail" in found["failing"][0]
    assert "FIRMWARE_TOO_OLD" in found["failing"][0]
    assert found["applied"] == "POLICY_WOULD_REFUSE"


async def test_a_silent_node_is_not_guessed(site: Path, closed_port: int) -> None:
    node = node_of(site)
    found = await told(site, node, closed_port, profile="signed")
    assert found["failing"] == []
    assert "not known whether it would fail, signed asks for what an event log proves" in found["unknown"][0]
    assert "PEER_UNREACHABLE" in found["unknown"][0]
    assert found["applied"] == "POLICY_OUTLOOK_UNKNOWN"


async def test_another_machine_at_the_address_says_nothing_of_the_node(site: Path) -> None:
    node = node_of(site)
    other = SoftNode(boot=node.boot, cluster_id=node.cluster_id, locked_to=node.cluster_id)
    async with running_node(other.attester, other.facts) as bed:
        found = await told(site, node, bed.port, profile="signed")
    assert found["failing"] == []
    assert "IDENTITY_UNKNOWN" in found["unknown"][0]


@pytest.mark.parametrize("reinstate", [(), ("w-1",)])
async def test_a_revocation_is_taken_back_by_name(site: Path, closed_port: int, reinstate: tuple[str, ...]) -> None:
    """The identity that the API revokes comes back after the policy, in a text of its own; else it stays revoked."""
    node = node_of(site)
    ek = node.tpm.ek.public.spki_sha256()
    found = await told(site, node, closed_port, profile="signed", admission="Revoked", reinstate=reinstate)
    signed, objects, returning = (found[name] for name in ("policy", "manifests", "returning"))
    spec = yaml.safe_load(signed)["spec"]
    assert (spec["revoked"], spec.get("reinstated", [])) == (([], [ek]) if reinstate else ([ek], []))
    words = {one["spec"]["ekSha256"]: one["spec"]["admission"] for one in identities_in(objects)}
    back = {one["spec"]["ekSha256"]: one["spec"]["admission"] for one in identities_in(returning)}
    assert (words, back) == (({}, {ek: "Approved"}) if reinstate else ({ek: "Revoked"}, {}))


async def test_an_identity_that_the_cluster_has_is_not_applied_again(site: Path, closed_port: int) -> None:
    node = node_of(site)
    found = await told(site, node, closed_port, profile="signed")
    (document,) = identities_in(found["manifests"])
    again = await told(site, node, closed_port, profile="signed", applied=applied_sha256(document))
    assert identities_in(again["manifests"]) == []
    assert {one["kind"] for one in yaml.safe_load_all(again["manifests"]) if one} > {"AttestationPolicy"}


def identities_in(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one and one["kind"] == "NodeIdentity"]
