# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove known secrets, and text that looks like a secret, from text that leaves the machine. Pure."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_LINES = 40
MAX_LINE = 400
HIDDEN = "[redacted]"

_SHORTEST_SECRET = 6
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?s)\A.*?-----END [A-Z0-9 ]*PRIVATE KEY-----"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),  # JSON web tokens
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # bootstrap tokens
    re.compile(r"(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{6,}"),
    re.compile(r"(?i)(?<=client-key-data:)\s*\S+"),
)
_NAMED = re.compile(
    r"(?i)((?:pass(?:word|wd|phrase)|secret|token|private[-_ ]?key|certificate[-_ ]?key|credential)s?"
    r"[\"']?\s*[:=]\s*)(\"[^\"\n]*\"?|'[^'\n]*'?|[^\s,;}\]]+)"
)


def redact(lines: Sequence[str], *, secrets: Iterable[bytes] = ()) -> str:
    """Return the last `MAX_LINES` of ``lines`` as one text without ``secrets`` in all usual encodings.

    Values of less than six bytes are not hidden, since that would only show their position.
    """
    kept = hide("\n".join(lines), secrets=secrets).splitlines()[-MAX_LINES:]
    return "\n".join(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…" for line in kept)


def hide(text: str, *, secrets: Iterable[bytes] = (), words: Iterable[str] = ()) -> str:
    """Return ``text`` without ``secrets`` in all usual encodings, ``words``, and text that looks like a secret."""
    spelt = {one for secret in secrets for one in _spellings(secret)} | {word for word in words if word}
    for spelling in sorted(spelt, key=len, reverse=True):
        text = text.replace(spelling, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(HIDDEN, text)
    return _NAMED.sub(lambda found: found[1] + HIDDEN, text)


def _spellings(secret: bytes) -> Iterable[str]:
    if len(secret) < _SHORTEST_SECRET:
        return
    yield secret.decode("utf-8", "backslashreplace")
    yield secret.hex()
    yield secret.hex().upper()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(secret).decode("ascii")
        yield text
        yield text.rstrip("=")
