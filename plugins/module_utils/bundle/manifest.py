# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a bundle: all files with hash, architecture and origin, all images and wheels.

`manifest.json` is verified by the SHA-256 that the caller expects, all other files by their SHA-256 in the
manifest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar

from ..core.documents import load_json
from ..errors import ComponentError
from ..reasons import Reason

SCHEMA = "attested.bundle/1"
MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT = 1 << 20

Compression = Literal["gzip", "none"]


class Architecture(Enum):
    """CPU architectures, by their names in Go and OCI images."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class Origin(Enum):
    """The origin of a stored file: built from pinned sources, or downloaded and verified."""

    BUILT = "built"
    DOWNLOADED = "downloaded"


class NodeRole(Enum):
    """The role of a node."""

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
    """One image: full ``reference`` with tag, ``digest`` of its manifest, and its component."""

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
        """Return the wheels for a node of ``role``."""
        return tuple(w for w in self.wheels if role is NodeRole.CONTROL_PLANE or not w.control_plane_only)

    def requirements(self, role: NodeRole) -> str:
        """Return the pip requirements file with versions and hashes of the wheels for ``role``."""
        lines = (f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in self.for_role(role))
        return "\n".join(sorted(lines)) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStep:
    """An intermediate release of an upgrade: its kubeadm, and the images of its static Pods."""

    kubernetes_version: str
    files: tuple[FileEntry, ...]
    image_archives: tuple[ImageArchive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of a bundle; ``inputs_sha256`` is the SHA-256 (hex) over its inputs."""

    kubernetes_version: str
    inputs_sha256: str
    files: tuple[FileEntry, ...]
    image_archives: tuple[ImageArchive, ...]
    wheel_archives: tuple[WheelArchive, ...]
    steps: tuple[ReleaseStep, ...] = ()

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All stored files, in the order of the manifest."""
        return (
            *(entry.blob for entry in self.files),
            *(entry.blob for entry in self.image_archives),
            *(entry.blob for entry in self.wheel_archives),
            *(entry.blob for step in self.steps for entry in step.files),
            *(entry.blob for step in self.steps for entry in step.image_archives),
        )

    @property
    def images(self) -> tuple[ImageEntry, ...]:
        """All images of all archives, without ``steps``."""
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
    """Return ``manifest`` as canonical JSON: equal manifests have equal bytes."""
    document = {
        "schema": SCHEMA,
        "kubernetes_version": manifest.kubernetes_version,
        "inputs_sha256": manifest.inputs_sha256,
        "files": [_file_document(entry) for entry in manifest.files],
        "image_archives": [_images_document(entry) for entry in manifest.image_archives],
        "wheel_archives": [_wheels_document(entry) for entry in manifest.wheel_archives],
    }
    if manifest.steps:
        document["steps"] = [_step_document(step) for step in manifest.steps]
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


def _step_document(step: ReleaseStep) -> dict[str, Any]:
    return {
        "kubernetes_version": step.kubernetes_version,
        "files": [_file_document(entry) for entry in step.files],
        "image_archives": [_images_document(entry) for entry in step.image_archives],
    }


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


# Strict parser of a bundle manifest: unknown keys and invalid values are errors, reported together.

_MAX_ENTRIES = 1000
_HEX = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_MAX_TEXT = 4096
_SHOWN_FAULTS = 20
_MAX_SIZE = 1 << 40

_Choice = TypeVar("_Choice", bound=Enum)


def parse_manifest(data: bytes) -> Manifest:
    """Parse `manifest.json`; raises BUNDLE_MALFORMED with all faults."""
    if len(data) > MANIFEST_LIMIT:
        raise _malformed([f"expected at most {MANIFEST_LIMIT} bytes, found {len(data)}"])
    try:
        document = load_json(data, limit=MANIFEST_LIMIT)
    except ValueError as error:
        raise _malformed([f"expected JSON: {error}"]) from error
    reader = _Reader()
    manifest = reader.manifest(document)
    if reader.faults:
        raise _malformed(reader.faults)
    return manifest


def _malformed(faults: list[str]) -> ComponentError:
    rest = len(faults) - _SHOWN_FAULTS
    shown = "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {rest} more" if rest > 0 else "")
    return ComponentError(f"the bundle manifest is malformed: {shown}", reason=Reason.BUNDLE_MALFORMED)


class _Reader:
    """Convert a JSON document to a manifest, and collect all faults."""

    _BLOB = frozenset({"path", "sha256", "size", "arch", "origin", "roles"})
    _FILE = _BLOB | {"name", "version", "compression", "content_sha256", "content_size", "install_path", "mode"}

    def __init__(self) -> None:
        self.faults: list[str] = []

    def manifest(self, document: object) -> Manifest:
        where = "manifest"
        keys = {"schema", "kubernetes_version", "inputs_sha256", "files", "image_archives", "wheel_archives"}
        if isinstance(document, dict) and "steps" in document:
            keys.add("steps")
        top = self._mapping(document, where, frozenset(keys))
        if top.get("schema") != SCHEMA:
            self.faults.append(f"schema: expected {SCHEMA}, got {top.get('schema')!r}")
        manifest = Manifest(
            kubernetes_version=self._matching(top, "kubernetes_version", _VERSION, where),
            inputs_sha256=self._matching(top, "inputs_sha256", _HEX, where),
            files=tuple(self._file(item, spot) for item, spot in self._items(top, "files", where)),
            image_archives=tuple(self._images(i, spot) for i, spot in self._items(top, "image_archives", where)),
            wheel_archives=tuple(self._wheels(i, spot) for i, spot in self._items(top, "wheel_archives", where)),
            steps=tuple(self._step(i, spot) for i, spot in self._items(top, "steps", where)) if "steps" in top else (),
        )
        self._unique("path", [blob.path for blob in manifest.blobs])
        self._unique("step", [step.kubernetes_version for step in manifest.steps])
        self._unique("image reference", [f"{image.reference}" for image in manifest.images])
        self._unique("install path", [f"{entry.install_path} ({entry.blob.arch.value})" for entry in manifest.files])
        return manifest

    def _step(self, item: object, where: str) -> ReleaseStep:
        row = self._mapping(item, where, frozenset({"kubernetes_version", "files", "image_archives"}))
        return ReleaseStep(
            kubernetes_version=self._matching(row, "kubernetes_version", _VERSION, where),
            files=tuple(self._file(one, f"{where}.{spot}") for one, spot in self._items(row, "files", where)),
            image_archives=tuple(
                self._images(one, f"{where}.{spot}") for one, spot in self._items(row, "image_archives", where)
            ),
        )

    def _file(self, item: object, where: str) -> FileEntry:
        row = self._mapping(item, where, self._FILE)
        install_path = self._text(row, "install_path", where)
        pure = PurePosixPath(install_path)
        if not pure.is_absolute() or ".." in pure.parts or str(pure) != install_path:
            self.faults.append(f"{where}.install_path: expected a plain absolute path, got {install_path!r}")
        return FileEntry(
            name=self._text(row, "name", where),
            version=self._text(row, "version", where),
            blob=self._blob(row, where),
            compression=self._compression(row, where),
            content_sha256=self._matching(row, "content_sha256", _HEX, where),
            content_size=self._size(row, "content_size", where),
            install_path=install_path,
            mode=self._mode(row, where),
        )

    def _images(self, item: object, where: str) -> ImageArchive:
        row = self._mapping(item, where, self._BLOB | {"name", "images"})
        images = []
        for one, spot in self._items(row, "images", where):
            fields = self._mapping(one, spot, frozenset({"reference", "digest", "component"}))
            images.append(
                ImageEntry(
                    reference=self._text(fields, "reference", spot),
                    digest=self._matching(fields, "digest", _DIGEST, spot),
                    component=self._text(fields, "component", spot),
                )
            )
        return ImageArchive(name=self._text(row, "name", where), blob=self._blob(row, where), images=tuple(images))

    def _wheels(self, item: object, where: str) -> WheelArchive:
        row = self._mapping(item, where, self._BLOB | {"python", "wheels"})
        wheels = []
        for one, spot in self._items(row, "wheels", where):
            keys = frozenset({"name", "version", "filename", "sha256", "control_plane_only"})
            fields = self._mapping(one, spot, keys)
            filename = self._text(fields, "filename", spot)
            if "/" in filename or not filename.endswith(".whl"):
                self.faults.append(f"{spot}.filename: expected the plain name of a wheel, got {filename!r}")
            wheels.append(
                WheelEntry(
                    name=self._text(fields, "name", spot),
                    version=self._text(fields, "version", spot),
                    filename=filename,
                    sha256=self._matching(fields, "sha256", _HEX, spot),
                    control_plane_only=self._flag(fields, "control_plane_only", spot),
                )
            )
        return WheelArchive(python=self._text(row, "python", where), blob=self._blob(row, where), wheels=tuple(wheels))

    def _blob(self, row: dict[str, Any], where: str) -> Blob:
        path = self._text(row, "path", where)
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != path or path in {".", MANIFEST_NAME}:
            self.faults.append(f"{where}.path: expected a plain path inside the bundle, got {path!r}")
        return Blob(
            path=path,
            sha256=self._matching(row, "sha256", _HEX, where),
            size=self._size(row, "size", where),
            arch=self._choice(row, "arch", Architecture, where),
            origin=self._choice(row, "origin", Origin, where),
            roles=self._roles(row, where),
        )

    def _roles(self, row: dict[str, Any], where: str) -> frozenset[NodeRole]:
        names = row.get("roles")
        known = {role.value: role for role in NodeRole}
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n in known for n in names):
            self.faults.append(f"{where}.roles: expected a list of {' and '.join(sorted(known))}, got {names!r}")
            return frozenset()
        return frozenset(known[name] for name in names)

    def _compression(self, row: dict[str, Any], where: str) -> Compression:
        value = row.get("compression")
        if value == "gzip":
            return "gzip"
        if value != "none":
            self.faults.append(f"{where}.compression: expected gzip or none, got {value!r}")
        return "none"

    def _mode(self, row: dict[str, Any], where: str) -> int:
        value = row.get("mode")
        if not isinstance(value, str) or not re.fullmatch(r"0[0-7]{3}", value):
            self.faults.append(f"{where}.mode: expected four octal digits such as '0755', got {value!r}")
            return 0
        return int(value, 8)

    def _choice(self, row: dict[str, Any], key: str, kind: type[_Choice], where: str) -> _Choice:
        for choice in kind:
            if choice.value == row.get(key):
                return choice
        known = " or ".join(str(choice.value) for choice in kind)
        self.faults.append(f"{where}.{key}: expected {known}, got {row.get(key)!r}")
        return next(iter(kind))

    def _matching(self, row: dict[str, Any], key: str, pattern: re.Pattern[str], where: str) -> str:
        value = row.get(key)
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.faults.append(f"{where}.{key}: expected {pattern.pattern}, got {value!r}")
        return ""

    def _text(self, row: dict[str, Any], key: str, where: str) -> str:
        value = row.get(key)
        if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable():
            return value
        self.faults.append(f"{where}.{key}: expected a short printable text, got {str(value)[:80]!r}")
        return "?"

    def _size(self, row: dict[str, Any], key: str, where: str) -> int:
        value = row.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_SIZE:
            return value
        self.faults.append(f"{where}.{key}: expected a size in bytes, got {value!r}")
        return 0

    def _flag(self, row: dict[str, Any], key: str, where: str) -> bool:
        value = row.get(key)
        if not isinstance(value, bool):
            self.faults.append(f"{where}.{key}: expected true or false, got {value!r}")
        return value is True

    def _items(self, row: dict[str, Any], key: str, where: str) -> list[tuple[object, str]]:
        value = row.get(key)
        if not isinstance(value, list) or len(value) > _MAX_ENTRIES:
            self.faults.append(f"{where}.{key}: expected a list of at most {_MAX_ENTRIES}")
            return []
        return [(item, f"{key}[{index}]") for index, item in enumerate(value)]

    def _mapping(self, item: object, where: str, keys: frozenset[str]) -> dict[str, Any]:
        if not isinstance(item, dict):
            self.faults.append(f"{where}: expected an object, got {type(item).__name__}")
            return {}
        if unknown := sorted(str(key) for key in item if key not in keys):
            self.faults.append(f"{where}: unknown keys {', '.join(unknown)}")
        if missing := sorted(keys - set(item)):
            self.faults.append(f"{where}: missing keys {', '.join(missing)}")
        return item

    def _unique(self, what: str, values: list[str]) -> None:
        for value in sorted({value for value in values if values.count(value) > 1}):
            self.faults.append(f"{what} {value} appears more than once")
