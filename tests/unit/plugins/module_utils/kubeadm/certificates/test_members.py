# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of etcd that keep another one from being stopped; against a real etcd in tests/api_bed."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_health import EtcdMembers
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

WELL = b'{"health": "true"}'
URLS = {name: [f"https://{name}:2379"] for name in ("cp-1", "cp-2", "cp-3")}


class Told(EtcdMembers):
    """Members whose answers are given: an error is raised, bytes are said."""

    def __init__(self, members, answers):
        super().__init__(KubernetesPaths())
        self._members = members
        self._answers = answers

    def _ask(self, method, url, body=None):
        if method == "POST":
            assert (url, body) == ("https://127.0.0.1:2379/v3/cluster/member/list", b"{}")
            return (
                self._members if isinstance(self._members, bytes) else json.dumps({"members": self._members}).encode()
            )
        answer = self._answers.get(url.removeprefix("https://").removesuffix(":2379/health"), WELL)
        if isinstance(answer, Exception):
            raise answer
        return answer


def three(**changes):
    return [
        {"name": name, "clientURLs": urls, **changes.get(name.replace("-", "_"), {})} for name, urls in URLS.items()
    ]


def test_three_that_are_well_are_let_go_on():
    Told(three(), {}).require_healthy()


@pytest.mark.parametrize(
    ("members", "answers", "told"),
    [
        pytest.param(three(cp_2={"isLearner": True}), {}, "cp-2 is a learner", id="a learner"),
        pytest.param(three(cp_3={"name": "", "clientURLs": []}), {}, "one without a name has not started", id="added"),
        pytest.param(three(), {"cp-2": OSError()}, r"cp-2 does not answer \(OSError\)", id="no answer"),
        pytest.param(three(), {"cp-2": b"text"}, "cp-2 does not answer", id="no JSON"),
        pytest.param(three(), {"cp-2": b'{"health": "false"}'}, "cp-2 says that it is not", id="ill"),
        pytest.param(three(), {"cp-2": b"[]"}, "cp-2 says that it is not", id="another answer"),
        pytest.param(b"{}", {}, "does not list them", id="no list"),
        pytest.param(three(), {"cp-1": b"{}", "cp-3": b"{}"}, "cp-1 says that it is not; cp-3", id="all are named"),
    ],
)
def test_one_that_is_not_well_keeps_the_others_running(members, answers, told):
    with pytest.raises(KubeadmError, match=told) as caught:
        Told(members, answers).require_healthy()
    assert caught.value.reason is Reason.ETCD_MEMBER_UNHEALTHY
