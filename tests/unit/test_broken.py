# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests failed, from pytest's own report."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree as ET

from ansible_collections.attested.kubernetes.tests.support.broken import LONGEST, broken

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
