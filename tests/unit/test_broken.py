# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests failed, from pytest's own report."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

from ansible_collections.attested.kubernetes.tests.support.broken import LONGEST, broken, broken_task

TESTS = """
import pytest

@pytest.fixture
def absent():
    raise OSError("no such lab")

def test_good(): pass
def test_bad(): assert 1 == 2, "expected one\\n  and got two"
def test_without_its_lab(absent): pass
def test_without_it_too(absent): pass
def test_long(): raise ValueError("x" * 5000)
def test_left_out(): pytest.skip("not here")
"""


def test_each_failed_test_is_named_with_its_first_words(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml", "test_it.py"]
    subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False)
    suite = ET.parse(tmp_path / "report.xml").getroot().find("testsuite")
    bad, errored, again, long = broken(suite)
    assert bad.startswith("test_it::test_bad: AssertionError: expected one and got two")
    assert errored.startswith("test_it::test_without_its_lab: ")
    assert "no such lab" in errored
    assert again == "test_it::test_without_it_too: as test_it::test_without_its_lab"
    assert long.startswith("test_it::test_long: ValueError: xxx")
    assert len(long) == LONGEST


MOLECULE = """
\x1b[2m│\x1b[0m TASK [Read the clock]
\x1b[2m│\x1b[0m   ******
\x1b[2m│\x1b[0m ok: [cp-1]
\x1b[2m│\x1b[0m
\x1b[2m│\x1b[0m TASK [attested.kubernetes.worker : Join the
\x1b[2m│\x1b[0m   cluster] ***
"""


def test_the_task_that_failed_a_scenario_is_told_with_its_title():
    said = broken_task(f"{MOLECULE}│ fatal: [w-1]: FAILED! => msg:\n│   no ticket\n│\n")
    assert said == "TASK [attested.kubernetes.worker : Join the cluster] *** fatal: [w-1]: FAILED! => msg: no ticket"


def test_a_scenario_that_changes_something_twice_is_told_with_its_tasks():
    said = broken_task(f"{MOLECULE}│ changed: [w-1]\nCRITICAL Idempotence test failed because of:\n* [w-1] => Join\n")
    assert said == "Idempotence test failed because of: * [w-1] => Join"


def test_a_scenario_that_ended_without_a_failed_task_is_told_with_its_last_words():
    said = broken_task("│ ok: [cp-1]\n" * 100 + "no space left on device\n")
    assert len(said) == LONGEST
    assert said.endswith("ok: [cp-1] no space left on device")
