# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects by kubectl, the view of the cluster, and the admin's certificate."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.admin import (
    groups_of,
    issue_admin_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster_info import (
    api_versions,
    deprecated_apis,
    join_identities,
    read_cluster,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.gateway import installed_version, redact
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
    ClusterPolicy,
    NamedDigest,
    PolicyException,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Api:
    """kubectl before a cluster: each verb answers (code, out, error); what was said is kept."""

    def __init__(self, **answers):
        self.answers = answers
        self.calls = []

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del timeout_seconds, env, check
        words = [word for word in argv if not word.startswith(("--kubeconfig", "--request", "--server"))]
        self.calls.append((words[1], stdin))
        code, out, error = self.answers.get(words[1], (0, b"", b""))
        if words[1] == "get":
            code, out = 0, json.dumps({"items": self.answers["objects"].get(words[2], [])}).encode()
        return CommandResult(argv=tuple(argv), returncode=code, stdout=out, stderr=error)

    def verbs(self):
        return [verb for verb, _stdin in self.calls]


def kubectl(api, kubeconfig=Path("/dev/null")):
    return Kubectl(api, kubeconfig=kubeconfig)


@pytest.mark.parametrize(
    ("kubeconfig", "asked"),
    [
        pytest.param("/etc/kubernetes/admin.conf", ["--server=https://127.0.0.1:6443"], id="its own"),
        pytest.param("/home/admin/.kube/config", [], id="one that was named"),
    ],
)
def test_a_module_on_a_control_plane_asks_the_api_server_beside_it(kubeconfig, asked):
    """The endpoint's name may lead to one that is lost, or in other hands and silent."""
    runner = Words()
    Kubectl.of_a_module(kubeconfig, runner).read(("nodes",))
    assert [word for word in runner.argv if word.startswith("--server")] == asked


class Words:
    """A runner that keeps the words and finds no object."""

    argv: list[str]

    def run(self, argv, **_unused):
        self.argv = list(argv)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=b'{"items": []}', stderr=b"")


def test_equal_objects_are_not_written():
    api = Api(diff=(0, b"", b""))
    found = kubectl(api).apply(["kind: A"])
    assert (found.changed, api.verbs()) == (False, ["diff"])


def test_check_mode_counts_every_object_as_new_before_the_cluster_exists(tmp_path):
    api = Api(diff=(0, b"", b""))
    found = kubectl(api, tmp_path / "admin.conf").apply(["kind: A"], check_mode=True)
    assert (found.changed, api.verbs()) == (True, [])
    assert found.difference == f"{tmp_path}/admin.conf does not exist yet: all objects are new\n"


def test_equal_manifests_are_compared_all_at_once():
    api = Api(diff=(0, b"", b""))
    found = kubectl(api).apply(["kind: A", "kind: B\n"])
    assert (found.changed, api.calls) == (False, [("diff", b"kind: A\n---\nkind: B\n")])


def test_manifests_of_which_one_differs_are_written_all_at_once():
    """A process of kubectl costs more than what it does."""
    api = Api(diff=(1, b"+ spec\n", b""), apply=(0, b"a/b\n", b""))
    found = kubectl(api).apply(["kind: A", "kind: B"])
    assert (found.changed, found.difference) == (True, "+ spec\n")
    assert api.calls == [("diff", b"kind: A\n---\nkind: B"), ("apply", b"kind: A\n---\nkind: B")]


def test_a_kind_that_another_manifest_brings_is_no_obstacle():
    api = Api(diff=(1, b"", b'error: no matches for kind "B"'), apply=(0, b"a/b\n", b""))
    first = api.run

    def run(argv, **options):
        result = first(argv, **options)
        api.answers["diff"] = (1, b"+", b"")  # known from now on
        return result

    api.run = run
    assert kubectl(api).apply(["kind: CustomResourceDefinition", "kind: B"]).changed
    assert api.verbs() == ["diff", "diff", "apply", "diff", "apply"]
    assert api.calls[1:3] == [(verb, b"kind: CustomResourceDefinition") for verb in ("diff", "apply")]


