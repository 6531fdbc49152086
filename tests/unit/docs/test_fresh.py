# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is made from code is what the code says."""

from __future__ import annotations

import subprocess
import sys

from ansible_collections.attested.kubernetes.tests.support import build_docs
from ansible_collections.attested.kubernetes.tests.support.house import ROOT


def test_the_pages_made_from_code_are_fresh():
    assert build_docs.stale() == [], "run python tests/support/build_docs.py"


def test_the_descriptors_are_what_the_proto_files_say():
    script = ROOT / "tests" / "support" / "build_descriptors.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_page_that_says_something_else_is_noticed(monkeypatch):
    monkeypatch.setattr(build_docs, "PAGES", {"docs/reason-codes.md": lambda: "something else"})
    assert build_docs.stale() == ["docs/reason-codes.md"]
