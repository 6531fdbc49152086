# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stage `galaxy` makes of the importer's words."""

from __future__ import annotations

import re
import tomllib

import pytest
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.importer import complaints, requirement

GOOD = (
    "Importing with galaxy-importer 0.4.44\nLoading module init\nLoading role worker\n"
    "Collection loading complete\nImporter processing completed successfully\n"
)


def test_a_quiet_import_is_good():
    assert complaints(GOOD, ["init"]) == []


@pytest.mark.parametrize(
    ("said", "named"),
    [
        pytest.param(f"{GOOD}WARNING: no role metadata found\n", "no role metadata", id="a warning"),
        pytest.param(f"{GOOD}ERROR: Timeout on call\n", "Timeout", id="an error that did not end it"),
        pytest.param(GOOD.replace("module init", "module join"), "module init: not read", id="a module that it missed"),
        pytest.param(GOOD.rpartition("Importer")[0], "expected the end", id="an import that was broken off"),
        pytest.param("", "expected the end", id="no word at all"),
    ],
)
def test_whatever_else_is_a_complaint(said: str, named: str):
    assert named in "\n".join(complaints(said, ["init"]))


def test_the_importer_is_of_one_version():
    assert re.fullmatch(r"galaxy-importer==[0-9.]+", requirement())


def test_the_controllers_requirements_are_those_of_the_project():
    """Ansible and its runner come with the controller; the packages of a kit are used there alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    lines = (ROOT / "meta/requirements.txt").read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    basic = [one for one in project["dependencies"] if not one.startswith("ansible-")]
    assert listed == [*basic, *optional["kit"], *optional["shares"]]