MANIFEST = """apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: net}
---
# its namespace
kind: Namespace
metadata: {name: net}
--- # another document
kind: "CustomResourceDefinition"
---
kind: Pool  # of the definition above
spec: {text: "kind: Namespace"}
"""


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(b'Error from server (NotFound): namespaces "net" not found', id="namespace"),
        pytest.param(b'error: no matches for kind "Pool" in version "x/v1"', id="kind"),
    ],
)
def test_what_a_manifest_needs_of_itself_is_written_first(error):
    api = Api(diff=(1, b"", error), apply=(0, b"a/b\n", b""))
    first = api.run

    def run(argv, **options):
        result = first(argv, **options)
        api.answers["diff"] = (1, b"+", b"")  # there from now on
        return result

    api.run = run
    assert kubectl(api).apply([MANIFEST]).changed
    assert api.verbs() == ["diff", "diff", "apply", "diff", "apply"]
    kinds = [re.findall(r"^kind: (\S+)", text.decode(), re.MULTILINE) for _verb, text in api.calls]
    needed, rest = ["Namespace", '"CustomResourceDefinition"'], ["DaemonSet", "Pool"]
    assert kinds[1:] == [needed, needed, rest, rest]


def test_different_objects_are_written_and_shown():
    api = Api(diff=(1, b"+ spec: 1\n", b""), apply=(0, b"a/b\n", b""))
    found = kubectl(api).apply(["kind: A"])
    assert (found.changed, found.difference) == (True, "+ spec: 1\n")
    assert api.calls == [("diff", b"kind: A"), ("apply", b"kind: A")]


def test_check_mode_writes_nothing():
    api = Api(diff=(1, b"+ spec: 1\n", b""))
    assert kubectl(api).apply(["kind: A"], check_mode=True).changed
    assert api.verbs() == ["diff"]


NOT_CONFIGURED = (2, b"", b"denied request: failed to configure policy: failed to find resource")
NOT_SYNCED = (2, b"", b"denied request: failed to configure binding: paramKind kind `x` not yet synced")


@pytest.mark.parametrize("unready", [NOT_CONFIGURED, NOT_SYNCED], ids=["policy", "binding"])
def test_an_api_server_that_has_just_started_is_asked_again(clock, unready):
    api = Api(diff=unready, apply=(0, b"a/b\n", b""))
    first = api.run

    def run(argv, **options):
        result = first(argv, **options)
        api.answers["diff"] = (0, b"", b"")
        return result

    api.run = run
    assert not Kubectl(api, kubeconfig=Path("/k"), clock=clock).apply(["kind: A"]).changed
    assert api.verbs() == ["diff", "diff"]


REFUSED = (2, b"", b"The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?")
CUT_OFF = (1, b"", b'Patch "https://127.0.0.1:6443/api/v1/namespaces/x?fieldManager=attested-site": unexpected EOF')


@pytest.mark.parametrize("away", [REFUSED, CUT_OFF], ids=["it restarts", "it stops"])
@pytest.mark.parametrize("verb", ["diff", "apply"])
def test_the_local_api_server_that_restarts_is_asked_again(clock, verb, away):
    api = Api(**{"diff": (1, b"+", b""), "apply": (0, b"a/b\n", b""), verb: away})
    first = api.run

    def run(argv, **options):
        result = first(argv, **options)
        if api.verbs().count(verb) > 5:
            api.answers |= {"diff": (1, b"+", b""), "apply": (0, b"a/b\n", b"")}
        return result

    api.run = run
    assert Kubectl(api, kubeconfig=Path("/k"), clock=clock, server="https://127.0.0.1:6443").apply(["kind: A"]).changed
    assert sorted(map(api.verbs().count, ("diff", "apply"))) == [1, 7]
    assert api.verbs().count(verb) == 7


