# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of control planes: one as people write it, and the list that the cluster named."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import (
    joined,
    parse_address,
    parse_list,
    render_list,
)

LIST = b"{"


def seeds() -> list[bytes]:
    listed = render_list(["10.0.0.11:6443", "[fd00::11]:6443"])
    return [listed, b"api.prod.example:6443", b"10.0.0.11:6443", b"[fd00::11%eth0]:6443"]


def one_input(data: bytes) -> None:
    if data.startswith(LIST):
        found = parse_list(data)
        assert parse_list(render_list(found)) == tuple(sorted(found))
        return
    host, port = parse_address(data.decode(errors="replace"))
    assert parse_address(joined(host, port)) == (host, port)
