# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch objects with git into a bare repository in memory, and read its tree; nothing is checked out.

Git gets no configuration except the settings below, no hook, template, credential, submodule or replaced object, only
the listed transports, and limits of time and size. So a repository cannot make git start a program. Git writes no
working copy: objects are read by their ids, and their hashes are checked here.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import AttestedError, Refusal, TransportError
from ..reasons import Reason
from .signature import object_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..core.command import CommandResult, Runner


# Read a git tree as files, and refuse it before any file is written. Pure.
#
# Every object is read by its hash, beginning at the signed commit, so the files are those that were signed. Git's
# attributes, filters, hooks and submodules are not used.

MAX_ENTRIES = 8192
MAX_DEPTH = 24
MAX_BYTES = 32 << 20
"""The limits of a site; thirty machines with their profiles are about 200 files of 2 kB."""

_ID_BYTES = 20
_MAX_NAME = 255
_MAX_TARGET = 1024


class FileKind(Enum):
    """The allowed kinds of files, by git's mode."""

    PLAIN = "100644"
    EXECUTABLE = "100755"
    LINK = "120000"


_FOLDER, _SUBMODULE = "40000", "160000"


class Objects(Protocol):
    """Reads objects; `Staging` implements it."""

    def read(self, kind: str, ids: Iterable[str], *, limit: int) -> Mapping[str, bytes]:
        """Return the objects of ``kind`` by id after their hashes were checked; at most ``limit`` bytes in total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """A file of the site: its ``path`` from the root, with slashes, and its content (the target of a link)."""

    path: str
    kind: FileKind
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    path: str
    mode: str
    object_id: str


def read_files(objects: Objects, tree: str) -> tuple[SiteFile, ...]:
    """Return every file below ``tree``, sorted by path.

    Raises SOURCE_TREE_REFUSED, and what ``objects`` raises.
    """
    entries = _walk(objects, tree)
    contents = objects.read("blob", {entry.object_id for entry in entries}, limit=MAX_BYTES)
    total = sum(len(contents[entry.object_id]) for entry in entries)
    if total > MAX_BYTES:
        raise too_large(f"{total} bytes of files")
    files = (
        SiteFile(path=entry.path, kind=FileKind(entry.mode), content=contents[entry.object_id]) for entry in entries
    )
    return tuple(_checked(file) for file in sorted(files, key=lambda file: file.path))


def too_large(got: str) -> Refusal:
    """Return the refusal SOURCE_TREE_REFUSED of a repository that is too large."""
    return Refusal(
        f"expected a site of at most {MAX_ENTRIES} files and {MAX_BYTES} bytes, got {got}",
        reason=Reason.SOURCE_TREE_REFUSED,
    )


def _walk(objects: Objects, tree: str) -> list[_Entry]:
    found: list[_Entry] = []
    level, seen = [_Entry(path="", mode=_FOLDER, object_id=tree)], 0
    for _depth in range(MAX_DEPTH):
        contents = objects.read("tree", {folder.object_id for folder in level}, limit=MAX_BYTES)
        # The same small tree may be in many folders, so each occurrence counts.
        below = []
        for folder in level:
            entries = _entries(contents[folder.object_id], folder.path)
            seen += len(entries)
            if seen > MAX_ENTRIES:
                raise too_large("more files")
            below += entries
        found += [entry for entry in below if entry.mode != _FOLDER]
        level = [entry for entry in below if entry.mode == _FOLDER]
        if not level:
            return found
    raise too_large(f"more than {MAX_DEPTH} nested folders")


def _entries(content: bytes, folder: str) -> list[_Entry]:
    entries: list[_Entry] = []
    at = 0
    while at < len(content):
        if len(entries) == MAX_ENTRIES:
            raise too_large("more files")
        zero = content.find(b"\0", at)
        end = zero + 1 + _ID_BYTES
        if zero < 0 or end > len(content):
            raise hostile(folder, "an incomplete entry")
        mode, _space, name = content[at:zero].partition(b" ")
        entries.append(_entry(mode, name, content[zero + 1 : end].hex(), folder=folder))
        at = end
    if len({entry.path for entry in entries}) != len(entries):
        raise hostile(folder, "a name twice")
    return entries


def _entry(mode: bytes, name: bytes, object_id: str, *, folder: str) -> _Entry:
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise hostile(folder, "a name that is not UTF-8") from error
    if text in {"", ".", ".."} or "/" in text or len(name) > _MAX_NAME or not text.isprintable():
        raise hostile(folder, f"the name {text!r:.60}")
    if text.lower() == ".git":
        raise hostile(folder, "a repository in the site")
    path = f"{folder}/{text}" if folder else text
    kind = mode.decode("ascii", errors="replace")
    if kind == _SUBMODULE:
        raise Refusal(f"expected files and folders, got the submodule {path}", reason=Reason.SOURCE_TREE_REFUSED)
    if kind != _FOLDER and kind not in {one.value for one in FileKind}:
        raise hostile(folder, f"mode {kind!r:.20} of {path}")
    return _Entry(path=path, mode=kind, object_id=object_id)


def _checked(file: SiteFile) -> SiteFile:
    """Return ``file``, or refuse a link out of the site: ``..`` may only be at the beginning of its target."""
    if file.kind is not FileKind.LINK:
        return file
    parts = file.content[: _MAX_TARGET + 1].decode(errors="replace").split("/")
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    outside = ups > file.path.count("/") or not parts[0] or ".." in parts[ups:]
    if outside or not file.content or b"\0" in file.content or len(file.content) > _MAX_TARGET:
        raise Refusal(
            f"expected the link {file.path} to stay in the site, it leads to {file.content[:80]!r}",
            reason=Reason.SOURCE_TREE_REFUSED,
        )
    return file


def hostile(folder: str, got: str) -> Refusal:
    """Return the refusal SOURCE_TREE_REFUSED of a tree that git itself would not create."""
    return Refusal(
        f"expected names and kinds of a plain site in /{folder}, got {got}", reason=Reason.SOURCE_TREE_REFUSED
    )


_REF = "refs/attested/candidate"
_ID = re.compile(r"[0-9a-f]{40}")
_SETTINGS = (
    "core.alternateRefsCommand=",
    "core.hooksPath=/dev/null",
    "credential.helper=",
    "fetch.fsckObjects=true",
    "gc.auto=0",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "maintenance.auto=false",
    "submodule.recurse=false",
)
_PREFIX = "staging-"
_TIMED_OUT = frozenset({124, 137})
_GRACE_SECONDS = 5
_OUTPUT_CHARACTERS = 600
# The error texts of git 2.39 and later; any other error counts as SOURCE_UNREACHABLE, with git's text.
_TOO_LARGE = re.compile(r"died of signal 25|File too large|No space left")
_BROKEN = re.compile(r"fsck|index-pack failed|unpack-objects|bad object|did not send all necessary objects|corrupt")
_NO_BRANCH = "couldn't find remote ref"
_NO_REPOSITORY = re.compile(
    r"not valid: is this a git repository|repository .* not found|not appear to be a git repository"
    r"|unable to update url base from redirection|invalid server response|protocol error"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The time limit of a fetch, and the size limit of each of its files (a pack is one file)."""

    seconds: int = 120
    bytes: int = 64 << 20


