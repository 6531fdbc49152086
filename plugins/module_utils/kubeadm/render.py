# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Render kubeadm's configuration (v1beta4) and the files of the API server. Pure.

Documents are written as JSON, which is also YAML, so that no quoting rule of YAML can change a value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .spec import (
    API_PORT,
    BY_DEFAULT,
    PLUGINS,
    ClusterSpec,
    KubernetesPaths,
    NodeSpec,
    admission_configuration,
    require_valid,
    require_valid_node,
    split_endpoint,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .spec import PodSecurity


# The audit policy of the API server: the first rule that matches a request decides. Pure.
#
# User and action are logged for every request, except for periodic requests of nodes and controllers. The request body
# is logged if it decides which machines may join or which user may do what. A response is never logged, because it may
# hold a Secret or a token.

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
        "rules": [*_unlogged(), _without_body(), _with_body(), {"level": "Metadata"}],
    }


def _unlogged() -> list[dict[str, Any]]:
    """Return the rules for requests that are not logged: components repeat them every few seconds."""
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


def _without_body() -> dict[str, Any]:
    """Return the rule for requests that carry secrets: the body is not logged."""
    return {
        "level": "Metadata",
        "resources": [
            _resources("", "secrets", "configmaps", "serviceaccounts/token"),
            _resources("authentication.k8s.io"),
        ],
    }


def _with_body() -> dict[str, Any]:
    """Return the rule for writes that decide which machines may join and which user may do what: log the body."""
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
    """Return these resources of a group, or all resources if none is named."""
    return {"group": group, **({"resources": list(names)} if names else {})}


API_VERSION = "kubeadm.k8s.io/v1beta4"
SKIPPED_INIT_PHASES = ("upload-certs", "bootstrap-token", "show-join-command")
"""There is never a bootstrap token, and show-join-command refuses to run without one."""

_PLUGINS, _CONFIGURATION = "enable-admission-plugins", "admission-control-config-file"
_CGROUP_V1_CHECK = "SystemVerification"
_AUDIT_LOG = "/var/log/kubernetes/audit"

AUDIT_WEBHOOK_ARGUMENT = "audit-webhook-config-file"
"""The API server's argument that names the file of `audit_webhook_path`."""

ENCRYPTION_ARGUMENT = "encryption-provider-config"
"""The API server's argument that names the file of `encryption.py`."""

SERVING_LIFE = "72h0m0s"
"""The validity of serving certificates that the cluster signs; a kubelet renews its own after four fifths of it."""

_HEALTH_PATHS = ("livez", "readyz", "healthz")


def render_init(cluster: ClusterSpec, node: NodeSpec, *, paths: KubernetesPaths) -> bytes:
    """Return the four documents of ``kubeadm init --config``; raises OPTION_INVALID."""
    require_valid(cluster, node)
    return documents(
        _init_configuration(node),
        _cluster_configuration(cluster, node, paths),
        _kubelet_configuration(cluster, node),
        _proxy_configuration(cluster),
    )


def render_join(node: NodeSpec, *, paths: KubernetesPaths, control_plane: bool = False) -> bytes:
    """Return the document of ``kubeadm join --config``: discovery by file, no token.

    Raises OPTION_INVALID. A control plane has a separate discovery file, because its kubelet's kubeconfig names its own
    API server.
    """
    require_valid_node(node)
    discovery = paths.discovery_config if control_plane else paths.kubelet_config
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "JoinConfiguration",
        "discovery": {"file": {"kubeConfigPath": str(discovery)}},
        "nodeRegistration": _registration(node),
        "timeouts": {"discovery": "30s", "tlsBootstrap": "1m0s", "kubeletHealthCheck": "2m0s"},
    }
    if control_plane:
        document |= {"controlPlane": {"localAPIEndpoint": _local_endpoint(node)}, **_patches(node)}
    return documents(document)


def render_authentication() -> bytes:
    """Return the API server's authentication: anonymous requests reach the health endpoints only."""
    return documents(authentication_configuration(()))


