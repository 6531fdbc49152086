# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole exchanges with real TPMs that hold recorded boots: who is let in, who is refused; attacks: `tests/attacks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.decision import MeasurementMismatch
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import open_sealed
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.tpm_machine import Boots, TpmMachine, booted_machine
from cryptography import x509

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm, SwtpmFactory


def test_a_real_machine_is_let_in_and_opens_what_is_sealed_to_it(machine: TpmMachine, policy: SitePolicy) -> None:
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    node = machine.verified(given, record, policy)
    assert (node.verdict.profile, node.machine.lock.state) == ("deb13-base", LockState.UNLOCKED)
    box = node.machine.seal(b"disk key")
    opened = open_sealed(box, secret=given.secret, binding=given.binding, one_time_key=given.one_time_key)
    assert opened == b"disk key"


def test_the_certificate_of_a_real_tpm_chains_to_its_root(
    machine: TpmMachine, policy: SitePolicy, manufactured: SwtpmFactory
) -> None:
    root = x509.load_pem_x509_certificate(manufactured.authority.root.read_bytes())
    issuer = x509.load_pem_x509_certificate(manufactured.authority.issuer.read_bytes())
    demands = Demands(ek_roots=(root, issuer))
    assert machine.run(policy, demands=demands).machine.ek_certified


def test_a_changed_request_byte(machine: TpmMachine, policy: SitePolicy) -> None:
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge)
    changed = machine.context(request=b"R" + machine.context().request[1:])
    assert code_of(lambda: machine.verified(given, record, policy, context=changed)) == "BINDING_MISMATCH"


def test_a_register_extended_after_the_boot(machine: TpmMachine, policy: SitePolicy) -> None:
    """S10."""
    machine.tpm.pcr_event(9, b"evil")
    assert code_of(lambda: machine.run(policy)) == "EVENT_LOG_MISMATCH"


def test_a_changed_command_line(booted: Boots) -> None:
    machine = booted("deb13-cmdline")
    with pytest.raises(
        MeasurementMismatch, match=r"expected 'kernel command line .* got 'kernel command line .*tampered"
    ):
        machine.run(machine.policy())


def test_a_locked_machine_may_ask_again_and_is_a_good_node(machine: TpmMachine, policy: SitePolicy) -> None:
    machine.lock()
    assert machine.run(policy).machine.lock.state is LockState.LOCKED
    other_cluster = {"context": machine.context(cluster_id=b"o" * 32)}
    challenge, record = machine.challenged(policy)
    given = machine.answered(challenge, cluster_id=b"o" * 32)
    assert code_of(lambda: machine.verified(given, record, policy, **other_cluster)) == "NODELOCK_OTHER_CLUSTER"


def test_recorded_ticket_on_the_right_machine_after_another_boot(swtpm: Swtpm, opened: Opened) -> None:
    """The credential opens on its machine whatever that machine booted; the box does not."""
    with opened(swtpm) as tpm:
        machine = booted_machine(tpm)
        policy = machine.policy()
        challenge, record = machine.challenged(policy)
        given = machine.answered(challenge)
        box = machine.verified(given, record, policy).machine.seal(b"disk key")
    swtpm.reset()
    with opened(swtpm) as tpm:
        again = booted_machine(tpm, "deb13-cmdline").answered(challenge)
    assert again.secret == given.secret
    known = {"secret": again.secret, "one_time_key": again.one_time_key}
    for binding in (given.binding, again.binding):
        assert code_of(lambda binding=binding: open_sealed(box, binding=binding, **known)) == "SEAL_UNOPENABLE"
