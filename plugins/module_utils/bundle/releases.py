# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of a node, side by side; a cluster member uses one of them until it is upgraded (ADR 0067).

The name of a release is the first 12 hex digits of the SHA-256 of the bundle manifest. Its directory has the programs,
those of intermediate releases in ``steps``, and a link to its virtual environment. The link ``current`` points to the
release whose programs are installed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import make_directory, place_link
from .versions import CNI_PLUGINS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNTIME = "/opt/attested/venv"
"""The link to the environment in use; the releases are in the same directory."""
UPGRADE = "ansible-playbook attested.kubernetes.upgrade"
CONTAINERD = frozenset(
    (
        *(f"/usr/local/bin/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc")),
        "/etc/systemd/system/containerd.service",
    )
)
"""The install paths of containerd and runc."""

_KUBELET = "etc/kubernetes/kubelet.conf"
_JOURNAL = "var/lib/attested/node.json"
_JOINED = re.compile(r'"phase"\s*:\s*"Joined"')
_CURRENT = "current"
_STEPS = "steps"
_ENVIRONMENT = "venv"
_DIGITS = 12
_UNIT_DIRECTORIES = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system")
_UNIT_FILES = frozenset({".service", ".conf"})


def is_member(root: Path = Path("/")) -> bool:
    """Return whether this machine is a cluster member: it has a `kubelet.conf`, or its journal has the phase Joined.

    The journal covers a control plane after a reboot, while its state disk with `kubelet.conf` is closed.
    """
    journal = root / _JOURNAL
    return (root / _KUBELET).exists() or (journal.is_file() and bool(_JOINED.search(_text(journal))))


def notice(release: str, in_use: str | None) -> str:
    """Return the message for a member with another prepared release than the release in use."""
    return f"prepared release {release}, in use {in_use or 'an earlier installation'}; next: {UPGRADE}"


def left_out(containerd: str) -> frozenset[str]:
    """Return the install paths to leave out if ``containerd`` is `distribution`, none if it is `bundle`.

    The distribution's containerd uses the distribution's CNI plugins.
    """
    if containerd != "distribution":
        return frozenset()
    return CONTAINERD | {one.install_path for one in SOURCES if one.install_path.startswith(f"{CNI_PLUGINS}/")}


def step_path(version: str, install_path: str) -> str:
    """Return the path in a release of a program of the intermediate release ``version``."""
    return f"/{_STEPS}/{version}{install_path}"


class Releases:
    """The releases beside the link ``runtime``; ``root`` replaces ``/`` in tests."""

    def __init__(self, runtime: str | Path = RUNTIME, *, root: Path = Path("/")) -> None:
        """Set the directories."""
        self._root = root
        self._runtime = root / str(runtime).lstrip("/")
        self._directory = self._runtime.parent / "releases"

    @staticmethod
    def name(digest: str) -> str:
        """Return the name of the release with the manifest of SHA-256 ``digest``."""
        return digest[:_DIGITS]

    def program(self, release: str, install_path: str) -> Path:
        """Return the path in ``release`` of the program with ``install_path``."""
        return self._directory / release / install_path.lstrip("/")

    def files(self, release: str) -> tuple[str, ...]:
        """Return the install paths of the programs of ``release``, without leading slash."""
        place = self._directory / release
        found = [one.relative_to(place) for one in place.rglob("*") if one.is_file()]
        return tuple(sorted(str(one) for one in found if one.parts[0] != _STEPS))

    def names(self) -> tuple[str, ...]:
        """Return the names of all releases."""
        return tuple(sorted(one.name for one in self._directory.glob("*") if one.is_dir() and not one.is_symlink()))

    def installed(self) -> str | None:
        """Return the release whose programs are installed, or None."""
        current = self._directory / _CURRENT
        return current.readlink().name if current.is_symlink() else None

    def note_installed(self, release: str) -> None:
        """Record ``release`` as the installed one."""
        make_directory(self._directory, mode=0o755)
        place_link(self._directory / _CURRENT, release)

    def environment(self, release: str) -> Path | None:
        """Return the environment of ``release``, or None."""
        link = self._directory / release / _ENVIRONMENT
        return link.resolve() if link.is_symlink() else None

    def note_environment(self, release: str, environment: Path) -> None:
        """Record ``environment``, a directory beside the link, for ``release``."""
        make_directory(self._directory / release, mode=0o755)
        place_link(self._directory / release / _ENVIRONMENT, f"../../{environment.name}")

    def serving(self, prefer: str = "") -> str | None:
        """Return a release with the environment in use, ``prefer`` if possible, or None."""
        if not self._runtime.is_symlink():
            return None
        used = self._runtime.resolve()
        found = [one for one in self.names() if self.environment(one) == used]
        return prefer if prefer in found else next(iter(found), None)

    def prune(self, keep: str) -> tuple[str, ...]:
        """Remove unused releases and environments except ``keep``; return their paths.

        Links, units and processes use them; processes by executable, command line, working directory or mapped file.
        """
        kept = {keep, self.installed(), self.serving()}
        gone = self._remove([self._directory / one for one in self.names() if one not in kept])
        environments = [one for one in self._runtime.parent.glob(f"{self._runtime.name}-*") if not one.is_symlink()]
        linked = {one.resolve() for one in self._links()}
        return gone + self._remove([one for one in environments if one.resolve() not in linked])

    def _links(self) -> Iterator[Path]:
        for pattern in ("*", "releases/*", "releases/*/*"):
            yield from (one for one in self._runtime.parent.glob(pattern) if one.is_symlink())

    def _remove(self, unlinked: list[Path]) -> tuple[str, ...]:
        if not unlinked:
            return ()
        try:
            texts, running = [*self._units(), *self._processes()], self._running()
        except PermissionError:  # an unreadable unit or process may use all of them
            return ()
        gone = [
            place
            for place in unlinked
            if not any(self._shown(place) in text for text in texts) and running.isdisjoint(_identities(place))
        ]
        for place in gone:
            shutil.rmtree(place, ignore_errors=True)
        return tuple(self._shown(place) for place in gone)

    def _shown(self, place: Path) -> str:
        return f"/{place.relative_to(self._root)}"

    def _units(self) -> Iterator[str]:
        for directory in _UNIT_DIRECTORIES:
            for path in (self._root / directory).rglob("*"):
                if path.suffix in _UNIT_FILES and path.is_file():
                    yield path.read_text(encoding="utf-8", errors="replace")

    def _processes(self) -> Iterator[str]:
        for process in (self._root / "proc").glob("[0-9]*"):
            for name in ("cmdline", "maps"):
                yield _text(process / name)
            for name in ("exe", "cwd"):
                yield _target(process / name)

    def _running(self) -> set[tuple[int, int]]:
        """Return device and inode of running executables, because a process does not show hard links."""
        return {one for process in (self._root / "proc").glob("[0-9]*") for one in _identity(process / "exe")}


def _text(path: Path) -> str:
    """Return the text of a file, empty if the file or its process is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except (FileNotFoundError, ProcessLookupError):  # an ended process or a kernel thread
        return ""


def _identity(path: Path) -> Iterator[tuple[int, int]]:
    try:
        found = path.stat()
    except (FileNotFoundError, ProcessLookupError):
        return
    yield found.st_dev, found.st_ino


def _identities(directory: Path) -> set[tuple[int, int]]:
    return {one for path in directory.rglob("*") if path.is_file() for one in _identity(path)}
