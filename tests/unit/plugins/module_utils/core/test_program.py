# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main of a service: which file it reads, and how it ends where it cannot serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import run_service
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    port: int


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "service.yml"
    path.write_text("port: 7\n")
    return path


def start(served: list[tuple[Settings, str]], *argv: str, path: str = "/nowhere", fails: Reason | None = None) -> int:
    async def serve(config: Settings, read: str) -> None:
        served.append((config, read))
        if fails is not None:
            raise SystemFault("expected a free port, it is taken", reason=fails)

    return run_service(argv, name="attested-some", description="Serve.", kind=Settings, path=path, serve=serve)


def test_it_serves_with_the_configuration_of_its_own_path(file: Path) -> None:
    served: list[tuple[Settings, str]] = []
    assert start(served, path=str(file)) == 0
    assert served == [(Settings(port=7), str(file))]


def test_another_file_may_be_named(file: Path) -> None:
    served: list[tuple[Settings, str]] = []
    assert start(served, "--config", str(file)) == 0
    assert served == [(Settings(port=7), str(file))]


def test_who_cannot_serve_says_why_and_ends_with_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start([], path=str(file), fails=Reason.PORT_UNAVAILABLE) == 1
    said = capsys.readouterr().err
    assert said.startswith("attested-some: PORT_UNAVAILABLE: ")


def test_a_configuration_that_is_none_starts_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("prot: 7\n")
    served: list[tuple[Settings, str]] = []
    assert start(served, path=str(file)) == 1
    assert served == []
    assert "CONFIG_INVALID" in capsys.readouterr().err
