# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubeadm's configuration as bytes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import (
    admission_file,
    admission_path,
    api_server_files,
    encryption_path,
    plugin_arguments,
    render_init,
    render_join,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import (
    ClusterSpec,
    KubernetesPaths,
    NodeSpec,
    PodSecurity,
    parse_admission,
)

CLUSTER = ClusterSpec(kubernetes_version="1.35.4", cluster_name="prod", api_endpoint="api.prod.example:6443")
NODE = NodeSpec(name="cp-1", node_ip="10.0.0.11")
PATHS = KubernetesPaths()


def init_documents(cluster=CLUSTER, node=NODE):
    return {one["kind"]: one for one in yaml.safe_load_all(render_init(cluster, node, paths=PATHS))}


def arguments(component):
    return {one["name"]: one["value"] for one in component["extraArgs"]}


def test_init_has_no_bootstrap_token_anywhere():
    found = init_documents()
    assert {"bootstrap-token", "show-join-command", "upload-certs"} <= set(found["InitConfiguration"]["skipPhases"])
    assert "bootstrapTokens" not in found["InitConfiguration"]
    assert arguments(found["ClusterConfiguration"]["apiServer"])["enable-bootstrap-token-auth"] == "false"


def test_documents_are_of_the_versions_that_kubeadm_takes():
    assert {kind: one["apiVersion"] for kind, one in init_documents().items()} == {
        "InitConfiguration": "kubeadm.k8s.io/v1beta4",
        "ClusterConfiguration": "kubeadm.k8s.io/v1beta4",
        "KubeletConfiguration": "kubelet.config.k8s.io/v1beta1",
        "KubeProxyConfiguration": "kubeproxy.config.k8s.io/v1alpha1",
    }


def test_names_of_the_api_server():
    cluster = dataclasses.replace(CLUSTER, extra_sans=("10.0.0.100", "k8s.example"))
    assert init_documents(cluster)["ClusterConfiguration"]["apiServer"]["certSANs"] == [
        "10.0.0.100",
        "10.0.0.11",
        "127.0.0.1",
        "api.prod.example",
        "k8s.example",
        "localhost",
    ]


def test_a_new_cluster_has_keys_of_p256():
    assert init_documents()["ClusterConfiguration"]["encryptionAlgorithm"] == "ECDSA-P256"


def test_nothing_of_the_lab_is_a_default():
    found = init_documents()
    assert "failCgroupV1" not in found["KubeletConfiguration"]
    assert "conntrack" not in found["KubeProxyConfiguration"]
    assert found["InitConfiguration"]["nodeRegistration"]["ignorePreflightErrors"] == []


def test_lab_options_reach_their_documents():
    node = dataclasses.replace(NODE, allow_cgroup_v1=True, ignore_preflight_errors=("Mem",))
    found = init_documents(dataclasses.replace(CLUSTER, unmanaged_conntrack=True), node)
    assert found["KubeletConfiguration"]["failCgroupV1"] is False
    assert found["KubeProxyConfiguration"]["conntrack"] == {"maxPerCore": 0, "min": 0}
    assert found["InitConfiguration"]["nodeRegistration"]["ignorePreflightErrors"] == ["Mem", "SystemVerification"]


def test_a_cluster_without_kube_proxy_says_so():
    assert "proxy" not in init_documents()["ClusterConfiguration"]
    found = init_documents(dataclasses.replace(CLUSTER, kube_proxy=False))
    assert found["ClusterConfiguration"]["proxy"] == {"disabled": True}


def test_a_kubelet_asks_for_the_certificate_that_it_serves_with():
    found = init_documents()["KubeletConfiguration"]
    assert found["serverTLSBootstrap"] is True