@pytest.mark.parametrize(
    ("answer", "server"), [(NOT_CONFIGURED, ""), (REFUSED, "https://127.0.0.1:6443")], ids=["unready", "away"]
)
def test_an_api_server_that_stays_unready_or_away_is_given_up(clock, answer, server):
    with pytest.raises(KubeadmError) as caught:
        Kubectl(Api(diff=answer), kubeconfig=Path("/k"), clock=clock, server=server).apply(["kind: A"])
    assert caught.value.code == "KUBECTL_FAILED"
    assert 60 <= clock.monotonic() <= 121


def test_an_api_server_elsewhere_and_other_commands_are_not_repeated(clock):
    elsewhere = Api(diff=REFUSED)
    with pytest.raises(KubeadmError):
        Kubectl(elsewhere, kubeconfig=Path("/k"), clock=clock).apply(["kind: A"])
    assert elsewhere.verbs() == ["diff"]
    other = Api(create=REFUSED)
    with pytest.raises(KubeadmError):
        Kubectl(other, kubeconfig=Path("/k"), clock=clock, server="https://127.0.0.1:6443").create({})
    assert clock.monotonic() == 0


def test_a_new_kind_is_waited_for():
    api = Api(diff=(1, b"+", b""), apply=(0, b"customresourcedefinition.apiextensions.k8s.io/a\n", b""))
    kubectl(api).apply(["kind: CustomResourceDefinition"])
    assert api.verbs() == ["diff", "apply", "wait"]


def test_an_unknown_kind_counts_as_a_change_in_check_mode_only():
    unknown = (1, b"", b'error: no matches for kind "NodeIdentity"')
    assert kubectl(Api(diff=unknown)).apply(["x"], check_mode=True).changed
    with pytest.raises(KubeadmError) as caught:
        kubectl(Api(diff=unknown)).apply(["x"])
    assert caught.value.code == "KUBECTL_FAILED"


@pytest.mark.parametrize("verb", ["diff", "apply"])
def test_a_failure_comes_with_its_last_words(verb):
    answers = {"diff": (1, b"+", b""), verb: (2, b"", b"connection refused")}
    with pytest.raises(KubeadmError) as caught:
        kubectl(Api(**answers)).apply(["x"])
    assert caught.value.code == "KUBECTL_FAILED"
    assert "connection refused" in caught.value.message


def named(kind, name, **more):
    return {"kind": kind, "metadata": {"name": name, **more.pop("metadata", {})}, **more}


NODE = named(
    "Node",
    "w-1",
    spec={"podCIDR": "10.244.1.0/24"},
    status={
        "nodeInfo": {"kubeletVersion": "v1.35.4", "bootID": "b"},
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Attested", "status": "Unknown", "reason": "ReattestationOverdue", "message": "next: push"},
        ],
        "addresses": [{"type": "Hostname", "address": "w-1"}, {"type": "InternalIP", "address": "10.0.0.21"}],
    },
)
IDENTITY = named(
    "NodeIdentity",
    "ek-1",
    spec={"nodeName": "w-1", "role": "worker", "admission": "Approved"},
    status={"phase": "Joined", "lastAttestation": {"profile": "p", "posture": "boot", "time": "t"}},
)


def test_node_and_identity_are_one_row():
    (row,) = join_identities([NODE], [IDENTITY])
    assert (row["registered"], row["ready"], row["internal_ip"]) == (True, True, "10.0.0.21")
    assert (row["identity"], row["phase"], row["profile"]) == ("ek-1", "Joined", "p")
    standing = (row["standing"], row["standing_status"], row["standing_message"])
    assert standing == ("ReattestationOverdue", "Unknown", "next: push")


def test_a_node_that_is_not_ready_is_told_with_its_reason():
    conditions = [{"type": "Ready", "status": "False", "message": "cni plugin not initialized"}]
    (row,) = join_identities([{**NODE, "status": {**NODE["status"], "conditions": conditions}}], [IDENTITY])
    assert (row["ready"], row["ready_message"]) == (False, "cni plugin not initialized")


