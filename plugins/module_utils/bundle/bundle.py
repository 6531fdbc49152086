# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module `component_bundle`: build the parts of a bundle in the cache, assemble and verify it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import write_atomic
from ..core.host import SystemClock, SystemRandom
from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from ..result import Diff, Result
from .build import BUILD_CACHE, GoBuilder, WheelCollector, entries_of
from .download import Downloader, Downloads, SystemWeb, parse_upstreams, published_upstreams
from .images import LAYERS, ImageSpec, ImageWriter, LayerMaker
from .manifest import (
    MANIFEST_NAME,
    Architecture,
    Blob,
    FileEntry,
    ImageArchive,
    ImageEntry,
    Manifest,
    NodeRole,
    Origin,
    ReleaseStep,
    WheelArchive,
    render_manifest,
)
from .store import (
    Part,
    PartCache,
    compress_file,
    holds,
    key_of,
    open_bundle,
    put_file,
    sha256_of,
    this_architecture,
    verify_blobs,
)
from .upgrade_path import require_steps
from .versions import SOURCES, TOUR, Source, load_table, require_part, require_pinned_sources, source_for, version_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..core.command import Runner
    from .download import Upstream
    from .versions import Release

_ALL_NODES = frozenset(NodeRole)
_CONTROL_PLANES = frozenset({NodeRole.CONTROL_PLANE})
_BIN = "/usr/local/bin"
_PAUSE = "pause"
_TOOLS = ("mmdebstrap", "nice", "zstd")
_FOLDERS = ("images", "programs", "wheels")
_TOUR = f"localhost/attested-tour:{TOUR}"
_FLANNEL = "localhost/attested-flannel"
_FILES = (
    Source(name="containerd.service", module="containerd", install_path="/etc/systemd/system/containerd.service"),
    Source(name="crictl.yaml", module="crictl", install_path="/etc/crictl.yaml"),
)
"""Files of the role `bundle_builder` that each release has."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The Python versions for which wheels are pinned."""
_WHEELS = {f"wheels-{python}": python for python in PYTHONS}

PARTS = (*(source.name for source in SOURCES), *(layer.name for layer in LAYERS), *_WHEELS)
"""All parts of bundles, in build order.

A bundle has only the network plugin and wheels of its site. A program without Go package must be downloaded.
"""
_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ETCD = ("etcd", "etcdctl", "etcdutl")
_STEP_PARTS = ("kubeadm", *_SERVERS, *_ETCD)
"""The parts of an intermediate release of an upgrade."""


def parts_with(network_plugin: str, brought: Collection[str] = (), *, pythons: Collection[str]) -> tuple[str, ...]:
    """Return the parts of a bundle with this network plugin, or `none`, in build order.

    ``brought``: names of the downloaded programs; ``pythons``: the Python versions of the nodes.
    """
    others = {one.name for one in SOURCES if one.network_plugin not in ("", network_plugin)}
    others |= {one.name for one in SOURCES if not one.package and one.name not in brought}
    others |= {part for part, python in _WHEELS.items() if python not in pythons}
    return tuple(part for part in PARTS if part not in others)