class Staging:
    """One bare repository, which exists inside of `opened`; nothing of an earlier one is used."""

    def __init__(self, directory: Path, *, runner: Runner, limits: Limits) -> None:
        """Work in the empty bare repository ``directory``; use `opened`."""
        self._directory = directory
        self._runner = runner
        self._limits = limits

    @classmethod
    @contextmanager
    def opened(cls, below: Path, *, runner: Runner, limits: Limits | None = None) -> Iterator[Staging]:
        """Make a repository in ``below`` (on tmpfs, only for root); remove it at the end, and earlier ones first."""
        below.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in below.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=below))
        staging = cls(directory, runner=runner, limits=limits or Limits())
        try:
            staging.git("init", "--quiet", "--bare", "--template=", str(directory))
            yield staging
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def fetch(self, url: str, *, branch: str, transports: Iterable[str]) -> None:
        """Fetch ``branch`` of ``url`` with its history.

        Raises `TransportError` SOURCE_UNREACHABLE, SOURCE_NOT_A_REPOSITORY, SOURCE_BRANCH_ABSENT, or `Refusal`
        SOURCE_TREE_REFUSED, SOURCE_OBJECT_BROKEN.
        """
        allowed = ":".join(transports)
        try:
            self._fetch(url, f"refs/heads/{branch}", transports=allowed)
        except TransportError as error:
            if error.reason is not Reason.SOURCE_BRANCH_ABSENT or self._has_branches(url, allowed):
                raise
            # Git takes a web page for a repository without branches.
            raise _fetch_failed(url, "the server has no repository there", Reason.SOURCE_NOT_A_REPOSITORY) from error

    def fetch_file(self, bundle: Path) -> None:
        """Fetch from the file ``bundle`` that `keep` wrote; raises as `fetch`."""
        self._fetch(str(bundle), _REF, transports="file")

    def keep(self, bundle: Path) -> None:
        """Write the commit and its history to the file ``bundle``, atomically."""
        fresh = bundle.with_name(f".{bundle.name}.new")
        fresh.unlink(missing_ok=True)
        self.git("bundle", "create", "--quiet", str(fresh), _REF)
        os.chmod(fresh, 0o600)  # noqa: PTH101 - the file is ours
        fresh.replace(bundle)

    def tip(self) -> str:
        """Return the id of the fetched commit."""
        name = self.git("rev-parse", "--verify", "--end-of-options", _REF).stdout.decode().strip()
        if not _ID.fullmatch(name):
            raise Refusal(f"expected the id of a commit, got {name!r:.80}", reason=Reason.SOURCE_OBJECT_BROKEN)
        return name

    def descends(self, commit: str, *, ancestor: str) -> bool:
        """Whether ``ancestor`` is ``commit`` or in its history; false if the repository does not have it."""
        if self._kinds([ancestor]).get(ancestor, ("", 0))[0] != "commit":
            return False
        return self.git("merge-base", "--is-ancestor", ancestor, commit, check=False).returncode == 0

    def read(self, kind: str, ids: Iterable[str], *, limit: int) -> Mapping[str, bytes]:
        """Return objects by id; raises SOURCE_OBJECT_BROKEN, SOURCE_TREE_REFUSED."""
        wanted = sorted(set(ids))
        known = self._kinds(wanted)
        if broken := [name for name in wanted if known.get(name, ("", 0))[0] != kind]:
            raise Refusal(f"expected the {kind} {broken[0]}, it is missing", reason=Reason.SOURCE_OBJECT_BROKEN)
        if (total := sum(known[name][1] for name in wanted)) > limit:
            raise too_large(f"{total} bytes of {kind}")
        content = self.git("cat-file", "--batch", stdin=_lines(wanted)).stdout
        return _objects(content, wanted, kind)

    def git(self, *words: str, stdin: bytes | None = None, check: bool = True, transports: str = "") -> CommandResult:
        """Run git in this repository; ``transports``: the allowed protocols, by default none."""
        environment = {
            "GIT_ALLOW_PROTOCOL": transports,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(self._directory),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "HOME": str(self._directory),
            "LC_ALL": "C.UTF-8",
            "PATH": os.defpath,
        }
        bounds = [
            *("timeout", f"--kill-after={_GRACE_SECONDS}", str(self._limits.seconds)),
            *("prlimit", f"--fsize={self._limits.bytes}", "--core=0"),
        ]
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        given = [f"{name}={value}" for name, value in environment.items()]
        return self._runner.run(
            ["env", "-i", *given, *bounds, "git", *settings, *words],
            stdin=stdin,
            timeout_seconds=self._limits.seconds + 2 * _GRACE_SECONDS,
            check=check,
        )

    def _fetch(self, place: str, ref: str, *, transports: str) -> None:
        words = ("--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance")
        done = self.git("fetch", *words, "--", place, f"+{ref}:{_REF}", check=False, transports=transports)
        if done.returncode:
            raise _why(place, done, seconds=self._limits.seconds)

    def _has_branches(self, url: str, transports: str) -> bool:
        done = self.git("ls-remote", "--quiet", "--heads", "--", url, check=False, transports=transports)
        return done.returncode == 0 and bool(done.stdout.strip())

    def _kinds(self, ids: list[str]) -> dict[str, tuple[str, int]]:
        """Return kind and size of each object that exists."""
        output = self.git("cat-file", "--batch-check", stdin=_lines(ids)).stdout.decode(errors="replace")
        rows = [line.split(" ") for line in output.splitlines()]
        return {row[0]: (row[1], int(row[2])) for row in rows if len(row) == len(("id", "kind", "size"))}


