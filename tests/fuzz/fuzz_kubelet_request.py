# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's certificate request."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import check_kubelet_request
from ansible_collections.attested.kubernetes.tests.support.release_bed import kubelet_request


def seeds() -> list[bytes]:
    return [kubelet_request()]


def one_input(data: bytes) -> None:
    check_kubelet_request(data, node_name="w-1")
