# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec, run_module
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result

SPEC = ArgumentSpec(options={"name": {"type": "str", "required": True}})


@contextmanager
def _arguments(**arguments):
    with patch_module_args(arguments):
        yield


def _answer(capsys, run, *, code, arguments, **options):
    with _arguments(**arguments), pytest.raises(SystemExit) as left:
        run_module(SPEC, run, **options)
    assert left.value.code == code
    return json.loads(capsys.readouterr().out)


def test_the_result_of_run_becomes_the_result_of_the_module(capsys):
    def run(params, check_mode):
        return Result(changed=True, values={"greeting": f"hello {params['name']}", "checked": check_mode})

    answer = _answer(capsys, run, code=0, arguments={"name": "w-1"})
    assert answer["changed"] is True
    assert answer["greeting"] == "hello w-1"
    assert answer["checked"] is False


def test_check_mode_is_handed_to_run(capsys):
    def run(_params, check_mode):
        return Result(values={"checked": check_mode})

    answer = _answer(capsys, run, code=0, arguments={"name": "w-1", "_ansible_check_mode": True})
    assert answer["checked"] is True


@pytest.mark.parametrize(
    ("asked", "shown"),
    [pytest.param(True, True, id="a diff is shown when asked for"), pytest.param(False, False, id="else it is not")],
)
def test_diff(capsys, asked, shown):
    def run(_params, _check_mode):
        return Result(diff=Diff(before="", after="locked\n", header="phase"))

    answer = _answer(capsys, run, code=0, arguments={"name": "w-1", "_ansible_diff": asked})
    assert ("diff" in answer) is shown
    if shown:
        expected = {"before": "", "after": "locked\n", "before_header": "phase", "after_header": "phase"}
        assert answer["diff"] == expected


def test_an_error_of_the_domain_becomes_message_code_hint_and_command(capsys):
    def run(_params, _check_mode):
        raise SystemFault("expected swap off, found /dev/sda3", reason=Reason.SWAP_ACTIVE)

    answer = _answer(capsys, run, code=1, arguments={"name": "w-1"})
    assert answer["failed"] is True
    assert answer["msg"] == "expected swap off, found /dev/sda3"
    assert answer["reason"] == "SWAP_ACTIVE"
    assert answer["hint"] == Reason.SWAP_ACTIVE.value.hint
    assert answer["command"] == Reason.SWAP_ACTIVE.value.command


def test_a_missing_library_is_named_before_run_is_called(capsys):
    def run(_params, _check_mode):
        pytest.fail("run was called without its library")

    answer = _answer(capsys, run, code=1, arguments={"name": "w-1"}, libraries=("json", "no_such_library"))
    assert answer["reason"] == "DEPENDENCY_MISSING"
    assert "found no no_such_library" in answer["msg"]


def test_a_module_with_secrets_refuses_a_temporary_directory_on_a_disk(capsys, monkeypatch):
    def run(_params, _check_mode):
        pytest.fail("run was called with its options on a disk")

    # /proc is a directory on every Linux machine and never tmpfs
    arguments = {"name": "w-1", "_ansible_tmpdir": "/proc"}
    answer = _answer(capsys, run, code=1, arguments=arguments, carries_secrets=True)
    assert answer["reason"] == "NOT_TMPFS"


def test_an_unknown_option_is_refused_by_name(capsys):
    answer = _answer(capsys, lambda *_rest: Result(), code=1, arguments={"name": "w-1", "nmae": "x"})
    assert "nmae" in answer["msg"]


def test_warnings_reach_the_user(capsys):
    answer = _answer(capsys, lambda *_rest: Result(warnings=("old clock",)), code=0, arguments={"name": "w-1"})
    assert "old clock" in str(answer["warnings"])
