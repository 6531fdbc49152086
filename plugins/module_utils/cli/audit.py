# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested audit verify`: verify the audit log of this control plane by its hash chain, its TPM and other copies."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault, visible
from ..keyservice.audit_log import REFUSALS, AuditPlace, Head
from ..keyservice.auditing import AuditReport, heads_of, verify_audit, verify_refusals
from ..reasons import Reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

DIRECTORY = "/var/log/attested"


def add_audit(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    audit = commands.add_parser("audit", help="the audit log of all decisions").add_subparsers(
        required=True, metavar="COMMAND"
    )
    verify = audit.add_parser("verify", parents=[common], help="find edits, gaps, reordering and truncation")
    verify.add_argument("--directory", default=DIRECTORY, help="where the log is (default: %(default)s)")
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="SEQUENCE:SHA256",
        help="a head known from another source, for example from the status of the NodeIdentity",
    )
    verify.add_argument("--copies", metavar="DIRECTORY", help="the log of another control plane, with our heads")
    verify.add_argument("--node", default="", help="the node whose heads are read from the copies")
    verify.add_argument("--ak-name", default="", metavar="HEX", help="the TPM name of the expected signing key")
    verify.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    """Verify the log and print its content; raises the first fault."""
    known = [_head(text) for text in options.head]
    if options.copies:
        known += heads_of(options.node, lines_of(options.copies))
    report = verify_audit(lines_of(options.directory), known=known, ak_name=options.ak_name)
    refused = verify_refusals(lines_of(options.directory, stem=REFUSALS), report)
    text = (
        json.dumps({**_values(report), "refusals": _values(refused) if refused else None}, indent=2)
        if options.json
        else "\n".join((*_rows(report, copies=len(known)), *_refusal_rows(report, refused)))
    )
    sys.stdout.write(visible(text) + "\n")
    return 0


def lines_of(directory: str, *, stem: str = "audit") -> Iterator[bytes]:
    """Yield the lines of a log, oldest first; ``stem`` is the file stem of the log. Raises FILE_UNUSABLE."""
    for path in AuditPlace(directory=Path(directory), stem=stem).existing():
        try:
            with path.open("rb") as stream:
                for line in stream:
                    yield line.rstrip(b"\n")
        except OSError as error:
            raise SystemFault(f"cannot read {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _head(text: str) -> Head:
    number, _unused, digest = text.partition(":")
    try:
        return Head("", int(number), bytes.fromhex(digest))
    except ValueError as error:
        raise SystemFault(f"expected SEQUENCE:SHA256, got {text}", reason=Reason.AUDIT_MALFORMED) from error


def _values(report: AuditReport) -> dict[str, Any]:
    return {
        "log": report.log,
        "first": report.first,
        "last": report.last.sequence,
        "sha256": report.last.sha256.hex(),
        "signed_heads": report.heads,
        "not_signed_yet": report.unsigned,
        "ak_name": report.ak_name,
        "events": report.events,
    }


def _rows(report: AuditReport, *, copies: int) -> Iterator[str]:
    yield f"records       {_span(report)}"
    yield f"signed heads  {report.heads} by key {report.ak_name or 'unknown'}"
    yield f"after it      {report.unsigned} records"
    yield f"compared      {copies} heads known from elsewhere"
    yield "decisions     " + _events(report)
    yield f"last head     {report.last.sequence}:{report.last.sha256.hex()}"


def _refusal_rows(report: AuditReport, refused: AuditReport | None) -> Iterator[str]:
    if refused is None:
        yield "refusals      none"
        return
    fixed = max((one.sequence for one in report.refusals), default=0)
    yield f"refusals      {_span(refused)}, {refused.last.sequence - fixed} after the last that the log above knows"
    yield "              " + _events(refused)


def _span(report: AuditReport) -> str:
    begins = "" if report.first == 1 else ", older ones were rotated out, as is signed"
    return f"{report.first} to {report.last.sequence} hold{begins}"


def _events(report: AuditReport) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(report.events.items()))
