# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values for Cilium: what follows from the cluster, what a site may change, what cannot be true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cilium_values import flatten, nest, run_values
from ansible_collections.attested.kubernetes.plugins.modules.cilium_values import SPEC
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded, code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result

    Write = Callable[..., Result]

SITE = {"cluster_name": "prod", "api_endpoint": "api.prod.example:6443", "kube_proxy": False, "nodes": 6}
LOOPBACK = {"k8sServiceHost": "127.0.0.1", "k8sServicePort": 6443}
PROXY = {"api_proxy": True, "api_proxy_port": 6443, "api_extra_sans": ["127.0.0.1"]}
POOL = {"ipam": {"mode": "cluster-pool"}}


def params(path: Path, **options: Any) -> dict[str, Any]:
    """Return the module's options: its own defaults, the site above, and what the case changes."""
    defaults = {name: one.get("default") for name, one in SPEC.options.items()}
    return {**defaults, **SITE, "path": str(path), **options}


@pytest.fixture(name="write")
def _write(tmp_path: Path) -> Write:
    def write(values: Mapping[str, Any] | None = None, *, check_mode: bool = False, **options: Any) -> Result:
        return run_values(params(tmp_path / "values.yaml", values=values or {}, **options), check_mode)

    return write


def test_the_file_says_what_the_cluster_is(write: Write, tmp_path: Path) -> None:
    write()
    found = flatten(yaml.safe_load((tmp_path / "values.yaml").read_text(encoding="utf-8")))
    assert (found["k8sServiceHost"], found["k8sServicePort"]) == ("api.prod.example", 6443)
    assert (found["cluster.name"], found["ipam.mode"], found["operator.replicas"]) == ("prod", "kubernetes", 2)
    assert found["kubeProxyReplacement"] is True
    assert found["k8s.requireIPv4PodCIDR"] is True
    assert found["cni.binPath"] == "/opt/cni/bin"


def test_a_cluster_with_kube_proxy_keeps_it(write: Write) -> None:
    assert write(kube_proxy=True).values["values"]["kubeProxyReplacement"] is False


def test_no_container_loads_kernel_code_or_mounts_on_the_host(write: Write) -> None:
    values = write().values["values"]
    assert "SYS_MODULE" not in str(values["securityContext"])
    assert values["securityContext"]["privileged"] is False
    assert (values["bpf"]["autoMount"], values["cgroup"]["autoMount"]) == ({"enabled": False}, {"enabled": False})
    assert values["encryption"] == {"enabled": True, "type": "wireguard"}


def test_one_machine_has_one_operator(write: Write) -> None:
    assert write(nodes=1).values["values"]["operator"] == {"replicas": 1}


def test_a_pool_is_the_network_of_the_pods(write: Write) -> None:
    assert write(POOL).values["values"]["ipam"] == {
        "mode": "cluster-pool",
        "operator": {"clusterPoolIPv4MaskSize": 24, "clusterPoolIPv4PodCIDRList": ["10.244.0.0/16"]},
    }


def test_pods_with_ipv6_have_it_alone(write: Write) -> None:
    values = write(pod_subnet="fd00:1::/112", service_subnet="fd00:2::/112", values={"ipam": {"mode": "cluster-pool"}})
    leaves = flatten(values.values["values"])
    assert (leaves["ipv4.enabled"], leaves["ipv6.enabled"]) == (False, True)
    assert leaves["ipam.operator.clusterPoolIPv6PodCIDRList"] == ["fd00:1::/112"]


BOTH = {"pod_subnet": "10.244.0.0/16,fd00:1::/112", "service_subnet": "10.96.0.0/16,fd00:2::/112"}


