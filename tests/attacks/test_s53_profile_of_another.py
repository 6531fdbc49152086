# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S53: a machine boots what a profile allows that the site made for another role or machine, or has another node.yml.

A profile for workers may be looser than what a control plane must boot, and one machine's own initrd is no other's. The
digest of node.yml is measured in front of the lock with the signed site; nobody looked at it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import with_source
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import profile_sha256
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import parse_objects, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import AllowedValue
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import Measured
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import TpmMachine

THREAT = Threat(
    id="S53",
    title="Profile of another role or machine; configuration not measured",
    case="a control plane boots what only workers may; node.yml changed beside a signed site",
    bed="swtpm",
    stops=(
        ("policy/decision.py", "PROFILE_NOT_FOR_MACHINE"),
        ("policy/cluster.py", ""),
        ("policy/assertions.py", "NODE_CONFIG_NOT_ACCEPTED"),
        ("policy/manifest.py", "MANIFEST_INVALID"),
    ),
)

OTHER = "11" * 32


def limited(machine: TpmMachine, **limits: Any) -> MeasurementProfile:
    """The profile of the machine's boot as the site wrote it, with limits."""
    (profile,) = machine.policy().profiles()
    manifest = render_profile(profile)
    manifest["spec"] |= limits
    return parse_objects([("good.yml", manifest)]).profiles[0]


def policy(machine: TpmMachine, *profiles: MeasurementProfile, role: Role = Role.WORKER) -> SitePolicy:
    return SitePolicy(profiles=profiles, identities=[identity_of(machine.ek, role=role)])


def own_key(machine: TpmMachine) -> str:
    return machine.ek.public.spki_sha256()


def test_a_profile_for_the_own_role_and_machine(machine: TpmMachine) -> None:
    for limits in ({}, {"roles": ["worker"]}, {"machines": [OTHER, own_key(machine)]}):
        assert machine.run(policy(machine, limited(machine, **limits)))
    both = limited(machine, roles=["worker", "control-plane"], machines=[own_key(machine)])
    assert machine.run(policy(machine, both, role=Role.CONTROL_PLANE))


@pytest.mark.parametrize(
    ("limits", "role"),
    [
        pytest.param({"roles": ["worker"]}, Role.CONTROL_PLANE, id="a control plane with the boot of workers"),
        pytest.param({"roles": ["control-plane"]}, Role.WORKER, id="a worker with the boot of control planes"),
        pytest.param({"machines": [OTHER]}, Role.WORKER, id="a machine with the boot of another"),
        pytest.param({"roles": ["worker"], "machines": [OTHER]}, Role.WORKER, id="the role alone is right"),
    ],
)
def test_a_profile_for_others(machine: TpmMachine, limits: dict[str, Any], role: Role) -> None:
    assert machine.run(policy(machine, limited(machine), role=role))
    assert code_of(lambda: machine.run(policy(machine, limited(machine, **limits), role=role))) == (
        "PROFILE_NOT_FOR_MACHINE"
    )


def test_another_profile_of_the_own_does_not_help(machine: TpmMachine) -> None:
    """The boot is told as one for others, not by what deviates from the profile that counts."""
    foreign = limited(machine, machines=[OTHER])
    other_values = {pcr: (AllowedValue(b"x" * 32, "own"),) for pcr in foreign.registers}
    own = replace(limited(machine), name="own", registers=other_values)
    assert code_of(lambda: machine.run(policy(machine, own, foreign))) == "PROFILE_NOT_FOR_MACHINE"
    assert code_of(lambda: machine.run(policy(machine, own))) == "PCR_MISMATCH"


def test_a_second_key_that_somebody_wrote_into_an_identity(machine: TpmMachine) -> None:
    """Whoever may write identities may claim a listed key as the second one of a chip; only the proven key counts."""
    claimed: NodeIdentity = replace(identity_of(machine.ek), ek_alias=OTHER)
    profiles = [limited(machine, machines=[OTHER])]
    assert code_of(lambda: machine.run(SitePolicy(profiles=profiles, identities=[claimed]))) == (
        "PROFILE_NOT_FOR_MACHINE"
    )


def test_limits_are_what_the_site_signs(machine: TpmMachine) -> None:
    """Who may write profiles and has no policy key cannot take them away: another digest is another profile."""
    digests = {
        profile_sha256(limited(machine, **limits))
        for limits in ({}, {"roles": ["worker"]}, {"roles": ["control-plane"]}, {"machines": [OTHER]})
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"roles": []}, id="no role"),
        pytest.param({"roles": ["root"]}, id="an unknown role"),
        pytest.param({"roles": ["worker", "worker"]}, id="a role twice"),
        pytest.param({"machines": []}, id="no machine"),
        pytest.param({"machines": ["w-1"]}, id="a name, which is no proof"),
    ],
)
def test_a_limit_that_says_nothing(machine: TpmMachine, limits: dict[str, Any]) -> None:
    assert limited(machine)
    assert code_of(lambda: limited(machine, **limits)) == "MANIFEST_INVALID"


SITE = Measured(
    commit="c0" * 20,
    version=7,
    signer=f"SHA256:{'s' * 43}",
    collection="0.1.0",
    bundle="9f" * 32,
    node_config="ab" * 32,
)


def measure(machine: TpmMachine, site: Measured) -> None:
    """Measure a site as `attested-node-boot` does: into the log and into the register."""
    text = site.to_text()
    log = with_source(machine.logs.nodelock, register=15, text=text, extended=machine.logs.nodelock.count(b"\x1e"))
    machine.logs = replace(machine.logs, nodelock=log)
    machine.tpm.pcr_event(15, text.encode())


def test_the_configuration_that_the_profile_names(machine: TpmMachine) -> None:
    measure(machine, SITE)
    named = limited(machine, assertions={"nodeConfigs": ["cd" * 32, SITE.node_config]})
    assert machine.run(policy(machine, named))


def test_another_configuration_beside_the_signed_site(machine: TpmMachine) -> None:
    measure(machine, replace(SITE, node_config="ef" * 32))
    signed = limited(machine, assertions={"sourceSigners": [SITE.signer]})
    assert machine.run(policy(machine, signed))  # the site alone does not tell
    named = limited(machine, assertions={"sourceSigners": [SITE.signer], "nodeConfigs": [SITE.node_config]})
    assert code_of(lambda: machine.run(policy(machine, named))) == "NODE_CONFIG_NOT_ACCEPTED"


def test_a_configuration_that_nobody_measured(machine: TpmMachine) -> None:
    """An admin's playbook and the bootstrapper measure none: such a profile is not for their machines."""
    named = limited(machine, assertions={"nodeConfigs": [SITE.node_config]})
    assert code_of(lambda: machine.run(policy(machine, named))) == "NODE_CONFIG_NOT_ACCEPTED"
