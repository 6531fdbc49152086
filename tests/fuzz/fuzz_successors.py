# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The successors of a cluster's authorities, as another control plane gave them in a box."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.ca_files import (
    Successor,
    make_successor,
    parse_successors,
    render_successors,
    require_pair,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@cache
def _made() -> Successor:
    before = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = before.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return make_successor(pem, now=datetime(2026, 11, 22, tzinfo=UTC))


def seeds() -> list[bytes]:
    one = _made()
    return [
        render_successors({"service-accounts": one}),
        render_successors({"etcd": one, "cluster": Successor(public=b"", private=b"")}),
        b'{"cluster": ["", ""], "cluster": [1, 2, 3]}',
    ]


def one_input(data: bytes) -> None:
    found = parse_successors(data)
    assert parse_successors(render_successors(found)) == found
    for name, successor in found.items():
        assert len(require_pair(successor, certified=name != "service-accounts")) == 16
