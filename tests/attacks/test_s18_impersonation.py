# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S18: somebody with a good certificate of another kind stands where the join service should: he learns nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa, make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import request_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.certificate import (
    EVIDENCE_OID,
    make_certificate,
    new_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.session import ServerCredentials
from ansible_collections.attested.kubernetes.tests.support.atls import (
    expired_credentials,
    running_bed,
    service_credentials,
)
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, bundle_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

THREAT = Threat(
    id="S18",
    title="Key service impersonated",
    case="public certificates without attestation; Clevis pins thumbprints",
    bed="sockets",
    stops=(
        ("transport/pins.py step 1", "JOIN_CA_MISMATCH"),
        ("transport/pins.py step 4", "JOIN_CERTIFICATE_EXPIRED"),
        ("transport/pins.py step 3", "JOIN_CLUSTER_MISMATCH"),
    ),
)

DISK = "33333333-3333-4333-8333-333333333333"
BUNDLE = bundle_of()
OURS = JoinCa(certificate=BUNDLE.join_ca_certificate, private_key=BUNDLE.join_ca_key.reveal())


def foreign() -> ServerCredentials:
    """Return what another CA signed for the very name of our service."""
    return service_credentials(make_join_ca("prod", now=datetime.now(UTC)), cluster_id=BUNDLE.cluster_id)


def by_himself() -> ServerCredentials:
    key = new_key()
    leaf = make_certificate(key, oid=EVIDENCE_OID, evidence=b"x", now=datetime.now(UTC))
    return ServerCredentials((leaf,), key)


def below_our_leaf() -> ServerCredentials:
    """Return a foreign leaf with a genuine chain behind it."""
    genuine = service_credentials(OURS, cluster_id=BUNDLE.cluster_id)
    forged = by_himself()
    return ServerCredentials((*forged.chain, *genuine.chain), forged.key)


@asynccontextmanager
async def standing(credentials: ServerCredentials) -> AsyncIterator[Any]:
    """Run a service with these credentials; ``seen`` is what it was told, ``validator.calls`` the evidence it got."""
    async with running_bed(server_credentials=lambda: credentials) as bed:
        yield bed


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has a disk id to give away."""
    bed: Any = SimpleNamespace(bundle=BUNDLE, endpoint="")
    made = Machine("w-1", bed, tmp_path)
    made.disk_id = DISK
    return made


async def refused(machine: Machine, credentials: ServerCredentials) -> tuple[str, int, int]:
    """Return the code, how many calls he got, and how many pieces of evidence."""
    before = machine.tpm.clock_info.clock
    async with standing(credentials) as bed:
        with pytest.raises(AttestedError) as caught:
            await request_ticket(bed.endpoint, machine.config(), machine.machine)
        return caught.value.code, len(bed.seen) + len(bed.validator.calls), machine.tpm.clock_info.clock - before


async def test_our_service_is_told_what_a_machine_has(machine: Machine) -> None:
    """The measure of the others: a genuine certificate gets evidence (which this bed's judge then refuses)."""
    _code, told, quotes = await refused(machine, service_credentials(OURS, cluster_id=BUNDLE.cluster_id))
    assert told
    assert quotes


@pytest.mark.parametrize(
    ("credentials", "code"),
    [
        pytest.param(foreign, "JOIN_CA_MISMATCH", id="a certificate of another CA for our very name"),
        pytest.param(by_himself, "JOIN_CA_MISMATCH", id="a certificate that he signed himself"),
        pytest.param(below_our_leaf, "JOIN_CA_MISMATCH", id="his own leaf before our genuine chain"),
        pytest.param(lambda: expired_credentials(OURS), "JOIN_CLUSTER_MISMATCH", id="our CA, another cluster"),
    ],
)
async def test_he_learns_nothing(machine: Machine, credentials: Any, code: str) -> None:
    """No disk id, no request, no evidence; the TPM was not even asked for a quote."""
    assert await refused(machine, credentials()) == (code, 0, 0)


async def test_a_stolen_certificate_that_has_ended(machine: Machine) -> None:

    old = service_credentials(OURS, cluster_id=BUNDLE.cluster_id, now=datetime.now(UTC) - timedelta(days=3))
    assert await refused(machine, old) == ("JOIN_CERTIFICATE_EXPIRED", 0, 0)
