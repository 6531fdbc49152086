# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.adapter import ArgumentSpec, Result
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction


class _Greeting(AttestedAction):
    SPEC = ArgumentSpec(options={"name": {"type": "str", "required": True}})

    def perform(self, params, check_mode):
        if params["name"] == "nobody":
            raise SystemFault("expected somebody", reason=Reason.FILE_UNUSABLE)
        return Result(changed=not check_mode, values={"greeting": params["name"], "site": self.task_vars.get("site")})


class _Dual(_Greeting):
    MODULE = "attested.kubernetes.greeting"

    def _execute_module(self, module_name=None, **_options):
        return {"ran": module_name}


def _action(kind=_Greeting, *, name="w-1", transport="ssh", become=False, check_mode=False):
    task = SimpleNamespace(
        args={"name": name}, async_val=0, check_mode=check_mode, diff=False, environment=None, action="greeting"
    )
    connection = SimpleNamespace(transport=transport, _shell=SimpleNamespace(tmpdir=None))
    return kind(task, connection, SimpleNamespace(become=become), loader=None, templar=None, shared_loader_obj=None)


def test_an_action_without_a_module_works_here_whatever_the_connection():
    answer = _action().run(task_vars={"site": "/srv/site"})
    assert answer["changed"] is True
    assert (answer["greeting"], answer["site"]) == ("w-1", "/srv/site")


def test_check_mode_reaches_the_work():
    assert _action(check_mode=True).run()["changed"] is False


def test_an_error_becomes_a_failure_with_its_code():
    answer = _action(name="nobody").run()
    assert answer["failed"] is True
    assert answer["reason"] == "FILE_UNUSABLE"


@pytest.mark.parametrize(
    ("transport", "become", "here"),
    [
        pytest.param("local", False, True, id="on this machine as this user: in this process"),
        pytest.param("ansible.builtin.local", False, True, id="the connection's full name counts as well"),
        pytest.param("local", True, False, id="another user's rights: as module"),
        pytest.param("ssh", False, False, id="another machine: as module"),
    ],
)
def test_where_the_work_is_done(transport, become, here):
    answer = _action(_Dual, transport=transport, become=become).run()
    assert ("greeting" in answer) is here
    assert (answer.get("ran") == "attested.kubernetes.greeting") is not here
