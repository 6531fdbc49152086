# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `verify` before a node's real verification service, and the files of its report."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile, Site, render
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import Preset
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.boot_facts import learned
from ansible_collections.attested.kubernetes.tests.support.verification import CLUSTER_ID, SoftNode, running_node

BOOT = "deb13-grub-secureboot"
PEM = b"-----BEGIN CERTIFICATE-----\n"


def make_site(folder: Path, node: SoftNode, port: int) -> None:
    """Write what verify reads of a site with one worker, ``node`` at ``port``; over a connection it has no Python."""
    (folder / "policy").mkdir()
    profile = {**render_profile(learned(BOOT, Preset.AUTO)), "metadata": {"name": "good"}}
    (folder / "policy" / "good.yml").write_text(render_document(profile), encoding="utf-8")
    ek = f"sha256:{node.tpm.ek.public.spki_sha256()}"
    worker = {"ansible_host": "127.0.0.1", "ansible_connection": "local", "attested_ek": ek}
    known = {
        "attested_policy_dir": str(folder / "policy"),
        "attested_profiles": ["good"],
        "attested_verification_port": port,
    }
    groups = {"control_planes": {"hosts": {}}, "workers": {"hosts": {"w-1": worker}}}
    inventory = json.dumps({"nodes": {"children": groups, "vars": known}})  # YAML as well
    (folder / "hosts.yml").write_text(inventory, encoding="utf-8")
    facts = ClusterFile(cluster_id=CLUSTER_ID, measurement_salt=bytes(32), join_ca=PEM, policy_key=PEM)
    Site.at(folder).cluster_file.write_bytes(render(facts))


async def verify(folder: Path, *options: str) -> str:
    """Return what the playbook says, which has to succeed."""
    program = str(Path(sys.executable).parent / "ansible-playbook")
    begun = await asyncio.create_subprocess_exec(
        program, "attested.kubernetes.verify", "-i", "hosts.yml", *options,
        cwd=folder, env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _nothing = await begun.communicate()
    assert begun.returncode == 0, said.decode()
    return said.decode()


async def test_the_report_that_was_asked_for_is_written(tmp_path: Path) -> None:
    node = SoftNode(boot=boots.load(BOOT))
    async with running_node(node.attester, node.facts) as bed:
        make_site(tmp_path, node, bed.port)
        said = await verify(tmp_path, "-e", "attested_report=fleet")
    page, document = tmp_path / "fleet.html", tmp_path / "fleet.json"
    assert all(f"report: {path.name}" in said for path in (page, document)), said
    report = json.loads(document.read_bytes())
    assert report["cluster_id"] == CLUSTER_ID.hex()
    assert [(one["node"], one["outcome"], one["profile"]) for one in report["nodes"]] == [("w-1", "verified", "good")]
    assert "w-1" in page.read_text(encoding="utf-8")