def test_kubelets_ask_to_serve_and_are_held_to_it_unless_the_site_turned_that_off():
    before, after = init_documents(dataclasses.replace(CLUSTER, kubelet_serving=False)), init_documents()
    assert after["KubeletConfiguration"] == {**before["KubeletConfiguration"], "serverTLSBootstrap": True}
    components = [after["ClusterConfiguration"], before["ClusterConfiguration"]]
    (server, server_before), (manager, manager_before) = (
        [arguments(one[name]) for one in components] for name in ("apiServer", "controllerManager")
    )
    assert server == {**server_before, "kubelet-certificate-authority": "/etc/kubernetes/pki/ca.crt"}
    assert manager == {**manager_before, "cluster-signing-duration": "72h0m0s"}
    assert "kubelet-certificate-authority" not in server_before
    assert {kind for kind in before if before[kind] != after[kind]} == {"KubeletConfiguration", "ClusterConfiguration"}


PODS, SERVICES = "10.244.0.0/16,fd00:1::/48", "10.96.0.0/16,fd00:2::/112"
BOTH = {"pod_subnet": PODS, "service_subnet": SERVICES}


def test_a_cluster_of_both_families_has_nodes_with_two_addresses():
    found = init_documents(dataclasses.replace(CLUSTER, **BOTH), dataclasses.replace(NODE, second_node_ip="fd00::11"))
    networking = found["ClusterConfiguration"]["networking"]
    assert (networking["podSubnet"], networking["serviceSubnet"]) == (PODS, SERVICES)
    assert "fd00::11" in found["ClusterConfiguration"]["apiServer"]["certSANs"]
    assert found["InitConfiguration"]["localAPIEndpoint"]["advertiseAddress"] == "10.0.0.11"
    kubelet = found["InitConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert kubelet == [{"name": "node-ip", "value": "10.0.0.11,fd00::11"}]


@pytest.mark.parametrize(
    ("cluster", "node"),
    [
        pytest.param(BOTH, {}, id="nodes of one family"),
        pytest.param({"pod_subnet": "fd00::/64", "service_subnet": "fd01::/108"}, {"node_ip": "fd02::1"}, id="IPv6"),
        pytest.param({"pod_subnet": "10.0.0.0/8", "service_subnet": "11.0.0.0/12"}, {}, id="large"),
        pytest.param({"pod_subnet": "10.0.0.0/24", "service_subnet": "11.0.0.0/28"}, {}, id="small"),
    ],
)
def test_networks_that_kubeadm_accepts(cluster, node):
    assert init_documents(dataclasses.replace(CLUSTER, **cluster), dataclasses.replace(NODE, **node))


def test_join_uses_the_node_own_kubeconfig_and_bounded_times():
    found = yaml.safe_load(render_join(dataclasses.replace(NODE, name="w-1"), paths=PATHS))
    assert found["discovery"] == {"file": {"kubeConfigPath": "/etc/kubernetes/kubelet.conf"}}
    assert found["nodeRegistration"]["name"] == "w-1"
    assert found["nodeRegistration"]["kubeletExtraArgs"] == [{"name": "node-ip", "value": "10.0.0.11"}]
    assert set(found["timeouts"]) == {"discovery", "tlsBootstrap", "kubeletHealthCheck"}
    assert "controlPlane" not in found


def test_join_of_a_control_plane_names_its_address():
    found = yaml.safe_load(render_join(NODE, paths=PATHS, control_plane=True))
    assert found["controlPlane"] == {"localAPIEndpoint": {"advertiseAddress": "10.0.0.11", "bindPort": 6443}}


def test_anonymous_requests_reach_health_only():
    files = api_server_files(PATHS)
    found = json.loads(files["/etc/kubernetes/attested/authentication.yaml"])
    assert [one["path"] for one in found["anonymous"]["conditions"]] == ["/livez", "/readyz", "/healthz"]


def test_pods_are_held_to_the_baseline_and_services_to_their_own_addresses():
    told = arguments(init_documents()["ClusterConfiguration"]["apiServer"])
    assert told["enable-admission-plugins"] == "DenyServiceExternalIPs,NodeRestriction"
    (plugin,) = json.loads(api_server_files(PATHS)[told["admission-control-config-file"]])["plugins"]
    assert plugin["name"] == "PodSecurity"
    held = plugin["configuration"]["defaults"]
    assert {held[mode] for mode in ("enforce", "audit", "warn")} == {"baseline"}
    assert plugin["configuration"]["exemptions"] == {
        "usernames": [],
        "runtimeClasses": [],
        "namespaces": ["kube-system"],
    }


def test_a_site_holds_pods_to_more_and_exempts_namespaces():
    pods = PodSecurity(level="restricted", exempt=("rook-ceph", "kube-flannel", "kube-system"))
    content = api_server_files(PATHS, pods)["/etc/kubernetes/attested/admission.yaml"]
    found = parse_admission(content)
    assert (found.level, found.namespaces) == ("restricted", ("kube-flannel", "kube-system", "rook-ceph"))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[", id="no YAML"),
        pytest.param(b"kind: AdmissionConfiguration", id="no plugin"),
        pytest.param(b"plugins: [1]", id="a plugin that is a number"),
        pytest.param(admission_file(PodSecurity()) + b"---\n{}\n", id="a second document"),
        pytest.param(admission_file(PodSecurity()).replace(b'"warn"', b'"warm"'), id="another mode"),
        pytest.param(admission_file(PodSecurity()).replace(b'"usernames": []', b'"usernames": ["a"]'), id="a user"),
    ],
)
def test_an_admission_configuration_that_is_not_ours_is_not_read(content):
    assert parse_admission(admission_file(PodSecurity())) == PodSecurity()
    with pytest.raises(ValueError, match=r"."):
        parse_admission(content)


