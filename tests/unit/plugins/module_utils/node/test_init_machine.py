# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the founder does with the policy of an order; the real TPM and runner are in tests/component/node."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import ClaimFile, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.init_machine import MachineFounder
from ansible_collections.attested.kubernetes.plugins.module_utils.node.playbook import PlaybookSettings
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder, Success
from ansible_collections.attested.kubernetes.tests.support.brought import packed
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.node.test_race import Register
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.policy.test_cluster import PRIVATE

DIGEST = "a" * 64
KINDS = ["MeasurementProfile", "NodeIdentity", "NodeIdentity", "AttestationPolicy"]


class Silent:
    """Hears a run without a word."""

    def step(self, _stage: str, _task: str) -> None:
        """Hear of a task."""


class Keeping:
    """Keeps keys in memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def write(self, bundle: Any, *, judged: Any, lock_register: int) -> None:
        """Keep them."""
        del judged, lock_register
        self.kept.append(bundle)

    def opened(self) -> Any:
        """Return what was kept last."""
        return self.kept[-1] if self.kept else None

    def files(self) -> tuple[Path, ...]:
        """Return no file."""
        return ()


class Playbooks:
    """Remembers what each run was given: its variables, and the files in the directory of the policy."""

    def __init__(self) -> None:
        self.variables: list[Any] = []
        self.files: dict[str, str] = {}
        self.modes: list[int] = []
        self.breaks = False

    def run(self, order: Any, _listener: Any) -> dict[str, Any]:
        """Look at the order, then end well unless it is to break."""
        self.variables.append(order.variables)
        directory = order.variables.get("attested_brought_policy")
        if directory:
            self.files = {path.name: path.read_text(encoding="utf-8") for path in Path(directory).iterdir()}
            self.modes = [stat.S_IMODE(path.stat().st_mode) for path in (Path(directory), *Path(directory).iterdir())]
        if self.breaks:
            raise SystemFault("it broke", reason=Reason.PLAYBOOK_FAILED)
        return {"kubeconfig": "kind: Config"}


class Machine:
    """A machine that waits for its first control plane, and the keys of a site."""

    def __init__(self, root: Path) -> None:
        self.root = root
        _ca, bundle = make_keys()
        self.bundle = replace(bundle, policy_key=POLICY_KEY)
        self.register, self.keeping, self.playbooks = Register(), Keeping(), Playbooks()
        self.disk: Any = None
        self.race = Race(self.register, cluster_id=self.bundle.cluster_id, claims=ClaimFile(root / "claim.json"))

    def found(self, **changes: Any) -> Success:
        """Make the cluster for an order with these changes."""
        order = InitOrder(
            cluster_name="prod",
            kubernetes_version="1.35.4",
            service_cidr="10.96.0.0/16",
            measurement_salt=b"m" * 32,
            challenge_id=b"",
            sealed=b"",
        )
        settings = PlaybookSettings(
            playbook=Path("/p.yml"), inventory=Path("/i.yml"), node_name="cp-1", directory=self.root / "run"
        )
        founder = MachineFounder(
            settings,
            race=self.race,
            keeping=self.keeping,
            playbooks=self.playbooks,
            stop_others=lambda: None,
            disk=self.disk,
        )
        return founder.found(replace(order, **changes), self.bundle, digest=DIGEST, judged={}, reporter=Silent())

    def left(self) -> list[Path]:
        """Return what is left of a run."""
        return list((self.root / "run").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_playbook_has_the_policy_as_files_as_long_as_it_runs(machine: Machine) -> None:
    cluster = machine.bundle.cluster_id
    made = machine.found(**packed(cluster, generation=4))
    assert made == Success(kubeconfig=b"kind: Config", cluster_id=cluster, policy_generation=4)
    assert sorted(machine.playbooks.files) == ["objects.yml", "policy.yml"]
    (document,) = load_documents(machine.playbooks.files["policy.yml"])
    assert verify_policy(document, public_key=POLICY_KEY, cluster_id=cluster).generation == 4
    assert [one["kind"] for one in load_documents(machine.playbooks.files["objects.yml"])] == KINDS
    assert machine.playbooks.modes == [0o700, 0o600, 0o600]
    assert machine.left() == []


def test_a_playbook_that_fails_leaves_no_file(machine: Machine) -> None:
    machine.playbooks.breaks = True
    with pytest.raises(AttestedError):
        machine.found(**packed(machine.bundle.cluster_id))
    assert machine.left() == []


def test_an_order_of_an_older_admin_brings_no_policy(machine: Machine) -> None:
    assert machine.found().policy_generation == 0
    assert "attested_brought_policy" not in machine.playbooks.variables[0]


def test_a_policy_of_another_key_is_refused_before_anything_is_kept(machine: Machine) -> None:
    with pytest.raises(AttestedError) as caught:
        machine.found(**packed(machine.bundle.cluster_id, private_key=PRIVATE))
    assert caught.value.code == "POLICY_SIGNATURE"
    assert (machine.register.events, machine.keeping.kept, machine.playbooks.variables) == (0, [], [])
    assert machine.found(**packed(machine.bundle.cluster_id)).policy_generation == 1


def test_the_same_request_with_another_policy_goes_on_with_that(machine: Machine) -> None:
    machine.playbooks.breaks = True
    with pytest.raises(AttestedError):
        machine.found(**packed(machine.bundle.cluster_id))
    machine.playbooks.breaks = False
    assert machine.found(**packed(machine.bundle.cluster_id, generation=2)).policy_generation == 2
    assert machine.register.events == 1
