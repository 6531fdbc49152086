# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download a file from the first source that has it: with size limit, resumed after a break, verified by SHA-256."""

from __future__ import annotations

import gzip
import http.client
import os
import posixpath
import re
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..core.files import make_directory
from ..core.host import uniform
from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .store import key_of, sha256_of
from .versions import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..core.host import Clock, Random
    from .store import Part, PartCache
    from .versions import Release, Table


# Programs that are downloaded instead of built: source, SHA-256 of the source file, and how to extract the program.

MAX_BYTES = 1 << 30
"""The size limit of a downloaded file, and of the program extracted from it."""
_STREAM_CHUNK = 1 << 20
_URL = re.compile(r"https?://[^\s/]+/\S*|/\S+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The source of one program: URLs or local paths in order of preference, and the SHA-256 (hex) of the file.

    ``extract`` is ``none``, ``gzip``, or ``tar`` with the name of the ``member``.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str
    extract: str = "none"
    member: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """The downloaded programs of a bundle by name, with cache keys from the hash of the source."""

    cache: PartCache
    upstreams: Mapping[str, Upstream]
    downloader: Downloader

    def find(self, name: str) -> Part | None:
        """Return the program from the cache, or None."""
        return self.cache.find("brought", _key(self.upstreams[name]))

    def ensure(self, name: str) -> tuple[Part, bool]:
        """Return the program, and False if it was cached; raises COMPONENT_*."""
        if part := self.find(name):
            return part, False
        upstream = self.upstreams[name]
        return self.cache.make("brought", _key(upstream), name, lambda target: self._bring(upstream, target)), True

    def _bring(self, upstream: Upstream, target: Path) -> Mapping[str, Any]:
        """Download to `downloads/SHA256` in the cache, so that the next run resumes an interrupted one."""
        place = self.cache.root / "downloads" / upstream.sha256
        make_directory(place.parent, mode=0o755)
        self.downloader.fetch(upstream, place)
        extract(upstream, place, target)
        others = (one for one in self.upstreams.values() if one.sha256 == upstream.sha256 and one != upstream)
        if all(self.cache.find("brought", _key(one)) for one in others):  # an archive may have several programs
            place.unlink()
        return {"sha256": upstream.sha256}


def parse_upstreams(rows: Sequence[Mapping[str, Any]]) -> dict[str, Upstream]:
    """Return the sources in the option by name; raises OPTION_INVALID with all problems."""
    problems = [problem for row in rows for problem in _problems(row)]
    names = [row["name"] for row in rows]
    problems += [f"expected {name} once, got it again" for name in sorted(set(names)) if names.count(name) > 1]
    if problems:
        raise ComponentError("; ".join(problems), reason=Reason.OPTION_INVALID)
    return {
        row["name"]: Upstream(
            name=row["name"],
            urls=tuple(row["urls"]),
            sha256=row["sha256"],
            extract=row.get("extract") or "none",
            member=row.get("member") or "",
        )
        for row in rows
    }


def published_upstreams(table: Table, release: Release, architecture: str) -> dict[str, Upstream]:
    """Return the published sources of programs with a hash in the release table, by name."""
    found = {}
    for source in SOURCES:
        component = table.components[source.name if source.module == "kubernetes" else source.module]
        if sha256 := release.hashes.get(component.name, {}).get(architecture):
            url = component.url.format(version=release.versions[component.name], arch=architecture)
            file = url.rpartition("/")[2]
            name = file.removesuffix(".tar.gz").removesuffix(".tgz")
            archive = name != file
            folder = component.folder.format(arch=architecture) or name
            program = PurePosixPath(source.install_path).name or source.name
            found[source.name] = Upstream(
                name=source.name,
                urls=(url,),
                sha256=sha256,
                extract="tar" if archive else "none",
                member=posixpath.normpath(f"{folder}/{program}") if archive else "",
            )
    return found


def extract(upstream: Upstream, source: Path, target: Path) -> None:
    """Extract the program from the verified ``source`` to ``target``; raises COMPONENT_NOT_INSIDE."""
    try:
        if upstream.extract == "tar":
            _from_tar(source, upstream.member, target)
        elif upstream.extract == "gzip":
            with gzip.open(source) as stream:
                _copy(stream, target)
        else:
            shutil.copyfile(source, target)
    except (EOFError, KeyError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as error:
        raise _not_inside(upstream, str(error)) from error
    except OSError as error:
        raise SystemFault(f"cannot write {target}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _from_tar(source: Path, member: str, target: Path) -> None:
    with tarfile.open(source) as tar:
        wanted = posixpath.normpath(member)
        found = next((one for one in tar if posixpath.normpath(one.name) == wanted), None)
        stream = tar.extractfile(found) if found else None
        if stream is None:
            raise KeyError(f"{member} is not a file in it")
        with stream:
            _copy(stream, target)


def _copy(stream: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    written = 0
    with target.open("wb") as sink:
        while chunk := stream.read(_STREAM_CHUNK):
            written += len(chunk)
            if written > MAX_BYTES:
                raise KeyError(f"more than {MAX_BYTES} bytes")
            sink.write(chunk)


def _key(upstream: Upstream) -> str:
    """Return the cache key of the program; it does not depend on the URLs."""
    return key_of(sha256=upstream.sha256, extract=upstream.extract, member=upstream.member)


def _problems(row: Mapping[str, Any]) -> list[str]:
    name, urls = row["name"], row["urls"]
    problems = [f"expected http(s)://HOST/PATH or /PATH for {name}, got {url!r}" for url in urls if not _is_url(url)]
    if not urls:
        problems.append(f"expected at least one URL or file for {name}, got none")
    if not _SHA256.fullmatch(row["sha256"]):
        problems.append(f"expected 64 lower-case hex digits as sha256 of {name}, got {row['sha256']!r}")
    if (row.get("extract") == "tar") != bool(row.get("member")):
        problems.append(f"expected member for {name} if extract is tar, and only then")
    return problems


def _is_url(text: str) -> bool:
    return bool(_URL.fullmatch(text))


def _not_inside(upstream: Upstream, why: str) -> ComponentError:
    what = f"{upstream.extract} {upstream.member}".rstrip()
    return ComponentError(
        f"expected {upstream.name} in the file with sha256 {upstream.sha256}, by {what}: {why}",
        reason=Reason.COMPONENT_NOT_INSIDE,
    )


ROUNDS = 5
"""The number of attempts for each source; permanent errors are not retried."""
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
    """The reply of a source: ``start`` offset and announced ``length`` in bytes, None if unknown."""

    start: int
    length: int | None
    is_page: bool

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, empty at the end; raises OSError if the connection breaks."""


class Web(Protocol):
    """Access to URLs and files."""

    def get(self, url: str, *, start: int) -> AbstractContextManager[Reply]:
        """Open ``url`` at byte ``start``, or at 0; raises COMPONENT_UNREACHABLE, COMPONENT_NOT_FOUND."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloader:
    """Try the sources of a file in order, in rounds with random, growing pauses."""

    web: Web
    clock: Clock
    random: Random

    def fetch(self, upstream: Upstream, place: Path) -> None:
        """Download ``upstream`` to ``place``, resuming a partial file; raises the most specific error of all sources.

        Permanent: COMPONENT_HASH_MISMATCH, COMPONENT_IS_A_PAGE, COMPONENT_TOO_LARGE, COMPONENT_NOT_FOUND.
        Temporary, the next run resumes: COMPONENT_INCOMPLETE, COMPONENT_UNREACHABLE.
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
        if reply.start:  # the first part may be from another source or version
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
    """Open ``place`` for writing at ``start``; unbuffered, so that close does not repeat a failed write."""
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
        with suppress(OSError):  # free the disk space
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


# HTTP, HTTPS and local files; redirections to other schemes fail.

_IDLE_SECONDS = 30
_PARTIAL = 206
_BEYOND_THE_END = 416
_PASSING_STATUS = frozenset({408, 425, 429})
_SERVER_ERROR = 500


@dataclass(slots=True)
class Opened:
    """The reply of a server, or a local file (`Reply`)."""

    stream: IO[bytes] | http.client.HTTPResponse
    start: int
    length: int | None
    is_page: bool = False

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; raises OSError if the connection breaks or the body is too short."""
        try:
            return self.stream.read(size)
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error


class SystemWeb:
    """Access to URLs with the proxies of the environment and the CA certificates of the machine."""

    def __init__(self) -> None:
        """Add only handlers for HTTP and HTTPS, so that other redirections fail."""
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
        """Open ``url`` at byte ``start``, or at 0; raises COMPONENT_UNREACHABLE, COMPONENT_NOT_FOUND."""
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
    """Return the offset of the body in bytes: ``asked``, or 0 if the server ignores the range."""
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
    passes = status >= _SERVER_ERROR or status in _PASSING_STATUS
    reason = Reason.COMPONENT_UNREACHABLE if passes else Reason.COMPONENT_NOT_FOUND
    return ComponentError(f"{url}: the server answered {status}", reason=reason)
