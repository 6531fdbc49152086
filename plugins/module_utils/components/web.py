# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP, HTTPS and plain files, and nothing else that a URL or a redirection may name."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import ComponentError
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

_IDLE_SECONDS = 30
_PARTIAL = 206
_BEYOND_THE_END = 416
_PASSES = frozenset({408, 425, 429})
_SERVER_ERROR = 500


@dataclass(slots=True)
class Opened:
    """A reply of a server, or a file (`download.Reply`)."""

    stream: IO[bytes] | http.client.HTTPResponse
    start: int
    length: int | None
    is_page: bool = False

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; a body that ends too early is an OSError like any other broken connection."""
        try:
            return self.stream.read(size)
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error


class SystemWeb:
    """This machine's own way to URLs: its proxies of the environment, its certificates."""

    def __init__(self) -> None:
        """Take no handler but those of HTTP, so that a redirection leads to nothing else."""
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.UnknownHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPRedirectHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            self._opener.add_handler(handler())

    @contextmanager
    def get(self, url: str, *, start: int) -> Iterator[Opened]:
        """Open ``url`` from byte ``start`` on; raises COMPONENT_UNREACHABLE, COMPONENT_NOT_FOUND."""
        opened = _file(Path(url), start) if url.startswith("/") else self._http(url, start)
        with opened.stream:
            yield opened

    def _http(self, url: str, start: int) -> Opened:
        headers = {"Accept-Encoding": "identity", "User-Agent": "attested.kubernetes"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            reply = self._opener.open(urllib.request.Request(url, headers=headers), timeout=_IDLE_SECONDS)  # noqa: S310
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _BEYOND_THE_END and start:
                return self._http(url, 0)
            raise _refused(url, error.code) from error
        except (OSError, http.client.HTTPException) as error:
            raise ComponentError(f"{url}: {error}", reason=Reason.COMPONENT_UNREACHABLE) from error
        length = reply.headers.get("Content-Length", "")
        return Opened(
            stream=reply,
            start=_start_of(reply, start),
            length=int(length) if length.isdecimal() else None,
            is_page=reply.headers.get_content_type() == "text/html",
        )


def _start_of(reply: http.client.HTTPResponse, asked: int) -> int:
    """Return where the body begins; a server that does not go on where it was asked to begins anew."""
    said = str(reply.headers.get("Content-Range", ""))
    return asked if reply.status == _PARTIAL and said.startswith(f"bytes {asked}-") else 0


def _file(path: Path, start: int) -> Opened:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise ComponentError(f"{path}: {error.strerror}", reason=Reason.COMPONENT_NOT_FOUND) from error
    size = os.fstat(stream.fileno()).st_size
    begin = start if start <= size else 0
    stream.seek(begin)
    return Opened(stream=stream, start=begin, length=size - begin)


def _refused(url: str, status: int) -> ComponentError:
    passes = status >= _SERVER_ERROR or status in _PASSES
    reason = Reason.COMPONENT_UNREACHABLE if passes else Reason.COMPONENT_NOT_FOUND
    return ComponentError(f"{url}: the server answered {status}", reason=reason)
