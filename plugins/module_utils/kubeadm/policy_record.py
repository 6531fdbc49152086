# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The implementation of the module `policy_record`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.documents import load_document
from ..errors import AttestedError, PolicyError
from ..keyservice.client import PolicyClient, RecordState
from ..policy.cluster import applied_sha256
from ..reasons import Reason
from ..result import Result
from .kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import Mapping

_GROUP = "attested-kubernetes.dev"


def run_record(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Read the record, or send the given policy to the key service of this control plane.

    Raises the refusal of the key service.
    """
    client = PolicyClient(params["socket"])
    if params["policy"] is None:
        return _read(client, Kubectl.of_a_module(params["kubeconfig"]))
    document = _policy(params["policy"])
    if check_mode:
        wanted = int(document["spec"]["generation"])
        return Result(changed=_state(client).generation != wanted, values={"generation": wanted})
    state = client.adopt(document)
    return Result(changed=state.changed, values={"generation": state.generation, "revoked": list(state.revoked)})


def _read(client: PolicyClient, kubectl: Kubectl) -> Result:
    """Return the record's state, the policy in the API, and each identity with its last attestation."""
    state = _state(client)
    policies, identities = _objects(kubectl)
    return Result(
        values={
            "generation": state.generation,
            "revoked": list(state.revoked),
            "reason": state.reason,
            "message": state.message,
            "policy": next((_plain(one) for one in policies if one["metadata"]["name"] == "cluster"), {}),
            "identities": [_identity(one) for one in identities],
        }
    )


def _policy(text: str) -> dict[str, Any]:
    """Parse the policy. The key service verifies the signature."""
    try:
        document = load_document(text)
        int(document["spec"]["generation"])
    except (ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            "expected a signed policy in YAML, got something else", reason=Reason.MANIFEST_INVALID
        ) from error
    found: dict[str, Any] = document
    return found


def _state(client: PolicyClient) -> RecordState:
    """Return the state of the record; an empty state with the reason if there is no key service (before init ends)."""
    try:
        return client.state()
    except AttestedError as error:
        if error.reason is not Reason.KEY_SERVICE_UNREACHABLE:
            raise
        return RecordState(generation=0, revoked=(), reason=error.code, message=error.message)


def _objects(kubectl: Kubectl) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    known = {one["metadata"]["name"] for one in kubectl.read(("customresourcedefinitions",))}
    kinds = [f"{plural}.{_GROUP}" for plural in ("attestationpolicies", "nodeidentities")]
    first, second = ([*kubectl.read((kind,))] if kind in known else [] for kind in kinds)
    return first, second


def _plain(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": policy["apiVersion"],
        "kind": policy["kind"],
        "metadata": {"name": policy["metadata"]["name"]},
        "spec": policy["spec"],
    }


def _identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    last = identity.get("status", {}).get("lastAttestation", {})
    return {
        "node": identity["spec"].get("nodeName", ""),
        "ek_sha256": identity["spec"]["ekSha256"],
        "ek_alias": identity["spec"].get("ekAliasSha256", ""),
        "role": identity["spec"].get("role", "worker"),
        "admission": identity["spec"]["admission"],
        "applied": applied_sha256(identity),
        "phase": identity.get("status", {}).get("phase", ""),
        "disk_id": identity.get("status", {}).get("diskId", ""),
        "profile": last.get("profile", ""),
        "registers": {str(one["pcr"]): one["sha256"] for one in last.get("registers", ())},
    }