@pytest.mark.parametrize(
    ("present", "plugins"),
    [
        pytest.param({}, "DenyServiceExternalIPs,NodeRestriction", id="a new one"),
        pytest.param(
            {"enable-admission-plugins": "NodeRestriction, AlwaysPullImages"},
            "AlwaysPullImages,DenyServiceExternalIPs,NodeRestriction",
            id="one to which an admin added",
        ),
    ],
)
def test_an_api_server_keeps_the_plugins_that_an_admin_gave_it(present, plugins):
    place = str(admission_path(PATHS))
    wanted = {"admission-control-config-file": place, "enable-admission-plugins": plugins}
    assert plugin_arguments(present, PATHS) == wanted
    assert plugin_arguments({**present, **wanted}, PATHS) == wanted
    assert plugin_arguments({**present, "admission-control-config-file": "/etc/own.yaml"}, PATHS) is None


def test_whether_kube_proxy_is_well_is_told_on_the_machine_alone():
    assert init_documents()["KubeProxyConfiguration"]["healthzBindAddress"] == "127.0.0.1:10256"


def test_files_named_by_arguments_are_written_and_mounted():
    server = init_documents()["ClusterConfiguration"]["apiServer"]
    files = (
        "admission-control-config-file",
        "audit-policy-file",
        "authentication-config",
        "encryption-provider-config",
    )
    named = [value for name, value in arguments(server).items() if name in files]
    assert sorted(named) == sorted([*api_server_files(PATHS), str(encryption_path(PATHS))])
    assert {str(Path(name).parent) for name in named} <= {one["mountPath"] for one in server["extraVolumes"]}


