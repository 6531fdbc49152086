# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules hand to the process that holds keys, and what they make of its answer."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import inspect, run
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import DiskError
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

PARAMS = {
    "device": "/dev/disk/by-id/virtio-state",
    "uuid": "71111111-2222-4333-8444-555555555555",
    "state": "opened",
    "key_file": "/run/attested/disk.key",
    "volume": None,
    "minimum_bytes": 1,
    "erase": None,
    "mount_point": "/var/lib/attested/state",
    "directories": ["/var/lib/etcd"],
    "memory": "/run/attested/state-disk",
    "journal": "/var/lib/attested/state-disk.json",
    "tcti": "device:/dev/tpmrm0",
    "tpm_timeout_seconds": 10,
}
GOOD = {"steps": ["open", "bind"], "volume": "ab" * 32, "initialised": True}


class Helper:
    """Answers in the place of the process."""

    def __init__(self, answer):
        self.answer = answer
        self.job = {}

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del timeout_seconds, check, env
        self.job = json.loads(stdin)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=self.answer, stderr=b"")


def asked(answer, *, check_mode=False, **changes):
    helper = Helper(json.dumps(answer).encode())
    return run({**PARAMS, **changes}, check_mode, runner=helper), helper.job


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check"])
def test_steps_are_changes_and_the_diff_is_the_steps(check_mode):
    result, job = asked(GOOD, check_mode=check_mode)
    assert (result.changed, result.values["steps"], result.diff.after) == (True, ["open", "bind"], "open\nbind\n")
    assert job["apply"] is not check_mode
    assert job["key_file"] == PARAMS["key_file"]


def test_no_steps_are_no_change():
    result, _job = asked({**GOOD, "steps": []})
    assert (result.changed, result.diff.after) == (False, "")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"device": "/dev/sdb"}, "STATE_DISK_OPTION: a disk below", id="a disk by its order"),
        pytest.param({"uuid": "71111111-2222-4333-8444-55555555555A"}, "DISK_ID_MALFORMED", id="upper case"),
        pytest.param({"uuid": "../other"}, "DISK_ID_MALFORMED", id="a path"),
        pytest.param({"volume": "ab"}, "STATE_DISK_OPTION", id="half a volume"),
        pytest.param({"directories": ["etc"]}, "STATE_DISK_OPTION", id="a relative directory"),
        pytest.param({"directories": ["/"]}, "STATE_DISK_OPTION", id="the root"),
        pytest.param({"directories": ["/var/../etc"]}, "STATE_DISK_OPTION", id="a way up"),
    ],
)
def test_options_are_refused_before_anything_runs(changes, code):
    helper = Helper(b"")
    assert code_of(lambda: run({**PARAMS, **changes}, False, runner=helper)) == code
    assert helper.job == {}


def test_a_refusal_of_the_process_is_one_of_the_module():
    said = {"failed": "expected it", "reason": "STATE_DISK_BUSY", "hint": "wait", "kind": "DiskError"}
    with pytest.raises(DiskError) as caught:
        asked(said)
    assert (caught.value.code, caught.value.message, caught.value.hint) == ("STATE_DISK_BUSY", "expected it", "wait")


def test_an_error_of_a_kind_below_the_tree_is_still_one():
    said = {"failed": "no", "reason": "TPM_COMMAND_FAILED", "hint": "wait", "kind": "ResponseError"}
    assert code_of(lambda: asked(said)) == "TPM_COMMAND_FAILED"


def test_no_answer_is_a_failure():
    assert code_of(lambda: run(PARAMS, False, runner=Helper(b""))) == "COMMAND_FAILED"


def test_a_disk_that_is_not_there_is_told(tmp_path):
    params = {"device": "/dev/disk/by-id/absent", "uuid": None, "memory": str(tmp_path)}
    assert inspect(params, False).values == {"present": False, "wipe": {}}
    (tmp_path / "progress.json").write_text('{"done_bytes": 1, "size_bytes": 2}')
    assert inspect(params, True).values["wipe"] == {"done_bytes": 1, "size_bytes": 2}
    assert code_of(lambda: inspect({**params, "device": "/dev/vdb"}, False)) == "STATE_DISK_OPTION: a disk below"
