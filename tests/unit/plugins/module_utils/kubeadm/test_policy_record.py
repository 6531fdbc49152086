# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `policy_record`: without a policy it reads, with one it updates the record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import policy_record
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "attested-kubernetes.dev"
IDENTITY = {
    "metadata": {"name": "ek-1"},
    "spec": {"nodeName": "w-1", "ekSha256": "ab", "admission": "Approved"},
    "status": {"phase": "Joined", "diskId": "d-1", "lastAttestation": {"registers": [{"pcr": 7, "sha256": "65"}]}},
}
POLICY = {"apiVersion": "v", "kind": "AttestationPolicy", "metadata": {"name": "cluster", "uid": "1"}, "spec": {}}
API = {
    "customresourcedefinitions": [
        {"metadata": {"name": f"{plural}.{GROUP}"}} for plural in ("attestationpolicies", "nodeidentities")
    ],
    f"attestationpolicies.{GROUP}": [POLICY],
    f"nodeidentities.{GROUP}": [IDENTITY],
}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a control plane whose API server answers, and whose key service does not."""
    kubectl = SimpleNamespace(read=lambda kinds: [one for kind in kinds for one in API[kind]])
    monkeypatch.setattr(policy_record.Kubectl, "of_a_module", lambda _kubeconfig: kubectl)
    return {"policy": None, "kubeconfig": "/none", "socket": str(tmp_path / "no-socket")}


@pytest.mark.parametrize("check_mode", [False, True])
def test_without_a_policy_it_reads_and_changes_nothing(options: dict[str, Any], check_mode: bool) -> None:
    found = policy_record.run_record(options, check_mode)
    assert not found.changed
    assert (found.values["generation"], found.values["reason"]) == (0, Reason.KEY_SERVICE_UNREACHABLE.name)
    assert found.values["policy"] == {**POLICY, "metadata": {"name": "cluster"}}
    (identity,) = found.values["identities"]
    assert (identity["node"], identity["disk_id"], identity["registers"]) == ("w-1", "d-1", {"7": "65"})


@pytest.mark.parametrize("policy", ["", "kind: AttestationPolicy", "[]"])
def test_a_policy_that_is_none_is_refused_and_not_taken_for_a_read(options: dict[str, Any], policy: str) -> None:
    with pytest.raises(AttestedError) as refused:
        policy_record.run_record({**options, "policy": policy}, False)
    assert refused.value.reason is Reason.MANIFEST_INVALID


def test_a_key_service_that_does_not_answer_records_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(AttestedError) as refused:
        policy_record.run_record({**options, "policy": "spec: {generation: 1}"}, False)
    assert refused.value.reason is Reason.KEY_SERVICE_UNREACHABLE
