# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`enroll -e delivered=FILE`: the playbook and the role as they are, up to the module that judges the machine.

The modules only write down what they were given; what the action makes of the papers is tried in
`tests/unit/plugins/action/test_attestation_verification.py`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
EK = "ab" * 32
FOUND = {"ek_sha256": EK, "known_by": "delivery list delivery.csv, serial B2", "ek_aliases": {}}
GIVEN = """#!/usr/bin/python
import json, pathlib
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict.fromkeys(%(options)r, {"type": "raw"}), supports_check_mode=True)
given = {key: value for key, value in module.params.items() if value is not None}
with pathlib.Path(%(trace)r).open("a") as trace:
    trace.write(json.dumps([%(name)r, given]) + "\\n")
module.exit_json(changed=False, **json.loads(%(found)r))
"""
MODULES = {
    "attestation_key": ("tcti",),
    "attestation_verification": (
        "site", "purpose", "endorsement_authorities", "insecure_first_use", "delivered", "serial", "learn_profile",
        "preset", "second_key",
    ),
    "tpm_authorization": ("tcti",),
    "node_identity": ("site", "node", "ek_sha256", "known_by", "ek_aliases", "admission", "replaced"),
    "measurement_profile": ("site", "policy_directory", "name", "manifests", "replace"),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with one worker, whose papers are a list, and the collection with modules that only write down."""
    collection = tmp_path / "ansible_collections" / "attested" / "kubernetes"
    (collection / "playbooks").mkdir(parents=True)
    book = (ROOT / "playbooks" / "enroll.yml").read_text(encoding="utf-8")
    here = book.replace("/opt/attested/venv/bin/python", sys.executable)
    (collection / "playbooks" / "enroll.yml").write_text(here, encoding="utf-8")
    shutil.copytree(ROOT / "playbooks" / "tasks", collection / "playbooks" / "tasks")
    shutil.copytree(ROOT / "roles" / "enrolment", collection / "roles" / "enrolment")
    (collection / "plugins" / "modules").mkdir(parents=True)
    for name, options in MODULES.items():
        found = FOUND if name == "attestation_verification" else {}
        what = {"name": name, "options": options, "trace": str(tmp_path / "trace"), "found": json.dumps(found)}
        (collection / "plugins" / "modules" / f"{name}.py").write_text(GIVEN % what, encoding="utf-8")
    known = {"ansible_connection": "local", "attested_policy_dir": "/policy", "attested_serial": "B2"}
    hosts = {"nodes": {"vars": known, "children": {"workers": {"hosts": {"w-1": {}}}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
    return tmp_path


def enrolled(site: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Run the playbook; return what each module was given."""
    argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.enroll", *options]
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(site), "ANSIBLE_COLLECTIONS_PATH": str(site)}
    done = subprocess.run(argv, cwd=site, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in (site / "trace").read_text(encoding="utf-8").splitlines())


def test_papers_reach_the_one_who_judges_and_their_word_the_site(site: Path) -> None:
    given = enrolled(site, "-e", "delivered=delivery.csv")
    judge = given["attestation_verification"]
    assert (judge["purpose"], judge["delivered"], judge["serial"]) == ("enroll", "delivery.csv", "B2")
    assert (given["node_identity"]["ek_sha256"], given["node_identity"]["known_by"]) == (EK, FOUND["known_by"])


def test_without_papers_none_are_named(site: Path) -> None:
    assert "delivered" not in enrolled(site)["attestation_verification"]
