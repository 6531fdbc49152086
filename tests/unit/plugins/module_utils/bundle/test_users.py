# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users of services: those that the machine does not know are made, before what runs as them."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.node_files import write_files
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason


class Machine:
    """getent, systemd-sysusers and systemctl of a machine; ``broken``: the program that fails."""

    def __init__(self, *known, broken=""):
        self.known = set(known)
        self.broken = broken
        self.told = []

    def run(self, argv, **_options):
        if argv[0] == self.broken:
            raise SystemFault(f"{argv[0]} ended with 1", reason=Reason.COMMAND_FAILED)
        code = 0
        if argv[0] == "getent":
            code = 0 if argv[2] in self.known else 2
        elif argv[1] != "show":
            self.told.append(" ".join(argv))
        return CommandResult(argv=tuple(argv), returncode=code, stdout=b"", stderr=b"")


def run(machine, root, *, check=False):
    return write_files({"files": [], "users": ["a", "b"], "units": ["a.service"]}, check, root=root, runner=machine)


def test_a_user_that_is_missing_is_made_before_its_unit_starts(tmp_path):
    machine = Machine("a")
    result = run(machine, tmp_path)
    assert (result.changed, result.values["users"]) == (True, ["b"])
    assert machine.told[0] == "systemd-sysusers --inline u b - - /nonexistent /usr/sbin/nologin"
    assert machine.told[-1] == "systemctl start a.service"


def test_users_that_are_known_are_left_as_they_are(tmp_path):
    machine = Machine("a", "b")
    result = run(machine, tmp_path)
    assert result.values["users"] == []
    assert [words for words in machine.told if "sysusers" in words] == []


def test_check_mode_says_which_and_makes_none(tmp_path):
    machine = Machine()
    result = run(machine, tmp_path, check=True)
    assert (result.changed, result.values["users"], machine.told) == (True, ["a", "b"], [])


def test_a_user_that_cannot_be_made_fails_the_task_before_anything_is_written(tmp_path):
    params = {"files": [{"path": "/a", "content": "x", "mode": "0644"}], "users": ["a"]}
    with pytest.raises(SystemFault) as caught:
        write_files(params, False, root=tmp_path, runner=Machine(broken="systemd-sysusers"))
    assert (caught.value.reason, list(tmp_path.iterdir())) == (Reason.COMMAND_FAILED, [])
