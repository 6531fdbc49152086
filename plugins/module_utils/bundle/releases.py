# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of a node: they lie side by side, and a member of a cluster uses one until it is upgraded (ADR 0067).

A release has the name of its bundle: the first twelve digits of the manifest's SHA-256. Its directory holds the
programs, in ``steps`` those of the releases on the way to it, and a link to its virtual environment; the link
``current`` leads to the release whose programs are installed.
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
"""The link to the environment in use; the releases lie beside it."""
UPGRADE = "ansible-playbook attested.kubernetes.upgrade"
CONTAINERD = frozenset(
    (
        *(f"/usr/local/bin/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc")),
        "/etc/systemd/system/containerd.service",
    )
)
"""Where containerd of a release is installed."""

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
    """Return whether this machine is a member of a cluster: its kubelet has a configuration for it, or it has joined.

    The second holds for a control plane whose state disk, with the configuration, is closed after a reboot.
    """
    journal = root / _JOURNAL
    return (root / _KUBELET).exists() or (journal.is_file() and bool(_JOINED.search(_text(journal))))


def notice(release: str, in_use: str | None) -> str:
    """Return what an admin is told about a member that was prepared for another release than the one in use."""
    return f"prepared release {release}, in use {in_use or 'an earlier installation'}; next: {UPGRADE}"


def left_out(containerd: str) -> frozenset[str]:
    """Return the install paths that a machine with ``containerd``, `bundle` or `distribution`, does not take.

    containerd of a distribution works with the CNI plugins of the distribution.
    """
    if containerd != "distribution":
        return frozenset()
    return CONTAINERD | {one.install_path for one in SOURCES if one.install_path.startswith(f"{CNI_PLUGINS}/")}


def step_path(version: str, install_path: str) -> str:
    """Return where a release has a program of the release ``version`` that control planes go through before it."""
    return f"/{_STEPS}/{version}{install_path}"


class Releases:
    """The releases beside the link ``runtime``; ``root`` replaces ``/`` in tests."""

    def __init__(self, runtime: str | Path = RUNTIME, *, root: Path = Path("/")) -> None:
        """Keep where they lie."""
        self._root = root
        self._runtime = root / str(runtime).lstrip("/")
        self._directory = self._runtime.parent / "releases"

    @staticmethod
    def name(digest: str) -> str:
        """Return the name of the release with the manifest of SHA-256 ``digest``."""
        return digest[:_DIGITS]

    def program(self, release: str, install_path: str) -> Path:
        """Return where ``release`` has the program that is installed as ``install_path``."""
        return self._directory / release / install_path.lstrip("/")

    def files(self, release: str) -> tuple[str, ...]:
        """Return the programs of ``release`` by the path that they are installed as, without its leading slash."""
        place = self._directory / release
        found = [one.relative_to(place) for one in place.rglob("*") if one.is_file()]
        return tuple(sorted(str(one) for one in found if one.parts[0] != _STEPS))

    def names(self) -> tuple[str, ...]:
        """Return the releases that are there."""
        return tuple(sorted(one.name for one in self._directory.glob("*") if one.is_dir() and not one.is_symlink()))

    def installed(self) -> str | None:
        """Return the release whose programs are installed, None where nobody noted one."""
        current = self._directory / _CURRENT
        return current.readlink().name if current.is_symlink() else None

    def note_installed(self, release: str) -> None:
        """Note that the installed programs are those of ``release``."""
        make_directory(self._directory, mode=0o755)
        place_link(self._directory / _CURRENT, release)

    def environment(self, release: str) -> Path | None:
        """Return the environment of ``release``, None where it has none."""
        link = self._directory / release / _ENVIRONMENT
        return link.resolve() if link.is_symlink() else None

    def note_environment(self, release: str, environment: Path) -> None:
        """Note that ``environment``, a directory beside the link, belongs to ``release``."""
        make_directory(self._directory / release, mode=0o755)
        place_link(self._directory / release / _ENVIRONMENT, f"../../{environment.name}")

    def serving(self, prefer: str = "") -> str | None:
        """Return a release that has the environment in use, ``prefer`` if it has; None where none has."""
        if not self._runtime.is_symlink():
            return None
        used = self._runtime.resolve()
        found = [one for one in self.names() if self.environment(one) == used]
        return prefer if prefer in found else next(iter(found), None)

    def prune(self, keep: str) -> tuple[str, ...]:
        """Remove releases and environments that nothing refers to, and return their paths; ``keep`` always stays.

        A link, a unit or a process refers to them: by its program, its command line, its directory or what it mapped.
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
        except PermissionError:  # what cannot be looked at may refer to all of them
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
        """Return which files run as programs, by device and inode: a hard link does not show in a process."""
        return {one for process in (self._root / "proc").glob("[0-9]*") for one in _identity(process / "exe")}


def _text(path: Path) -> str:
    """Return the text of a file of a process, empty once the process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except (FileNotFoundError, ProcessLookupError):  # the process has ended, or is one of the kernel
        return ""


def _identity(path: Path) -> Iterator[tuple[int, int]]:
    try:
        found = path.stat()
    except (FileNotFoundError, ProcessLookupError):
        return
    yield found.st_dev, found.st_ino


def _identities(directory: Path) -> set[tuple[int, int]]:
    return {one for path in directory.rglob("*") if path.is_file() for one in _identity(path)}