@pytest.mark.parametrize(
    ("cluster", "node", "said"),
    [
        pytest.param({"kubernetes_version": "v1.35.4"}, {}, "v1.35.4", id="a version with its letter"),
        pytest.param({"kubernetes_version": "1.35"}, {}, "1.35", id="a minor without its patch"),
        pytest.param({"cluster_name": "Prod_1"}, {}, "Prod_1", id="a cluster name that is no DNS name"),
        pytest.param({"api_endpoint": "api.prod.example"}, {}, "api.prod.example", id="an endpoint without port"),
        pytest.param({"api_endpoint": "https://a:6443"}, {}, "https://a:6443", id="an endpoint with scheme"),
        pytest.param({"pod_subnet": "10.244.0.0"}, {}, "10.244.0.0", id="a subnet without length"),
        pytest.param({"service_subnet": "10.96.0.1/16"}, {}, "10.96.0.1/16", id="a subnet with host bits"),
        pytest.param({"pod_subnet": "10.0.0.0/16,10.1.0.0/16"}, {}, "10.1.0.0/16", id="two subnets of one family"),
        pytest.param({"pod_subnet": "10.0.0.0/7"}, {}, "8 to 24 bits", id="a subnet for too many nodes"),
        pytest.param({"pod_subnet": "10.0.0.0/25"}, {}, "each node gets a /24", id="a subnet for less than a node"),
        pytest.param({"pod_subnet": "10.0.0.0/16,fd00::/47"}, {}, "48 to 64 bits", id="a large subnet of IPv6"),
        pytest.param({"pod_subnet": "10.0.0.0/16,fd00::/65"}, {}, "each node gets a /64", id="a small subnet of IPv6"),
        pytest.param({"service_subnet": "10.0.0.0/11"}, {}, "12 to 28 bits", id="too many Services"),
        pytest.param({"service_subnet": "10.0.0.0/29"}, {}, "12 to 28 bits", id="too few Services"),
        pytest.param({"service_subnet": "fd00::/107"}, {}, "108 to 124 bits", id="too many Services with IPv6"),
        pytest.param({"pod_subnet": PODS}, {}, "same address families", id="Pods of both families alone"),
        pytest.param(
            {"pod_subnet": PODS, "service_subnet": "fd00:2::/112,10.96.0.0/16"}, {}, "same order", id="another order"
        ),
        pytest.param({}, {"node_ip": "fd00::11"}, "family of the node fd00::11, got IPv4", id="a node with IPv6"),
        pytest.param({}, {"second_node_ip": "fd00::11"}, "no second address", id="two addresses without two subnets"),
        pytest.param({**BOTH}, {"second_node_ip": "10.0.0.12"}, "10.0.0.12", id="two addresses of one family"),
        pytest.param({**BOTH}, {"second_node_ip": "w-1"}, "'w-1'", id="a second name"),
        pytest.param({"pod_security": PodSecurity(level="off")}, {}, "'off'", id="a level that there is not"),
        pytest.param({"pod_security": PodSecurity(exempt=("a.b",))}, {}, "'a.b'", id="no namespace to exempt"),
        pytest.param({}, {"name": "W-1"}, "W-1", id="a node name in capitals"),
        pytest.param({}, {"name": "a" * 254}, "a" * 254, id="a node name that is too long"),
        pytest.param({}, {"node_ip": "w-1.example"}, "w-1.example", id="a name instead of an address"),
        pytest.param({}, {"ignore_preflight_errors": ("All",)}, "'all'", id="all checks ignored"),
    ],
)
def test_unusable_option_is_refused_by_name(cluster, node, said):
    with pytest.raises(KubeadmError) as caught:
        render_init(dataclasses.replace(CLUSTER, **cluster), dataclasses.replace(NODE, **node), paths=PATHS)
    assert caught.value.code == "OPTION_INVALID"
    assert said in caught.value.message


def test_all_problems_are_named_at_once():
    with pytest.raises(KubeadmError) as caught:
        render_init(dataclasses.replace(CLUSTER, cluster_name="P"), dataclasses.replace(NODE, node_ip="x"), paths=PATHS)
    assert "'P'" in caught.value.message
    assert "'x'" in caught.value.message


@pytest.mark.parametrize("port", ["0", "65536"])
def test_port_out_of_range_is_refused(port):
    with pytest.raises(KubeadmError) as caught:
        render_init(dataclasses.replace(CLUSTER, api_endpoint=f"api:{port}"), NODE, paths=PATHS)
    assert caught.value.code == "OPTION_INVALID"


def test_a_dotted_node_name_is_fine():
    assert init_documents(node=dataclasses.replace(NODE, name="cp-1.prod.example"))