def test_a_machine_that_has_not_joined_and_a_node_that_nobody_enrolled_are_both_seen():
    waiting = named("NodeIdentity", "ek-2", spec={"nodeName": "w-2", "role": "worker", "admission": "Approved"})
    rows = {row["name"]: (row["registered"], row["identity"]) for row in join_identities([NODE], [waiting])}
    assert rows == {"w-1": (True, ""), "w-2": (False, "ek-2")}


def refusal(machine="ek-1", last="2026-11-21T12:00:00Z", message="PCR 0: expected a, got b"):
    status = {"machine": machine, "nodeName": "w-1", "reason": "PCR_MISMATCH", "message": message, "lastSeen": last}
    return named("JoinAttempt", f"{machine}-{last}", status={**status, "count": 3, "next": "status"})


def attested_at(time):
    return {**IDENTITY, "status": {"lastAttestation": {"time": time}}}


@pytest.mark.parametrize(
    ("identity", "attempts", "message"),
    [
        pytest.param(IDENTITY, [refusal()], "PCR 0: expected a, got b", id="refused"),
        pytest.param(
            attested_at("2026-11-21T11:00:00Z"), [refusal()], "PCR 0: expected a, got b", id="good before, refused now"
        ),
        pytest.param(attested_at("2026-11-21T13:00:00Z"), [refusal()], "", id="good evidence came later"),
        pytest.param(
            IDENTITY,
            [refusal(), refusal(last="2026-11-21T13:00:00Z", message="the last")],
            "the last",
            id="the last of several",
        ),
        pytest.param(IDENTITY, [refusal("ek-2")], "", id="another machine that says it is this node"),
        pytest.param(None, [refusal("stranger")], "", id="a node without an identity"),
        pytest.param(IDENTITY, [named("JoinAttempt", "odd")], "", id="an attempt that says nothing"),
        pytest.param(attested_at("2026-11-01T00:00:00Z"), [refusal(last="never")], "", id="a time that is none"),
    ],
)
def test_a_node_is_told_with_the_refusal_that_stands(identity, attempts, message):
    (row,) = join_identities([NODE], [identity] if identity else [], attempts)
    assert row["refused"].get("message", "") == message
    assert set(row["refused"]) in (set(), {"reason", "message", "command", "count", "last_seen"})


ENDS = dt.datetime(2026, 11, 23, 12, 0, tzinfo=dt.UTC)
POLICY = ClusterPolicy(
    generation=7,
    profiles=(NamedDigest("base", "a1" * 32), NamedDigest("next", "a2" * 32)),
    control_planes=(NamedDigest("ek-cp", "a3" * 32),),
    revoked=("99" * 32,),
    exceptions=(
        PolicyException(
            profile=NamedDigest("odd", "a4" * 32),
            machines=("11" * 32, "22" * 32, "33" * 32),
            expires=ENDS,
            why="firmware of w-1 first",
        ),
    ),
)


def view_of_policy(*identities, profiles=(), **policy):
    """Return the policy of a cluster with these identities, and with the policy's object if it says anything."""
    kinds = "nodes,certificatesigningrequests,clusterrolebindings,rolebindings,customresourcedefinitions"
    names = ("nodeidentities", "attestationpolicies", "measurementprofiles")
    known = [f"{one}.attested-kubernetes.dev" for one in names]
    ours = [*identities, *profiles, *([named("AttestationPolicy", "cluster", **policy)] if policy else [])]
    objects = {kinds: [named("CustomResourceDefinition", one) for one in known], ",".join(known): ours}
    return read_cluster(kubectl(Api(objects=objects))).as_result()["policy"]


def test_an_exception_is_told_with_its_nodes_its_end_and_its_reason():
    machines = [
        named("NodeIdentity", "ek-1", spec={**IDENTITY["spec"], "ekSha256": "11" * 32}),
        named("NodeIdentity", "ek-2", spec={**IDENTITY["spec"], "nodeName": "w-2", "ekAliasSha256": "22" * 32}),
    ]
    told = view_of_policy(*machines, spec={"generation": 7, **POLICY.content()})
    assert told["exceptions"] == [
        {
            "profile": "odd",
            "nodes": ["w-1", "w-2", "33" * 32],
            "until": "2026-11-23T12:00:00Z",
            "why": "firmware of w-1 first",
        }
    ]
    assert (told["generation"], told["profiles"], told["revoked"]) == (7, ["base", "next"], 1)


