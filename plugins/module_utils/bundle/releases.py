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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import make_directory, place_link
from ..errors import ComponentError
from ..reasons import Reason
from .versions import CNI_PLUGINS, SOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from .manifest import Architecture, Blob, FileEntry, ImageArchive, Manifest, NodeRole, WheelArchive


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


# Compare the observed state of a node with a bundle. Pure.


@dataclass(frozen=True, slots=True)
class InstalledFile:
    """An installed program: its SHA-256 (hex) and permission bits."""

    sha256: str
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observed node: installed programs by install path, digests of images by reference.

    ``prepared``: install paths of the programs in the release. ``copies``: path of a file with the same content, by
    install path. ``pinned``: references of the images that are pinned for the release. ``noted``: whether the release
    is recorded as installed.
    """

    files: Mapping[str, InstalledFile]
    images: Mapping[str, str]
    prepared: frozenset[str] = frozenset()
    copies: Mapping[str, Path] = field(default_factory=dict)
    pinned: frozenset[str] = frozenset()
    noted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a bundle that one node needs.

    ``step_files`` and ``step_archives`` are those of intermediate releases; they are installed in the release only.
    """

    files: tuple[FileEntry, ...]
    image_archives: tuple[ImageArchive, ...]
    step_files: tuple[FileEntry, ...] = ()
    step_archives: tuple[ImageArchive, ...] = ()

    def only(self, kind: str | None) -> Selection:
        """Return only ``programs`` or ``images``, or all without ``kind``."""
        if kind == "programs":
            return replace(self, image_archives=(), step_archives=())
        return replace(self, files=(), step_files=()) if kind == "images" else self


@dataclass(frozen=True, slots=True)
class PrepareFile:
    """Write one program to the directory of its release, from ``copy`` if there is one."""

    entry: FileEntry
    copy: Path | None


@dataclass(frozen=True, slots=True)
class InstallFile:
    """Install one program."""

    entry: FileEntry
    found: InstalledFile | None


