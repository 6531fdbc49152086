# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write reproducible OCI image archives: the same files produce the same digest."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .manifest import ImageEntry
from .store import key_of, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..core.command import Runner
    from .manifest import Architecture
    from .store import Part, PartCache


_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_INDEX = "application/vnd.oci.image.index.v1+json"
_NAME = "io.containerd.image.name"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMPRESS_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """An image to write: ``files`` are (source, path in the image), ``base`` is an optional layer (tar)."""

    component: str
    reference: str
    files: tuple[tuple[Path, str], ...]
    base: Path | None = None
    entrypoint: tuple[str, ...] = ()
    user: str = ""


class ImageWriter:
    """Write archives of OCI images with zstd-compressed layers."""

    def __init__(self, runner: Runner, architecture: Architecture) -> None:
        """Set the runner of `zstd` and the architecture of the images."""
        self._runner = runner
        self._architecture = architecture

    def write(self, target: Path, specs: Sequence[ImageSpec]) -> tuple[ImageEntry, ...]:
        """Write all images to the tar ``target``; return their references and digests.

        Each image is listed by tag and by digest, so that a Pod can use either.
        """
        with tempfile.TemporaryDirectory(prefix=".image-", dir=target.parent) as scratch:
            archive = _Layout(Path(scratch))
            entries = [self._image(archive, spec) for spec in specs]
            archive.save(target)
        return tuple(entries)

    def _image(self, layout: _Layout, spec: ImageSpec) -> ImageEntry:
        sources = ([spec.base] if spec.base else []) + ([_layer_of(spec, layout.scratch)] if spec.files else [])
        layers = [self._layer(layout, source) for source in sources]
        config = {
            "architecture": self._architecture.value,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": _process(spec),
            "rootfs": {"type": "layers", "diff_ids": [plain for plain, _unused in layers]},
            "history": [{"created_by": "attested.kubernetes.bundle"} for _unused in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": layout.add_json(config, _CONFIG),
            "layers": [descriptor for _unused, descriptor in layers],
        }
        described = layout.add_json(manifest, _MANIFEST)
        platform = {"architecture": self._architecture.value, "os": "linux"}
        repository = spec.reference.rpartition(":")[0]
        for name in (spec.reference, f"{repository}@{described['digest']}"):
            layout.manifests.append({**described, "platform": platform, "annotations": {_NAME: name}})
        return ImageEntry(reference=spec.reference, digest=described["digest"], component=spec.component)

    def _layer(self, layout: _Layout, source: Path) -> tuple[str, dict[str, Any]]:
        plain = f"sha256:{sha256_of(source)}"
        if plain not in layout.layers:
            packed = layout.scratch / f"{plain[7:23]}.zst"
            command = ["zstd", "--quiet", "--force", "-3", "--threads=1", str(source), "-o", str(packed)]
            self._runner.run(command, timeout_seconds=_COMPRESS_SECONDS)
            layout.layers[plain] = layout.add_file(packed, f"{_LAYER}+zstd")
        return plain, layout.layers[plain]


class _Layout:
    """The blobs and manifests of one OCI image layout."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.blobs: dict[str, Path] = {}
        self.layers: dict[str, dict[str, Any]] = {}
        self.manifests: list[dict[str, Any]] = []

    def add_file(self, path: Path, media_type: str) -> dict[str, Any]:
        digest = sha256_of(path)
        place = self.scratch / digest
        shutil.move(path, place)
        self.blobs[digest] = place
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": place.stat().st_size}

    def add_json(self, document: object, media_type: str) -> dict[str, Any]:
        data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        path = self.scratch / f"{hashlib.sha256(data).hexdigest()}.json"
        path.write_bytes(data)
        return self.add_file(path, media_type)

    def save(self, target: Path) -> None:
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": self.manifests}
        with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
            _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
            _add_bytes(tar, "index.json", json.dumps(index, sort_keys=True).encode())
            for digest, path in sorted(self.blobs.items()):
                add_file(tar, f"blobs/sha256/{digest}", path, mode=0o644)


def add_file(tar: tarfile.TarFile, name: str, path: Path, *, mode: int) -> None:
    """Add ``path`` to ``tar`` as ``name``, with owner 0 and modification time 0."""
    member = tarfile.TarInfo(name)
    member.mode, member.size = mode, path.stat().st_size
    with path.open("rb") as stream:
        tar.addfile(member, stream)


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.mode, member.size = 0o644, len(data)
    tar.addfile(member, io.BytesIO(data))


def _layer_of(spec: ImageSpec, scratch: Path) -> Path:
    path = scratch / f"{spec.component}.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for source, inside in spec.files:
            add_file(tar, inside.lstrip("/"), source, mode=0o755)
    return path


def _process(spec: ImageSpec) -> dict[str, Any]:
    process: dict[str, Any] = {"Env": [_PATH]}
    if spec.entrypoint:
        process["Entrypoint"] = list(spec.entrypoint)
    if spec.user:
        process["User"] = spec.user
    return process


# Base layers of images, extracted from the packages of a Debian suite by `mmdebstrap`.

SUITE = "bookworm"
_EXTRACT_SECONDS = 1800
# mmdebstrap copies these files from the build machine
_NO_HOST = 'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"; '


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A base layer: packages, and a shell hook for the extracted tree ``$1``."""

    name: str
    packages: tuple[str, ...]
    hook: str


LAYERS = (
    Layer(
        name="proxy-base",
        packages=("nftables", "iptables", "conntrack", "libc-bin"),
        hook=_NO_HOST
        + "for l in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do"
        ' ln -sf xtables-nft-multi "$1/usr/sbin/$l"; done; mkdir -p "$1/tmp"',
    ),
    Layer(
        name="tour-base",
        packages=("busybox-static",),
        hook=_NO_HOST + 'for a in sh httpd nslookup wget cat echo hostname sleep; do ln -sf busybox "$1/bin/$a"; done;'
        ' mkdir -p "$1/tmp" "$1/www"; chmod 1777 "$1/tmp"',
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMaker:
    """Build the base layers for one architecture."""

    runner: Runner
    cache: PartCache
    architecture: Architecture

    def ensure(self, layer: Layer) -> tuple[Part, bool]:
        """Return the layer, and False if it was cached; raises COMPONENT_BUILD_FAILED."""
        if part := self.find(layer):
            return part, False
        name = f"{layer.name}.tar"
        return self.cache.make("layers", self._key(layer), name, lambda target: self._extract(layer, target)), True

    def find(self, layer: Layer) -> Part | None:
        """Return the layer from the cache, or None."""
        return self.cache.find("layers", self._key(layer))

    def _key(self, layer: Layer) -> str:
        return key_of(suite=SUITE, packages=layer.packages, hook=layer.hook, architecture=self.architecture.value)

    def _extract(self, layer: Layer, target: Path) -> Mapping[str, Any]:
        command = ["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={self.architecture.value}"]
        what = ["--skip=output/dev", "--dpkgopt=path-exclude=/usr/share/*", f"--include={','.join(layer.packages)}"]
        # a customize hook does not run with this variant
        hook = [f"--extract-hook={layer.hook}", SUITE, str(target)]
        try:
            self.runner.run([*command, *what, *hook], timeout_seconds=_EXTRACT_SECONDS, env={"SOURCE_DATE_EPOCH": "0"})
        except SystemFault as error:
            raise ComponentError(
                f"expected the layer {layer.name} from {SUITE}: {error.message}",
                reason=Reason.COMPONENT_BUILD_FAILED,
                hint="Install mmdebstrap and check that the packages of the suite can be downloaded.",
            ) from error
        return {"suite": SUITE, "packages": list(layer.packages)}
