# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site may add to a control plane's programs, what it may not, and how it goes again."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.files import write_api_server_files
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    api_server_arguments,
    authentication_path,
    render_authentication,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.site_settings import (
    arrange_configuration,
    audit_webhook_file,
    authentication_file,
    changes_of,
    is_audit_webhook_file,
    is_authentication_file,
    parse_arguments,
    site_names,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths

if TYPE_CHECKING:
    from pathlib import Path

SERVER, MANAGER, SCHEDULER, ETCD = "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"
OIDC: dict[str, Any] = {
    "issuer": {"url": "https://login.example", "audiences": ["kubernetes"]},
    "claimMappings": {"username": {"claim": "email", "prefix": "oidc:"}},
}


def test_values_become_what_a_command_line_has() -> None:
    given = {
        SERVER: {"audit-log-maxage": 90, "feature-gates": {"B": False, "A": True}, "goaway-chance": 0.001},
        ETCD: {"quota-backend-bytes": 8 << 30, "log-level": "warn"},
    }
    assert parse_arguments(given) == {
        SERVER: {"audit-log-maxage": "90", "feature-gates": "A=true,B=false", "goaway-chance": "0.001"},
        ETCD: {"quota-backend-bytes": "8589934592", "log-level": "warn"},
        MANAGER: {},
        SCHEDULER: {},
    }


def test_admission_plugins_of_a_site_come_beside_ours() -> None:
    found = parse_arguments({SERVER: {"enable-admission-plugins": "AlwaysPullImages, NodeRestriction"}})
    assert found[SERVER]["enable-admission-plugins"] == "AlwaysPullImages,DenyServiceExternalIPs,NodeRestriction"


ALIKE = "tls-cert-file tls-private-key-file tls-sni-cert-key cert-dir client-ca-file requestheader-allowed-names"
ALIKE += " authentication-skip-lookup authorization-always-allow-paths bind-address secure-port profiling"
ALIKE += " contention-profiling debugging debug-socket-path kubeconfig authentication-kubeconfig leader-elect"
REFUSED = {
    SERVER: f"""{ALIKE} anonymous-auth authentication-config authentication-token-webhook-config-file authorization-mode
        authorization-config token-auth-file enable-bootstrap-token-auth permit-port-sharing api-audiences oidc-ca-file
        etcd-servers storage-backend kubelet-certificate-authority peer-ca-file advertise-address
        service-cluster-ip-range endpoint-reconciler-type egress-selector-config-file proxy-client-cert-file
        service-account-issuer service-account-key-file service-account-lookup service-account-signing-key-file
        encryption-provider-config encryption-provider-config-automatic-reload admission-control-config-file
        disable-admission-plugins audit-policy-file audit-log-path allow-privileged""",
    MANAGER: f"""{ALIKE} cluster-signing-key-file cluster-signing-duration root-ca-file use-service-account-credentials
        service-account-private-key-file controllers cluster-name cluster-cidr service-cluster-ip-range
        allocate-node-cidrs""",
    SCHEDULER: f"{ALIKE} config",
    ETCD: """client-cert-auth listen-client-urls data-dir snapshot-count name quota-backend-bytesx xlog-level cert-file
        feature-gates force-new-cluster auth-token""",
}
TAKEN = {
    SERVER: "audit-log-maxage tls-min-version service-account-jwks-uri max-requests-inflight v configs",
    MANAGER: "node-monitor-grace-period terminated-pod-gc-threshold cloud-provider node-cidr-mask-size",
    SCHEDULER: "kube-api-qps v",
    ETCD: """quota-backend-bytes auto-compaction-mode auto-compaction-retention heartbeat-interval election-timeout
        log-level max-request-bytes max-txn-ops max-snapshots max-wals backend-batch-limit backend-batch-interval
        warning-apply-duration compaction-batch-limit grpc-keepalive-min-time grpc-keepalive-interval
        grpc-keepalive-timeout""",
}
HELD = """AllAlpha AllBeta AnonymousAuthConfigurableEndpoints AuthorizeNodeWithSelectors AuthorizeWithSelectors
    ServiceAccountNodeAudienceRestriction ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
    StructuredAuthenticationConfiguration ValidatingAdmissionPolicy"""


def listed(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(component, name) for component, names in table.items() for name in names.split()]


def refusal(component: str, name: object, value: object) -> str:
    with pytest.raises(SiteError) as caught:
        parse_arguments({component: {name: value}})
    assert caught.value.code == "CONFIG_INVALID"
    return caught.value.message


@pytest.mark.parametrize(("component", "name"), listed(REFUSED))
def test_what_decides_who_gets_at_keys_and_nodes_is_refused_by_name(component: str, name: str) -> None:
    assert f"expected no {name} of {component}: " in refusal(component, name, "x")


@pytest.mark.parametrize(("component", "name"), listed(TAKEN))
def test_what_only_tunes_is_taken(component: str, name: str) -> None:
    assert parse_arguments({component: {name: "x"}})[component] == {name: "x"}


@pytest.mark.parametrize("gate", HELD.split())
def test_a_gate_that_admission_or_the_node_authorizer_needs_stays_on(gate: str) -> None:
    assert f"no {gate} turned off in feature-gates" in refusal(SERVER, "feature-gates", {gate: False, "Other": False})
    assert parse_arguments({SERVER: {"feature-gates": {gate: True}}})[SERVER] == {"feature-gates": f"{gate}=true"}


def test_no_api_is_turned_off() -> None:
    wanted = {"runtime-config": {"api/alpha": True}}
    assert parse_arguments({SERVER: wanted})[SERVER] == {"runtime-config": "api/alpha=true"}
    said = refusal(SERVER, "runtime-config", {"b/v1": False, "a/v1": False, "api/alpha": True})
    assert "no a/v1, b/v1 turned off in runtime-config" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("feature-gates", "ValidatingAdmissionPolicy=false"),
        ("feature-gates", {"A": True, "ValidatingAdmissionPolicy": 0}),
        ("runtime-config", "admissionregistration.k8s.io/v1=0"),
        ("runtime-config", {"api/all": "f"}),
        ("feature-gates", {"A": True, "Other": "f"}),
        ("feature-gates", {"A=true,ValidatingAdmissionPolicy": False}),
        ("runtime-config", {"admissionregistration.k8s.io/v1=0,api/alpha": True}),
        ("v", [4]),
        ("v", {"a": 1}),
        ("v", None),
        ("v", "4\n- --anonymous-auth=true"),
        ("--v", 4),
        ("v=4 --anonymous-auth", True),
        ("V", 4),
    ],
)
def test_values_and_names_of_another_form_are_refused(name: str, value: object) -> None:
    assert refusal(SERVER, name, value).startswith("attested_control_plane_arguments: expected ")