def test_pods_of_both_families_have_a_pool_of_each(write: Write) -> None:
    leaves = flatten(write({"ipam": {"mode": "cluster-pool"}}, **BOTH).values["values"])
    assert (leaves["ipv4.enabled"], leaves["ipv6.enabled"]) == (True, True)
    assert leaves["ipam.operator.clusterPoolIPv4PodCIDRList"] == ["10.244.0.0/16"]
    assert leaves["ipam.operator.clusterPoolIPv6PodCIDRList"] == ["fd00:1::/112"]
    leaves = flatten(write(**BOTH).values["values"])
    assert (leaves["k8s.requireIPv4PodCIDR"], leaves["k8s.requireIPv6PodCIDR"]) == (True, True)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        pytest.param(LOOPBACK, PROXY, id="the port of each worker, where control planes listen too"),
        pytest.param(
            {"cluster": {"name": "short"}}, {"cluster_name": "p" * 33}, id="a name where the cluster's is long"
        ),
        pytest.param({"cluster": {"id": 7}}, {}, id="one of several clusters"),
        pytest.param({"encryption": {"enabled": False}}, {}, id="no encryption"),
        pytest.param(
            {"routingMode": "native", "autoDirectNodeRoutes": True, "ipv4NativeRoutingCIDR": "10.0.0.0/8"},
            {},
            id="routes instead of tunnels",
        ),
        pytest.param({"hubble": {"enabled": True, "relay": {"enabled": True}}}, {}, id="Hubble with its relay"),
    ],
)
def test_a_site_may_want_it_otherwise(write: Write, values: dict[str, Any], options: dict[str, Any]) -> None:
    held = flatten(write(values, **options).values["values"])
    assert {name: held[name] for name in flatten(values)} == flatten(values)


def test_a_second_run_changes_nothing_and_a_check_writes_nothing(write: Write, tmp_path: Path) -> None:
    assert write(check_mode=True).changed
    assert not (tmp_path / "values.yaml").exists()
    assert write().changed
    assert not write().changed
    assert not write(check_mode=True).changed
    assert (tmp_path / "values.yaml").stat().st_mode & 0o777 == 0o644


def test_a_change_is_shown_before_it_is_made(write: Write, tmp_path: Path) -> None:
    write()
    before = (tmp_path / "values.yaml").read_text(encoding="utf-8")
    shown = write({"MTU": 1400}, check_mode=True).diff
    assert shown is not None
    assert shown.before == before
    assert "MTU: 1400" in str(shown.after)
    write({"MTU": 1400})
    assert (tmp_path / "values.yaml").read_text(encoding="utf-8") == shown.after


def test_a_file_of_somebody_else_stays(write: Write, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("kubeProxyReplacement: true\n", encoding="utf-8")
    assert code_of(write) == "CILIUM_FILE_FOREIGN"
    assert (tmp_path / "values.yaml").read_text(encoding="utf-8") == "kubeProxyReplacement: true\n"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"kubeProxyReplacment": True}, "near it: kubeProxyReplacement", id="a slip of the pen"),
        pytest.param({"ipam": {"operator": {"poolSize": 24}}}, "ipam.operator.poolSize", id="below a known group"),
        pytest.param({"image": {"tag": "v1"}}, "image", id="a key of the chart that is not checked here"),
        pytest.param({"ipam.mode": "cluster-pool"}, "'ipam.mode'", id="a dotted name, which Helm would not take apart"),
        pytest.param({"encryption": {"strictMode": {}}}, "encryption.strictMode", id="one whose name charts changed"),
        pytest.param({5: 6}, "5", id="no word at all"),
    ],
)
def test_an_unknown_key_is_refused(write: Write, tmp_path: Path, values: dict[Any, Any], named: str) -> None:
    with pytest.raises(AttestedError, match=named) as caught:
        write(values)
    assert Coded(caught.value) == "CILIUM_VALUES_INVALID: expected keys of Cilium's chart"
    assert not (tmp_path / "values.yaml").exists()


