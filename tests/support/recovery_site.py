# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site whose cluster is down: locked nodes at addresses of this host, and the recovery kit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.action.node_recovery import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import recovery_kit
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import Lock, close_kit
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import render_identity_file
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.init_site import InitSite, Lines
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import RecoveryBed

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = {"cp-1": "control_planes", "cp-2": "control_planes", "a-1": "workers"}
ADDRESSES = {name: f"127.0.0.{11 + place}" for place, name in enumerate(NAMES)}
DISKS = {name: DiskId(f"{place}1111111-2222-4333-8444-555555555555") for place, name in enumerate(NAMES)}
PASSPHRASE = "correct horse battery staple"


@dataclass
class RecoverySite:
    """The files of a site below ``folder`` with one locked machine per node; ``attesters``: those with other TPMs."""

    folder: Path
    attesters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create site, machines, identities and kit."""
        self.init = InitSite(self.folder / "prod")
        self.root = self.init.root
        self.kit = self.folder / "prod.kit"
        self.passphrase = self.folder / "passphrase"
        self.beds = {name: self._machine(name) for name in NAMES}
        (self.root / "hosts.yml").write_text(yaml.safe_dump(self._hosts()), encoding="utf-8")
        variables = self.root / "group_vars" / "nodes"
        variables.mkdir(parents=True)
        said = "attested_profiles: [machines]\nattested_policy_dir: '{{ inventory_dir }}/policy'\n"
        (variables / "cluster.yml").write_text(said, encoding="utf-8")
        for name, bed in self.beds.items():
            self.enroll(name, bed, disk=DISKS[name].uuid)
        self._keep()

    def enroll(self, name: str, bed: RecoveryBed, *, disk: str) -> None:
        """Write the EK and the assigned disk of the machine ``name``."""
        with bed.attester() as one:
            ek = one.ek.public.spki_sha256()
        path = self.init.site.identity_file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(render_identity_file(ek_sha256=ek, known_by="fingerprint", disk=disk))

    def act(self, *nodes: str, port: int = 9999, check_mode: bool = False, **changes: Any) -> dict[str, Any]:
        """Run the action here; the result has the displayed lines as ``shown``."""
        options = {"site": str(self.root), "profiles": ["machines"], "nodes": list(nodes or NAMES), "port": port}
        known = {"async_val": 0, "check_mode": check_mode, "diff": False, "environment": None, "action": "recover"}
        task = SimpleNamespace(args={**options, "wait_seconds": 0, **changes}, **known)
        connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir=None))
        become = SimpleNamespace(become=False)
        action = ActionModule(task, connection, become, loader=None, templar=None, shared_loader_obj=None)
        lines = Lines()
        action._display = lines
        answer: dict[str, Any] = action.run(task_vars=self._variables())
        return {**answer, "shown": lines.all}

    def play(self, *words: str, port: int, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the playbook `recover`."""
        program = str(Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "attested.kubernetes.recover", "-i", "hosts.yml", "-e", f"attested_recovery_port={port}"]
        env = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_FORCE_COLOR": "0", **environment}
        return subprocess.run(
            [*argv, *words], cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=600
        )

    @property
    def with_kit(self) -> tuple[str, ...]:
        """The options of a run with the kit."""
        return "-e", f"kit_from={self.kit}", "-e", f"kit_passphrase_file={self.passphrase}"

    def canaries(self) -> list[bytes]:
        """Return all encodings of all secrets: the site's, each disk's key, the passphrase."""
        disks = [bed.right.disk_key.reveal() for bed in self.beds.values()]
        raw = [*disks, PASSPHRASE.encode(), self.init.bundle.measurement_secret().reveal()]
        return [*self.init.canaries(), *(one for secret in raw for one in spellings(secret))]

    def _machine(self, name: str) -> RecoveryBed:
        place = self.folder / name
        place.mkdir()
        return RecoveryBed(place, keys=self.init.keys, disk=DISKS[name], attester=self.attesters.get(name))

    def _hosts(self) -> dict[str, Any]:
        groups: dict[str, Any] = {group: {"hosts": {}} for group in set(NAMES.values())}
        for name, group in NAMES.items():
            groups[group]["hosts"][name] = {"ansible_host": ADDRESSES[name]}
        return {"nodes": {"children": groups}}

    def _variables(self) -> dict[str, Any]:
        files = {name: self.init.site.identity_file(name) for name in NAMES}
        hosts = {
            name: {"ansible_host": ADDRESSES[name], **yaml.safe_load(path.read_bytes())} for name, path in files.items()
        }
        groups = {group: [one for one in NAMES if NAMES[one] == group] for group in set(NAMES.values())}
        return {"inventory_hostname": "cp-1", "hostvars": hosts, "groups": {"nodes": list(NAMES), **groups}}

    def _keep(self) -> None:
        self.passphrase.write_text(PASSPHRASE + "\n", encoding="ascii")
        content = recovery_kit.gather(self.init.site, self.init.vault, now=SystemClock().now())
        self.kit.write_bytes(
            close_kit(content, Lock(passphrase=SecretBytes(PASSPHRASE.encode())), random=SystemRandom())
        )
        self.kit.chmod(0o600)
