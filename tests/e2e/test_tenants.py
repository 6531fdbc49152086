# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The permissions of others than the admin in the cluster: tenants, root of a worker, and strangers at its ports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.attacks.lab_tenant import attack, in_lab
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road


def test_nothing_that_a_tenant_or_root_of_a_worker_tries_is_let_in(road: Road) -> None:
    tries = list(attack(in_lab(road.lab.directory)))
    assert [one.line() for one in tries if not one.refused] == []
    assert {one.who for one in tries} == {"tenant", "root"}


@pytest.mark.parametrize("node", ["cp-1", "w-1"])
def test_what_answers_strangers_is_in_the_list_of_ports(road: Road, node: str) -> None:
    """All sockets that listen on an address of the node, as listed by ss."""
    rows = (ROOT / "docs" / "ports.md").read_text().splitlines()
    listed = {
        port
        for row in rows
        if row.startswith("| ") and "127.0.0.1 only" not in row
        for port in re.findall(r"\d+", row.split("|")[1])
    }
    said = road.inside(node, "ss", "--listening", "--tcp", "--numeric", "--no-header")
    places = {line.split()[3].rpartition(":")[::2] for line in said.splitlines()}
    assert {port for host, port in places if not host.startswith(("127.", "[::1]"))} - listed == set()
