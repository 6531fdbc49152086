# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch objects with git into a bare repository in memory, from which nothing is checked out.

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
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AttestedError, Refusal, TransportError
from ..reasons import Reason
from .signature import object_id
from .tree import too_large

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..core.command import CommandResult, Runner

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
