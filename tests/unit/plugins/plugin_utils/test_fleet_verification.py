# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the report of a fleet goes, and what is in its files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.action.fleet_verification import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import (
    AllowedValue,
    MeasurementProfile,
    Posture,
)
from ansible_collections.attested.kubernetes.plugins.plugin_utils.report_files import report_paths
from ansible_collections.attested.kubernetes.tests.support.fleet import finding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param(None, [], id="nowhere"),
        pytest.param("", [], id="an empty name"),
        pytest.param("/srv/fleet.html", ["/srv/fleet.html"], id="one page for people"),
        pytest.param("/srv/fleet.json", ["/srv/fleet.json"], id="one file for programs"),
        pytest.param("/srv/fleet", ["/srv/fleet.html", "/srv/fleet.json"], id="both"),
        pytest.param("/srv/v1.2", ["/srv/v1.2.html", "/srv/v1.2.json"], id="a name with a dot"),
    ],
)
def test_the_ending_says_which_report(wanted, names):
    assert [str(path) for path in report_paths(wanted)] == names


def test_a_directory_is_no_file(tmp_path: Path):
    with pytest.raises(SiteError) as caught:
        report_paths(str(tmp_path))
    assert caught.value.code == "OPTION_INVALID"


class Action(ActionModule):
    """The action over results that were handed in: no site is read."""

    held: tuple[MeasurementProfile, ...] = ()

    def verifier(self, params: Mapping[str, Any]) -> Verifier:
        """Return one that nothing is asked of."""
        return Verifier(cluster_id=bytes(32), demands=Demands(), clock=SystemClock(), random=SystemRandom())

    def profiles(self, params: Mapping[str, Any]) -> tuple[MeasurementProfile, ...]:
        """Return those of the site."""
        return self.held


RESULTS = {
    "w-1": {"finding": finding("w-1").to_document()},
    "w-2": {"reason": "NODELOCK_OPEN", "msg": "expected a lock"},
}


def perform(wanted: str, *, check_mode: bool = False) -> Result:
    """Report of two nodes, one verified and one refused."""
    action: Action = object.__new__(Action)
    return action.perform({"report": wanted, "nodes": ["w-1", "w-2"], "results": RESULTS}, check_mode)


def test_a_report_is_written_for_people_and_for_programs(tmp_path: Path) -> None:
    result = perform(str(tmp_path / "fleet"))
    page, document = tmp_path / "fleet.html", tmp_path / "fleet.json"
    assert (result.changed, result.values["reports"]) == (True, [str(page), str(document)])
    assert [path.stat().st_mode & 0o777 for path in (page, document)] == [0o644, 0o644]
    found = json.loads(document.read_bytes())
    assert (found["version"], found["cluster_id"]) == (1, "00" * 32)
    assert {one["node"]: one["outcome"] for one in found["nodes"]} == {"w-1": "verified", "w-2": "refused"}
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert all(word in text for word in ("w-1", "w-2", "NODELOCK_OPEN"))


def test_a_profile_that_claims_more_than_it_holds_is_a_warning(tmp_path: Path) -> None:
    action: Action = object.__new__(Action)
    value = AllowedValue(bytes(32), "w-1")
    action.held = (MeasurementProfile(name="old", posture=Posture.BOOT, registers={7: (value,)}),)
    result = action.perform({"report": "", "nodes": ["w-1", "w-2"], "results": RESULTS}, False)
    assert [one for one in result.warnings if "old says posture boot and reaches keys" in one]


def test_one_report_alone(tmp_path: Path) -> None:
    perform(str(tmp_path / "fleet.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.json"]


def test_in_check_mode_a_report_is_told_and_not_written(tmp_path: Path) -> None:
    result = perform(str(tmp_path / "fleet"), check_mode=True)
    assert (result.changed, len(result.values["reports"])) == (True, 2)
    assert list(tmp_path.iterdir()) == []
