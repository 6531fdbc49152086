# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endpoints as an operator writes them."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import parse_endpoint


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        pytest.param("cp-1.example:9090", ("cp-1.example", 9090), id="name"),
        pytest.param("10.0.0.11:9090", ("10.0.0.11", 9090), id="address"),
        pytest.param("[2001:db8::1]:9090", ("2001:db8::1", 9090), id="IPv6 address"),
    ],
)
def test_good_endpoints(endpoint: str, expected: tuple[str, int]) -> None:
    """Host and port come out."""
    assert expected == parse_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "cp-1",
        "cp-1:",
        ":9090",
        "cp-1:0",
        "cp-1:65536",
        "2001:db8::1:9090",
        "https://cp-1:9090",
        "a b:1",
        "cp-1:\uff19",
    ],
)
def test_bad_endpoints(endpoint: str) -> None:
    """Anything else is named."""
    with pytest.raises(TransportError, match="ENDPOINT_INVALID"):
        parse_endpoint(endpoint)