@pytest.mark.parametrize("given", [{"kubelet": {"v": 4}}, {SERVER: ["v"]}, {SERVER: None}])
def test_arguments_are_by_component_and_name(given: dict[str, Any]) -> None:
    with pytest.raises(SiteError, match="expected arguments by name for etcd, kube-apiserver") as caught:
        parse_arguments(given)
    assert caught.value.code == "CONFIG_INVALID"


def test_every_problem_is_named() -> None:
    with pytest.raises(SiteError, match=r"no anonymous-auth of kube-apiserver: who .*; .*no data-dir of etcd"):
        parse_arguments({SERVER: {"anonymous-auth": True}, ETCD: {"data-dir": "/x"}})


def test_all_that_this_collection_sets_is_refused_or_has_a_default_to_go_back_to() -> None:
    ours = api_server_arguments(KubernetesPaths())
    for name, value in ours.items():
        if name in site_names(SERVER, ours):
            pytest.fail(f"{name} would be taken for the site's")
        placed, gone = changes_of(SERVER, {name: "else"}, {}, before=[name])
        assert placed.get(name, value) == value
        assert gone == ((name,) if name not in placed else ())


def test_an_argument_comes_and_goes() -> None:
    plugins = {"enable-admission-plugins": "DenyServiceExternalIPs,NodeRestriction"}
    present = {"profiling": "false", "audit-log-maxage": "30", "v": "2", **plugins}
    rest = {"audit-log-maxbackup": "10", "audit-log-maxsize": "100"}
    placed, gone = changes_of(SERVER, present | rest, {"v": "4", "audit-log-maxage": "90"}, before=[])
    assert (placed, gone) == ({"v": "4", "audit-log-maxage": "90"}, ())
    assert changes_of(SERVER, present | rest | placed, {"v": "4", "audit-log-maxage": "90"}, before=["v"]) == ({}, ())
    placed, gone = changes_of(SERVER, present | rest | placed, {}, before=["v", "audit-log-maxage"])
    assert (placed, gone) == ({"audit-log-maxage": "30"}, ("v",))
    assert changes_of(SERVER, present | rest, {}, before=["gone"]) == ({}, ())  # a person's own stays
    assert changes_of(SERVER, {"b": "1", "a": "1"} | present | rest, {}, before=["b", "a"])[1] == ("a", "b")
    assert changes_of(MANAGER, {}, {}, before=[]) == ({"terminated-pod-gc-threshold": "1000"}, ())