@pytest.mark.parametrize(
    ("values", "options"),
    [
        pytest.param({"kubeProxyReplacement": "true"}, {}, id="a word for a flag"),
        pytest.param({"kubeProxyReplacement": "strict"}, {}, id="what older charts had"),
        pytest.param({"k8sServicePort": "6443"}, {}, id="a port as a word"),
        pytest.param({"k8sServicePort": 65536}, {}, id="a port that is none"),
        pytest.param({"cluster": {"id": True}}, {}, id="a flag for a number"),
        pytest.param({"cluster": {"id": 256}}, {}, id="an id above what clusters may have"),
        pytest.param({"cluster": "prod"}, {}, id="a word for a group"),
        pytest.param({"cluster": {"name": "Prod"}}, {}, id="capitals in a name"),
        pytest.param({}, {"cluster_name": "p" * 33}, id="a cluster whose name is too long for Cilium"),
        pytest.param({"encryption": {"type": "ipsec"}}, {}, id="IPsec, whose key would be a Secret"),
        pytest.param({"ipam": {"mode": "eni"}}, {}, id="addresses of a cloud"),
        pytest.param({"ipam": {"operator": {"clusterPoolIPv4PodCIDRList": []}}}, {}, id="no pool"),
        pytest.param({"ipam": {"operator": {"clusterPoolIPv4PodCIDRList": ["10.0.0.1/8"]}}}, {}, id="host bits"),
        pytest.param({"ipam": {"operator": {"clusterPoolIPv4PodCIDRList": ["fd00::/112"]}}}, {}, id="the other family"),
        pytest.param({"ipv4NativeRoutingCIDR": "10.0.0.0"}, {}, id="an address for a network"),
        pytest.param({"cgroup": {"hostRoot": "run/cgroup"}}, {}, id="a relative path"),
        pytest.param({"policyEnforcementMode": "never"}, {}, id="no network policies at all"),
        pytest.param({"securityContext": {"capabilities": {"ciliumAgent": ["net_admin"]}}}, {}, id="small letters"),
    ],
)
def test_a_value_that_its_key_may_not_hold_is_refused(
    write: Write, values: dict[str, Any], options: dict[str, Any]
) -> None:
    assert code_of(lambda: write(values, **options)) == "CILIUM_VALUES_INVALID: expected usable values"


