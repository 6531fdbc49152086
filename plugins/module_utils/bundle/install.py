# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules `kubernetes_components` and `kubernetes_components_info`: install a bundle on a node."""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from .manifest import NodeRole, parse_manifest
from .releases import (
    InstalledFile,
    Observed,
    Plan,
    Releases,
    is_member,
    left_out,
    notice,
    plan,
    render_diff,
    select,
    select_wheels,
)
from .runtime import RuntimeGateway
from .store import holds, open_bundle, put_file, sha256_of, this_architecture, unpack_file, verify_blobs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..core.command import Runner
    from .manifest import Architecture, Blob, FileEntry, ImageArchive, Manifest
    from .releases import Selection
    from .store import Bundle


# The state of the node: installed programs and containerd's images.

_NAMESPACE = "k8s.io"
_SOCKET = "run/containerd/containerd.sock"
_IMPORT_SECONDS = 600
_IMPORTS = 3
_COLUMNS = 6
"""REF, TYPE, DIGEST, SIZE (a number and its unit) and PLATFORMS of `ctr images list`; LABELS follows."""
_PINNED = ("io.cri-containerd.pinned", "pinned")
"""The label by which containerd tells kubelet that its image garbage collection must keep an image."""
_RELEASES = "attested.releases"
"""The label with the names of the releases for which an image is pinned, separated by dots."""
_WRITTEN = ("etc", "opt", "usr/local", "var/lib")
"""Directories into which an upgrade writes programs, images and backups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image of containerd: its digest, whether it is pinned, and for which releases."""

    digest: str
    pinned: bool = False
    releases: frozenset[str] = frozenset()


