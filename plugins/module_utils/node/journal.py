# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's journal, kept over reboots: its phase, its disk id, and why it waits (`/var/lib/attested/node.json`)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import SystemFault
from ..reasons import Reason

if TYPE_CHECKING:
    from ..core.host import Clock
    from ..errors import AttestedError

DEFAULT_PATH = Path("/var/lib/attested/node.json")
_VERSION = 1
_LIMIT = 1 << 16


class NodePhase(Enum):
    """How far this machine has become a node; the value is the text for a person."""

    FRESH = "Fresh"
    ASKING = "Asking"
    LOCKED = "Locked"
    JOINING = "Joining"
    JOINED = "Joined"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The content of the journal: ``since`` is the begin of the phase, ``reason`` the last failure's code."""

    phase: NodePhase = NodePhase.FRESH
    since: datetime | None = None
    disk_id: str | None = None
    kubernetes_version: str | None = None
    reason: str | None = None
    message: str | None = None
    next_try: datetime | None = None


class NodeJournal:
    """The file of the state, replaced atomically at each change."""

    def __init__(self, path: Path = DEFAULT_PATH, *, clock: Clock) -> None:
        """Store the path and the clock."""
        self._path = path
        self._clock = clock

    def load(self) -> NodeState:
        """Return the state; a machine without the file is FRESH; raises NODE_JOURNAL_MALFORMED."""
        if not self._path.exists():
            return NodeState()
        try:
            return _parse(json.loads(read_bytes(self._path, limit=_LIMIT)))
        except (ValueError, KeyError, TypeError) as error:
            raise SystemFault(
                f"expected the journal of this node in {self._path}, found something else",
                reason=Reason.NODE_JOURNAL_MALFORMED,
            ) from error

    def enter(
        self, phase: NodePhase, *, disk_id: str | None = None, kubernetes_version: str | None = None
    ) -> NodeState:
        """Enter ``phase`` and clear the failure; disk id and version stay unless they are given."""
        before = self.load()
        since = before.since if before.phase is phase and before.since else self._clock.now()
        state = NodeState(
            phase=phase,
            since=since,
            disk_id=disk_id or before.disk_id,
            kubernetes_version=kubernetes_version or before.kubernetes_version,
        )
        self._save(state)
        return state

    def fail(self, error: AttestedError, *, next_try_seconds: float | None = None) -> NodeState:
        """Record why the phase does not end, and when the next attempt starts (None: not by itself)."""
        wait = None if next_try_seconds is None else self._clock.now() + timedelta(seconds=next_try_seconds)
        before = self.load()
        state = replace(
            before,
            since=before.since or self._clock.now(),
            reason=error.code,
            message=error.message,
            next_try=wait,
        )
        self._save(state)
        return state

    def remove(self) -> bool:
        """Remove the file; return whether it existed."""
        return remove(self._path)

    def snapshot(self) -> bytes | None:
        """Return the file's content for `put_back`, None if the file does not exist."""
        return read_bytes(self._path, limit=_LIMIT) if self._path.exists() else None

    def put_back(self, before: bytes | None) -> None:
        """Restore the content that `snapshot` returned."""
        if before is None:
            self.remove()
        else:
            write_atomic(self._path, before, mode=0o644)

    def _save(self, state: NodeState) -> None:
        make_directory(self._path.parent, mode=0o755)
        write_atomic(self._path, json.dumps(_render(state), indent=2).encode() + b"\n", mode=0o644)


def _render(state: NodeState) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "phase": state.phase.value,
        "since": _stamp(state.since),
        "disk_id": state.disk_id,
        "kubernetes_version": state.kubernetes_version,
        "reason": state.reason,
        "message": state.message,
        "next_try": _stamp(state.next_try),
    }


def _parse(body: dict[str, Any]) -> NodeState:
    if body["version"] != _VERSION:
        raise ValueError("another version")
    return NodeState(
        phase=NodePhase(body["phase"]),
        since=_moment(body["since"]),
        disk_id=_text(body["disk_id"]),
        kubernetes_version=_text(body["kubernetes_version"]),
        reason=_text(body["reason"]),
        message=_text(body["message"]),
        next_try=_moment(body["next_try"]),
    )


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("expected text")
    return value