@dataclass(frozen=True, kw_only=True)
class BundleMaker:
    """Build the parts of one bundle and assemble them; ``files`` is the directory of the role's pinned inputs.

    Programs in ``downloads`` are downloaded, all others are built. ``network_plugin`` is a name or `none`.
    ``steps``: one maker with fewer ``parts`` for each intermediate release of an upgrade.
    """

    runner: Runner
    cache: PartCache
    downloads: Downloads
    release: Release
    architecture: Architecture
    files: Path
    tree: Path
    network_plugin: str = "none"
    parts: tuple[str, ...] = PARTS
    steps: tuple[BundleMaker, ...] = ()
    made: dict[str, Part] = field(default_factory=dict)

    @cached_property
    def programs(self) -> GoBuilder:
        """The builder of the programs of the nodes."""
        return self._builder(self.architecture)

    @cached_property
    def layers(self) -> LayerMaker:
        """The maker of base layers."""
        return LayerMaker(runner=self.runner, cache=self.cache, architecture=self.architecture)

    def wheels(self, part: str) -> WheelCollector:
        """Return the collector of a part with the wheels for one Python version."""
        return WheelCollector(
            runner=self.runner,
            cache=self.cache,
            requirements=self.files / "python",
            tree=self.tree,
            python=_WHEELS[part],
            architecture=self.architecture,
        )

    def ensure(self, part: str) -> tuple[Part, bool]:
        """Return the part ``part`` (see `PARTS`), and False if it was cached."""
        if part in self.made:
            return self.made[part], False
        self.made[part], new = self._ensure(part)
        return self.made[part], new

    def missing(self) -> tuple[str, ...]:
        """Return the parts that are not in the cache, in build order."""
        return tuple(part for part in self.parts if part not in self.made and self._find(part) is None)

    def assemble(self) -> tuple[Manifest, dict[str, Path]]:
        """Return the manifest of the bundle, and the path in the cache of each stored file."""
        places: dict[str, Path] = {}
        installed = [source for source in SOURCES if source.install_path and source.name in self.parts]
        files = [self._program(source, places) for source in installed]
        files += [self._configuration(source, places) for source in _FILES]
        archives = [
            self._archive("node", self._node_images(), _ALL_NODES, places),
            self._archive("control-plane", self._control_plane_images(), _CONTROL_PLANES, places),
        ]
        manifest = Manifest(
            kubernetes_version=self.release.kubernetes,
            inputs_sha256=self.inputs_sha256(),
            files=tuple(files),
            image_archives=tuple(archives),
            wheel_archives=tuple(self._wheels(part, places) for part in self.parts if part in _WHEELS),
            steps=tuple(step.as_step(places) for step in self.steps),
        )
        return manifest, places

    def as_step(self, places: dict[str, Path]) -> ReleaseStep:
        """Return the entry of this intermediate release, and add the cache paths of its files to ``places``."""
        archives = [self._archive("control-plane", self._control_plane_images(), _CONTROL_PLANES, places)]
        if _PAUSE in self.parts:
            archives.append(self._archive(_PAUSE, [self._pause()], _ALL_NODES, places))
        return ReleaseStep(
            kubernetes_version=self.release.kubernetes,
            files=(self._program(replace(source_for("kubeadm"), control_plane_only=True), places),),
            image_archives=tuple(archives),
        )

    def inputs_sha256(self) -> str:
        """Return the SHA-256 (hex) over all parts, also of ``steps``."""
        parts = {name: self.ensure(name)[0].sha256 for name in self.parts}
        parts |= {one.name: sha256_of(self.files / one.name) for one in _FILES}
        steps = {step.release.kubernetes: step.inputs_sha256() for step in self.steps}
        return key_of(parts=parts, **({"steps": steps} if steps else {}))

    def _find(self, part: str) -> Part | None:
        if part in _WHEELS:
            return self.wheels(part).find()
        for layer in LAYERS:
            if layer.name == part:
                return self.layers.find(layer)
        return self.downloads.find(part) if self._is_brought(part) else self.programs.find(source_for(part))

    def _ensure(self, part: str) -> tuple[Part, bool]:
        if part in _WHEELS:
            return self.wheels(part).ensure()
        for layer in LAYERS:
            if layer.name == part:
                return self.layers.ensure(layer)
        made, new = self.downloads.ensure(part) if self._is_brought(part) else self.programs.ensure(source_for(part))
        self._publish(part, made)
        return made, new

    def _is_brought(self, part: str) -> bool:
        return part in self.downloads.upstreams

    def _builder(self, architecture: Architecture) -> GoBuilder:
        return GoBuilder(
            runner=self.runner,
            cache=self.cache,
            modules=self.files / "go",
            release=self.release,
            architecture=architecture,
        )

    def _publish(self, name: str, part: Part) -> None:
        """Link the program as `bin/RELEASE/NAME` in the cache, for use on this machine."""
        if self.architecture is not this_architecture():
            return
        place = self.cache.root / "bin" / self.release.kubernetes / name
        if place.is_file() and place.stat().st_size == part.size and sha256_of(place) == part.sha256:
            return
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        put_file(part.path, place)
        place.chmod(0o755)

    def _program(self, source: Source, places: dict[str, Path]) -> FileEntry:
        built, _new = self.ensure(source.name)
        origin = Origin.DOWNLOADED if self._is_brought(source.name) else Origin.BUILT
        return self._file(source, built, places, origin=origin)

    def _configuration(self, source: Source, places: dict[str, Path]) -> FileEntry:
        path = self.files / source.name
        part = Part(path=path, sha256=sha256_of(path), size=path.stat().st_size, facts={})
        return self._file(source, part, places, mode=0o644)

    def _file(
        self, source: Source, built: Part, places: dict[str, Path], *, origin: Origin = Origin.BUILT, mode: int = 0o755
    ) -> FileEntry:
        key = key_of(program=built.sha256, compression="gzip")
        packed = self.cache.find("packed", key) or self.cache.make(
            "packed", key, f"{source.name}.gz", lambda target: compress_file(built.path, target)
        )
        version = version_of(source, self.release)
        path = f"programs/{source.name}-{version}-{self.architecture.value}.gz"
        places[path] = packed.path
        return FileEntry(
            name=source.name,
            version=version,
            blob=self._blob(
                packed,
                path,
                _CONTROL_PLANES if source.control_plane_only else _ALL_NODES,
                origin=origin,
            ),
            compression="gzip",
            content_sha256=built.sha256,
            content_size=built.size,
            install_path=source.install_path,
            mode=mode,
        )

    def _archive(
        self, name: str, specs: list[ImageSpec], roles: frozenset[NodeRole], places: dict[str, Path]
    ) -> ImageArchive:
        key = key_of(images=[_spec_inputs(spec) for spec in specs], architecture=self.architecture.value)
        made = self.cache.find("archives", key) or self.cache.make(
            "archives", key, f"{name}.tar", lambda target: self._write_images(target, specs)
        )
        path = f"images/{name}-{self.release.kubernetes}-{self.architecture.value}.tar"
        places[path] = made.path
        images = tuple(ImageEntry(**row) for row in made.facts["images"])
        return ImageArchive(name=name, blob=self._blob(made, path, roles), images=images)

    def _write_images(self, target: Path, specs: list[ImageSpec]) -> Mapping[str, Any]:
        entries = ImageWriter(self.runner, self.architecture).write(target, specs)
        return {"images": [{"reference": e.reference, "digest": e.digest, "component": e.component} for e in entries]}

    def _wheels(self, part: str, places: dict[str, Path]) -> WheelArchive:
        made, _new = self.ensure(part)
        path = f"wheels/py{_WHEELS[part]}-{self.architecture.value}.tar"
        places[path] = made.path
        blob = self._blob(made, path, _ALL_NODES, origin=Origin.DOWNLOADED)
        return WheelArchive(python=_WHEELS[part], blob=blob, wheels=entries_of(made))

    def _blob(self, part: Part, path: str, roles: frozenset[NodeRole], *, origin: Origin = Origin.BUILT) -> Blob:
        return Blob(path=path, sha256=part.sha256, size=part.size, arch=self.architecture, origin=origin, roles=roles)

    def _node_images(self) -> list[ImageSpec]:
        return [
            self._pause(),
            self._image("kube-proxy", {"kube-proxy": f"{_BIN}/kube-proxy"}, base="proxy-base"),
            self._image("coredns", {"coredns": "/coredns"}, entrypoint=("/coredns",)),
            ImageSpec(
                component="tour",
                reference=_TOUR,
                files=(),
                base=self.ensure("tour-base")[0].path,
                entrypoint=("/bin/busybox",),
            ),
            *([self._flannel_image()] if self.network_plugin == "flannel" else []),
        ]

    def _flannel_image(self) -> ImageSpec:
        return ImageSpec(
            component="flannel",
            reference=f"{_FLANNEL}:{self.release.versions['flannel']}",
            files=((self.ensure("flannel")[0].path, "/flannel"),),
            base=self.ensure("proxy-base")[0].path,  # nft; kube-proxy has the same layer
            entrypoint=("/flannel",),
        )

    def _pause(self) -> ImageSpec:
        return self._image(_PAUSE, {_PAUSE: "/pause"}, entrypoint=("/pause",), user="65535:65535")

    def _control_plane_images(self) -> list[ImageSpec]:
        etcd = {name: f"{_BIN}/{name}" for name in _ETCD}
        return [*(self._image(name, {name: f"{_BIN}/{name}"}) for name in _SERVERS), self._image("etcd", etcd)]

    def _image(
        self,
        component: str,
        programs: Mapping[str, str],
        *,
        base: str = "",
        entrypoint: tuple[str, ...] = (),
        user: str = "",
    ) -> ImageSpec:
        return ImageSpec(
            component=component,
            reference=self._references[component],
            files=tuple((self.ensure(name)[0].path, inside) for name, inside in programs.items()),
            base=self.ensure(base)[0].path if base else None,
            entrypoint=entrypoint,
            user=user,
        )

    @cached_property
    def _references(self) -> dict[str, str]:
        """The references of `kubeadm config images list`; raises BUNDLE_INCOMPLETE for unexpected versions."""
        if self.architecture is this_architecture():
            kubeadm, _new = self.ensure("kubeadm")
        else:
            kubeadm, _new = self._builder(this_architecture()).ensure(source_for("kubeadm"))
        kubeadm.path.chmod(0o755)
        version = f"v{self.release.kubernetes}"
        asked = [str(kubeadm.path), "config", "images", "list", "--kubernetes-version", version]
        listed = self.runner.run(asked).stdout.decode()
        references = {line.rpartition(":")[0].rpartition("/")[2]: line for line in listed.split()}
        wanted = {"etcd": self.release.etcd, "coredns": self.release.coredns, "pause": self.release.pause}
        wrong = {name: references.get(name) for name, have in wanted.items() if have not in references.get(name, "")}
        if wrong:
            raise ComponentError(
                f"expected the versions {wanted} in the images of kubeadm {version}, got {wrong}",
                reason=Reason.BUNDLE_INCOMPLETE,
                hint="Correct the table of releases of the collection.",
            )
        return references


