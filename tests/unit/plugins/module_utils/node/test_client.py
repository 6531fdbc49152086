# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's own run refuses before it looks at anything."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths, NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.client import require_api_proxy


def test_a_proxy_that_was_never_installed_is_named_before_anything_is_written(tmp_path):
    """A kubelet that dials a port at which nobody listens would be lost."""
    paths = KubernetesPaths(root=tmp_path)
    spec = NodeSpec(name="w-1", node_ip="10.0.0.21", api_proxy="127.0.0.1:6444")
    with pytest.raises(KubeadmError, match="run the playbook prepare") as caught:
        require_api_proxy(spec, paths)
    assert caught.value.code == "OPTION_INVALID"
    paths.api_endpoint.parent.mkdir(parents=True)
    paths.api_endpoint.touch()
    require_api_proxy(spec, paths)


def test_without_a_proxy_nothing_is_asked_for(tmp_path):
    require_api_proxy(NodeSpec(name="w-1", node_ip="10.0.0.21"), KubernetesPaths(root=tmp_path))
