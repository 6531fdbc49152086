# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a service: one line for each event, one line for each request.

JSON under systemd, key=value on a terminal. Values are numbers, booleans and text. Other values, bytes above all,
appear only as type and size, so that no key gets into the log. Text of a peer cannot begin a new line.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeAlias

from ..errors import AttestedError
from ..reasons import Reason
from .host import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


# Remove known secrets, and text that looks like a secret, from text that leaves the machine. Pure.

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


_MAX_TEXT = 2000
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,\[\]-]+")

Value: TypeAlias = "str | float | bool | None"


class Line:
    """The log line of one request while it is handled."""

    def __init__(self, fields: dict[str, Value]) -> None:
        """Start with ``fields``."""
        self.fields = fields

    def set(self, **fields: Value) -> None:
        """Add fields to the line; the last value of a name counts."""
        self.fields.update(fields)


class Log:
    """Writes events to one stream."""

    def __init__(self, stream: TextIO, *, as_json: bool, clock: Clock) -> None:
        """Write to ``stream``; `open_log` returns the log of a service."""
        self._stream = stream
        self._as_json = as_json
        self._clock = clock
        self._observers: list[Callable[[str, Mapping[str, Value]], None]] = []

    def observed_by(self, observer: Callable[[str, Mapping[str, Value]], None]) -> None:
        """Call ``observer`` with the name and the fields of every line."""
        self._observers.append(observer)

    def event(self, name: str, /, **fields: Value) -> None:
        """Write one line: time, event name, fields."""
        clean = {key: _clean(value) for key, value in fields.items()}
        text = self._json(name, clean) if self._as_json else self._readable(name, clean)
        self._stream.write(text + "\n")
        self._stream.flush()
        for observer in self._observers:
            observer(name, clean)

    @contextmanager
    def request(self, name: str, /, **fields: Value) -> Iterator[Line]:
        """Write one line when the request ends, with outcome, reason and seconds; errors are raised again."""
        line = Line(dict(fields))
        begun = self._clock.monotonic()
        try:
            yield line
        except AttestedError as error:
            line.set(outcome="refused", reason=error.code, detail=error.message)
            raise
        except asyncio.CancelledError:
            line.set(outcome="cancelled")
            raise
        except BaseException as error:
            line.set(outcome="failed", reason=Reason.INTERNAL.name, detail=f"{type(error).__name__}: {error}")
            raise
        else:
            line.fields.setdefault("outcome", "ok")
        finally:
            line.set(seconds=round(self._clock.monotonic() - begun, 4))
            self.event(name, **line.fields)

    def _json(self, name: str, fields: Mapping[str, Value]) -> str:
        return json.dumps({"time": self._clock.now().isoformat(), "event": name, **fields})

    def _readable(self, name: str, fields: Mapping[str, Value]) -> str:
        words = [f"{key}={_word(value)}" for key, value in fields.items() if value is not None]
        return " ".join((f"{self._clock.now():%H:%M:%S}", name, *words))


def open_log(*, stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Log:
    """Return the log of this process: JSON, unless it writes to a terminal and not to systemd's journal."""
    target = stream or sys.stderr
    under_systemd = "JOURNAL_STREAM" in (os.environ if environ is None else environ)
    return Log(target, as_json=under_systemd or not target.isatty(), clock=SystemClock())


def _clean(value: object) -> Value:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return f"<{type(value).__name__}>"


def _word(value: Value) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
