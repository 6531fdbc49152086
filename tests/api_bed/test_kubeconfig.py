# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A further admin's kubeconfig at a real API: the API server knows user and groups, and RBAC alone gives rights."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.tests.support.admin_site import AdminSite
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed


def kubectl(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(binaries() / "kubectl"), f"--kubeconfig={config}", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)


def who(config: Path, context: str) -> tuple[str, set[str]]:
    """Return user and groups as the API server says them."""
    done = kubectl(config, f"--context={context}", "auth", "whoami", "-o", "json")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)["status"]["userInfo"]
    return said["username"], set(said["groups"])


def role(group: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a role that reads namespaces, and its binding to ``group``, by the name of that."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": group}}
    rules = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}]
    bound = {"apiGroup": "rbac.authorization.k8s.io", "name": group}
    binding = {"roleRef": {**bound, "kind": "ClusterRole"}, "subjects": [{**bound, "kind": "Group"}]}
    return {**kind, "kind": "ClusterRole", "rules": rules}, {**kind, "kind": "ClusterRoleBinding", **binding}


def test_an_admin_is_who_was_said_and_may_what_rbac_gives(
    api: ApiBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, paths = tmp_path / "config", KubernetesPaths(root=tmp_path / "machine")
    paths.ca.parent.mkdir(parents=True)
    for suffix in ("crt", "key"):
        shutil.copy(api.directory / f"ca.{suffix}", paths.ca.with_suffix(f".{suffix}"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    site = AdminSite(tmp_path / "prod", paths, monkeypatch)
    reached = {"server": f"127.0.0.1:{api.port}", "tls_server_name": "127.0.0.1", "merge": True}
    for options in ({}, {"admin": "alice", "groups": ["kubeconfig-test", "on-call"]}, {"admin": "bob"}):
        answer = site.act(**reached, **options)
        assert not answer.get("failed"), answer
    everybody = {"system:authenticated"}
    assert who(config, "attested:admin@prod") == ("attested:admin", {"kubeadm:cluster-admins", *everybody})
    assert who(config, "alice@prod") == ("alice", {"kubeconfig-test", "on-call", *everybody})
    assert who(config, "bob@prod") == ("bob", everybody)
    reading = ("--context=alice@prod", "get", "namespaces", "-o", "name")
    assert "Forbidden" in kubectl(config, *reading).stderr
    api.apply(*role("kubeconfig-test"))
    try:
        wait_for(lambda: "namespace/default" in kubectl(config, *reading).stdout)
        assert "Forbidden" in kubectl(config, "--context=bob@prod", *reading[1:]).stderr
    finally:
        api.kubectl("delete", "clusterrole,clusterrolebinding", "kubeconfig-test")