def test_a_revocation_that_the_policy_does_not_sign_is_told():
    spec = {**IDENTITY["spec"], "admission": "Revoked"}
    machines = [
        named("NodeIdentity", "ek-1", spec={**spec, "ekSha256": "99" * 32}),
        named("NodeIdentity", "ek-2", spec={**spec, "nodeName": "w-2", "ekSha256": "22" * 32}),
    ]
    told = view_of_policy(*machines, spec={"generation": 7, **POLICY.content()})
    assert told["revocations_unsigned"] == ["w-2"]


def test_who_recorded_the_policy_is_told_with_the_generation():
    seen = {"cp-2": {"generation": 6, "time": "t"}, "cp-1": {"generation": 7}, "cp-3": {}}
    told = view_of_policy(spec={"generation": 7, **POLICY.content()}, status={"seenBy": seen})
    assert list(told["seen_by"].items()) == [("cp-1", 7), ("cp-2", 6), ("cp-3", 0)]
    assert view_of_policy(spec={"generation": 7, **POLICY.content()})["seen_by"] == {}


def test_what_control_planes_cannot_read_is_told_once():
    seen = {"cp-2": {"generation": 7, "unreadable": ["b: why", "a: why"]}, "cp-1": {"unreadable": ["a: why"]}}
    told = view_of_policy(spec={"generation": 7, **POLICY.content()}, status={"seenBy": seen})
    assert told["unreadable"] == ["a: why", "b: why"]


def test_a_profile_that_says_more_than_it_holds_is_named_where_it_counts():
    registers = [{"pcr": 7, "values": [{"sha256": "a1" * 32, "label": "w-1"}]}]
    whole = {"apiVersion": "attested-kubernetes.dev/v1alpha1", "spec": {"posture": "boot", "registers": registers}}
    profiles = [{**named("MeasurementProfile", name), **whole} for name in ("base", "cluster", "other", "odd")]
    profiles[3] = {**profiles[3], "spec": {"posture": "nonsense"}}
    told = view_of_policy(profiles=profiles, spec={"generation": 7, **POLICY.content()})
    (weak,) = told["weaknesses"]
    assert weak.startswith("profile base says posture boot and reaches keys: it holds PCR 7")


def test_without_a_policy_nothing_is_told_of_it():
    assert view_of_policy(IDENTITY) == {}


def binding(name, role, *subjects, kind="ClusterRoleBinding"):
    found = [{"kind": "Group", "name": subject} for subject in subjects]
    return named(kind, name, roleRef={"name": role}, subjects=found)


APPROVE = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"


@pytest.mark.parametrize(
    ("objects", "field", "names"),
    [
        pytest.param([named("CertificateSigningRequest", "c", status={})], "pending_requests", ["c"], id="pending"),
        pytest.param(
            [named("CertificateSigningRequest", "c", status={"conditions": [{"type": "Approved"}]})],
            "pending_requests",
            [],
            id="an approved request is not pending",
        ),
        pytest.param([binding("b", APPROVE, "system:nodes")], "auto_approval_bindings", ["b"], id="renewal approved"),
        pytest.param(
            [binding("b", "system:node-bootstrapper", "system:bootstrappers:kubeadm")],
            "auto_approval_bindings",
            ["b"],
            id="machines with a token may ask",
        ),
        pytest.param(
            [binding("kubeadm:kubelet-config", "x", "system:bootstrappers:kubeadm", kind="RoleBinding")],
            "auto_approval_bindings",
            [],
            id="the binding by which nodes read their configuration opens no door",
        ),
        pytest.param(
            [binding("b", "x", "system:unauthenticated", kind="RoleBinding")],
            "anonymous_bindings",
            ["b"],
            id="strangers",
        ),
        pytest.param(
            [binding("system:public-info-viewer", "x", "system:unauthenticated")],
            "anonymous_bindings",
            [],
            id="the built-in view of health does not count",
        ),
    ],
)
def test_what_must_not_exist_is_listed(objects, field, names):
    kinds = "nodes,certificatesigningrequests,clusterrolebindings,rolebindings,customresourcedefinitions"
    view = read_cluster(kubectl(Api(objects={kinds: objects})))
    assert view.as_result()[field] == names


