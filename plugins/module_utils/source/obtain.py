# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site of this boot: fetched, verified, and only then written (attacks S34 and S42 of docs/threat-model.md)."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import make_directory, read_bytes, write_atomic
from ..errors import Refusal, SystemFault, TransportError
from ..reasons import Reason
from .signature import verify_commit
from .staging import Limits, Staging
from .tree import FileKind, read_files
from .version import Kept, Measured, parse_kept, parse_pin, require_installed, require_later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.command import Runner
    from .config import SourceConfig
    from .tree import SiteFile
    from .version import Installed


# The verified files of a site, written: into a directory that nobody else can enter, and only then under its name.

_MODES = {FileKind.PLAIN: 0o600, FileKind.EXECUTABLE: 0o700}


def export(files: Sequence[SiteFile], target: Path) -> None:
    """Make ``target`` hold exactly ``files``; raises FILE_UNUSABLE.

    Links come last, so nothing is ever written through one; modes are two of ours, so none is set-user-id.
    """
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(left)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        for file in sorted(files, key=lambda one: one.kind is FileKind.LINK):
            _write(file, fresh / file.path)
        discard(target)
        fresh.rename(target)
    except OSError as error:
        raise SystemFault(f"cannot write {target}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def discard(target: Path) -> None:
    """Remove an earlier working copy, if there is one."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)


def _write(file: SiteFile, place: Path) -> None:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.kind is FileKind.LINK:
        place.symlink_to(file.content.decode())
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(place, flags, _MODES[file.kind]), "wb") as stream:
        stream.write(file.content)


_COMMIT_BYTES = 64 << 10
_KEPT_BYTES = 4096
_AWAY = frozenset({Reason.SOURCE_NOT_A_REPOSITORY, Reason.SOURCE_UNREACHABLE})


class Story(Protocol):
    """Hears what happens (`serving.Log`)."""

    def event(self, name: str, /, **fields: str | float | None) -> None:
        """Hear one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things lie: ``memory`` is on tmpfs, ``state`` on the disk; both are root's alone."""

    memory: Path = Path("/run/attested/source")
    state: Path = Path("/var/lib/attested/source")

    @property
    def site(self) -> Path:
        """The working copy."""
        return self.memory / "site"

    @property
    def bundle(self) -> Path:
        """The last good commit with its history, as a file of git."""
        return self.state / "last.bundle"

    @property
    def kept(self) -> Path:
        """Version and id of the last good commit."""
        return self.state / "last.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A site that was verified and written to ``path``."""

    path: Path
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine is: what is installed, and the SHA-256 of its configuration (hex)."""

    installed: Installed
    node_config: str


class Source:
    """Brings the site's repository to this machine."""

    def __init__(
        self, config: SourceConfig, *, runner: Runner, story: Story, places: Places, limits: Limits | None = None
    ) -> None:
        """Keep where the repository is and who signs it; ``limits`` bound each run of git."""
        self._config = config
        self._runner = runner
        self._story = story
        self._places = places
        self._limits = limits or Limits()

    def obtain(self, machine: Machine, *, measured: Measured | None = None) -> Obtained:
        """Return the site, its working copy written after every check; an earlier working copy goes first.

        1. Objects come into a bare repository in memory. 2. A pinned key signed the commit. 3. Its tree is a plain
        site. 4. It is no older than ``minimum`` and than what this machine took before, and descends from that.
        5. It was written for the installed collection. 6. It is what this boot has ``measured``, if it has. Then it is
        kept, and written. Raises `Refusal` SOURCE_…, `TransportError` SOURCE_….
        """
        discard(self._places.site)
        with Staging.opened(self._places.memory, runner=self._runner, limits=self._limits) as staging:
            self._bring(staging, again=measured is not None)  # 1
            found, files = self._verified(staging, machine)  # 2 to 5
            _require_same(found, measured)  # 6
            self._keep(staging, Kept(version=found.version, commit=found.commit))
            export(files, self._places.site)
        self._story.event("site_verified", commit=found.commit, version=found.version, signer=found.signer)
        return Obtained(path=self._places.site, measured=found)

    def _bring(self, staging: Staging, *, again: bool) -> None:
        """Fetch; take the last good commit where this boot has measured one, or where nobody answers."""
        bundle = self._places.bundle
        if again and bundle.exists():
            self._story.event("site_of_this_boot", bundle=str(bundle))
            staging.fetch_file(bundle)
            return
        try:
            staging.fetch(self._config.url, branch=self._config.branch, transports=self._config.transports)
        except TransportError as error:
            if error.reason not in _AWAY or not bundle.exists():
                raise
            self._story.event("site_away_last_one_used", reason=error.code, message=error.message)
            staging.fetch_file(bundle)

    def _verified(self, staging: Staging, machine: Machine) -> tuple[Measured, tuple[SiteFile, ...]]:
        commit = staging.tip()
        content = staging.read("commit", [commit], limit=_COMMIT_BYTES)[commit]
        signed = verify_commit(content, commit=commit, signers=self._config.signers)  # 2
        files = read_files(staging, signed.tree)  # 3
        pin, kept = parse_pin(files), self._kept()
        descends = kept is None or staging.descends(commit, ancestor=kept.commit)
        require_later(pin, commit=commit, minimum=self._config.minimum, kept=kept, descends=descends)  # 4
        require_installed(pin, machine.installed)  # 5
        found = Measured(
            commit=commit,
            version=pin.version,
            signer=signed.signer.fingerprint,
            collection=pin.collection,
            bundle=pin.bundle,
            node_config=machine.node_config,
        )
        return found, files

    def _kept(self) -> Kept | None:
        place = self._places.kept
        return parse_kept(read_bytes(place, limit=_KEPT_BYTES)) if place.exists() else None

    def _keep(self, staging: Staging, kept: Kept) -> None:
        """Remember the commit; its bundle comes first, so that a version is never kept without one."""
        if self._kept() == kept and self._places.bundle.exists():
            return
        make_directory(self._places.state, mode=0o700)
        staging.keep(self._places.bundle)
        write_atomic(self._places.kept, kept.to_bytes())


def _require_same(found: Measured, measured: Measured | None) -> None:
    if measured is not None and found != measured:
        raise Refusal(
            f"expected commit {measured.commit}, which this boot has measured, got {found.commit}",
            reason=Reason.SOURCE_TOO_LATE,
        )