def test_later_control_planes_are_made_with_the_same_and_without_what_went() -> None:
    configuration: dict[str, Any] = {
        "apiServer": {"extraArgs": [{"name": "profiling", "value": "false"}, {"name": "old", "value": "1"}]},
        "etcd": {"local": {"dataDir": "/var/lib/etcd"}},
    }
    wanted = parse_arguments({SERVER: {"v": 4}, ETCD: {"max-wals": 3}, SCHEDULER: {"v": 2}})
    assert arrange_configuration(configuration, wanted)
    names = [one["name"] for one in configuration["apiServer"]["extraArgs"]]
    ours = ["audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize", "enable-admission-plugins"]
    assert names == ["profiling", *ours, "v"]
    assert arrange_configuration(configuration, {**wanted, SERVER: {"v": "5"}})
    assert [one for one in configuration["apiServer"]["extraArgs"] if one["name"] == "v"] == [
        {"name": "v", "value": "5"}
    ]
    assert arrange_configuration(configuration, wanted)
    told = {one["name"]: one["value"] for one in configuration["apiServer"]["extraArgs"]}
    assert (told["v"], told["profiling"], "old" in told) == ("4", "false", False)
    assert configuration["etcd"]["local"] == {
        "dataDir": "/var/lib/etcd",
        "extraArgs": [{"name": "max-wals", "value": "3"}],
    }
    assert not arrange_configuration(configuration, wanted)
    assert arrange_configuration(configuration, parse_arguments({}))
    assert configuration["scheduler"]["extraArgs"] == []
    manager = {"terminated-pod-gc-threshold": "1000"}
    assert {one["name"]: one["value"] for one in configuration["controllerManager"]["extraArgs"]} == manager
    assert configuration["etcd"]["local"]["extraArgs"] == []


def test_authenticators_never_speak_for_the_clusters_own(tmp_path: Path) -> None:
    content = authentication_file([OIDC])
    document = json.loads(content)
    (held,) = document["jwt"]
    assert document["anonymous"] == json.loads(render_authentication())["anonymous"]
    assert [sorted(rule) for rule in held["userValidationRules"]] == [["expression", "message"]] * 3
    said = " ".join(rule["expression"] for rule in held["userValidationRules"])
    assert all(f"startsWith('{prefix}')" in said for prefix in ("system:", "attested:", "kubeadm:"))
    own = {"expression": "user.username != ''", "message": "of the site"}
    more = {**OIDC, "claimValidationRules": [{"claim": "hd", "requiredValue": "x"}], "userValidationRules": [own]}
    (held,) = json.loads(authentication_file([more]))["jwt"]
    assert held["userValidationRules"][0] == own
    assert len(held["userValidationRules"]) == 4
    assert authentication_file([]) == render_authentication()
    place = authentication_path(KubernetesPaths(root=tmp_path))
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    write_api_server_files(KubernetesPaths(root=tmp_path))
    assert place.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["jwt"][0].pop("userValidationRules"),
        lambda one: one["jwt"][0]["userValidationRules"].pop(),
        lambda one: one["anonymous"].pop("conditions"),
        lambda one: one.update(jwt=[7]),
        lambda one: one.update(jwt=7),
    ],
)
def test_a_file_that_somebody_changed_is_written_anew(tmp_path: Path, change: Any) -> None:
    document = json.loads(authentication_file([{**OIDC, "userValidationRules": [{"expression": "true"}]}]))
    assert is_authentication_file(authentication_file([{**OIDC, "userValidationRules": [{"expression": "true"}]}]))
    change(document)
    assert not is_authentication_file(json.dumps(document, indent=2).encode() + b"\n")
    assert not is_authentication_file(b"[")
    assert not is_authentication_file(b'{"jwt": [{}]}')


