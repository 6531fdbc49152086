# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts as the module `cluster_info` lists them."""

from __future__ import annotations

from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import list_attempts


def stored(name: str, reason: str, last: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {"machine": name, "reason": reason, "count": 2, "firstSeen": last, "lastSeen": last, **status},
    }


FOUND = [
    stored("ek-1", "PCR_MISMATCH", "2026-11-21T11:00:00Z", nodeName="w-1", message="expected a, got b"),
    stored("ek-1-other", "TPM_ROLLED_BACK", "2026-11-21T12:00:00Z", nodeName="w-1"),
    stored("stranger", "BINDING_MISMATCH", "2026-11-21T13:00:00Z"),
]


def test_all_attempts_are_listed_the_latest_first() -> None:
    assert [one["name"] for one in list_attempts(FOUND)] == ["stranger", "ek-1-other", "ek-1"]


def test_an_attempt_says_all_that_is_known() -> None:
    assert list_attempts(FOUND[:1]) == [
        {
            "name": "ek-1",
            "machine": "ek-1",
            "node": "w-1",
            "ek_sha256": "",
            "reason": "PCR_MISMATCH",
            "message": "expected a, got b",
            "command": "",
            "correlation_id": "",
            "count": 2,
            "first_seen": "2026-11-21T11:00:00Z",
            "last_seen": "2026-11-21T11:00:00Z",
        }
    ]
