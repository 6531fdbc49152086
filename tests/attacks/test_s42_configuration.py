# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S42: firmware and kernel are good, and what the machine runs is the attacker's playbook.

The profile demands a signer and a least version of the site; the record of it lies in front of the node lock, in its
register. Believed where the profile measures what writes that record (docs/limitations.md says what else it is).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import with_source
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.assertions import Assertions
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import Measured
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import TpmMachine

THREAT = Threat(
    id="S42",
    title="Configuration not measured",
    case="a good machine that runs an attacker's playbook",
    bed="swtpm",
    stops=(
        ("policy/assertions.py", "SOURCE_NOT_ACCEPTED"),
        ("policy/assertions.py", "SOURCE_TOO_OLD"),
        ("evidence/eventlog/nodelock.py", "NODELOCK_FOREIGN"),
    ),
)

REGISTER = 15
SIGNER, STRANGER = f"SHA256:{'s' * 43}", f"SHA256:{'t' * 43}"
SITE = Measured(commit="c0" * 20, version=7, signer=SIGNER, collection="0.1.0", bundle="9f" * 32, node_config="ab" * 32)


@pytest.fixture
def demanding(machine: TpmMachine) -> SitePolicy:
    """A site whose profile demands its own signer, and version 7 or later."""
    (profile,) = machine.policy().profiles()
    assertions = Assertions(source_signers=(SIGNER,), source_minimum=7)
    return SitePolicy(profiles=[replace(profile, assertions=assertions)], identities=[identity_of(machine.ek)])


def tell(machine: TpmMachine, text: str) -> None:
    """Say in the log that ``text`` was measured."""
    happened = machine.logs.nodelock.count(b"\x1e")
    log = with_source(machine.logs.nodelock, register=REGISTER, text=text, extended=happened)
    machine.logs = replace(machine.logs, nodelock=log)


def measure(machine: TpmMachine, **changes: Any) -> None:
    """Measure a site as a machine does: into the log and into the register."""
    text = replace(SITE, **changes).to_text()
    tell(machine, text)
    machine.tpm.pcr_event(REGISTER, text.encode())


def test_the_site_itself(machine: TpmMachine, demanding: SitePolicy) -> None:
    measure(machine)
    assert machine.run(demanding)


def test_a_playbook_that_nobody_measured(machine: TpmMachine, demanding: SitePolicy) -> None:
    assert machine.run(machine.policy())  # where no profile demands a site, the boot alone is judged
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_NOT_ACCEPTED"


def test_a_site_of_another_signer(machine: TpmMachine, demanding: SitePolicy) -> None:
    measure(machine, signer=STRANGER)
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_NOT_ACCEPTED"


def test_an_older_site_of_the_right_signer(machine: TpmMachine, demanding: SitePolicy) -> None:
    measure(machine, version=6)
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_TOO_OLD"


def test_a_good_site_that_stands_in_the_log_alone(machine: TpmMachine, demanding: SitePolicy) -> None:
    """A record is written before its extension, so one that never happened counts as not there."""
    tell(machine, SITE.to_text())
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_NOT_ACCEPTED"


def test_a_good_record_over_the_measurement_of_another(machine: TpmMachine, demanding: SitePolicy) -> None:
    tell(machine, SITE.to_text())
    machine.tpm.pcr_event(REGISTER, replace(SITE, signer=STRANGER).to_text().encode())
    assert code_of(lambda: machine.run(demanding)) == "NODELOCK_FOREIGN"


def test_a_good_site_measured_behind_the_attackers(machine: TpmMachine, demanding: SitePolicy) -> None:
    """What came first is what ran; the good one behind it changes nothing."""
    measure(machine, signer=STRANGER)
    measure(machine)
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_NOT_ACCEPTED"


def test_a_good_site_measured_behind_something_that_is_in_no_log(machine: TpmMachine, demanding: SitePolicy) -> None:
    machine.tpm.pcr_event(REGISTER, b"another playbook")
    measure(machine)
    assert code_of(lambda: machine.run(demanding)) == "NODELOCK_FOREIGN"


def test_a_record_of_another_form(machine: TpmMachine, demanding: SitePolicy) -> None:
    """Measured honestly, with one word more than the form has."""
    text = SITE.to_text().removesuffix("}") + ',"x":1}'
    tell(machine, text)
    machine.tpm.pcr_event(REGISTER, text.encode())
    assert code_of(lambda: machine.run(demanding)) == "SOURCE_NOT_ACCEPTED"