def make_bundle(
    params: Mapping[str, Any], check_mode: bool, *, runner: Runner | None = None, downloader: Downloader | None = None
) -> Result:
    """Ensure ``params['state']``: ``cached`` (one part), ``present`` (the directory) or ``verified`` (hashes).

    Raises BUNDLE_*, COMPONENT_*, RELEASE_*, GO_TOOLCHAIN_UNUSABLE, OPTION_INVALID, COMMAND_MISSING.
    """
    if params["state"] == "verified":
        return _verified(Path(params["path"]))
    cache, files = PartCache(Path(params["cache_dir"])), Path(params["files_dir"])
    table = load_table(files / "releases")
    release = table.release_for(params["kubernetes_version"])
    steps = [table.release_for(version) for version in params.get("steps") or ()]
    require_steps([step.kubernetes for step in steps], release.kubernetes)
    for one in (release, *steps):
        require_pinned_sources(one, files / "go")
    outside = runner or SystemRunner()
    web = downloader or Downloader(web=SystemWeb(), clock=SystemClock(), random=SystemRandom())

    def upstreams_of(one: Release) -> dict[str, Upstream]:
        published = published_upstreams(table, one, params["architecture"]) if params.get("download") else {}
        return published | (parse_upstreams(params.get("sources") or ()) if one is release else {})

    def maker_of(one: Release, parts: tuple[str, ...], **more: Any) -> BundleMaker:
        return BundleMaker(
            runner=outside,
            cache=cache,
            downloads=Downloads(cache=cache, upstreams=upstreams_of(one), downloader=web),
            release=one,
            architecture=Architecture(params["architecture"]),
            files=files,
            tree=Path(params["collection_dir"]),
            parts=parts,
            **more,
        )

    # add a pause image of another version: kubeadm starts a Pod with it before the upgrade
    makers = [maker_of(one, _STEP_PARTS + ((_PAUSE,) if one.pause != release.pause else ())) for one in steps]
    plugin = params.get("network_plugin") or "none"
    parts = parts_with(plugin, upstreams_of(release), pythons=params["python_versions"])
    maker = maker_of(release, parts, steps=tuple(makers), network_plugin=plugin)
    _require_tools()
    if params["state"] == "cached":
        require_part(params["part"], upstreams_of(release))
        return _cached(maker, params["part"], check_mode)
    done = _present(maker, Path(params["path"]), check_mode)
    if not check_mode and not params.get("keep_build_cache", True):
        cache.drop(BUILD_CACHE)
    return done