def test_bootstrap_tokens_are_listed():
    view = read_cluster(kubectl(Api(objects={"secrets": [named("Secret", "bootstrap-token-abcdef")]})))
    assert view.bootstrap_tokens == ("bootstrap-token-abcdef",)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        pytest.param("registry.k8s.io/kube-apiserver:v1.36.3", "1.36.3", id="by tag"),
        pytest.param(f"registry.k8s.io/kube-apiserver:v1.36.3@sha256:{'a' * 64}", "1.36.3", id="by tag and digest"),
        pytest.param(f"mirror.example:5000/kube-apiserver@sha256:{'a' * 64}", None, id="by digest"),
        pytest.param("registry.k8s.io/kube-apiserver:latest", None, id="a tag that is no version"),
        pytest.param("", None, id="none"),
    ],
)
def test_what_an_api_server_runs_is_the_tag_of_its_image(image, version):
    pod = {"kind": "Pod", "spec": {"nodeName": "cp-1", "containers": [{"image": image}]}}
    assert api_versions(kubectl(Api(objects={"pods": [pod]}))).get("cp-1") == version


def row_of(**labels):
    told = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"apiserver_requested_deprecated_apis{{{told}}} 1\n"


class Metrics:
    """API servers that answer with their metrics."""

    def __init__(self, **answers):
        self.answers = answers

    def raw(self, path, *, server):
        assert path == "/metrics"
        place = server.removeprefix("https://").replace(".", "_")
        if place not in self.answers:
            raise KubeadmError("no route", reason=Reason.KUBECTL_FAILED)
        return self.answers[place]


def test_deprecated_apis_that_somebody_asked_for():
    old = row_of(
        group="policy", removed_release="1.25", resource="podsecuritypolicies", subresource="", version="v1beta1"
    )
    scale = row_of(group="apps", removed_release="1.40", resource="sets", subresource="scale", version="v1beta2")
    core = row_of(group="", removed_release="", resource="componentstatuses", subresource="", version="v1")
    never = old.replace("podsecuritypolicies", "evictions").replace("} 1", "} 0")
    api = Metrics(**{"10_0_0_11:6443": f"# HELP x\n{old}{core}{never}", "10_0_0_12:6443": old + scale})
    assert deprecated_apis(api, ["10.0.0.11", "10.0.0.10", "10.0.0.12"]) == [
        {"api": "apps/v1beta2 sets/scale", "removed": "1.40"},
        {"api": "policy/v1beta1 podsecuritypolicies", "removed": "1.25"},
        {"api": "v1 componentstatuses", "removed": ""},
    ]


def test_an_api_server_of_ipv6_is_asked_by_its_address():
    assert deprecated_apis(Metrics(**{"[fd00::1]:6443": ""}), ["fd00::1"]) == []