class NodeGateway:
    """Read and change one node; ``root`` replaces ``/`` in tests."""

    def __init__(self, runner: Runner, *, root: Path = Path("/")) -> None:
        """Set the runner of `ctr` and the root of the file system."""
        self._runner = runner
        self._root = root
        self.releases = Releases(root=root)
        self._hashes: dict[tuple[int, ...], str] = {}

    def observe(self, selection: Selection, release: str) -> Observed:
        """Hash the programs of ``selection``, installed and in the releases, and list containerd's images."""
        files = {e.install_path: found for e in selection.files if (found := self._found(self._place(e))) is not None}
        entries = (*selection.files, *selection.step_files)
        images = self._images()
        return Observed(
            files=files,
            images={reference: one.digest for reference, one in images.items()},
            pinned=frozenset(name for name, one in images.items() if one.pinned and release in one.releases),
            prepared=frozenset(
                e.install_path for e in entries if self._is(e, self.releases.program(release, e.install_path))
            ),
            copies={e.install_path: copy for e in entries for copy in self._copies(e)},
            noted=self.releases.installed() == release,
        )

    def apply(self, steps: Plan, bundle: Bundle) -> None:
        """Verify the stored files of ``steps``, then apply them; each program is replaced atomically."""
        release = self.releases.name(bundle.digest)
        verify_blobs(bundle, steps.blobs)
        for new in steps.prepares:
            place = self.releases.program(release, new.entry.install_path)
            if new.copy is not None:
                put_file(new.copy, place)
            else:
                unpack_file(bundle.path(new.entry.blob), new.entry, place)
        for step in steps.installs:
            put_file(self.releases.program(release, step.entry.install_path), self._place(step.entry))
        if steps.note:
            self.releases.note_installed(release)
        if gone := self.pin(release, steps.pins):
            raise ComponentError(
                f"expected containerd to pin {', '.join(gone)}, it does not list them pinned",
                reason=Reason.IMAGE_IMPORT_FAILED,
                hint="Run prepare again: kubelet may have removed them meanwhile.",
            )
        for job in steps.imports:
            self._import_images(release, job.archive, bundle.path(job.archive.blob))

    def pin(
        self, release: str, references: Collection[str], before: Mapping[str, StoredImage] | None = None
    ) -> list[str]:
        """Pin images for ``release``, unpin those pinned only for releases that are gone; return which are not pinned.

        ``before``: the images before an import, which removes the labels of the images that it contains. Without a pin,
        kubelet removes the images of a release that is prepared and not yet in use once the disk is full to
        imageGCHighThresholdPercent.
        """
        kept = {release, *self.releases.names()}
        for name, image in self._images().items():
            others = image.releases | (before or {}).get(name, _NO_IMAGE).releases
            held = (others & kept) | ({release} if name in references else set())
            if (held, bool(held)) == (image.releases, image.pinned) or not held | image.releases:
                continue
            key, value = _PINNED
            labels = (f"{key}={value if held else ''}", f"{_RELEASES}={'.'.join(sorted(held))}")
            self._runner.run(["ctr", "--namespace", _NAMESPACE, "images", "label", name, *labels], check=False)
        found = self._images() if references else {}
        return sorted(one for one in references if not found.get(one, _NO_IMAGE).pinned)

    def _place(self, entry: FileEntry) -> Path:
        return self._root / entry.install_path.lstrip("/")

    def _copies(self, entry: FileEntry) -> Iterator[Path]:
        """Yield the paths of files with the content and mode of ``entry``."""
        known = (self.releases.program(one, entry.install_path) for one in self.releases.names())
        return (place for place in (self._place(entry), *known) if self._is(entry, place))

    def _is(self, entry: FileEntry, place: Path) -> bool:
        return self._found(place) == InstalledFile(entry.content_sha256, entry.mode)

    def _found(self, place: Path) -> InstalledFile | None:
        if place.is_symlink() or not place.is_file():
            return None
        state = place.stat()
        identity = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
        if identity not in self._hashes:
            self._hashes[identity] = sha256_of(place)
        return InstalledFile(self._hashes[identity], stat.S_IMODE(state.st_mode))

    def _images(self) -> dict[str, StoredImage]:
        if not (self._root / _SOCKET).exists():
            return {}
        listed = self._runner.run(["ctr", "--namespace", _NAMESPACE, "images", "list"])
        return parse_image_list(listed.stdout.decode("utf-8", "replace"))

    def _import_images(self, release: str, archive: ImageArchive, path: Path) -> None:
        """Import an archive and pin its images; again if kubelet has removed one between the two."""
        command = ["ctr", "--namespace", _NAMESPACE, "images", "import", str(path)]
        before = self._images()
        for _attempt in range(_IMPORTS):
            try:
                self._runner.run(command, timeout_seconds=_IMPORT_SECONDS)
            except SystemFault as error:
                raise ComponentError(
                    f"expected containerd to import {path}: {error.message}", reason=Reason.IMAGE_IMPORT_FAILED
                ) from error
            lacking = set(self.pin(release, [image.reference for image in archive.images], before))
            found = self._images()
            lacking |= {i.reference for i in archive.images if found.get(i.reference, _NO_IMAGE).digest != i.digest}
            if not lacking:
                return
        raise ComponentError(
            f"expected {', '.join(sorted(lacking))} after importing {path}, containerd does not list them pinned",
            reason=Reason.IMAGE_IMPORT_FAILED,
        )


_NO_IMAGE = StoredImage(digest="")


def parse_image_list(text: str) -> dict[str, StoredImage]:
    """Return the images by reference from `ctr images list`."""
    rows = (line.split(maxsplit=_COLUMNS) for line in text.splitlines()[1:])
    return {row[0]: _stored(row[2], "".join(row[_COLUMNS:])) for row in rows if len(row) >= _COLUMNS}


def _stored(digest: str, column: str) -> StoredImage:
    labels = dict(pair.partition("=")[::2] for pair in column.strip().split(","))
    key, value = _PINNED
    releases = frozenset(filter(None, labels.get(_RELEASES, "").split(".")))
    return StoredImage(digest=digest, pinned=labels.get(key) == value, releases=releases)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWorld:
    """The environment of both modules: command runner, file system root and machine type."""

    runner: Runner
    root: Path = Path("/")
    machine: str | None = None


