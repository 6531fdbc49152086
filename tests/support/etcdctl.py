# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query the members of a lab's etcd with etcdctl in the Pod of one of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road

_CREDENTIAL = tuple(
    f"--{option}=/etc/kubernetes/pki/etcd/{name}"
    for option, name in (("cacert", "ca.crt"), ("cert", "server.crt"), ("key", "server.key"))
)


def learners_of(road: Road, asked: str = "cp-1") -> dict[str, bool]:
    """Return whether each member is a learner, by the member on ``asked``; empty if it does not answer.

    Uses the API server of that machine, because the cluster's name may lead to the lost one.
    """
    api = ("--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://127.0.0.1:6443", "--request-timeout=30s")
    pod = ("exec", "--namespace=kube-system", f"etcd-{asked}", "--", "etcdctl", *_CREDENTIAL)
    said = road.inside(asked, "kubectl", *api, *pod, "member", "list", "--write-out=json", check=False)
    members = json.loads(said or '{"members": []}')["members"]
    return {one.get("name", ""): one.get("isLearner", False) for one in members}
