# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses as people and clusters write them, and the file between the two units."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault, TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import (
    parse_address,
    parse_list,
    render_list,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

GOOD = {"version": 1, "control_planes": ["10.0.0.11:6443"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("api.prod.example:6443", ("api.prod.example", 6443), id="a name"),
        pytest.param("10.0.0.11:6443", ("10.0.0.11", 6443), id="an address"),
        pytest.param("[fd00::11]:6443", ("fd00::11", 6443), id="an address in brackets"),
    ],
)
def test_an_address(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("10.0.0.11", id="no port"),
        pytest.param("10.0.0.11:0", id="port 0"),
        pytest.param("10.0.0.11:65536", id="a port that is none"),
        pytest.param(":6443", id="no host"),
        pytest.param("fd00::11:6443", id="an address without brackets"),
        pytest.param("a@10.0.0.11:6443", id="a user"),
        pytest.param("10.0.0.11:6443/x", id="a path"),
        pytest.param("10.0.0.11:06443", id="a port with a zero before it"),
        pytest.param("[::1:6443", id="half a bracket"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(TransportError) as caught:
        parse_address(text)
    assert caught.value.reason is Reason.ENDPOINT_INVALID


def test_a_list_comes_back_sorted_and_each_once() -> None:
    assert parse_list(render_list(["10.0.0.12:6443", "10.0.0.11:6443", "10.0.0.12:6443"])) == (
        "10.0.0.11:6443",
        "10.0.0.12:6443",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no object"),
        pytest.param({**GOOD, "version": 2}, id="another version"),
        pytest.param({**GOOD, "control_planes": []}, id="an empty list"),
        pytest.param({**GOOD, "control_planes": "10.0.0.11:6443"}, id="no list"),
        pytest.param({**GOOD, "control_planes": [7]}, id="a number"),
        pytest.param({**GOOD, "control_planes": ["api.example:6443"]}, id="a name"),
        pytest.param({**GOOD, "control_planes": ["127.0.0.1:2379"]}, id="loopback"),
        pytest.param({**GOOD, "control_planes": ["169.254.169.254:80"]}, id="the link's own addresses"),
        pytest.param({**GOOD, "control_planes": ["0.0.0.0:6443"]}, id="no address in particular"),
        pytest.param({**GOOD, "control_planes": ["224.0.0.1:6443"]}, id="a group"),
        pytest.param({**GOOD, "control_planes": [f"10.0.0.{n}:6443" for n in range(65)]}, id="too many"),
    ],
)
def test_a_list_that_is_none_is_refused(body: object) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(SystemFault) as caught:
        parse_list(data)
    assert caught.value.reason is Reason.FILE_UNUSABLE
