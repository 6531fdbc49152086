# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server writes into its audit log: the first rule that fits a request decides. Pure.

Who did what is written of everything, except of the clockwork of nodes and controllers. What they sent is written where
it says who may join or who may do what. What they got is never written: an answer may hold a Secret or a token.
"""

from __future__ import annotations

from typing import Any

_OWN_GROUP = "attested-kubernetes.dev"
_WRITES = ("create", "update", "patch", "delete", "deletecollection")
_RENEWALS = ("get", "update")
_CONTROLLERS = ("system:apiserver", "system:kube-controller-manager", "system:kube-scheduler")
_PROXY = "system:serviceaccount:kube-system:kube-proxy"
_HEALTH = ("/healthz*", "/livez*", "/readyz*", "/version")


def audit_policy() -> dict[str, Any]:
    """Return the document of kind Policy."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [*_clockwork(), _secretive(), _deciding(), {"level": "Metadata"}],
    }


def _clockwork() -> list[dict[str, Any]]:
    """Return what is not written: what everybody's machinery repeats every few seconds, and changes nothing by it."""
    leases = _resources("coordination.k8s.io", "leases")
    return [
        _none(
            users=[_PROXY],
            verbs=["watch"],
            resources=[_resources("", "services"), _resources("discovery.k8s.io", "endpointslices")],
        ),
        _none(userGroups=["system:nodes"], verbs=["get"], resources=[_resources("", "nodes", "nodes/status")]),
        _none(userGroups=["system:nodes"], verbs=[*_RENEWALS], resources=[leases], namespaces=["kube-node-lease"]),
        _none(users=[*_CONTROLLERS], verbs=[*_RENEWALS], resources=[leases], namespaces=["kube-system"]),
        _none(verbs=["get"], nonResourceURLs=[*_HEALTH]),
        _none(resources=[_resources("", "events"), _resources("events.k8s.io", "events")]),
    ]


def _secretive() -> dict[str, Any]:
    """Return the rule of what carries secrets in its requests: never more than who did it."""
    return {
        "level": "Metadata",
        "resources": [
            _resources("", "secrets", "configmaps", "serviceaccounts/token"),
            _resources("authentication.k8s.io"),
        ],
    }


def _deciding() -> dict[str, Any]:
    """Return the rule of what decides who may join and who may do what: with what was sent."""
    return {
        "level": "Request",
        "verbs": [*_WRITES],
        "resources": [
            _resources(_OWN_GROUP),
            _resources("admissionregistration.k8s.io"),
            _resources("certificates.k8s.io"),
            _resources("rbac.authorization.k8s.io"),
        ],
    }


def _none(**rule: list[Any]) -> dict[str, Any]:
    return {"level": "None", **rule}


def _resources(group: str, *names: str) -> dict[str, Any]:
    """Return these resources of a group, all of them where none is named."""
    return {"group": group, **({"resources": list(names)} if names else {})}
