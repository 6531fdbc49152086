# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage of the attacks fails where a row's tests are there and none of them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.tests import run
from ansible_collections.attested.kubernetes.tests.run import Counts
from ansible_collections.attested.kubernetes.tests.support import threats

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROW = 'import pytest\nThreat = dict\nTHREAT = Threat(id="{}", title="x", case="x", bed="bytes", stops=())\n'
RUNS = "def test_runs() -> None:\n    pass\n"
SKIPPED = '@pytest.mark.skip(reason="no TPM")\ndef test_skipped() -> None:\n    pass\n'
WHOLE = 'pytest.skip("no API server", allow_module_level=True)\n'
WAITS = '@pytest.mark.xfail(reason="not yet")\ndef test_waits() -> None:\n    raise ValueError\n'


ROWS = {
    "S1": RUNS,
    "S2": RUNS + SKIPPED,
    "S3": SKIPPED,
    "S4": WHOLE,
    "S5": WAITS,
    "S6": "",
}


def test_a_row_is_tried_where_a_test_of_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stage whose folder holds these rows; it runs as a process of its own, and its report is pytest's."""
    folder = tmp_path / "tests" / "attacks"
    folder.mkdir(parents=True)
    for one, tests in ROWS.items():
        (folder / f"test_s0{one[1]}_attack.py").write_text(ROW.format(one) + tests, encoding="utf-8")
    monkeypatch.setattr(threats, "FOLDER", folder)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    counts = run.attacks()
    said = [line for line in capfd.readouterr().out.splitlines() if "expected a test of" in line]
    assert said == [
        "S3: expected a test of test_s03_attack.py that ran, got none (skipped: no TPM)",
        "S4: expected a test of test_s04_attack.py that ran, got none (skipped: collection skipped)",
        "S5: expected a test of test_s05_attack.py that ran, got none (skipped: not yet)",
        "S6: expected a test of test_s06_attack.py that ran, got none (none was there)",
    ]
    assert counts == Counts(passed=2, failed=4, skipped=4, broken=tuple(said))
