# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server that has just started takes writes at once, and denies at once what the admission policies deny."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import ADDRESS_LIST, REVOKED_LIST
from ansible_collections.attested.kubernetes.tests.api_bed.test_revocation import DENIED, join, label, revoke
from ansible_collections.attested.kubernetes.tests.api_bed.test_standing import patch
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine

OWN = "192.0.2.31"
_TRIES = 5


def listed(api: ApiBed, name: str) -> dict[str, str]:
    found: dict[str, str] = api.get("configmap", name, "--namespace=kube-system").get("data", {})
    return found


def moved(api: ApiBed, name: str, address: str, user: str) -> str:
    """Write an address of the Node, as its kubelet does."""
    return patch(api, user, f"{name}/status", {"status": {"addresses": [{"type": "InternalIP", "address": address}]}})


@pytest.fixture
def good(api: ApiBed, machines: Callable[..., Machine]) -> Machine:
    """A joined machine with an address in the site, listed."""
    machine = machines(enroll=False)
    machine.enroll(addresses=[OWN])
    join(api, machine, "good")
    wait_for(lambda: listed(api, ADDRESS_LIST).get(OWN) == machine.name)
    yield machine
    api.kubectl("delete", "nodeidentity", machine.identity()["metadata"]["name"])
    wait_for(lambda: OWN not in listed(api, ADDRESS_LIST))


def test_a_server_that_starts_takes_writes_and_denies_those_of_a_revoked_machine(
    api: ApiBed, good: Machine, machines: Callable[..., Machine], counted: Callable[[str], None]
) -> None:
    bad = machines()
    join(api, bad, "bad")
    revoke(api, bad.name)
    identity = bad.identity()["metadata"]["name"]
    wait_for(lambda: listed(api, REVOKED_LIST).get(identity) == bad.name)
    for number in range(_TRIES):
        api.restart_server("kube-apiserver", api.server)
        began = time.monotonic()
        assert DENIED in api.kubectl(*label(bad.name, f"start-{number}"), user="bad", check=False)
        assert "labeled" in api.kubectl(*label(good.name, f"start-{number}"), user="good")
        assert "are those in its identity" in moved(api, good.name, "192.0.2.99", "good")
        assert moved(api, good.name, OWN, "good") == "200"
        api.kubectl("create", "configmap", f"start-{number}")
        counted(f"writes after a start of the API server: {time.monotonic() - began:.1f} s for five")


@pytest.mark.parametrize("name", [REVOKED_LIST, ADDRESS_LIST])
def test_the_lists_are_the_key_services(api: ApiBed, name: str) -> None:
    change: dict[str, Any] = {"data": {"a": "b"}}
    words = ("--namespace=kube-system", "--as=lesser", "--as-group=lesser")
    own = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "lesser"}}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lesser"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "lesser"}
    api.apply(
        {**own, "kind": "ClusterRole", "rules": [rule]},
        {**own, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    )
    said = api.kubectl("patch", "configmap", name, "--type=merge", "-p", json.dumps(change), *words, check=False)
    assert "written by the key service" in said
    assert "written by the key service" in api.kubectl("delete", "configmap", name, *words, check=False)
    assert "written by the key service" in api.kubectl("delete", "configmap", "--all", *words, check=False)
    api.kubectl("create", "configmap", f"of-{name}", *words)
    unnamed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "of-", "namespace": "kube-system"}}
    assert "created" in api.kubectl("create", "-f", "-", *words, stdin=json.dumps(unnamed))