def authentication_configuration(authenticators: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document of kind AuthenticationConfiguration with the JWT ``authenticators``, if any."""
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": True, "conditions": [{"path": f"/{name}"} for name in _HEALTH_PATHS]},
        **({"jwt": list(authenticators)} if authenticators else {}),
    }


def api_server_files(paths: KubernetesPaths, pods: PodSecurity = BY_DEFAULT) -> dict[str, bytes]:
    """Return the files that the API server's arguments name, by absolute path."""
    directory = paths.kubernetes / "attested"
    return {
        str(admission_path(paths)): admission_file(pods),
        str(directory / "audit-policy.yaml"): documents(audit_policy()),
        str(authentication_path(paths)): render_authentication(),
    }


def api_server_arguments(paths: KubernetesPaths) -> dict[str, str]:
    """Return the arguments of the API server, by name, that kubeadm does not set itself."""
    directory = str(paths.kubernetes / "attested")
    return {
        **(plugin_arguments({}, paths) or {}),
        "audit-log-maxage": "30",
        "audit-log-maxbackup": "10",
        "audit-log-maxsize": "100",
        "audit-log-path": f"{_AUDIT_LOG}/audit.log",
        "audit-policy-file": f"{directory}/audit-policy.yaml",
        "authentication-config": str(authentication_path(paths)),
        "enable-bootstrap-token-auth": "false",
        ENCRYPTION_ARGUMENT: str(encryption_path(paths)),
        # Running API servers load keys that are added or removed.
        f"{ENCRYPTION_ARGUMENT}-automatic-reload": "true",
        "profiling": "false",
    }


def plugin_arguments(present: Mapping[str, str], paths: KubernetesPaths) -> dict[str, str] | None:
    """Return the arguments that set the rules for Pods and Services.

    ``present`` are the arguments of the API server. Plugins that an admin added stay. Returns None if the API server
    has another admission configuration.
    """
    place = str(admission_path(paths))
    if present.get(_CONFIGURATION, place) != place:
        return None
    named = {name.strip() for name in present.get(_PLUGINS, "").split(",")} - {""}
    return {_CONFIGURATION: place, _PLUGINS: ",".join(sorted({*named, *PLUGINS}))}


def admission_file(pods: PodSecurity) -> bytes:
    """Return the API server's admission configuration."""
    return documents(admission_configuration(pods))


def admission_path(paths: KubernetesPaths) -> Path:
    """Return the path of the admission configuration.

    A further control plane gets the file with its ticket.
    """
    return paths.kubernetes / "attested/admission.yaml"


def authentication_path(paths: KubernetesPaths) -> Path:
    """Return the path of the authentication configuration; the API server loads changes of the file."""
    return paths.kubernetes / "attested/authentication.yaml"


def audit_webhook_path(paths: KubernetesPaths) -> Path:
    """Return the path of the kubeconfig of the site's audit webhook; it exists only if the site has one."""
    return paths.kubernetes / "attested/audit-webhook.yaml"


def encryption_path(paths: KubernetesPaths) -> Path:
    """Return the path of the encryption file. Unlike `api_server_files` it is secret, and made once."""
    return paths.kubernetes / "attested/encryption.yaml"


def ignored_checks(node: NodeSpec) -> tuple[str, ...]:
    """Return the preflight checks to ignore, with the cgroup check if cgroup v1 is allowed."""
    extra = (_CGROUP_V1_CHECK,) if node.allow_cgroup_v1 else ()
    return tuple(sorted({*node.ignore_preflight_errors, *extra}))


def _init_configuration(node: NodeSpec) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "InitConfiguration",
        "localAPIEndpoint": _local_endpoint(node),
        "nodeRegistration": _registration(node),
        "skipPhases": list(SKIPPED_INIT_PHASES),
        **_patches(node),
    }


