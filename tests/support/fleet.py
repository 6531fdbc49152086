# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet's findings without a fleet: what verified, refused and silent nodes look like, hostile names included."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.services.finding import (
    Finding,
    Outcome,
    ShownEvent,
    Trouble,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.report import FleetReport

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "w-1\n\x1b[31mverified\x1b[0m",
    "\u202egnp.exe",
    "'; DROP TABLE nodes; --",
)


def finding(node: str, *, boot: str = "aa", **changes: Any) -> Finding:
    """Return a verified node; ``boot`` (hex pairs) makes its registers."""
    known: dict[str, Any] = {
        "node": node,
        "outcome": Outcome.VERIFIED,
        "over": "service",
        "role": "worker",
        "profile": "r650",
        "posture": "boot",
        "nodelock": "locked",
        "ek_sha256": "9f" * 32,
        "ek_certified": True,
        "registers": {4: boot * 32, 7: "07" * 32, 15: node.encode().hex()[:64].ljust(64, "0")},
        "labels": {4: "2026-11"},
        "events": (
            ShownEvent(pcr=4, digest=boot * 32, text=f"EFI program of {boot}", proven=True),
            ShownEvent(pcr=7, digest="07" * 32, text="EFI variable SecureBoot = 01", proven=True),
        ),
        **changes,
    }
    return Finding(**known)


def refused(node: str, text: str = "PCR 4: expected aa, got bb", **changes: Any) -> Finding:
    """Return a node whose boot no profile allows."""
    trouble = Trouble(
        reason="PCR_MISMATCH",
        message=f"expected a boot that a profile allows, got {text}",
        hint="Compare the boot.",
        command="attested status",
        deviations=(text,),
    )
    return finding(
        node, **{"outcome": Outcome.REFUSED, "trouble": trouble, "profile": "", "posture": "", "boot": "bb", **changes}
    )


def silent(node: str) -> Finding:
    """Return a node that did not answer."""
    trouble = Trouble(reason="PEER_UNREACHABLE", message="expected a service at 10.0.0.9:9091, got: refused")
    return Finding(node=node, outcome=Outcome.UNANSWERED, over="service", trouble=trouble)


def report(*findings: Finding) -> FleetReport:
    """Return the report of a run that found these."""
    return FleetReport(
        cluster_id="c1" * 32,
        release="0.2.0",
        made_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        findings=findings,
        lock_register=15,
    )
