# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file from the first of several places that has it: bounded, continued where it broke off, judged by its hash."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING, Protocol

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..system import uniform
from .store import sha256_of
from .upstream import MAX_BYTES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..system import Clock, Random
    from .upstream import Upstream

ROUNDS = 5
"""How often all places are asked; what never passes is asked once."""
_FIRST_WINDOW = 2.0
_LONGEST_WINDOW = 60.0
_SECONDS = 3600.0
_CHUNK = 1 << 18
_PAGES = (b"<!doctype", b"<html", b"<?xml")
_PASSES = frozenset({Reason.COMPONENT_UNREACHABLE, Reason.COMPONENT_INCOMPLETE})
_MOST_TELLING = (
    Reason.COMPONENT_HASH_MISMATCH,
    Reason.COMPONENT_IS_A_PAGE,
    Reason.COMPONENT_TOO_LARGE,
    Reason.COMPONENT_NOT_FOUND,
    Reason.COMPONENT_INCOMPLETE,
    Reason.COMPONENT_UNREACHABLE,
)


class Reply(Protocol):
    """What a place gives: from which byte of the file on, how many bytes it announced (None: it did not say)."""

    start: int
    length: int | None
    is_page: bool

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, none at the end; raises OSError where the connection breaks."""


class Web(Protocol):
    """The way to URLs and files."""

    def get(self, url: str, *, start: int) -> AbstractContextManager[Reply]:
        """Open ``url`` from byte ``start`` on, or from 0; raises COMPONENT_UNREACHABLE, COMPONENT_NOT_FOUND."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloader:
    """Asks the places of a file in turn, and all of them again after pauses that no two machines share."""

    web: Web
    clock: Clock
    random: Random

    def fetch(self, upstream: Upstream, place: Path) -> None:
        """Bring the file of ``upstream`` to ``place`` and go on with what lies there; raises the most telling error.

        COMPONENT_HASH_MISMATCH, COMPONENT_IS_A_PAGE, COMPONENT_TOO_LARGE, COMPONENT_NOT_FOUND: no place has it.
        COMPONENT_INCOMPLETE, COMPONENT_UNREACHABLE: another run may, and begins where this one ended.
        """
        said: dict[str, ComponentError] = {}
        for attempt in range(ROUNDS):
            left = [url for url in upstream.urls if url not in said or said[url].reason in _PASSES]
            if attempt and left:
                window = min(_LONGEST_WINDOW, _FIRST_WINDOW * 2**attempt)
                self.clock.sleep(uniform(self.random, below=window))
            for url in left:
                try:
                    self._take(url, upstream, place)
                except ComponentError as error:
                    said[url] = error
                else:
                    return
        raise _most_telling(upstream, said)

    def _take(self, url: str, upstream: Upstream, place: Path) -> None:
        start = _size(place)
        if start and sha256_of(place) == upstream.sha256:
            return
        with self.web.get(url, start=start) as reply:
            self._receive(url, reply, place)
        got = sha256_of(place)
        if got == upstream.sha256:
            return
        place.unlink()
        if reply.start:  # half of it came from elsewhere, or from yesterday
            self._take(url, upstream, place)
            return
        raise ComponentError(
            f"{url}: expected sha256 {upstream.sha256}, got {got}", reason=Reason.COMPONENT_HASH_MISMATCH
        )

    def _receive(self, url: str, reply: Reply, place: Path) -> None:
        deadline = self.clock.monotonic() + _SECONDS
        with _opened(place, reply.start) as sink:
            written = reply.start
            while chunk := _next(url, reply, first=written == 0):
                written += len(chunk)
                if written > MAX_BYTES:
                    place.unlink()
                    raise ComponentError(
                        f"{url}: expected at most {MAX_BYTES} bytes, more came", reason=Reason.COMPONENT_TOO_LARGE
                    )
                _write(sink, chunk, place)
                if self.clock.monotonic() > deadline:
                    raise _incomplete(url, f"{written} bytes after an hour")
        if reply.length is not None and written < reply.start + reply.length:
            raise _incomplete(url, f"{written} of {reply.start + reply.length} bytes")


def _next(url: str, reply: Reply, *, first: bool) -> bytes:
    try:
        chunk = reply.read(_CHUNK)
    except OSError as error:
        raise _incomplete(url, str(error)) from error
    if first and (reply.is_page or chunk.lstrip()[:9].lower().startswith(_PAGES)):
        raise ComponentError(
            f"{url}: expected a file, got a page that begins with {chunk[:60]!r}", reason=Reason.COMPONENT_IS_A_PAGE
        )
    return chunk


def _opened(place: Path, start: int) -> FileIO:
    """Open ``place`` to be written from ``start`` on; without a buffer, which would fail once more at its end."""
    try:
        sink = FileIO(place, "r+" if start else "w")
    except OSError as error:
        raise SystemFault(f"cannot write {place}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    if start:
        sink.truncate(sink.seek(start))
    return sink


def _write(sink: FileIO, chunk: bytes, place: Path) -> None:
    try:
        while chunk:
            chunk = chunk[sink.write(chunk) :]
    except OSError as error:
        with suppress(OSError):  # what does not fit makes room
            sink.truncate(0)
        raise SystemFault(f"cannot write {place}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _size(place: Path) -> int:
    return place.stat().st_size if place.is_file() else 0


def _incomplete(url: str, got: str) -> ComponentError:
    return ComponentError(f"{url}: expected the whole file, got {got}", reason=Reason.COMPONENT_INCOMPLETE)


def _most_telling(upstream: Upstream, said: dict[str, ComponentError]) -> ComponentError:
    reason = min((error.reason for error in said.values()), key=_MOST_TELLING.index)
    stories = "; ".join(f"{error.code}: {error.message}" for error in said.values())
    return ComponentError(f"expected {upstream.name} from one of {len(said)} places: {stories}", reason=reason)
