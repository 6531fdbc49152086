# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the observed state of a node with a bundle. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import ComponentError
from ..reasons import Reason
from .releases import step_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from .manifest import Architecture, Blob, FileEntry, ImageArchive, Manifest, NodeRole, WheelArchive


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
