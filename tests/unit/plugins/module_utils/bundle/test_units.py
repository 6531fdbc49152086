# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that run with the files that are there now: what is planned, and what systemctl is told."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.node_files import (
    UnitPlan,
    UnitState,
    plan_units,
    write_files,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

A, B = "a.service", "b.timer"
FINE = UnitState(runs=True, starts_at_boot=True)


@pytest.mark.parametrize(
    ("found", "written", "expected"),
    [
        pytest.param({A: FINE, B: FINE}, False, UnitPlan(), id="all is well"),
        pytest.param({A: FINE, B: FINE}, True, UnitPlan(restart=(A, B)), id="a file is new"),
        pytest.param(
            {A: FINE, B: UnitState(runs=True, starts_at_boot=True, stale=True)},
            False,
            UnitPlan(restart=(A, B)),
            id="a file that systemd has not read, of a run that was killed",
        ),
        pytest.param(
            {A: FINE, B: UnitState(runs=False, starts_at_boot=True)}, False, UnitPlan(start=(B,)), id="stopped"
        ),
        pytest.param(
            {A: FINE, B: UnitState(runs=True, starts_at_boot=False)}, False, UnitPlan(enable=(B,)), id="disabled"
        ),
        pytest.param({A: FINE}, False, UnitPlan(enable=(B,), start=(B,)), id="unknown"),
    ],
)
def test_what_is_to_do(found, written, expected):
    assert plan_units((A, B), found, written=written) == expected


class Systemd:
    """systemctl: its units' lines, and what it was told; ``broken``: what does not start."""

    def __init__(self, *, active="active", enabled="enabled", broken=""):
        self.rows = "\n\n".join(
            f"Id={name}\nActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no" for name in (A, B)
        )
        self.broken = broken
        self.told = []

    def run(self, argv, **_options):
        if argv[1] == "show":
            return CommandResult(argv=tuple(argv), returncode=0, stdout=self.rows.encode(), stderr=b"")
        self.told.append(" ".join(argv[1:]))
        if self.broken in argv:
            raise SystemFault("expected systemctl to end with 0, it ended with 1", reason=Reason.COMMAND_FAILED)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=b"", stderr=b"")


def run(tmp_path, systemd, *, check=False, text="1\n"):
    params = {"files": [{"path": "/etc/a.conf", "content": text, "mode": "0644"}], "units": [A, B]}
    return write_files(params, check, root=tmp_path, runner=systemd)


def test_new_files_and_units_then_nothing(tmp_path):
    fresh, settled = Systemd(active="inactive", enabled="disabled"), Systemd()

    first, second = run(tmp_path, fresh), run(tmp_path, settled)

    assert (first.changed, first.values["units"]) == (True, [A, B])
    assert fresh.told == ["daemon-reload", f"enable --quiet {A} {B}", f"restart {A} {B}"]
    assert (second.changed, second.values["units"], settled.told) == (False, [], [])


def test_a_stopped_unit_is_started_though_no_file_differs(tmp_path):
    run(tmp_path, Systemd())
    systemd = Systemd(active="failed")

    assert run(tmp_path, systemd).changed
    assert systemd.told == [f"start {A} {B}"]


def test_check_mode_says_which_and_tells_systemd_nothing(tmp_path):
    systemd = Systemd()

    result = run(tmp_path, systemd, check=True)

    assert (result.changed, result.values["units"], systemd.told) == (True, [A, B], [])


def test_a_unit_that_does_not_start_fails_the_task(tmp_path):
    with pytest.raises(SystemFault) as caught:
        run(tmp_path, Systemd(broken=A))
    assert caught.value.reason is Reason.COMMAND_FAILED


def test_files_alone_never_ask_systemd(tmp_path):
    class Nobody:
        def run(self, argv, **_options):
            raise AssertionError(argv)

    assert write_files({"files": [], "units": []}, False, root=tmp_path, runner=Nobody()).changed is False
