# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`kubeconfig` as Ansible runs it: a control plane that answers signs, no key shows, a second run changes nothing.

Playbook and action are as they are. The module of the control plane is replaced by one that runs the same function for
a CA of the test; kubectl answers as the file ``ready`` says.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.constants import DEFAULT_VAULT_ID_MATCH
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.attested.kubernetes.tests.support.canary import ProcessWatch, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa
from ansible_collections.attested.kubernetes.tests.support.house import ROOT, SOURCES
from cryptography import x509

BIN = Path(sys.executable).parent
PASSWORD = "correct horse"
SIGNER = """import json
import sys
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node import ca_rotation

ca_rotation.KubernetesPaths = lambda: KubernetesPaths(root=Path({machine!r}))
print(json.dumps(ca_rotation.run_admin_certificate(json.load(sys.stdin), check_mode=False).values))
"""
MODULE = """#!/usr/bin/python
import json
import os
import subprocess
import sys

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(
    argument_spec={{
        "request": {{"type": "str", "default": ""}},
        "name": {{"type": "str", "default": "attested:admin"}},
        "groups": {{"type": "list", "elements": "str"}},
        "hours": {{"type": "int", "default": 24}},
    }},
    supports_check_mode=True,
)
said = subprocess.run(
    [sys.executable, {signer!r}], input=json.dumps(module.params), capture_output=True, text=True, check=True,
    env=dict(os.environ, PYTHONPATH={sources!r}),
)
open({trace!r}, "a").write(module.params["request"].partition("\\n")[0] + "\\n")
module.exit_json(changed=False, **json.loads(said.stdout))
"""
KUBECTL = """#!/bin/sh
test -e {root}/ready
"""


