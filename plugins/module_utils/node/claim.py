# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has taken this machine's lock for what: written before the lock, void without it (`/run/attested/claim.json`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import SystemFault
from ..reasons import Reason
from ..system import make_directory, read_bytes, remove, write_atomic

DEFAULT_PATH = Path("/run/attested/claim.json")
_VERSION = 1
_LIMIT = 4096
_FIELDS = {"version", "contender", "request"}
_REQUEST = re.compile(r"[0-9a-f]{64}")


class Contender(Enum):
    """The two ways by which a machine becomes a node."""

    INIT = "init"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class Claim:
    """One contender's word for the lock; ``request`` is the digest of an init request (64 hex digits), else empty."""

    contender: Contender
    request: str = ""

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        body = {"version": _VERSION, "contender": self.contender.value, "request": self.request}
        return json.dumps(body).encode("ascii") + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Claim:
        """Return the claim in ``data``; raises CLAIM_MALFORMED."""
        try:
            return _claim(json.loads(data))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SystemFault("expected a claim, found something else", reason=Reason.CLAIM_MALFORMED) from error


class ClaimFile:
    """The file of the claim; in memory, so a reset of the machine clears it together with the TPM."""

    def __init__(self, path: Path = DEFAULT_PATH) -> None:
        """Keep the path."""
        self._path = path

    def load(self) -> Claim | None:
        """Return the claim, None where there is none; raises CLAIM_MALFORMED."""
        return Claim.parse(read_bytes(self._path, limit=_LIMIT)) if self._path.exists() else None

    def write(self, claim: Claim) -> None:
        """Keep ``claim``, which replaces another."""
        make_directory(self._path.parent, mode=0o711)
        write_atomic(self._path, claim.to_bytes())

    def forget(self) -> None:
        """Remove the file."""
        remove(self._path)


def _claim(body: dict[str, Any]) -> Claim:
    if set(body) != _FIELDS or body["version"] != _VERSION or body["version"] is True:
        raise ValueError("another form")
    claim = Claim(Contender(body["contender"]), body["request"])
    good = _REQUEST.fullmatch(claim.request) if claim.contender is Contender.INIT else claim.request == ""
    if not good:
        raise ValueError("another request")
    return claim