@pytest.mark.parametrize(
    ("values", "options", "named"),
    [
        pytest.param({"kubeProxyReplacement": True}, {"kube_proxy": True}, "two would write", id="both"),
        pytest.param({"kubeProxyReplacement": False}, {}, "nobody would bring Services", id="neither"),
        pytest.param({"k8sServiceHost": "auto"}, {}, "expected attested_api_endpoint", id="a ConfigMap we do not have"),
        pytest.param({"k8sServicePort": 8443}, {}, "expected attested_api_endpoint", id="another port"),
        pytest.param(LOOPBACK, {**PROXY, "api_proxy": False}, "expected attested_api_proxy", id="no proxy"),
        pytest.param(LOOPBACK, {**PROXY, "api_proxy_port": 6444}, "both 6443", id="a proxy beside the API's port"),
        pytest.param({**LOOPBACK, "k8sServicePort": 6444}, PROXY, "both 6443", id="a port without API server"),
        pytest.param(LOOPBACK, {**PROXY, "api_extra_sans": []}, "attested_api_extra_sans", id="no certificate for it"),
        pytest.param({"cluster": {"name": "other"}}, {}, "attested_cluster_name", id="another name"),
        pytest.param({"cluster": {"id": 1}}, {"cluster_name": "default"}, "than default", id="default among several"),
        pytest.param({"ipv6": {"enabled": True}}, {}, "ipv6.enabled", id="a family without Pods"),
        pytest.param({"ipv4": {"enabled": False}}, {}, "ipv4.enabled", id="Pods without their family"),
        pytest.param({}, {"service_subnet": "10.244.128.0/20"}, "overlap", id="Services among Pods"),
        pytest.param({}, {**BOTH, "service_subnet": "10.96.0.0/16,fd00:1::/112"}, "overlap", id="IPv6 Services there"),
        pytest.param({"ipv6": {"enabled": False}}, BOTH, "ipv6.enabled", id="half of the families"),
        pytest.param(
            {"routingMode": "native", "ipv4NativeRoutingCIDR": "10.0.0.0/8"},
            BOTH,
            "ipv6NativeRoutingCIDR",
            id="routes of one family",
        ),
        pytest.param(
            {"ipam": {"operator": {"clusterPoolIPv4MaskSize": 25}}}, {}, "ipam.mode cluster-pool", id="half a pool"
        ),
        pytest.param(
            {"ipam": {"mode": "cluster-pool", "operator": {"clusterPoolIPv4PodCIDRList": ["10.0.0.0/8"]}}},
            {},
            "expected them in attested_pod_subnet",
            id="a pool around the Pods' network",
        ),
        pytest.param(
            {"ipam": {"mode": "cluster-pool", "operator": {"clusterPoolIPv6MaskSize": 120}}},
            {},
            "attested_pod_subnet is",
            id="a size for the other family",
        ),
        pytest.param(POOL, {"pod_subnet": "10.244.0.0/22"}, "for each of 6 machines, there are 4", id="a small pool"),
        pytest.param(POOL, {"pod_subnet": "10.244.0.0/25"}, "there are 0", id="a pool below one block"),
        pytest.param({"routingMode": "native"}, {}, "ipv4NativeRoutingCIDR", id="routes to nowhere"),
        pytest.param(
            {"routingMode": "native", "ipv4NativeRoutingCIDR": "10.244.0.0/17"},
            {},
            "a network around",
            id="routes to half of the Pods",
        ),
        pytest.param({"autoDirectNodeRoutes": True}, {}, "routingMode native", id="routes beside tunnels"),
        pytest.param({"cni": {"binPath": "/opt/plugins"}}, {}, "containerd looks", id="a plugin that nobody finds"),
        pytest.param({"securityContext": {"privileged": True}}, {}, "privileged", id="a privileged agent"),
        pytest.param(
            {"securityContext": {"capabilities": {"ciliumAgent": ["NET_ADMIN", "SYS_MODULE"]}}},
            {},
            "SYS_MODULE",
            id="an agent that loads modules",
        ),
        pytest.param(
            {"encryption": {"enabled": False, "nodeEncryption": True}}, {}, "encryption.enabled", id="half encrypted"
        ),
        pytest.param({"hubble": {"relay": {"enabled": True}}}, {}, "hubble.enabled", id="a relay without Hubble"),
        pytest.param(
            {"hubble": {"enabled": True, "ui": {"enabled": True}}}, {}, "hubble.relay.enabled", id="a UI without relay"
        ),
    ],
)
def test_what_contradicts_the_cluster_is_refused(
    write: Write, tmp_path: Path, values: dict[str, Any], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(AttestedError, match=named) as caught:
        write(values, **options)
    assert Coded(caught.value) == "CILIUM_VALUES_INVALID: fit the cluster"
    assert not (tmp_path / "values.yaml").exists()


def test_every_contradiction_is_named_at_once(write: Write) -> None:
    with pytest.raises(AttestedError) as caught:
        write({"k8sServicePort": 1, "cni": {"binPath": "/opt/plugins"}}, service_subnet="10.244.0.0/20")
    assert [word in caught.value.message for word in ("k8sServicePort", "cni.binPath", "overlap")] == [True] * 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"api_endpoint": "api.prod.example"}, id="an endpoint without port"),
        pytest.param({"api_endpoint": "api.prod.example:0"}, id="port 0"),
        pytest.param({"pod_subnet": "10.244.0.0/16,10.245.0.0/16"}, id="two networks of one family"),
        pytest.param({"service_subnet": "10.96.0.1/16"}, id="host bits in a network"),
        pytest.param({"nodes": 0}, id="no machine"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(write: Write, options: dict[str, Any]) -> None:
    assert code_of(lambda: write(**options)) == "OPTION_INVALID"


def test_an_address_of_ipv6_is_a_host_without_brackets(write: Write) -> None:
    assert write(api_endpoint="[fd00::1]:6443").values["values"]["k8sServiceHost"] == "fd00::1"


def test_leaves_come_back_as_they_were() -> None:
    tree = {"cluster": {"id": 3, "name": "a"}, "ipam": {"mode": "kubernetes"}}
    assert nest(flatten(tree)) == tree
