# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S58: the key of a join service's certificate leaks, and somebody stands in the way with it until it is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import connect
from ansible_collections.attested.kubernetes.tests.support.atls import (
    CLUSTER_ID,
    HashIssuer,
    running_bed,
    service_credentials,
)
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

THREAT = Threat(
    id="S58",
    title="A join service's certificate whose key leaked",
    case="CVE-2008-0166",
    bed="sockets",
    stops=(("transport/pins.py step 4", "JOIN_CERTIFICATE_EXPIRED"),),
)


@pytest.mark.parametrize("minutes", [121, 6 * 60, 23 * 60])
async def test_two_hours_later_no_machine_takes_it(minutes: int) -> None:
    """The very same certificate was good before; the machine makes no evidence for whoever has it now."""
    async with running_bed() as bed:
        made = datetime.now(UTC)
        bed.credentials.append(service_credentials(bed.ca, now=made))
        assert await bed.say()
        bed.credentials.append(service_credentials(bed.ca, now=made - timedelta(minutes=minutes)))
        issuer = HashIssuer()
        with pytest.raises(TransportError) as caught:
            async with connect(bed.endpoint, pins=bed.pins, cluster_id=CLUSTER_ID, issuer=issuer, timeout_seconds=10):
                pass
        assert (caught.value.code, issuer.calls) == ("JOIN_CERTIFICATE_EXPIRED", [])