def _require_tools() -> None:
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        raise SystemFault(
            f"expected the programs {', '.join(_TOOLS)} on this machine, missing {', '.join(missing)}",
            reason=Reason.COMMAND_MISSING,
            hint="Install the packages of these names, then run bundle again.",
        )


def _cached(maker: BundleMaker, part: str, check_mode: bool) -> Result:
    if check_mode:
        return Result(changed=part in maker.missing(), values={"part": part})
    made, new = maker.ensure(part)
    return Result(changed=new, values={"part": part, "file": str(made.path), "sha256": made.sha256, "size": made.size})


def _present(maker: BundleMaker, path: Path, check_mode: bool) -> Result:
    if check_mode:
        return _foreseen(maker, path)
    manifest, places = maker.assemble()
    data = render_manifest(manifest)
    stale = [blob for blob in manifest.blobs if not holds(path / blob.path, blob)]
    for blob in stale:
        put_file(places[blob.path], path / blob.path)
    written = write_atomic(path / MANIFEST_NAME, data, mode=0o644)
    _drop_strangers(path, {blob.path for blob in manifest.blobs})
    done = _verified(path)
    return Result(
        changed=bool(stale) or written,
        values=done.values,
        diff=Diff(before="", after="".join(f"{blob.path} sha256:{blob.sha256[:16]}\n" for blob in stale)),
    )