def _why(place: str, done: CommandResult, *, seconds: int) -> AttestedError:
    output = done.stderr.decode("utf-8", "replace").strip()[-_OUTPUT_CHARACTERS:]
    if done.returncode in _TIMED_OUT:
        return _fetch_failed(place, f"no end within {seconds} s", Reason.SOURCE_UNREACHABLE)
    if _TOO_LARGE.search(output):
        return too_large("a larger history")
    if _NO_BRANCH in output:
        return _fetch_failed(place, output, Reason.SOURCE_BRANCH_ABSENT)
    if _NO_REPOSITORY.search(output):
        return _fetch_failed(place, output, Reason.SOURCE_NOT_A_REPOSITORY)
    if _BROKEN.search(output):
        return Refusal(f"expected valid objects from {place}, git says: {output}", reason=Reason.SOURCE_OBJECT_BROKEN)
    return _fetch_failed(place, output or f"git ended with {done.returncode}", Reason.SOURCE_UNREACHABLE)


def _fetch_failed(place: str, problem: str, reason: Reason) -> TransportError:
    return TransportError(f"expected a repository at {place}: {problem}", reason=reason, retryable=True)


def _lines(ids: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in ids).encode()


def _objects(content: bytes, wanted: list[str], kind: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in wanted:
        head, _line, rest = content.partition(b"\n")
        words = head.decode(errors="replace").split(" ")
        size = int(words[-1]) if words[-1].isdigit() else -1
        if words[:2] != [name, kind] or not 0 <= size < len(rest) or object_id(kind, rest[:size]) != name:
            raise Refusal(f"expected the {kind} {name}, got another", reason=Reason.SOURCE_OBJECT_BROKEN)
        found[name], content = rest[:size], rest[size + 1 :]
    return found