class Site:
    """Two control planes, of which none answers without the file ``ready``."""

    def __init__(self, root: Path) -> None:
        self.root, self.trace, self.home = root, root / "trace", root / "home"
        self.vault = VaultLib([(DEFAULT_VAULT_ID_MATCH, VaultSecret(PASSWORD.encode()))])
        (root / "machine").mkdir()
        ClusterCa(root / "machine")
        sources = os.environ.get("PYTHONPATH", str(SOURCES))
        collection = root / "ansible_collections" / "attested" / "kubernetes"
        for name in ("playbooks", "plugins/action", "plugins/modules"):
            (collection / name).mkdir(parents=True)
        for name in ("answering", "kubeconfig"):
            text = (ROOT / "playbooks" / f"{name}.yml").read_text(encoding="utf-8")
            text = text.replace("/opt/attested/venv/bin/python", sys.executable)
            (collection / "playbooks" / f"{name}.yml").write_text(text, encoding="utf-8")
        plugins = collection / "plugins"
        for name in ("module_utils", "plugin_utils", "doc_fragments"):
            (plugins / name).symlink_to(ROOT / "plugins" / name)
        for kind in ("action", "modules"):
            (plugins / kind / "admin_kubeconfig.py").symlink_to(ROOT / "plugins" / kind / "admin_kubeconfig.py")
        signer = root / "signer.py"
        signer.write_text(SIGNER.format(machine=str(root / "machine")), encoding="utf-8")
        words = {"signer": str(signer), "sources": sources, "trace": str(self.trace)}
        (plugins / "modules" / "admin_certificate.py").write_text(MODULE.format(**words), encoding="utf-8")
        self.site = root / "prod"
        (self.site / ".secrets").mkdir(parents=True)
        self._inventory()

    def _inventory(self) -> None:
        program = self.root / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(KUBECTL.format(root=self.root), encoding="utf-8")
        program.chmod(0o700)
        (self.root / "ready").touch()
        (self.root / "password").write_text(PASSWORD, encoding="utf-8")
        common = {
            "ansible_connection": "local",
            "ansible_remote_tmp": str(self.root / "tmp"),
            "attested_cluster_name": "prod",
            "attested_api_endpoint": "api.prod.example:6443",
        }
        planes = {"control_planes": {"hosts": {"cp-1": {}, "cp-2": {}}}}
        (self.site / "hosts.yml").write_text(yaml.safe_dump({"nodes": {"vars": common, "children": planes}}))

    def run(self, *options: str, ends: int = 0, **env: str) -> str:
        """Return what was printed."""
        argv = [BIN / "ansible-playbook", "-i", "hosts.yml", "attested.kubernetes.kubeconfig", *options]
        known = {
            "PATH": f"{self.root / 'bin'}:{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "ANSIBLE_COLLECTIONS_PATH": str(self.root),
            "ANSIBLE_VAULT_PASSWORD_FILE": str(self.root / "password"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_FORCE_COLOR": "0",
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(SOURCES)),
        }
        done = subprocess.run(argv, cwd=self.site, env={**known, **env}, capture_output=True, text=True, check=False)
        assert done.returncode == ends, done.stdout + done.stderr
        return done.stdout + done.stderr

    def opened(self, name: str) -> bytes:
        """Return a file of .secrets/."""
        return bytes(self.vault.decrypt((self.site / ".secrets" / name).read_bytes()))

    def leaf(self, name: str) -> str:
        """Return who the certificate in a kubeconfig is for."""
        body: dict[str, Any] = yaml.safe_load(self.opened(name))
        pem = base64.b64decode(body["users"][0]["user"]["client-certificate-data"])
        return x509.load_pem_x509_certificate(pem).subject.rfc4514_string()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_no_key_shows_at_full_verbosity_and_a_second_run_changes_nothing(site: Site) -> None:
    log = site.root / "log"
    with ProcessWatch() as watch:
        said = site.run("-vvvv", "--diff", "-e", "merge=true", ANSIBLE_LOG_PATH=str(log))
        seen = b"\n".join(data for _channel, data in watch.seen())
    assert site.leaf("admin.kubeconfig") == "CN=attested:admin,O=kubeadm:cluster-admins"
    canaries = spellings_of_pem(site.opened("admin-key.pem"))
    clear = site.home / ".kube" / "config"
    texts = [said.encode(), log.read_bytes(), seen]
    texts += [path.read_bytes() for path in site.root.rglob("*") if path.is_file() and path != clear]
    assert [one for one in canaries if any(one in text for text in texts)] == []
    assert [one for one in canaries if one in clear.read_bytes()], "a planted one would be found"
    assert clear.stat().st_mode & 0o777 == 0o600
    asked = site.trace.read_text()
    assert "changed=1" in said
    again = site.run("-e", "merge=true")
    assert "nothing is due" in again
    assert "changed=1" not in again
    assert site.trace.read_text() == f"{asked}\n", "no further request"


def test_a_further_admin_gets_the_groups_of_the_command_line(site: Site) -> None:
    options = ("-e", "admin=alice", "-e", "admin_groups=developers,on-call", "-e", "admin_hours=8")
    target = site.root / "alice.kubeconfig"
    foreseen = site.run(*options, "-e", f"kubeconfig={target}", "--check")
    assert "a certificate of alice in developers, on-call for 8 hours, since there is no kubeconfig" in foreseen
    assert (list((site.site / ".secrets").iterdir()), target.exists()) == ([], False)
    site.run(*options, "-e", f"kubeconfig={target}")
    assert site.leaf("admin-alice.kubeconfig") == "CN=alice,O=on-call,O=developers"
    assert target.read_bytes() == site.opened("admin-alice.kubeconfig")
    site.run("-e", "admin=alice", "-e", "admin_groups=")
    assert site.leaf("admin-alice.kubeconfig") == "CN=alice"


def test_names_of_the_system_and_a_cluster_that_does_not_answer_are_refused(site: Site) -> None:
    said = site.run("-e", "admin=alice", "-e", "admin_groups=system:masters", ends=2)
    assert "OPTION_INVALID" in said
    assert "got 'system:masters'" in said
    (site.root / "ready").unlink()
    assert "CONTROL_PLANE_NONE_ANSWERS" in site.run(ends=2)
    assert (site.trace.exists(), list((site.site / ".secrets").iterdir())) == (False, [])