def test_there_may_be_as_many_as_kubernetes_takes() -> None:
    many = [{"issuer": {"url": f"https://{number}.example"}} for number in range(64)]
    assert len(json.loads(authentication_file(many))["jwt"]) == 64
    with pytest.raises(SiteError, match="in entry 2 of attested_authenticators, got a, b, c, d, e, f, g"):
        authentication_file([many[0], {**many[1], **dict.fromkeys("gfedcba", 1)}])
    with pytest.raises(SiteError, match="begins with https:// in entry 1 of"):
        authentication_file([{}, many[0]])


@pytest.mark.parametrize(
    "authenticators",
    [
        [{"issuer": {"url": "http://x"}}],
        [{"issuer": {}}],
        [{}],
        ["x"],
        [{**OIDC, "anonymous": {"enabled": True}}],
        [OIDC] * 65,
    ],
)
def test_authenticators_of_another_form_are_refused(authenticators: list[Any]) -> None:
    with pytest.raises(SiteError) as caught:
        authentication_file(authenticators)
    assert caught.value.code == "CONFIG_INVALID"


# ---- the audit webhook

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("authority", ["", PEM, PEM * 2])
def test_the_audit_webhook_is_a_kubeconfig_without_credentials(authority: str) -> None:
    given = {"certificate_authority": authority} if authority else {}
    content = audit_webhook_file({"url": "https://audit.example:8443/k?v=1", **given})
    trusted = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    assert json.loads(content) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "audit", "cluster": {"server": "https://audit.example:8443/k?v=1", **trusted}}],
        "users": [{"name": "audit", "user": {}}],
        "contexts": [{"name": "audit", "context": {"cluster": "audit", "user": "audit"}}],
        "current-context": "audit",
    }
    assert is_audit_webhook_file(content)
    assert not is_audit_webhook_file(content.replace(b'"user": {}', b'"user": {"token": "x"}'))


def test_without_a_webhook_there_is_no_file() -> None:
    assert audit_webhook_file({}) == b""
    assert not is_audit_webhook_file(b"")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}",
        b"[]",
        b'{"clusters": 7}',
        b'{"clusters": [{"cluster": "https://audit.example"}]}',
        b'{"clusters": [{"cluster": {"server": "http://audit.example"}}]}',
        b'{"clusters": [{"cluster": {"server": "https://audit.example", "certificate-authority-data": "x"}}]}',
    ],
)
def test_another_document_is_not_the_file_of_a_webhook(content: bytes) -> None:
    assert not is_audit_webhook_file(content)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://audit.example"}, "begins with https://"),
        ({"url": "https://user:password@audit.example"}, "has no user"),
        ({"url": "https://audit.example/a b"}, "begins with https://"),
        ({"url": 7}, "begins with https://"),
        ({"certificate_authority": PEM}, "begins with https://"),
        ({"url": "https://audit.example", "certificate_authority": "/etc/ssl/ca.pem"}, "certificates in PEM"),
        ({"url": "https://audit.example", "certificate_authority": 7}, "certificates in PEM"),
        ({"url": "https://audit.example", **dict.fromkeys("ihgfedcba", "x")}, "got a, b, c, d, e, f, g, h, i"),
    ],
)
def test_a_webhook_of_another_form_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SiteError, match=message) as caught:
        audit_webhook_file(given)
    assert caught.value.code == "CONFIG_INVALID"
    assert re.search(r"\battested_audit_webhook\b", str(caught.value))


def test_the_argument_of_the_webhook_is_refused_by_name() -> None:
    with pytest.raises(SiteError, match="use attested_audit_webhook"):
        parse_arguments({"kube-apiserver": {"audit-webhook-config-file": "/etc/own.yaml"}})
    assert parse_arguments({"kube-apiserver": {"audit-webhook-batch-max-wait": "5s"}})["kube-apiserver"]
