# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a test says which code refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed

COARSE = "attestation refused"


def code_of(action: Callable[[], object]) -> str:
    """Return the reason code that ``action`` is refused with."""
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


def refused(action: Callable[[], object], bed: ServiceBed) -> dict[str, Any]:
    """Return the key service's line about a refusal; the machine itself hears the coarse text and no more."""
    before = len(bed.lines("key"))
    with pytest.raises(AttestedError) as caught:
        action()
    assert caught.value.code == "TICKET_REFUSED"
    assert COARSE in caught.value.message
    line = next(line for line in bed.lines("key")[before:] if line.get("outcome") == "refused")
    assert line["reason"] not in caught.value.message
    relayed = bed.last_refusal("join")
    assert (relayed["reason"], relayed["correlation_id"]) == (line["reason"], line["correlation_id"])
    return line
