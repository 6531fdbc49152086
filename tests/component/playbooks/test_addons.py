# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of add-ons as ansible-playbook reads it: vaults, templates, and text that only looks like a template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.attested.kubernetes.tests.support.house import SOURCES

BIN = Path(sys.executable).parent
CANARY = "never-to-be-seen-19ab77"
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"size": 4},
        "tasks": [{"attested.kubernetes.addon": {"site": "{{ playbook_dir }}"}}],
    }
]


def run(root: Path, rows: str, *, password: str = "right") -> tuple[int, str]:
    """List the add-ons of a site by ansible-playbook; return its exit code and everything that it printed."""
    (root / "hosts.yml").write_text("nodes: {}\n")
    (root / "addons.yml").write_text(rows)
    (root / "play.yml").write_text(yaml.safe_dump(PLAY))
    (root / "password").write_text(password)
    done = subprocess.run(
        [BIN / "ansible-playbook", "-vvv", "-i", "localhost,", "--vault-password-file=password", "play.yml"],
        cwd=root,
        env={
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(root),
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES)),
            "ANSIBLE_COLLECTIONS_PATH": os.environ.get("PYTHONPATH", str(SOURCES)),
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def closed(text: str) -> str:
    """Return a text in a vault, as `ansible-vault encrypt` does."""
    return str(VaultLib([("default", VaultSecret(b"right"))]).encrypt(text.encode()).decode())


def rows(values: str) -> str:
    """Return a list of two; the second one comes first."""
    return (
        f"addons:\n- {{name: b, namespace: b, chart: b, order: 20, values: {values}}}\n"
        "- {name: a, namespace: a, chart: a, order: 10}\n"
    )


@pytest.mark.parametrize("whole", [True, False], ids=["the file", "a value"])
def test_what_is_in_a_vault_is_opened_and_not_shown(whole: bool, tmp_path: Path) -> None:
    vaulted = rows(json.dumps({"p": CANARY}))
    if not whole:
        vaulted = rows("{}") + "- name: c\n  namespace: c\n  chart: c\n  order: 30\n  values:\n    p: !vault |\n"
        vaulted += "".join(f"      {line}\n" for line in closed(CANARY).splitlines())
    ends, said = run(tmp_path, closed(vaulted) if whole else vaulted)

    assert ends == 0, said
    names = [line.partition(":")[2].strip(' ",') for line in said.splitlines() if '"name":' in line]
    assert names == (["a", "b"] if whole else ["a", "b", "c"])
    assert CANARY not in said


@pytest.mark.parametrize("whole", [True, False], ids=["the file", "a value"])
def test_a_vault_that_does_not_open_is_reported(whole: bool, tmp_path: Path) -> None:
    value = "".join(f"      {line}\n" for line in closed(CANARY).splitlines())
    vaulted = closed(rows("{}")) if whole else f"addons:\n- name: c\n  values:\n    p: !vault |\n{value}"
    ends, said = run(tmp_path, vaulted, password="wrong")

    assert ends != 0
    assert '"reason": "ADDON_INVALID"' in said, said


@pytest.mark.parametrize(
    ("values", "code"),
    [('{a: "{{ size }}"}', 0), ('{a: !unsafe "{{ $labels.x }}"}', 0), ('{a: "{{ no_such_variable }}"}', 2)],
)
def test_values_are_templates_unless_they_say_otherwise(values: str, code: int, tmp_path: Path) -> None:
    ends, said = run(tmp_path, rows(values))

    assert ends == code, said
    assert ('"reason": "ADDON_INVALID"' in said) == bool(code)
