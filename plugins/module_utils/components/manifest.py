# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a bundle: every file with hash, architecture and origin; images and wheels by name.

`manifest.json` is the only file of a bundle that is trusted by its hash alone; everything else is trusted
because the manifest names its hash. Reading it is the business of `parse.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ..errors import ComponentError
from ..reasons import Reason

SCHEMA = "attested.bundle/1"
MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT = 1 << 20

Compression = Literal["gzip", "none"]


class Architecture(Enum):
    """Machine types, named as Go and the image specification name them."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class Origin(Enum):
    """Where a stored file comes from: built here from pinned sources, or downloaded and checked."""

    BUILT = "built"
    DOWNLOADED = "downloaded"


class NodeRole(Enum):
    """Which kind of node needs a file."""

    CONTROL_PLANE = "control_plane"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One stored file: ``path`` below the bundle, ``sha256`` (hex) and ``size`` (bytes) as stored."""

    path: str
    sha256: str
    size: int
    arch: Architecture
    origin: Origin
    roles: frozenset[NodeRole]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A program to install: ``content_sha256`` and ``content_size`` are those of the installed file."""

    name: str
    version: str
    blob: Blob
    compression: Compression
    content_sha256: str
    content_size: int
    install_path: str
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEntry:
    """One image: full ``reference`` with tag, ``digest`` of its manifest, and what it is for."""

    reference: str
    digest: str
    component: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArchive:
    """One OCI archive and the images in it."""

    name: str
    blob: Blob
    images: tuple[ImageEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelEntry:
    """One Python package: its file name in the archive and its hash."""

    name: str
    version: str
    filename: str
    sha256: str
    control_plane_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelArchive:
    """One tar of wheels for one Python version (``3.11``)."""

    python: str
    blob: Blob
    wheels: tuple[WheelEntry, ...]

    def for_role(self, role: NodeRole) -> tuple[WheelEntry, ...]:
        """Return the wheels that a node of ``role`` gets."""
        return tuple(w for w in self.wheels if role is NodeRole.CONTROL_PLANE or not w.control_plane_only)

    def requirements(self, role: NodeRole) -> str:
        """Return the pip requirements file that admits exactly the wheels for ``role``."""
        lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in self.for_role(role))
        return "\n".join(sorted(lines)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything in a bundle; ``inputs_sha256`` names what it was assembled from."""

    kubernetes_version: str
    inputs_sha256: str
    files: tuple[FileEntry, ...]
    image_archives: tuple[ImageArchive, ...]
    wheel_archives: tuple[WheelArchive, ...]

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All stored files, in the order of the manifest."""
        return (
            *(entry.blob for entry in self.files),
            *(entry.blob for entry in self.image_archives),
            *(entry.blob for entry in self.wheel_archives),
        )

    @property
    def images(self) -> tuple[ImageEntry, ...]:
        """All images of all archives."""
        return tuple(image for archive in self.image_archives for image in archive.images)

    def image(self, component: str) -> ImageEntry:
        """Return the image of ``component`` (``pause``, ``kube-proxy`` ...); raises BUNDLE_INCOMPLETE."""
        for image in self.images:
            if image.component == component:
                return image
        known = ", ".join(sorted({image.component for image in self.images})) or "none"
        raise ComponentError(
            f"expected an image for {component} in the bundle, it has {known}", reason=Reason.BUNDLE_INCOMPLETE
        )


def render_manifest(manifest: Manifest) -> bytes:
    """Write ``manifest`` as canonical JSON: the same manifest is always the same bytes."""
    document = {
        "schema": SCHEMA,
        "kubernetes_version": manifest.kubernetes_version,
        "inputs_sha256": manifest.inputs_sha256,
        "files": [_file_document(entry) for entry in manifest.files],
        "image_archives": [_images_document(entry) for entry in manifest.image_archives],
        "wheel_archives": [_wheels_document(entry) for entry in manifest.wheel_archives],
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _blob_document(blob: Blob) -> dict[str, Any]:
    return {
        "path": blob.path,
        "sha256": blob.sha256,
        "size": blob.size,
        "arch": blob.arch.value,
        "origin": blob.origin.value,
        "roles": sorted(role.value for role in blob.roles),
    }


def _file_document(entry: FileEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "version": entry.version,
        **_blob_document(entry.blob),
        "compression": entry.compression,
        "content_sha256": entry.content_sha256,
        "content_size": entry.content_size,
        "install_path": entry.install_path,
        "mode": f"{entry.mode:04o}",
    }


def _images_document(entry: ImageArchive) -> dict[str, Any]:
    images = [
        {"reference": image.reference, "digest": image.digest, "component": image.component} for image in entry.images
    ]
    return {"name": entry.name, **_blob_document(entry.blob), "images": images}


def _wheels_document(entry: WheelArchive) -> dict[str, Any]:
    wheels = [
        {
            "name": wheel.name,
            "version": wheel.version,
            "filename": wheel.filename,
            "sha256": wheel.sha256,
            "control_plane_only": wheel.control_plane_only,
        }
        for wheel in entry.wheels
    ]
    return {"python": entry.python, **_blob_document(entry.blob), "wheels": wheels}
