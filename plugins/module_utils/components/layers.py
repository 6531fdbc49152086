# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base layers of images, extracted from the packages of a Debian suite by `mmdebstrap`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .cache import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..system import Runner
    from .cache import Part, PartCache
    from .manifest import Architecture

SUITE = "bookworm"
_EXTRACT_SECONDS = 1800
# what mmdebstrap copies from the machine that runs it
_NO_HOST = 'rm -f "$1/etc/hostname" "$1/etc/resolv.conf"; '


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What goes into a base: packages, and shell lines run on the extracted tree ``$1``."""

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
    """Makes the base layers for one architecture."""

    runner: Runner
    cache: PartCache
    architecture: Architecture

    def ensure(self, layer: Layer) -> tuple[Part, bool]:
        """Return the layer and whether it had to be made; raises COMPONENT_BUILD_FAILED."""
        if part := self.find(layer):
            return part, False
        name = f"{layer.name}.tar"
        return self.cache.make("layers", self._key(layer), name, lambda target: self._extract(layer, target)), True

    def find(self, layer: Layer) -> Part | None:
        """Return the layer if it is in the cache."""
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
                f"expected the layer {layer.name} out of {SUITE}: {error.message}",
                reason=Reason.COMPONENT_BUILD_FAILED,
                hint="Install mmdebstrap and see that the packages of the suite can be fetched.",
            ) from error
        return {"suite": SUITE, "packages": list(layer.packages)}
