# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3: a node is led to another genuine machine, or a genuine machine of the attacker comes in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.tests.support.atls import CLUSTER_ID, HashIssuer, running_bed
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import bundle_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from cryptography import x509

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.in_force import SitePolicy
    from ansible_collections.attested.kubernetes.tests.support.swtpm import SwtpmFactory
    from ansible_collections.attested.kubernetes.tests.support.tpm_machine import Boots, TpmMachine

THREAT = Threat(
    id="S3",
    title="Diversion to, or by, another genuine machine",
    case="CVE-2026-108362",
    bed="swtpm",
    stops=(
        ("evidence/verify.py step 7", "IDENTITY_UNKNOWN"),
        ("transport/pins.py step 1", "JOIN_CA_MISMATCH"),
    ),
)


def test_another_certified_tpm_with_the_same_registers(
    machine: TpmMachine, policy: SitePolicy, booted: Boots, manufactured: SwtpmFactory
) -> None:
    """Its certificate is of the same maker, its boot is the learned one: it is not in the list."""
    paths = (manufactured.authority.root, manufactured.authority.issuer)
    demands = Demands(ek_roots=tuple(x509.load_pem_x509_certificate(path.read_bytes()) for path in paths))
    assert machine.run(policy, demands=demands).machine.ek_certified
    other = booted(tpm="b")
    assert other.tpm.pcr_read(range(24)) == machine.tpm.pcr_read(range(24))
    assert code_of(lambda: other.run(policy, demands=demands)) == "IDENTITY_UNKNOWN"


async def test_a_genuine_service_of_another_cluster() -> None:
    """The node shows nothing of itself to a service whose CA it does not pin."""
    async with running_bed() as bed:
        assert await bed.say()
        issuer = HashIssuer()
        ours = JoinCaPins.from_pem(bundle_of().join_ca_certificate)
        with pytest.raises(AttestedError) as caught:
            async with connect(bed.endpoint, pins=ours, cluster_id=CLUSTER_ID, issuer=issuer):
                pass
        assert (caught.value.code, issuer.calls) == ("JOIN_CA_MISMATCH", [])