def _foreseen(maker: BundleMaker, path: Path) -> Result:
    missing = [
        {"part": part, "kubernetes_version": one.release.kubernetes}
        for one in (maker, *maker.steps)
        for part in one.missing()
    ]
    there = path / MANIFEST_NAME
    stale = bool(missing) or not there.is_file() or there.read_bytes() != render_manifest(maker.assemble()[0])
    return Result(
        changed=stale,
        values={"path": str(path), "kubernetes_version": maker.release.kubernetes, "missing_parts": missing},
        diff=Diff(before="", after="".join(f"{one['part']} {one['kubernetes_version']}\n" for one in missing)),
    )


def _verified(path: Path) -> Result:
    bundle = open_bundle(path)
    verify_blobs(bundle, bundle.manifest.blobs)
    return Result(
        values={
            "path": str(path),
            "manifest_sha256": bundle.digest,
            "kubernetes_version": bundle.manifest.kubernetes_version,
            "files": len(bundle.manifest.blobs),
            "bytes": sum(blob.size for blob in bundle.manifest.blobs),
            "images": {image.component: image.reference for image in bundle.manifest.images},
        }
    )


def _drop_strangers(root: Path, known: set[str]) -> None:
    for path in (one for folder in _FOLDERS for one in (root / folder).glob("*")):
        if str(path.relative_to(root)) not in known:
            path.unlink()


def _spec_inputs(spec: ImageSpec) -> dict[str, Any]:
    return {
        "reference": spec.reference,
        "files": [[sha256_of(source), inside] for source, inside in spec.files],
        "base": sha256_of(spec.base) if spec.base else "",
        "entrypoint": spec.entrypoint,
        "user": spec.user,
    }
