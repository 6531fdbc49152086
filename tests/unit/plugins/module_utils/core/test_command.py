# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault

RUNNER = SystemRunner()


def _python(code, **options):
    return RUNNER.run([sys.executable, "-c", code], **options)


def test_output_and_standard_input_are_bytes():
    result = _python("import sys; sys.stdout.write(sys.stdin.read().upper())", stdin=b"secret")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"SECRET", b"")


def test_a_program_never_reads_the_callers_standard_input():
    assert _python("import sys; print(len(sys.stdin.read()))").stdout == b"0\n"


def test_the_locale_is_fixed_and_variables_are_added(monkeypatch):
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    result = _python("import os; print(os.environ['LC_ALL'], os.environ['EXTRA'])", env={"EXTRA": "1"})
    assert result.stdout == b"C.UTF-8 1\n"


def test_a_failure_tells_command_code_and_message():
    with pytest.raises(SystemFault, match="ended with 3: broken pipe of tea") as caught:
        _python("import sys; sys.stderr.write('broken pipe of tea'); sys.exit(3)")
    assert caught.value.code == "COMMAND_FAILED"


def test_a_failure_never_repeats_what_was_on_standard_input():
    with pytest.raises(SystemFault) as caught:
        _python("import sys; sys.stdin.read(); sys.exit(1)", stdin=b"canary-of-a-secret")
    assert "canary" not in str(caught.value)


def test_an_expected_exit_code_is_a_result():
    assert _python("raise SystemExit(4)", check=False).returncode == 4


def test_a_program_that_is_not_there():
    with pytest.raises(SystemFault, match="no-such-program") as caught:
        RUNNER.run(["no-such-program"])
    assert caught.value.code == "COMMAND_MISSING"


def test_a_file_that_is_no_program(tmp_path):
    (tmp_path / "text").write_text("not a program", encoding="utf-8")
    with pytest.raises(SystemFault, match="cannot start") as caught:
        RUNNER.run([str(tmp_path / "text")])
    assert caught.value.code == "COMMAND_MISSING"


def test_a_program_that_does_not_end():
    with pytest.raises(SystemFault, match=r"within 0\.2 s") as caught:
        _python("import time; time.sleep(60)", timeout_seconds=0.2)
    assert caught.value.code == "COMMAND_TIMEOUT"


def _followed(code, *, stdin=b"", timeout_seconds=60.0):
    lines = []
    RUNNER.follow([sys.executable, "-c", code], stdin=stdin, on_line=lines.append, timeout_seconds=timeout_seconds)
    return lines


def test_a_program_that_takes_long_is_heard_line_by_line():
    code = "import sys; text = sys.stdin.read(); print(text); print(len(text), file=sys.stderr)"
    assert sorted(_followed(code, stdin=b"secret")) == ["6", "secret"]


def test_a_followed_program_that_fails_tells_what_it_said_last():
    with pytest.raises(SystemFault, match="ended with 3: no room") as caught:
        _followed("print('no room'); raise SystemExit(3)")
    assert caught.value.code == "COMMAND_FAILED"


def test_a_followed_program_that_does_not_end():
    with pytest.raises(SystemFault) as caught:
        _followed("import time; time.sleep(60)", timeout_seconds=0.2)
    assert caught.value.code == "COMMAND_TIMEOUT"


def test_a_followed_program_may_leave_its_input_unread():
    assert _followed("import sys; sys.stdin.close()", stdin=b"k" * 32) == []


def test_a_followed_program_that_is_not_there():
    with pytest.raises(SystemFault) as caught:
        RUNNER.follow(["no-such-program"], stdin=b"", on_line=print, timeout_seconds=1)
    assert caught.value.code == "COMMAND_MISSING"


def test_a_program_runs_for_as_long_as_a_block(tmp_path):
    place = tmp_path / "pid"
    code = f"import os, time; open({str(place)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    with RUNNER.started([sys.executable, "-c", code]):
        while not (place.exists() and place.read_text()):
            time.sleep(0.01)
        running = Path(f"/proc/{place.read_text()}")
        assert running.exists()
    assert not running.exists()


def test_a_program_for_a_block_that_is_not_there():
    with pytest.raises(SystemFault) as caught, RUNNER.started(["no-such-program"]):
        pass
    assert caught.value.code == "COMMAND_MISSING"
