# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read out of a Node object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import KubeconfigNodeReader, NodeView
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

READY = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-27T12:44:53Z"}
OTHER = {"type": "Attested", "status": "True", "lastHeartbeatTime": "2026-11-27T12:50:00Z"}


class Answered(KubeconfigNodeReader):
    """An API server that answers with one object."""

    def __init__(self, answer: Any) -> None:
        self.answer = json.dumps(answer).encode()

    def _read(self, path: str, what: str) -> bytes | None:
        return self.answer


def node(*conditions: dict[str, str]) -> dict[str, Any]:
    information = {"bootID": "b", "kubeletVersion": "v1.35.4"}
    status = {"nodeInfo": information, "conditions": list(conditions)}
    return {"metadata": {"name": "w-1"}, "spec": {"podCIDR": "10.244.1.0/24"}, "status": status}


def test_what_its_kubelet_reported_and_when():
    seen = NodeView(
        name="w-1",
        boot_id="b",
        ready=True,
        pod_subnet="10.244.1.0/24",
        kubelet_version="1.35.4",
        reported="2026-11-27T12:44:53Z",
    )
    assert Answered(node(OTHER, READY)).node("w-1") == seen


@pytest.mark.parametrize("conditions", [(), (OTHER,)], ids=["no condition", "another condition"])
def test_a_node_whose_kubelet_has_not_reported(conditions):
    seen = Answered(node(*conditions)).node("w-1")
    assert seen is not None
    assert (seen.ready, seen.reported) == (False, "")


def test_what_is_no_node_is_refused():
    with pytest.raises(KubeadmError) as caught:
        Answered({"kind": "Status"}).node("w-1")
    assert caught.value.reason is Reason.API_UNREACHABLE
