# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the report of a fleet goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.action.fleet_verification import report_paths
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError

if TYPE_CHECKING:
    from pathlib import Path


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
