# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.module import ArgumentSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
from ansible_collections.attested.kubernetes.plugins.plugin_utils.action import AttestedAction


class _Greeting(AttestedAction):
    SPEC = ArgumentSpec(options={"name": {"type": "str", "required": True}})

    def perform(self, params, check_mode):
        if params["name"] == "nobody":
            raise SystemFault("expected somebody", reason=Reason.FILE_UNUSABLE)
        return Result(changed=not check_mode, values={"greeting": params["name"], "site": self.task_vars.get("site")})


def _action(*, name="w-1", transport="ssh", check_mode=False):
    task = SimpleNamespace(
        args={"name": name}, async_val=0, check_mode=check_mode, diff=False, environment=None, action="greeting"
    )
    connection = SimpleNamespace(transport=transport, _shell=SimpleNamespace(tmpdir=None))
    return _Greeting(task, connection, SimpleNamespace(), loader=None, templar=None, shared_loader_obj=None)


@pytest.mark.parametrize("transport", ["ssh", "local"])
def test_an_action_works_on_the_admins_side_whatever_the_connection(transport):
    answer = _action(transport=transport).run(task_vars={"site": "/srv/site"})
    assert answer["changed"] is True
    assert (answer["greeting"], answer["site"]) == ("w-1", "/srv/site")


def test_check_mode_reaches_the_work():
    assert _action(check_mode=True).run()["changed"] is False


def test_an_error_becomes_a_failure_with_its_code():
    answer = _action(name="nobody").run()
    assert answer["failed"] is True
    assert answer["reason"] == "FILE_UNUSABLE"
