# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two control planes, each with its own services, TPM and record, over one API whose store goes back in time.

What one of them has seen revoked stays revoked: at the other's next call, after etcd was restored from a snapshot
taken before, with one record put back on its disk, and with the identity deleted and made anew.
"""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import PolicyClient
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import REVOKED_LABEL
from ansible_collections.attested.kubernetes.tests.api_bed.conftest import OBJECTS
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.service_bed import POLICY, Machine, ServiceBed, bundle_of
from ansible_collections.attested.kubernetes.tests.support.swtpm import missing_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IDENTITY = "nodeidentities.attested-kubernetes.dev"


class Pair:
    """Two control planes of one cluster, and its machines."""

    def __init__(self, api: ApiBed, directory: Path) -> None:
        self.api = api
        self.directory = directory
        bundle = bundle_of()
        self.beds = (ServiceBed(api, bundle), ServiceBed(api, bundle, name="cp-2"))

    def machine(self, name: str) -> Machine:
        """Return a new machine that is enrolled."""
        made = Machine(name, self.beds[0], self.directory / name)
        made.enroll()
        return made

    def ask(self, machine: Machine, number: int) -> str:
        """Return why a control plane refuses a machine, an empty text where it does not."""
        bed = machine.bed = self.beds[number]
        before = len(bed.lines("key"))
        try:
            machine.ask()
        except AttestedError:
            lines = [line for line in bed.lines("key")[before:] if line.get("outcome") == "refused"]
            return str(lines[-1]["reason"])
        return ""

    def both(self, machine: Machine) -> list[str]:
        """Return both answers."""
        return [self.ask(machine, number) for number in (0, 1)]

    def wait_recorded(self, machine: Machine) -> None:
        """Wait until both have recorded the machine's revocation; nobody asked them, their watches tell them."""
        ek = machine.identity()["spec"]["ekSha256"]
        deadline = time.monotonic() + 60
        while any(ek not in PolicyClient(bed.policy_socket).state().revoked for bed in self.beds):
            assert time.monotonic() < deadline, "the revocation was not recorded"
            time.sleep(0.1)

    def revoke(self, machine: Machine) -> None:
        """Revoke as kubectl does."""
        name = machine.identity()["metadata"]["name"]
        change = {"metadata": {"labels": {REVOKED_LABEL: "true"}}, "spec": {"admission": "Revoked"}}
        self.api.kubectl("patch", IDENTITY, name, "--type=merge", "-p", json.dumps(change))

    def apply_site(self) -> None:
        """Do what the playbook `policy` does: sign every revocation that anybody knows, apply, hand over."""
        states = [PolicyClient(bed.policy_socket).state() for bed in self.beds]
        known = {ek for state in states for ek in state.revoked}
        highest = max([state.generation for state in states] + [self.beds[0].policy()["spec"]["generation"]])
        signed = self.beds[0].sign(generation=highest + 1, revoked=known)
        for bed in self.beds:
            PolicyClient(bed.policy_socket).adopt(signed)

    def restart(self, number: int) -> None:
        """Start a key service anew, as after a power cut."""
        self.beds[number].kill("key")
        self.beds[number].start_key_service()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two control planes over an API of their own."""
    reason = why_not() or (f"no TPM: {missing_tools()}" if missing_tools() else "")
    if reason:
        pytest.skip(reason)
    (tmp_path / "api").mkdir()
    with api_bed(tmp_path / "api") as api:
        for path in OBJECTS:
            api.kubectl("apply", "--server-side", "--field-manager=attested-site", "-f", str(path))
        api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=900s")
        made = Pair(api, tmp_path)
        try:
            for bed in made.beds:
                bed.start()
            yield made
        finally:
            for bed in made.beds:
                bed.stop()


def test_what_was_revoked_once_stays_revoked(pair: Pair) -> None:
    machine, other = pair.machine("w-1"), pair.machine("w-2")
    assert pair.both(machine) == ["", ""]
    old_disk = pair.directory / "old-disk"
    shutil.copytree(pair.beds[1].state, old_disk)
    snapshot = pair.api.snapshot()

    pair.revoke(machine)
    assert pair.ask(machine, 0) == "IDENTITY_REVOKED"
    assert pair.ask(machine, 1) == "IDENTITY_REVOKED", "effective at the other's next call"
    pair.wait_recorded(machine)

    pair.api.restore(snapshot)
    assert machine.identity()["spec"]["admission"] == "Approved", "the store has forgotten it"
    assert pair.both(machine) == ["POLICY_ROLLED_BACK"] * 2
    assert pair.both(other) == ["POLICY_ROLLED_BACK"] * 2, "everyone, because more may have been lost"

    name = machine.identity()["metadata"]["name"]
    pair.api.kubectl("delete", IDENTITY, name)
    machine.enroll()
    assert pair.both(machine) == ["POLICY_ROLLED_BACK"] * 2

    shutil.rmtree(pair.beds[1].state)
    shutil.copytree(old_disk, pair.beds[1].state)
    pair.restart(1)
    assert pair.both(machine) == ["POLICY_ROLLED_BACK"] * 2
    assert "the TPM counts" in pair.beds[1].last_refusal()["detail"]

    pair.apply_site()
    assert pair.both(machine) == ["IDENTITY_REVOKED"] * 2, "signed now, whatever its object says"
    assert pair.both(other) == ["", ""]


def test_a_store_from_before_the_last_policy_refuses_everyone_until_the_site_is_applied(pair: Pair) -> None:
    machine = pair.machine("w-1")
    snapshot = pair.api.snapshot()
    pair.apply_site()
    assert pair.both(machine) == ["", ""]
    pair.api.restore(snapshot)
    assert pair.both(machine) == ["POLICY_ROLLED_BACK"] * 2
    pair.restart(0)
    assert pair.ask(machine, 0) == "POLICY_ROLLED_BACK", "the record outlives the process"
    pair.apply_site()
    assert pair.both(machine) == ["", ""]


def test_nobody_but_the_site_makes_a_policy(pair: Pair) -> None:
    machine = pair.machine("w-1")
    good = pair.beds[0].policy()
    forged: dict[str, Any] = {**good, "spec": {**good["spec"], "generation": 9}}
    pair.api.apply(forged)
    assert pair.both(machine) == ["POLICY_SIGNATURE"] * 2
    pair.api.kubectl("delete", POLICY, "cluster")
    assert pair.both(machine) == ["POLICY_ABSENT"] * 2
    pair.api.apply(good)
    assert pair.both(machine) == ["", ""]


def test_a_control_plane_without_a_record_serves_nobody(pair: Pair) -> None:
    machine = pair.machine("w-1")
    shutil.rmtree(pair.beds[0].state)
    pair.restart(0)
    assert pair.both(machine) == ["POLICY_ROLLED_BACK", ""]
    pair.beds[0].adopt()
    assert pair.both(machine) == ["", ""]


def test_each_says_in_the_policys_status_what_it_has_seen(pair: Pair) -> None:
    pair.apply_site()
    wanted = pair.beds[0].policy()["spec"]["generation"]
    ask: Callable[[], dict[str, Any]] = lambda: pair.api.get(POLICY, "cluster").get("status", {}).get("seenBy", {})  # noqa: E731
    deadline = time.monotonic() + 90
    while {name: one["generation"] for name, one in ask().items()} != {"cp-1": wanted, "cp-2": wanted}:
        assert time.monotonic() < deadline, ask()
        time.sleep(0.2)
