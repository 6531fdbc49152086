# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every log comes down to: a register, its digests, and a text that explains but proves nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import Refusal
from ...reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTERS = 24
"""Registers of a PC client TPM: 0 to 23."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareEvent:
    """One event of the firmware's log (TCG_PCR_EVENT2); ``digests`` maps TPM algorithm numbers to digests.

    ``number``: its place in the log, as tpm2_eventlog counts (the header is 0); two events are the same without it.
    """

    pcr: int
    kind: int
    digests: Mapping[int, bytes]
    data: bytes
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareLog:
    """A parsed firmware log without its header and without EV_NO_ACTION, which extends nothing."""

    events: tuple[FirmwareEvent, ...]
    startup_locality: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserspaceRecord:
    """One record of a JSON-seq log; ``kind`` is its event type, ``text`` what was hashed if the writer told it."""

    pcr: int
    digests: Mapping[int, bytes]
    kind: str
    text: str


def malformed(log: str, expected: str, got: str) -> Refusal:
    """Return what refuses ``log``: EVENT_LOG_MALFORMED."""
    return Refusal(f"expected {expected} in the {log}, got {got}", reason=Reason.EVENT_LOG_MALFORMED)


def require_size(log: str, data: bytes, limit: int) -> None:
    """Refuse a log that is larger than ``limit`` bytes before anything reads it: EVENT_LOG_TOO_LARGE."""
    if len(data) > limit:
        raise Refusal(f"expected at most {limit} bytes of {log}, got {len(data)}", reason=Reason.EVENT_LOG_TOO_LARGE)
