# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that are brought instead of built: where each lies, the hash of what lies there, how it gets out of that."""

from __future__ import annotations

import gzip
import re
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..system import make_directory
from .cache import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .cache import Part, PartCache
    from .download import Downloader

MAX_BYTES = 1 << 30
"""More than this is no program: neither what is brought nor what comes out of it."""
_CHUNK = 1 << 20
_URL = re.compile(r"https?://[^\s/]+/\S*|/\S+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where one program comes from: URLs or files in the order in which they are tried, and the SHA-256 (hex) there.

    ``extract`` is ``none``, ``gzip``, or ``tar`` with the name of the ``member``.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str
    extract: str = "none"
    member: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """The programs of a bundle that are brought, by their names, each kept in the cache under its hash."""

    cache: PartCache
    upstreams: Mapping[str, Upstream]
    downloader: Downloader

    def find(self, name: str) -> Part | None:
        """Return the program if it is in the cache."""
        return self.cache.find("brought", _key(self.upstreams[name]))

    def ensure(self, name: str) -> tuple[Part, bool]:
        """Return the program and whether it had to be brought; raises COMPONENT_* as `Downloader.fetch`."""
        if part := self.find(name):
            return part, False
        upstream = self.upstreams[name]
        return self.cache.make("brought", _key(upstream), name, lambda target: self._bring(upstream, target)), True

    def _bring(self, upstream: Upstream, target: Path) -> Mapping[str, Any]:
        """Fetch beside the cache's parts, so that what a killed run has brought is not brought again."""
        place = self.cache.root / "downloads" / upstream.sha256
        make_directory(place.parent, mode=0o755)
        self.downloader.fetch(upstream, place)
        extract(upstream, place, target)
        place.unlink()
        return {"sha256": upstream.sha256}


def parse_upstreams(rows: Sequence[Mapping[str, Any]]) -> dict[str, Upstream]:
    """Return what the option says, by name; raises OPTION_INVALID with every mistake."""
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


def extract(upstream: Upstream, source: Path, target: Path) -> None:
    """Write the program out of ``source``, whose hash is right, to ``target``; raises COMPONENT_NOT_INSIDE."""
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
        stream = tar.extractfile(member)
        if stream is None:
            raise KeyError(f"{member} is no file")
        with stream:
            _copy(stream, target)


def _copy(stream: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    written = 0
    with target.open("wb") as sink:
        while chunk := stream.read(_CHUNK):
            written += len(chunk)
            if written > MAX_BYTES:
                raise KeyError(f"more than {MAX_BYTES} bytes")
            sink.write(chunk)


def _key(upstream: Upstream) -> str:
    """Return what names the program; where it came from does not change it."""
    return key_of(sha256=upstream.sha256, extract=upstream.extract, member=upstream.member)


def _problems(row: Mapping[str, Any]) -> list[str]:
    name, urls = row["name"], row["urls"]
    problems = [f"expected http(s)://HOST/PATH or /PATH for {name}, got {url!r}" for url in urls if not _is_url(url)]
    if not urls:
        problems.append(f"expected at least one URL or file for {name}, got none")
    if not _SHA256.fullmatch(row["sha256"]):
        problems.append(f"expected 64 lower-case hex digits as sha256 of {name}, got {row['sha256']!r}")
    if (row.get("extract") == "tar") != bool(row.get("member")):
        problems.append(f"expected a member of {name} where it comes out of a tar, and only there")
    return problems


def _is_url(text: str) -> bool:
    return bool(_URL.fullmatch(text))


def _not_inside(upstream: Upstream, why: str) -> ComponentError:
    what = f"{upstream.extract} {upstream.member}".rstrip()
    return ComponentError(
        f"expected {upstream.name} in what has sha256 {upstream.sha256}, by {what}: {why}",
        reason=Reason.COMPONENT_NOT_INSIDE,
    )
