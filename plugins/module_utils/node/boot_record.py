# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the last accepted boot, so that a refused machine can log what differs in its current boot.

A machine learns only that it was refused, never the content of a profile. So it stores what its firmware measured in
the last boot that got a ticket. No decision depends on this file, and root may write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import AttestedError
from ..evidence.eventlog.kinds import describe
from ..evidence.eventlog.tcg import parse_firmware_log
from ..policy.events import event_deviations
from ..policy.profile import MeasuredEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..evidence.evidence import EventLogs

PATH = Path("/var/lib/attested/accepted-boot.json")
_VERSION = 1
_LIMIT = 1 << 21
_MAX_EVENTS = 1024
_MAX_DIFFERENCES = 8
_MAX_CLAUSE = 400


class BootRecord:
    """Reads and writes the record; ``read_logs`` returns the event logs of this boot."""

    def __init__(self, read_logs: Callable[[], EventLogs], path: Path = PATH) -> None:
        """Store the reader of the logs and the path."""
        self._read_logs = read_logs
        self._path = path

    def keep(self) -> None:
        """Record this boot as accepted; errors are ignored, because no decision depends on the record."""
        try:
            events = self._events()
            body = {"version": _VERSION, "events": [_rendered(one) for one in events]}
            make_directory(self._path.parent, mode=0o755)
            write_atomic(self._path, json.dumps(body).encode() + b"\n", mode=0o600)
        except AttestedError:
            return

    def difference(self) -> str:
        """Return a clause with what firmware measured differently since the last accepted boot, "" if unknown."""
        try:
            known, events = self._load(), self._events()
        except (AttestedError, ValueError, KeyError, TypeError):
            return ""
        found = event_deviations(known, events, {one.pcr for one in (*known, *events)})
        if not found:
            return "firmware measured the same as in the last accepted boot"
        shown = [str(one)[:_MAX_CLAUSE] for one in found[:_MAX_DIFFERENCES]]
        more = [f"{len(found) - _MAX_DIFFERENCES} more events"] if len(found) > _MAX_DIFFERENCES else []
        return "; ".join(["this boot differs from the last accepted boot", *shown, *more])

    def _events(self) -> Sequence[MeasuredEvent]:
        logs = self._read_logs()
        firmware = parse_firmware_log(logs.firmware)
        return describe(firmware, (), command_line=logs.command_line)[:_MAX_EVENTS]

    def _load(self) -> Sequence[MeasuredEvent]:
        body = json.loads(read_bytes(self._path, limit=_LIMIT))
        if body["version"] != _VERSION:
            raise ValueError
        return [_parsed(one) for one in body["events"]]


def _rendered(event: MeasuredEvent) -> dict[str, Any]:
    return {
        "pcr": event.pcr,
        "digest": event.digest.hex(),
        "text": event.text,
        "kind": event.kind,
        "proven": event.proven,
        "rank": event.rank,
    }


def _parsed(one: Mapping[str, Any]) -> MeasuredEvent:
    return MeasuredEvent(
        pcr=int(one["pcr"]),
        digest=bytes.fromhex(one["digest"]),
        text=str(one["text"]),
        kind=str(one["kind"]),
        proven=one["proven"] is True,
        rank=int(one["rank"]),
    )
