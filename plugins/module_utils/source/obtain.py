# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch the site of this boot, verify it, and only then write it (attacks S34 and S42 of docs/threat-model.md)."""

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
from .staging import FileKind, Limits, Staging, read_files
from .version import Kept, Measured, parse_kept, parse_pin, require_installed, require_later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.command import Runner
    from .config import SourceConfig
    from .staging import SiteFile
    from .version import Installed


# Write the verified files of a site into a directory that only root can enter, which then gets its final name.

_MODES = {FileKind.PLAIN: 0o600, FileKind.EXECUTABLE: 0o700}


def export(files: Sequence[SiteFile], target: Path) -> None:
    """Write exactly ``files`` to the directory ``target``; raises FILE_UNUSABLE.

    Links are made last, so nothing is written through a link. Only two modes are used, so no file is set-user-id.
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
    """Remove the working copy of an earlier run, if it exists."""
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
_UNREACHABLE = frozenset({Reason.SOURCE_NOT_A_REPOSITORY, Reason.SOURCE_UNREACHABLE})


class Observer(Protocol):
    """Receives the events of a boot; `core.logs.Log` implements it."""

    def event(self, name: str, /, **fields: str | float | None) -> None:
        """Record the event ``name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The directories of the source: ``memory`` is on tmpfs, ``state`` on the disk; only root can access both."""

    memory: Path = Path("/run/attested/source")
    state: Path = Path("/var/lib/attested/source")

    @property
    def site(self) -> Path:
        """The working copy."""
        return self.memory / "site"

    @property
    def bundle(self) -> Path:
        """The git bundle of the last good commit with its history."""
        return self.state / "last.bundle"

    @property
    def kept(self) -> Path:
        """The file with version and id of the last good commit."""
        return self.state / "last.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """A verified site that was written to ``path``."""

    path: Path
    measured: Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The installed collection of this machine, and the SHA-256 of its configuration (hex)."""

    installed: Installed
    node_config: str


class Source:
    """Fetches, verifies and writes the site's repository on this machine."""

    def __init__(
        self, config: SourceConfig, *, runner: Runner, observer: Observer, places: Places, limits: Limits | None = None
    ) -> None:
        """Store the configuration and the collaborators; ``limits`` bound each run of git."""
        self._config = config
        self._runner = runner
        self._observer = observer
        self._places = places
        self._limits = limits or Limits()

    def obtain(self, machine: Machine, *, measured: Measured | None = None) -> Obtained:
        """Return the site, with its working copy written after all checks; an earlier working copy is removed first.

        1. Objects are fetched into a bare repository in memory. 2. A pinned key signed the commit. 3. Its tree is a
        plain site. 4. It is not older than ``minimum`` and than the last site of this machine, and descends from that.
        5. It is for the installed collection. 6. It is the commit that this boot has ``measured``, if any. Then the
        commit is kept, and its files are written. Raises `Refusal` SOURCE_…, `TransportError` SOURCE_….
        """
        discard(self._places.site)
        with Staging.opened(self._places.memory, runner=self._runner, limits=self._limits) as staging:
            self._fetch(staging, again=measured is not None)  # 1
            found, files = self._verified(staging, machine)  # 2 to 5
            _require_same(found, measured)  # 6
            self._keep(staging, Kept(version=found.version, commit=found.commit))
            export(files, self._places.site)
        self._observer.event("site_verified", commit=found.commit, version=found.version, signer=found.signer)
        return Obtained(path=self._places.site, measured=found)

    def _fetch(self, staging: Staging, *, again: bool) -> None:
        """Fetch from the repository, or use the last good commit if this boot measured it or the repository is down."""
        bundle = self._places.bundle
        if again and bundle.exists():
            self._observer.event("site_of_this_boot", bundle=str(bundle))
            staging.fetch_file(bundle)
            return
        try:
            staging.fetch(self._config.url, branch=self._config.branch, transports=self._config.transports)
        except TransportError as error:
            if error.reason not in _UNREACHABLE or not bundle.exists():
                raise
            self._observer.event("site_away_last_one_used", reason=error.code, message=error.message)
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
        """Store the commit; its bundle is written first, so that no version is stored without its bundle."""
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