def _cluster_configuration(cluster: ClusterSpec, node: NodeSpec, paths: KubernetesPaths) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{cluster.kubernetes_version}",
        "clusterName": cluster.cluster_name,
        "controlPlaneEndpoint": cluster.api_endpoint,
        # Much faster to make and verify than RSA-2048. An existing CA stays, with its kind of key.
        "encryptionAlgorithm": "ECDSA-P256",
        "networking": {
            "podSubnet": cluster.pod_subnet,
            "serviceSubnet": cluster.service_subnet,
            "dnsDomain": cluster.dns_domain,
        },
        "apiServer": _api_server(cluster, node, paths),
        "controllerManager": {"extraArgs": _arguments(_controller_manager_arguments(cluster))},
        "scheduler": {"extraArgs": _arguments({"profiling": "false"})},
        "featureGates": {"ControlPlaneKubeletLocalMode": True},
    }
    if not cluster.kube_proxy:
        document["proxy"] = {"disabled": True}  # Without it, an upgrade by kubeadm would install kube-proxy.
    if cluster.image_repository:
        document["imageRepository"] = cluster.image_repository
    return document


def _controller_manager_arguments(cluster: ClusterSpec) -> dict[str, str]:
    """Return the arguments; serving certificates are valid as long as a node's client certificate."""
    life = {"cluster-signing-duration": SERVING_LIFE} if cluster.kubelet_serving else {}
    return {"profiling": "false", "terminated-pod-gc-threshold": "1000", **life}


def _api_server(cluster: ClusterSpec, node: NodeSpec, paths: KubernetesPaths) -> dict[str, Any]:
    directory = str(paths.kubernetes / "attested")
    host, _port = split_endpoint(cluster.api_endpoint)
    return {
        "certSANs": sorted({"127.0.0.1", "localhost", host, *node.addresses, *cluster.extra_sans}),
        "extraArgs": _arguments({**api_server_arguments(paths), **_kubelet_verification(cluster, paths)}),
        "extraVolumes": [
            _volume("attested", directory, read_only=True, path_type="Directory"),
            _volume("audit", _AUDIT_LOG, read_only=False, path_type="DirectoryOrCreate"),
        ],
    }


def _kubelet_verification(cluster: ClusterSpec, paths: KubernetesPaths) -> dict[str, str]:
    """Return the API server's argument that verifies kubelets; empty if their certificates are self-signed."""
    return {"kubelet-certificate-authority": str(paths.ca)} if cluster.kubelet_serving else {}


def _kubelet_configuration(cluster: ClusterSpec, node: NodeSpec) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        # The key service approves serving certificates, if it is configured to.
        "serverTLSBootstrap": cluster.kubelet_serving,
    }
    if node.allow_cgroup_v1:
        document["failCgroupV1"] = False
    return document


def _proxy_configuration(cluster: ClusterSpec) -> dict[str, Any]:
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        # Kubernetes' default listens on every address of the node.
        "healthzBindAddress": "127.0.0.1:10256",
    }
    if cluster.unmanaged_conntrack:
        document["conntrack"] = {"maxPerCore": 0, "min": 0}
    return document


def _registration(node: NodeSpec) -> dict[str, Any]:
    return {
        "name": node.name,
        "criSocket": node.cri_socket,
        "imagePullPolicy": "IfNotPresent",
        "ignorePreflightErrors": list(ignored_checks(node)),
        "kubeletExtraArgs": _arguments({"node-ip": ",".join(node.addresses)}),
    }


def _patches(node: NodeSpec) -> dict[str, Any]:
    return {"patches": {"directory": node.patches}} if node.patches else {}


def _local_endpoint(node: NodeSpec) -> dict[str, Any]:
    return {"advertiseAddress": node.node_ip, "bindPort": API_PORT}


def _arguments(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]


def _volume(name: str, path: str, *, read_only: bool, path_type: str) -> dict[str, Any]:
    return {"name": name, "hostPath": path, "mountPath": path, "readOnly": read_only, "pathType": path_type}


def documents(*parts: Mapping[str, Any]) -> bytes:
    """Return ``parts`` as a stream of YAML documents, each written as JSON."""
    return b"---\n".join(json.dumps(part, indent=2).encode() + b"\n" for part in parts)
