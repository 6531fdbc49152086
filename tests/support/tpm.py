# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by tests of the TPM client: the recorded vectors and a transport that answers from a script."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS

if TYPE_CHECKING:
    from collections.abc import Callable

VECTOR = BOOTS / "deb13-base" / "vector"


def vector(name: str) -> bytes:
    """Return a file of the recorded vectors."""
    return (VECTOR / name).read_bytes()


def public_area(name: str) -> bytes:
    """Return a recorded TPMT_PUBLIC: ``ak-ecc``, ``ak-rsa`` or ``ek``."""
    return vector(f"{name}.tpm2b_public")[2:]


def response(code: int = 0, body: bytes = b"", *, tag: int = 0x8001) -> bytes:
    """Return a whole response."""
    return tag.to_bytes(2, "big") + (10 + len(body)).to_bytes(4, "big") + code.to_bytes(4, "big") + body


class ScriptedTransport:
    """Answer each command from a list (bytes, or a function of the command) and record the commands."""

    def __init__(self, *answers: bytes | Callable[[bytes], bytes], managed: bool = False) -> None:
        self.answers = list(answers)
        self.managed = managed
        self.sent: list[bytes] = []
        self.closed = False

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        self.sent.append(command)
        answer = self.answers.pop(0)
        return answer if isinstance(answer, bytes) else answer(command)

    def close(self) -> None:
        self.closed = True


class SteppingClock:
    """A clock that advances only by sleep."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 12, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class CountingRandom:
    """Predictable bytes."""

    def token(self, size: int) -> bytes:
        return bytes(range(size))
