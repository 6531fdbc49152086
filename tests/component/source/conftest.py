# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with its places, and the repository of its site."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.source.config import SourceConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.source.obtain import Machine, Obtained, Places, Source
from ansible_collections.attested.kubernetes.plugins.module_utils.source.signature import parse_signer
from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import Limits
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import Installed, Measured
from ansible_collections.attested.kubernetes.tests.support.site_repository import BUNDLE, RELEASE, Key, SiteRepository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MACHINE = Machine(installed=Installed(collection=RELEASE, bundle=BUNDLE), node_config="ab" * 32)


@dataclass
class Story:
    """Keeps what it hears."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def event(self, name: str, /, **fields: Any) -> None:
        self.events.append((name, fields))

    @property
    def names(self) -> list[str]:
        return [name for name, _fields in self.events]


@dataclass
class Booting:
    """A machine that boots from a site again and again."""

    config: SourceConfig
    places: Places
    limits: Limits
    story: Story = field(default_factory=Story)

    def boot(self, measured: Measured | None = None) -> Obtained:
        source = Source(self.config, runner=SystemRunner(), observer=self.story, places=self.places, limits=self.limits)
        return source.obtain(MACHINE, measured=measured)

    @property
    def left(self) -> list[str]:
        """What a refusal has left in memory."""
        return sorted(path.name for path in self.places.memory.glob("*")) if self.places.memory.exists() else []


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key(directory=tmp_path).made()


@pytest.fixture
def site(tmp_path: Path, key: Key) -> SiteRepository:
    return SiteRepository(path=tmp_path / "site", key=key).made()


@pytest.fixture
def machine(tmp_path: Path, key: Key, site: SiteRepository) -> Callable[..., Booting]:
    """Return a machine of the site; options replace what its node.yml says."""

    def make(*, limits: Limits | None = None, **options: Any) -> Booting:
        usual = {"url": site.url, "signers": (parse_signer(key.line),), "transports": ("file",)}
        places = Places(memory=tmp_path / "memory", state=tmp_path / "state")
        return Booting(config=SourceConfig(**{**usual, **options}), places=places, limits=limits or Limits(seconds=30))

    return make
