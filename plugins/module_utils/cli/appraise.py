# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested appraise` and `attested variants`: verify evidence from a file offline, and list the kinds of evidence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes
from ..core.host import SystemClock
from ..errors import PolicyError, visible
from ..evidence.appraisal import MAX_POLICY_BYTES, METHODS, PASSED, REFUSED, appraise
from ..evidence.registry import VARIANTS
from ..policy.fields import moment_of
from ..reasons import Reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from datetime import datetime

    from ..evidence.appraisal import Appraisal

_MARKS = {PASSED: "ok", REFUSED: "REFUSED"}


def add_appraise(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    parser = commands.add_parser(
        "appraise",
        parents=[common],
        help="verify evidence from a file, offline, and show each step",
        description=f"Verify evidence of {', '.join(METHODS)} from a file by a policy from a file. Nothing is fetched. "
        "Exits with 0 if every step passes, with 1 if a step refuses. See docs/tasks/appraise-evidence-from-a-file.md.",
    )
    parser.add_argument(
        "evidence", metavar="FILE", help="report, quote, document, or the result of attestation_info as JSON"
    )
    parser.add_argument("--policy", required=True, metavar="FILE", help="YAML; paths in it are relative to its folder")
    parser.add_argument("--at", metavar="TIME", help="appraise for this time: 2027-01-31T12:00:00Z (default: now)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    policy = Path(options.policy)
    found = appraise(
        read_bytes(options.evidence),
        read_bytes(policy, limit=MAX_POLICY_BYTES),
        read=lambda name: read_bytes(policy.parent / name),
        now=_moment(options.at),
    )
    text = json.dumps(_values(found), indent=2) if options.json else "\n".join(map(visible, _rows(found)))
    sys.stdout.write(text + "\n")
    return 1 if found.error else 0


def _moment(text: str | None) -> datetime:
    if text is None:
        return SystemClock().now()
    moment = moment_of(text)
    if moment is None:
        raise PolicyError(
            f"expected a time such as 2027-01-31T12:00:00Z as --at, got {text:.40}",
            reason=Reason.MANIFEST_INVALID,
        )
    return moment


def _values(found: Appraisal) -> dict[str, Any]:
    return {
        "variant": found.variant,
        "accepted": found.error is None,
        "steps": [{"text": step.text, "state": step.state} for step in found.steps],
        "findings": dict(found.findings),
        "reason": found.error.code if found.error else None,
        "message": found.error.message if found.error else None,
        "hint": found.error.hint if found.error else None,
    }


def _rows(found: Appraisal) -> Iterator[str]:
    yield f"{found.variant}: {'refused' if found.error else 'accepted'}"
    for number, step in enumerate(found.steps, 1):
        yield f"{number:>3}  {_MARKS.get(step.state, '-'):<8} {step.text}"
        if step.state == REFUSED and found.error:
            yield f"              {found.error.code}: {found.error.message}"
            yield f"              {found.error.hint}"
    for name, value in found.findings.items():
        yield f"{name:<16} {value}"


def add_variants(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    listed = commands.add_parser("variants", parents=[common], help="kinds of evidence, and how each was tested")
    listed.set_defaults(run=_variants)


def _variants(options: argparse.Namespace) -> int:
    rows = {
        name: {"issued": row.issue is not None, "admits": row.admission is not None, "standing": row.standing.value}
        for name, row in VARIANTS.items()
    }
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    width = max(map(len, rows))
    for name, row in rows.items():
        admits = "admits machines" if row["admits"] else "admits no machine"
        sys.stdout.write(f"{name:<{width}}  {admits}; {row['standing']}\n")
    return 0