@dataclass(frozen=True, slots=True)
class ImportImages:
    """Import one archive because ``missing`` references are absent or differ."""

    archive: ImageArchive
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes to make, in order; an empty plan means that the node matches the bundle.

    ``pins``: references of images to pin for the release, without those to import, which are pinned then. ``waiting``:
    different programs of a member, which are not changed. ``note``: record the release as installed.
    """

    prepares: tuple[PrepareFile, ...]
    installs: tuple[InstallFile, ...]
    imports: tuple[ImportImages, ...]
    pins: tuple[str, ...] = ()
    waiting: tuple[InstallFile, ...] = ()
    note: bool = False

    @property
    def is_empty(self) -> bool:
        """No changes."""
        return not (self.prepares or self.installs or self.imports or self.pins or self.note)

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """The stored files that the plan reads."""
        unpacked = (step.entry.blob for step in self.prepares if step.copy is None)
        return (*unpacked, *(step.archive.blob for step in self.imports))


def select(
    manifest: Manifest, *, role: NodeRole, architecture: Architecture, without: Collection[str] = ()
) -> Selection:
    """Return the entries for a node of ``role`` and ``architecture``; raises BUNDLE_ARCH_MISMATCH if there are none.

    ``without``: install paths to leave out.
    """
    taken = (entry for entry in manifest.files if entry.install_path not in without)
    files = tuple(e for e in taken if role in e.blob.roles and e.blob.arch is architecture)
    archives = tuple(e for e in manifest.image_archives if role in e.blob.roles and e.blob.arch is architecture)
    if not files or not archives:
        offered = ", ".join(sorted({entry.blob.arch.value for entry in manifest.files})) or "nothing"
        raise ComponentError(
            f"expected programs and images for {architecture.value} ({role.value}) in the bundle, it has {offered}",
            reason=Reason.BUNDLE_ARCH_MISMATCH,
            hint=f"Set attested_bundle_architecture: {architecture.value} and an attested_bundle of its own for this "
            "machine, then run bundle.",
        )
    return Selection(
        files=files,
        image_archives=archives,
        step_files=tuple(
            replace(entry, install_path=step_path(step.kubernetes_version, entry.install_path))
            for step in manifest.steps
            for entry in step.files
            if role in entry.blob.roles and entry.blob.arch is architecture
        ),
        step_archives=tuple(
            entry
            for step in manifest.steps
            for entry in step.image_archives
            if role in entry.blob.roles and entry.blob.arch is architecture
        ),
    )


def select_wheels(manifest: Manifest, *, python: str, architecture: Architecture) -> WheelArchive:
    """Return the wheels for ``python`` (``3.11``); raises BUNDLE_INCOMPLETE with the available ones."""
    for archive in manifest.wheel_archives:
        if archive.python == python and archive.blob.arch is architecture:
            return archive
    offered = ", ".join(f"{a.python}/{a.blob.arch.value}" for a in manifest.wheel_archives) or "none"
    other_python = all(archive.python != python for archive in manifest.wheel_archives)
    raise ComponentError(
        f"expected wheels for Python {python} on {architecture.value} in the bundle, it has {offered}",
        reason=Reason.BUNDLE_INCOMPLETE,
        hint=f'Set attested_python_version: "{python}" for this machine, then run bundle.' if other_python else None,
    )


def plan(selection: Selection, observed: Observed, *, switch: bool) -> Plan:
    """Return the changes that the node needs; without ``switch`` no program is installed.

    Intermediate releases are prepared only without ``switch``, if installed programs differ.
    """
    differing = tuple(
        InstallFile(entry, observed.files.get(entry.install_path))
        for entry in selection.files
        if observed.files.get(entry.install_path) != InstalledFile(entry.content_sha256, entry.mode)
    )
    on_the_way = bool(differing) and not switch
    archives = (*selection.image_archives, *(selection.step_archives if on_the_way else ()))
    imports = tuple(ImportImages(one, missing) for one in archives if (missing := _missing_images(one, observed)))
    imported = {reference for job in imports for reference in job.missing}
    references = dict.fromkeys(image.reference for archive in archives for image in archive.images)
    return Plan(
        prepares=tuple(
            PrepareFile(entry, observed.copies.get(entry.install_path))
            for entry in (*selection.files, *(selection.step_files if on_the_way else ()))
            if entry.install_path not in observed.prepared
        ),
        installs=differing if switch else (),
        imports=imports,
        pins=tuple(one for one in references if one not in imported and one not in observed.pinned),
        waiting=() if switch else differing,
        note=bool(selection.files) and not observed.noted and (switch or not differing),
    )


def render_diff(steps: Plan) -> dict[str, str]:
    """Return the plan as diff of Ansible: before and after, one line for each entry."""
    before: list[str] = []
    after: list[str] = []
    after.extend(f"release {e.install_path} sha256:{e.content_sha256[:16]}" for e in (s.entry for s in steps.prepares))
    for step in steps.installs:
        found = step.found
        before.append(
            f"{step.entry.install_path} "
            + (f"sha256:{found.sha256[:16]} {found.mode:04o}" if found is not None else "absent")
        )
        after.append(
            f"{step.entry.install_path} sha256:{step.entry.content_sha256[:16]} {step.entry.mode:04o} "
            f"({step.entry.version})"
        )
    for job in steps.imports:
        before.extend(f"image {reference} absent or different" for reference in job.missing)
        after.extend(f"image {i.reference} {i.digest[:23]}" for i in job.archive.images if i.reference in job.missing)
    after.extend(f"image {reference} pinned" for reference in steps.pins)
    return {"before": _lines(before), "after": _lines(after)}


def _missing_images(archive: ImageArchive, observed: Observed) -> tuple[str, ...]:
    return tuple(i.reference for i in archive.images if observed.images.get(i.reference) != i.digest)


def _lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
