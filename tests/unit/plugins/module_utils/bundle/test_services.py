# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services of a member run from a prepared release, or from the one before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.services import ServiceGateway, run_services
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LINK = "opt/attested/venv"
OLD, NEW = "venv-000000000000", "venv-111111111111"
WITNESS, KEYS, PODS = "attested-witness.service", "attested-key-service.service", "attested-lab-pods.service"
PARAMS = {"release": "new", "path": "/opt/attested/venv", "wait_seconds": 60}


class Clock:
    """Time that passes by waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Systemd:
    """systemd of a node: a restarted service runs from the environment that the link leads to at that moment.

    ``broken``: environments in which ``failing`` does not start; ``refused``: those whose evidence is not accepted.
    """

    root: Path
    runs: dict[str, str | None]
    broken: frozenset[str] = frozenset()
    failing: str = KEYS
    crashes: bool = False
    refused: frozenset[str] = frozenset()
    told: list[str] = field(default_factory=list)
    _next: int = 100

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        verb, text = argv[1], ""
        if verb == "show":
            text = "\n\n".join(self._row(place, name) for place, name in enumerate(self.runs))
        elif verb in {"restart", "start"}:
            self.told.append(" ".join(argv[1:]))
            self._start(argv[2:])
        return CommandResult(argv=tuple(argv), returncode=0, stdout=text.encode(), stderr=b"")

    def _start(self, names: Sequence[str]) -> None:
        environment = (self.root / LINK).readlink().name
        if names[0] == "attested-reattest.service":
            if environment in self.refused:
                raise SystemFault("expected systemctl to succeed", reason=Reason.COMMAND_FAILED)
            return
        for name in names:
            self.runs[name] = environment
        if environment in self.broken:
            self.runs[self.failing] = None
            if not self.crashes:
                raise SystemFault("expected systemctl to succeed", reason=Reason.COMMAND_FAILED)

    def _row(self, place: int, name: str) -> str:
        environment = self.runs[name]
        process = place + 100
        if environment is not None:
            directory = self.root / "proc" / str(process)
            directory.mkdir(parents=True, exist_ok=True)
            python = "/usr/bin/python3" if name == PODS else f"/opt/attested/{environment}/bin/python"
            (directory / "cmdline").write_text(f"{python}\0/opt/attested/venv/bin/attested-agent\0")
        state = ("active", process) if environment is not None else ("failed", 0)
        return f"Id={name}\nType=notify\nActiveState={state[0]}\nMainPID={state[1]}\nStatusText=\nResult=exit-code"


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    """A node with two releases, whose services run from the old one."""
    base = tmp_path / "opt/attested"
    for release, environment in (("old", OLD), ("new", NEW)):
        (base / environment).mkdir(parents=True)
        (base / "releases" / release).mkdir(parents=True)
        (base / "releases" / release / "venv").symlink_to(f"../../{environment}")
    (base / "venv").symlink_to(OLD)
    return Systemd(tmp_path, {WITNESS: OLD, KEYS: OLD, PODS: OLD})


@pytest.fixture
def gateway(systemd: Systemd) -> ServiceGateway:
    return ServiceGateway(systemd, Clock(), runtime="/opt/attested/venv", root=systemd.root)


def link(systemd: Systemd) -> str:
    return (systemd.root / LINK).readlink().name


def test_check_apply_again_and_again_in_check(systemd, gateway):
    runs = [run_services(PARAMS, check, gateway=gateway) for check in (True, False, False, True)]

    assert [run.changed for run in runs] == [True, True, False, False]
    assert (link(systemd), systemd.runs[WITNESS], systemd.runs[KEYS]) == (NEW, NEW, NEW)
    assert runs[1].values["restarted"] == [WITNESS, KEYS]
    assert systemd.told == [f"restart {WITNESS} {KEYS}", "start attested-reattest.service"]


def test_check_mode_changes_nothing_and_shows_the_plan(systemd, gateway):
    result = run_services(PARAMS, True, gateway=gateway)

    assert (link(systemd), systemd.told) == (OLD, [])
    assert result.diff is not None
    assert result.diff.after == f"environment {NEW}\nrestart {WITNESS}\nrestart {KEYS}\n"


def failed(systemd: Systemd, gateway: ServiceGateway) -> str:
    with pytest.raises(ComponentError) as caught:
        run_services(PARAMS, False, gateway=gateway)
    assert caught.value.reason is Reason.SERVICES_NOT_HEALTHY
    assert (link(systemd), systemd.runs[WITNESS], systemd.runs[KEYS]) == (OLD, OLD, OLD)
    return caught.value.message


@pytest.mark.parametrize("crashes", [False, True], ids=["does not start", "ends after its start"])
def test_a_service_that_does_not_run_is_switched_back(systemd, gateway, crashes):
    systemd.broken, systemd.crashes = frozenset({NEW}), crashes
    assert f"{KEYS} does not run (exit-code); the node was switched back to {OLD}" in failed(systemd, gateway)


def test_a_node_whose_evidence_is_not_accepted_is_switched_back(systemd, gateway):
    systemd.refused = frozenset({NEW})
    assert "the node's evidence was not accepted" in failed(systemd, gateway)


def test_a_node_that_is_not_healthy_with_the_old_release_either_says_so(systemd, gateway):
    systemd.refused = frozenset({NEW, OLD})
    assert f"switched back to {OLD}, where the node's evidence was not accepted" in failed(systemd, gateway)


def test_a_run_that_was_cut_off_before_the_restart_is_continued(systemd, gateway):
    (systemd.root / LINK).unlink()
    (systemd.root / LINK).symlink_to(NEW)
    systemd.runs[WITNESS] = NEW

    assert run_services(PARAMS, False, gateway=gateway).values["restarted"] == [KEYS]
    assert systemd.runs[KEYS] == NEW


def test_a_run_that_was_cut_off_and_fails_goes_back_to_what_a_service_still_runs_from(systemd, gateway):
    (systemd.root / LINK).unlink()
    (systemd.root / LINK).symlink_to(NEW)
    systemd.broken = frozenset({NEW})
    failed(systemd, gateway)


@pytest.mark.parametrize("name", ["none", "half"])
def test_a_release_that_the_node_does_not_have_changes_nothing(systemd, gateway, name):
    (systemd.root / "opt/attested/releases/half").mkdir()
    (systemd.root / "opt/attested/releases/half/venv").symlink_to("../../venv-222222222222")

    with pytest.raises(ComponentError) as caught:
        run_services({**PARAMS, "release": name}, False, gateway=gateway)

    assert caught.value.reason is Reason.RELEASE_NOT_PREPARED
    assert (link(systemd), systemd.told) == (OLD, [])