@pytest.fixture
def authority(machine, clock):
    """The cluster's CA on the machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(clock.now()).not_valid_after(clock.now() + dt.timedelta(days=9))
    machine.paths.ca.parent.mkdir(parents=True)
    machine.paths.ca.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    machine.paths.ca.with_suffix(".key").write_bytes(key.private_bytes(*form))
    return key.public_key()


def request(*names):
    attributes = [x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names]
    attributes.append(x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:masters"))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )


def test_an_admin_gets_a_short_certificate_without_the_group_that_was_asked_for(machine, clock, authority):
    pem = issue_admin_certificate(request("alice"), paths=machine.paths, clock=clock, hours=8)
    leaf = x509.load_pem_x509_certificate(pem)
    assert leaf.subject.rfc4514_string() == "CN=alice,O=kubeadm:cluster-admins"
    assert leaf.not_valid_after_utc == clock.now() + dt.timedelta(hours=8)
    assert leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value == x509.ExtendedKeyUsage(
        [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    )
    authority.verify(leaf.signature, leaf.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256()))


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(b"no PEM", id="no request"),
        pytest.param(request(), id="no name"),
        pytest.param(request("a", "b"), id="two names"),
        pytest.param(request("system:node:cp-1"), id="a name of the system"),
    ],
)
def test_a_request_that_cannot_be_signed_is_refused(machine, clock, authority, pem):
    del authority
    with pytest.raises(KubeadmError) as caught:
        issue_admin_certificate(pem, paths=machine.paths, clock=clock, hours=8)
    assert caught.value.code == "ADMIN_REQUEST_INVALID"


def test_user_and_groups_are_those_that_were_said_not_those_of_the_request(machine, clock, authority):
    del authority
    said = {"paths": machine.paths, "clock": clock, "hours": 8, "name": "alice"}
    for groups, subject in (((), "CN=alice"), (("a", "b"), "CN=alice,O=b,O=a")):
        pem = issue_admin_certificate(request("alice"), groups=groups, **said)
        assert x509.load_pem_x509_certificate(pem).subject.rfc4514_string() == subject
    with pytest.raises(KubeadmError, match="expected a request of alice, got one of 'bob'") as caught:
        issue_admin_certificate(request("bob"), groups=(), **said)
    assert caught.value.code == "ADMIN_REQUEST_INVALID"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": "system:admin"}, id="a user of the system"),
        pytest.param({"name": "attested:key-service"}, id="a service of ours"),
        pytest.param({"name": "a/b"}, id="a user that is no name"),
        pytest.param({"groups": ["a", "system:masters"]}, id="a group of the system"),
        pytest.param({"groups": ["a\nb"]}, id="a group that is no name"),
        pytest.param({"groups": [""]}, id="an empty group"),
        pytest.param({"hours": 0}, id="no life"),
        pytest.param({"hours": 8761}, id="more than a year"),
    ],
)
def test_what_no_admin_may_be_is_not_signed(machine, clock, authority, changes):
    del authority
    known = {"name": "alice", "groups": ["a"], "hours": 8} | changes
    with pytest.raises(KubeadmError) as caught:
        issue_admin_certificate(request(known["name"]), paths=machine.paths, clock=clock, **known)
    wanted = "ADMIN_REQUEST_INVALID" if known["name"].startswith("system:") else "OPTION_INVALID"
    assert caught.value.code == wanted


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        pytest.param("attested:admin", None, ("kubeadm:cluster-admins",), id="the site's own"),
        pytest.param("alice", None, (), id="a further one has none"),
        pytest.param("alice", ["a", "b", "a"], ("a", "b"), id="each once"),
    ],
)
def test_an_admin_without_said_groups_has_those_of_the_site_or_none(name, groups, expected):
    assert groups_of(name, groups) == expected


class Version:
    def run(self, argv, **_options):
        return CommandResult(argv=tuple(argv), returncode=0, stdout=b"v1.35.4\n", stderr=b"")


@pytest.mark.parametrize("wanted", ["1.35", "1.35.4"])
def test_a_minor_or_the_full_version_is_found(wanted):
    assert installed_version(Version(), wanted=wanted) == "1.35.4"


@pytest.mark.parametrize("wanted", ["1.36", "1.35.5", "1.3"])
def test_another_version_is_refused(wanted):
    with pytest.raises(KubeadmError) as caught:
        installed_version(Version(), wanted=wanted)
    assert caught.value.code == "RELEASE_NOT_PREPARED"


def test_what_looks_like_a_secret_is_not_repeated():
    text = f"token abcdef.0123456789abcdef hash {'a' * 64} data {'QUJD' * 30} end"
    assert redact(text) == "token [token] hash [64 hex digits] data [base64] end"
