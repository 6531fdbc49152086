# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node may be called."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import is_node_name


@pytest.mark.parametrize("name", ["w-1", "w-1.rack3.example.org", "7", ".".join(["a" * 63] * 3)])
def test_a_node_is_called_by_a_dns_name(name: str) -> None:
    assert is_node_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "-w", "w-", "w_1", "w..1", "w 1", "w-1.", "w/1", "W-1", "w-1\n", "\u1e80-1", "a" * 254, "10.0.0.1:6443"],
)
def test_any_other_name_is_none(name: str) -> None:
    assert not is_node_name(name)