def install_components(params: Mapping[str, Any], check_mode: bool, *, world: NodeWorld | None = None) -> Result:
    """Prepare the release of the bundle ``params['bundle']``, and install its programs unless the node is a member.

    Raises BUNDLE_* and IMAGE_IMPORT_FAILED. The next run continues an interrupted one.
    """
    outside = world or NodeWorld(runner=SystemRunner())
    bundle = open_bundle(params["bundle"], expected_digest=params.get("manifest_sha256"))
    selection = _selection(params, bundle.manifest, this_architecture(outside.machine)).only(params.get("only"))
    gateway = NodeGateway(outside.runner, root=outside.root)
    release = gateway.releases.name(bundle.digest)
    steps = plan(selection, gateway.observe(selection, release), switch=not is_member(outside.root))
    if not check_mode:
        gateway.apply(steps, bundle)
        gateway.releases.prune(release)
        gateway.pin(release, ())
    rendered = render_diff(steps)
    return Result(
        changed=not steps.is_empty,
        values={
            "kubernetes_version": bundle.manifest.kubernetes_version,
            "release": release,
            "waiting": [step.entry.install_path for step in steps.waiting],
            "message": notice(release, gateway.releases.installed()) if steps.waiting else "",
            "installed": [step.entry.install_path for step in steps.installs],
            "imported": [reference for job in steps.imports for reference in job.missing],
        },
        diff=Diff(before=rendered["before"], after=rendered["after"]),
    )


def inspect_components(params: Mapping[str, Any], _check_mode: bool, *, world: NodeWorld | None = None) -> Result:
    """Return which stored files of a bundle this node needs; requires only the bundle's manifest.

    Needed files that are in ``params['store']`` with the right hash are not missing. Raises BUNDLE_*.
    """
    outside = world or NodeWorld(runner=SystemRunner())
    data = _decoded(params["manifest"])
    manifest = parse_manifest(data)
    role = NodeRole(params["role"])
    architecture = this_architecture(outside.machine)
    selection = _selection(params, manifest, architecture)
    gateway = NodeGateway(outside.runner, root=outside.root)
    release = gateway.releases.name(hashlib.sha256(data).hexdigest())
    member = is_member(outside.root)
    steps = plan(selection, gateway.observe(selection, release), switch=not member)
    runtime = RuntimeGateway(outside.runner, root=outside.root)
    wheels = select_wheels(manifest, python=runtime.python_version(), architecture=architecture)
    state = runtime.look(params["runtime_path"], runtime.digest(wheels, role), release=release)
    needed = [*steps.blobs, *([] if state.complete else [wheels.blob])]
    store = outside.root / str(params["store"]).lstrip("/")
    in_use = runtime.releases(params["runtime_path"]).serving(prefer=release)
    waits = bool(steps.waiting) or (member and not state.in_use)
    return Result(
        values={
            **_inspection(manifest, needed, store),
            "components_current": steps.is_empty,
            "current": steps.is_empty and state.complete and state.noted and (member or state.in_use),
            "member": member,
            "release": release,
            "message": notice(release, _used(in_use, gateway.releases.installed())) if waits else "",
            "free_bytes": min(shutil.disk_usage(_existing(outside.root / one)).free for one in _WRITTEN),
        }
    )


def _selection(params: Mapping[str, Any], manifest: Manifest, architecture: Architecture) -> Selection:
    without = left_out(params.get("containerd") or "bundle")
    return select(manifest, role=NodeRole(params["role"]), architecture=architecture, without=without)


def _existing(place: Path) -> Path:
    return place if place.exists() else _existing(place.parent)


def _used(services: str | None, programs: str | None) -> str | None:
    if services == programs:
        return services
    return f"{services or 'unknown'} (services), {programs or 'unknown'} (Kubernetes)"


def _inspection(manifest: Manifest, needed: list[Blob], store: Path) -> dict[str, Any]:
    missing = [blob for blob in needed if not holds(store / blob.path, blob)]
    return {
        "kubernetes_version": manifest.kubernetes_version,
        "needed": [blob.path for blob in needed],
        "missing": [blob.path for blob in missing],
        "missing_bytes": sum(blob.size for blob in missing),
    }


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ComponentError(f"expected the manifest in base64: {error}", reason=Reason.BUNDLE_MALFORMED) from error
