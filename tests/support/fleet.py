# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a fleet without machines: verified, refused and unreachable nodes, including hostile names."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.fleet_status import FleetStatus, read_fleet
from ansible_collections.attested.kubernetes.plugins.module_utils.services.judge import (
    Finding,
    Outcome,
    ShownEvent,
    Trouble,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.services.report import FleetReport

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "w-1\n\x1b[31mverified\x1b[0m",
    "\u202egnp.exe",
    "'; DROP TABLE nodes; --",
    "</style></script><script>alert(1)</script>",
    "\u05d0\u05d1\u200f \u2066w-1\u2069",
    "w" * 253,
)


def finding(node: str, *, boot: str = "aa", **changes: Any) -> Finding:
    """Return a verified node; ``boot`` (hex pairs) sets its registers."""
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
        hint=Reason.PCR_MISMATCH.value.hint,
        command=Reason.PCR_MISMATCH.value.command,
        deviations=(text,),
    )
    return finding(
        node, **{"outcome": Outcome.REFUSED, "trouble": trouble, "profile": "", "posture": "", "boot": "bb", **changes}
    )


def silent(node: str) -> Finding:
    """Return a node that did not answer."""
    trouble = Trouble(
        reason="PEER_UNREACHABLE",
        message="expected a service at 10.0.0.9:9091, got: refused",
        hint=Reason.PEER_UNREACHABLE.value.hint,
        command=Reason.PEER_UNREACHABLE.value.command,
    )
    return Finding(node=node, outcome=Outcome.UNANSWERED, over="service", trouble=trouble)


def report(*findings: Finding) -> FleetReport:
    """Return the report of a run with these findings."""
    return FleetReport(
        cluster_id="c1" * 32,
        release="0.2.0",
        made_at=NOW,
        findings=findings,
        lock_register=15,
    )


def said(**changes: Any) -> dict[str, Any]:
    """Return the own status of a healthy node."""
    return {
        "phase": "Joined",
        "needs_person": False,
        "to_do": "Nothing.",
        "reason": None,
        "message": "",
        "locked": True,
        "certificate_expires": "2026-11-24T12:00:00+00:00",
        **changes,
    }


def known(name: str, **changes: Any) -> dict[str, Any]:
    """Return the status of a healthy node in the cluster."""
    return {
        "name": name,
        "registered": True,
        "ready": True,
        "ready_message": "",
        "role": "control-plane" if name.startswith("cp") else "worker",
        "version": "v1.35.4",
        "identity": f"ek-{name.encode().hex():0<20.20}",
        "profile": "r650",
        "posture": "boot",
        "standing": "EvidenceGood",
        "standing_message": "the last evidence was good; next: nothing",
        "refused": {},
        **changes,
    }


def status(
    nodes: dict[str, dict[str, Any]],
    *rows: dict[str, Any],
    next_boots: dict[str, dict[str, Any]] | None = None,
    **cluster: Any,
) -> FleetStatus:
    """Return the status of a reachable cluster."""
    planes = [name for name in nodes if name.startswith("cp")]
    return read_fleet(
        nodes,
        {"nodes": list(rows), **cluster},
        control_planes=planes,
        cluster_name="prod",
        release="0.2.0",
        made_at=NOW,
        next_boots=next_boots,
    )


class PageReader(HTMLParser):
    """Parse a page like a browser: elements with attributes, and text without scripts and styles."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.own: dict[str, str] = {}
        self._inside = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.own[self._inside] = self.own.get(self._inside, "") + data
        else:
            self.text += data
