# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which request is written into the audit log, and how much of it."""

from __future__ import annotations

import json
from fnmatch import fnmatch

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import api_server_files
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths

PATH = "/etc/kubernetes/attested/audit-policy.yaml"
POLICY = json.loads(api_server_files(KubernetesPaths())[PATH])
NODE = ("system:node:w-1", "system:nodes")
ADMIN = ("alice", "attested:admins")
OURS = "attested-kubernetes.dev"
RBAC = "rbac.authorization.k8s.io"
LEASES = ("coordination.k8s.io", "leases")


def level(who, verb, group, resource, namespace=""):
    """The level of the first rule that fits, as the API server reads a policy."""
    rules = [rule for rule in POLICY["rules"] if "nonResourceURLs" not in rule]
    return next(rule["level"] for rule in rules if fits(rule, who, verb, (group, resource), namespace))


def fits(rule, who, verb, what, namespace):
    asked = [("users", who[0]), ("userGroups", who[1]), ("verbs", verb), ("namespaces", namespace)]
    named = rule.get("resources")
    return all(value in rule[key] for key, value in asked if key in rule) and (
        named is None or any(one["group"] == what[0] and what[1] in one.get("resources", [what[1]]) for one in named)
    )


@pytest.mark.parametrize(
    ("who", "verb", "what", "namespace", "wanted"),
    [
        pytest.param(ADMIN, "create", ("", "secrets"), "default", "Metadata", id="a Secret is made"),
        pytest.param(ADMIN, "get", ("", "secrets"), "default", "Metadata", id="a Secret is read"),
        pytest.param(NODE, "get", ("", "secrets"), "default", "Metadata", id="a Secret is read by a node"),
        pytest.param(ADMIN, "patch", ("", "configmaps"), "default", "Metadata", id="a ConfigMap is changed"),
        pytest.param(NODE, "create", ("", "serviceaccounts/token"), "default", "Metadata", id="a token is asked for"),
        pytest.param(NODE, "create", ("authentication.k8s.io", "tokenreviews"), "", "Metadata", id="a token is shown"),
        pytest.param(ADMIN, "create", ("", "pods"), "default", "Metadata", id="a Pod is made"),
        pytest.param(ADMIN, "create", (OURS, "nodeidentities"), "", "Request", id="a machine is admitted"),
        pytest.param(ADMIN, "patch", (OURS, "nodeidentities/status"), "", "Request", id="what a service says of it"),
        pytest.param(ADMIN, "list", (OURS, "nodeidentities"), "", "Metadata", id="machines are listed"),
        pytest.param(ADMIN, "create", (RBAC, "clusterrolebindings"), "", "Request", id="somebody gets rights"),
        pytest.param(ADMIN, "delete", (RBAC, "roles"), "default", "Request", id="somebody loses rights"),
        pytest.param(
            ADMIN, "update", ("certificates.k8s.io", "certificatesigningrequests/approval"), "", "Request", id="a CSR"
        ),
        pytest.param(
            ADMIN,
            "delete",
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            "",
            "Request",
            id="a guard is taken away",
        ),
        pytest.param(NODE, "get", ("", "nodes"), "", "None", id="a node looks at itself"),
        pytest.param(NODE, "patch", ("", "nodes/status"), "", "Metadata", id="a node says how it is"),
        pytest.param(NODE, "delete", ("", "nodes"), "", "Metadata", id="a node deletes a Node"),
        pytest.param(ADMIN, "get", ("", "nodes"), "", "Metadata", id="an admin looks at a node"),
        pytest.param(NODE, "update", LEASES, "kube-node-lease", "None", id="a node's heart beats"),
        pytest.param(NODE, "update", LEASES, "kube-system", "Metadata", id="a node takes another lease"),
        pytest.param(
            ("system:kube-scheduler", "system:authenticated"), "update", LEASES, "kube-system", "None", id="a leader"
        ),
        pytest.param(
            ("attested:key-service", "system:authenticated"),
            "update",
            LEASES,
            "kube-system",
            "Metadata",
            id="our lease",
        ),
        pytest.param(ADMIN, "create", ("", "events"), "default", "None", id="an event"),
    ],
)
def test_what_is_written_of_a_request(who, verb, what, namespace, wanted):
    assert level(who, verb, *what, namespace) == wanted


def test_answers_are_never_written():
    assert {rule["level"] for rule in POLICY["rules"]} == {"None", "Metadata", "Request"}


def test_the_last_rule_takes_everything():
    assert POLICY["rules"][-1] == {"level": "Metadata"}


@pytest.mark.parametrize(("path", "silent"), [("/livez/ping", True), ("/healthz", True), ("/metrics", False)])
def test_only_the_looks_at_health_are_silent(path, silent):
    (rule,) = [one for one in POLICY["rules"] if "nonResourceURLs" in one]
    assert (rule["level"], rule["verbs"]) == ("None", ["get"])
    assert any(fnmatch(path, pattern) for pattern in rule["nonResourceURLs"]) is silent
