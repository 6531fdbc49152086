# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An init request as the machine reads it, and what makes two requests the same."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder, digest_of
from ansible_collections.attested.kubernetes.tests.support.brought import packed
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_parts import CLUSTER, ORDER


def seeds() -> list[bytes]:
    return [ORDER.to_bytes(), replace(ORDER, **packed(CLUSTER)).to_bytes()]


def one_input(data: bytes) -> None:
    order = InitOrder.parse(data)
    assert InitOrder.parse(order.to_bytes()) == order
    digest = digest_of(data, cluster_id=CLUSTER)
    assert len(digest) == 64
    other = replace(order, policy=b"another", policy_objects=b"[]")
    assert digest_of(other.to_bytes(), cluster_id=CLUSTER) == digest_of(order.to_bytes(), cluster_id=CLUSTER)
