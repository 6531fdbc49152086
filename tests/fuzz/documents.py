# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random mutations of every YAML and JSON document that a person or another party may hand in.

Usage: python tests/fuzz/documents.py [--count 10000] [--seed N] [NAME ...]

Each mutation is accepted or refused with a reason code, within half a second of the CPU and 50 MB of memory, and what a
terminal shows of the refusal holds no control character. The parsers of bytes have their own targets beside this file,
guided by coverage; here the structure is changed as well: values that no field expects, members twice, other depths.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import random
import resource
import sys
import tempfile
import time
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.addons import document_of, parse_addons
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import read_delivered
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import disk_in
from ansible_collections.attested.kubernetes.plugins.module_utils.core.documents import load_documents
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import parse_record
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.appraisal import appraise
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import BindingContext
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.config import KeyServiceConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ring import import_ring
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.cluster import parse_pins
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import (
    authorities_of,
    embedded_credential,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.encryption import EncryptionFile, parse_keys
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_identity,
    render_profile,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import verify_policy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import JoinServiceConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
from ansible_collections.attested.kubernetes.plugins.plugin_utils.stage_lines import Stage, failure_lines
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.ek import Authority, ek_extensions, ek_public
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of, learned
from ansible_collections.attested.kubernetes.tests.support.house import COLLECTION
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY, GivenPolicy, PolicySite
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_CPU_SECONDS = 0.5
MAX_MEBIBYTES = 50
REPEATS = 3
_MAX_CHANGES = 4
_MAX_BYTES = 1 << 17
_OBEYED = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_CLUSTER = bytes(range(32))
_EK = "ab" * 32
_SCRATCH = Path(tempfile.gettempdir())


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A kind of document: good ones, what reads one, and the first bytes of a seed that are no part of it."""

    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], object]
    prefix: int = 0


@dataclass(slots=True)
class Figures:
    """What a document's mutations came to."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    largest: int = 0


def _target(name: str, prefix: int = 0) -> Document:
    target: Any = importlib.import_module(f"{COLLECTION}.tests.fuzz.fuzz_{name}")
    return Document(seeds=cache(target.seeds), read=target.one_input, prefix=prefix)


def _from_file(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def one_input(data: bytes) -> object:
        path = _SCRATCH / f"document-{id(read)}{suffix}"
        path.write_bytes(data)
        try:
            return read(path)
        finally:
            path.unlink()

    return one_input


def _signed_policy() -> list[bytes]:
    profile = render_profile(learned(boots.load("deb13-base")))
    return [yaml.safe_dump(PolicySite(_CLUSTER).sign([profile])).encode()]


def _read_policy(data: bytes) -> object:
    (document,) = load_one(data)
    return verify_policy(document, public_key=POLICY_KEY, cluster_id=_CLUSTER)


@cache
def _appraisal() -> tuple[bytes, bytes, bytes]:
    """Return a good answer of attestation_info, the policy that accepts it, and the profile that the policy names."""
    machine = Exchange()
    challenge, _record = machine.challenged()
    context = BindingContext(purpose=Purpose.VERIFY, cluster_id=bytes(32), request=machine.logs.to_bytes())
    bound = machine.answered(challenge, context=context).bound.to_bytes()
    parts = {"binding": bound, "event_logs": machine.logs.to_bytes(), "challenge": challenge.to_bytes()}
    text = {name: base64.b64encode(data).decode() for name, data in parts.items()}
    policy = {"variant": "tpm2", "purpose": "verify", "clusterId": "00" * 32, "challenge": text.pop("challenge")}
    profile = yaml.safe_dump(render_profile(learned(boots.load("deb13-base"))))
    return json.dumps(text).encode(), json.dumps({**policy, "profile": "profile.yml"}).encode(), profile.encode()


def _appraise(document: bytes, policy: bytes) -> object:
    found = appraise(document, policy, read=lambda _name: _appraisal()[2], now=SystemClock().now())
    if found.error:
        raise found.error
    return found


def load_one(data: bytes) -> list[Any]:
    """Return the one mapping in ``data``, as who hands a policy on has it."""
    try:
        found = load_documents(data)
    except ValueError:
        found = []
    return found if len(found) == 1 and isinstance(found[0], dict) else [{}]


def _objects() -> list[bytes]:
    tpm = Exchange().tpm
    shown = [render_profile(learned(boots.load("deb13-base"))), render_identity(identity_of(tpm.ek))]
    shown[0]["spec"]["referenceEvents"] = shown[0]["spec"].get("referenceEvents", [])[:4]
    shown[0]["spec"]["expires"] = "2027-01-31T12:00:00Z"
    shown[1]["status"] = {
        "phase": "Joined",
        "tpm": {"clock": 1, "resetCount": 2, "restartCount": 3},
        "lastAttestation": {"time": "2026-11-21T12:00:00Z"},
        "lastRefusal": {"time": "2026-11-21T12:00:00Z", "reason": "PCR_MISMATCH"},
        "tickets": {"issued": 1, "superseded": 0},
    }
    return [json.dumps(one).encode() for one in shown]


@cache
def _good_profile() -> dict[str, Any]:
    return render_profile(learned(boots.load("deb13-base")))


def _read_object(data: bytes) -> object:
    """One object of the API hides no other: the policy still answers for all."""
    (document,) = load_one(data)
    good = _good_profile()
    told = document.get("metadata")
    document["metadata"] = {**(told if isinstance(told, dict) else {}), "name": "odd", "resourceVersion": "7"}
    document["spec"] = document["spec"] if isinstance(document.get("spec"), dict) else {}  # the API sees to that
    gateway = FakeGateway(good)
    plural = "nodeidentities" if document.get("kind") == "NodeIdentity" else "measurementprofiles"
    gateway._objects[plural]["odd"] = document
    live = LivePolicy(gateway, GivenPolicy(good), clock=SystemClock())
    assert [one.name for one in live.profiles()] == [good["metadata"]["name"]]
    return live.registrations(), live.selection(), live.unreadable(), live.snapshot_for(_EK)


_ADDONS = {
    "addons": [
        {"name": "web", "namespace": "web", "chart": "charts/web", "values": {"replicas": 2}, "order": 10},
        {
            "name": "db",
            "namespace": "db",
            "chart": "oci://registry.example/db",
            "digest": f"sha256:{'88' * 32}",
            "timeout_seconds": 60,
            "adopt": True,
        },
    ]
}
_CLUSTER_YML = {
    "version": 1,
    "cluster_id": "11" * 32,
    "measurement_salt": "22" * 32,
    "join_ca": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
    "policy_key": "-----BEGIN PUBLIC KEY-----\nMA==\n-----END PUBLIC KEY-----\n",
    "policy": {"generation": 3, "content_sha256": "33" * 32, "revoked": ["44" * 32]},
}
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://a:6443", "certificate-authority-data": "TUE9PQ=="}}],
    "users": [{"name": "u", "user": {"client-certificate-data": "TUE9PQ==", "client-key-data": "TUE9PQ=="}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}
_ENCRYPTION = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "EncryptionConfiguration",
    "resources": [
        {
            "resources": ["secrets"],
            "providers": [
                {"secretbox": {"keys": [{"name": "key-1", "secret": "QUFB" * 10 + "QUE="}]}},
                {"identity": {}},
            ],
        }
    ],
}


_PINS = [
    {"component": name, "reference": f"registry.example/{name}:v1", "digest": f"sha256:{'77' * 32}"}
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
]


def _text(value: Any) -> Callable[[], Sequence[bytes]]:
    return lambda: [json.dumps(value).encode(), yaml.safe_dump(value).encode()]


def _delivery_lists() -> list[bytes]:
    """Return a registrar's answer, and what a BMC has of its chassis; both name the machine SN1."""
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    area = ek_public(key).marshal()
    agent = {"ek_tpm": base64.b64encode(len(area).to_bytes(2, "big") + area).decode(), "regcount": 1}
    certificate = Authority.root().issue("", key, ek_extensions()).public_bytes(serialization.Encoding.PEM).decode()
    chassis = "/redfish/v1/Chassis/1"
    held = {f"{chassis}/TrustedComponents/TPM/Certificates/1": {"CertificateString": certificate}}
    answers = [{"code": 200, "results": {"SN1": agent}}, {chassis: {"SerialNumber": "SN1"}, **held}]
    return [json.dumps(one).encode() for one in answers]


def _documents() -> dict[str, Document]:
    listed = _from_file(".yml", lambda path: read_delivered(path, serial="SN1"))
    table = _from_file(".csv", lambda path: read_delivered(path, serial="SN1"))
    exports = _from_file(".json", lambda path: read_delivered(path, serial="SN1"))
    joins = _from_file(".yml", lambda path: load_config(JoinServiceConfig, path))
    keys = _from_file(".yml", lambda path: load_config(KeyServiceConfig, path))
    secret = {"key": "QUFB" * 10 + "QUE=", "salt": "QUFB" * 10 + "QUE="}
    return {
        "addons.yml": Document(seeds=_text(_ADDONS), read=lambda data: parse_addons(document_of(data))),
        "address list": _target("addresses"),
        "API object": Document(seeds=cache(_objects), read=_read_object),
        "bundle manifest": _target("bundle_manifest"),
        "cluster.yml": Document(seeds=_text(_CLUSTER_YML), read=site_directory.parse),
        "configuration of the join service": Document(
            seeds=_text({"listen_port": 9090, "key_service_socket": "/run/x", "refusal_floor_seconds": 0.5}), read=joins
        ),
        "configuration of the key service": Document(
            seeds=_text(
                {
                    "node_name": "cp-1",
                    "api_server": "https://127.0.0.1:6443",
                    "metrics": True,
                    "api_endpoint": "a:6443",
                }
            ),
            read=keys,
        ),
        "Constellation document": _target("constellation_document"),
        "Constellation measurements": _target("rescue_measurements"),
        "Constellation state": _target("constellation_state"),
        "delivery list": Document(seeds=_text({"SN1": _EK, "SN2": "cd" * 32}), read=listed),
        "delivery list in CSV": Document(seeds=lambda: [f"serial,ek_sha256\nSN1,{_EK}\n".encode()], read=table),
        "delivery list in JSON": Document(seeds=cache(_delivery_lists), read=exports),
        "disk's record": Document(seeds=_text({"version": 1, "generation": 7, "header": "55" * 32}), read=parse_record),
        "encryption configuration": Document(seeds=_text(_ENCRYPTION), read=EncryptionFile.parse),
        "encryption keys of a control plane": Document(
            seeds=_text({"key-1-9f2c1d5e9f2c1d5e": "66" * 32}), read=parse_keys
        ),
        "image pins": Document(seeds=_text(_PINS), read=parse_pins),
        "kubeconfig": Document(
            seeds=_text(_KUBECONFIG), read=lambda data: (authorities_of(data), embedded_credential(data))
        ),
        "kubeconfig after init": _target("init_kubeconfig", prefix=1),
        "master secret": Document(seeds=_text(secret), read=import_master_secret),
        "master secret with versions": Document(seeds=_text(secret), read=import_ring),
        "measurements of systemd": _target("userspace_log"),
        "node.yml": _target("node_config"),
        "policy": Document(seeds=cache(_signed_policy), read=_read_policy),
        "policy of an init": _target("brought_policy", prefix=1),
        "profiles and identities": Document(
            seeds=cache(_objects), read=lambda data: parse_documents([("x", data.decode("utf-8", "surrogateescape"))])
        ),
        "recovery kit": _target("recovery_kit"),
        "site's pin": _target("source_pin"),
        "successors of authorities": _target("successors"),
        "answer of attestation_info": Document(
            seeds=lambda: [_appraisal()[0]], read=lambda data: _appraise(data, _appraisal()[1])
        ),
        "policy of an appraisal": Document(
            seeds=lambda: [
                _appraisal()[1],
                json.dumps({"variant": "sev-snp", "minimumTcb": {"snp": 8}, "measurements": ["00" * 48]}).encode(),
                json.dumps({"variant": "tdx", "measurements": {"0": ["00" * 48]}, "statuses": ["UpToDate"]}).encode(),
            ],
            read=lambda data: _appraise(_appraisal()[0], data),
        ),
        "TDX collateral": _target("tdx_collateral"),
        "variables of a host": Document(
            seeds=_text({"attested_state_disk_uuid": "7b5c1c52-0a3b-4b5e-9c8e-1f2d3c4b5a69", "x": [1]}),
            read=lambda data: disk_in(data, place="host_vars/w-1.yml"),
        ),
    }


DOCUMENTS = _documents()

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1 << 31, 1 << 63, 10**30, 1.5, -0.0, float("inf"), float("nan")),
    *(
        "",
        " ",
        "x" * 10_000,
        "\0",
        "\x1b[2J\x1b[8m",
        "\u202egnp",
        "\u2028",
        "\x85\x7f\x9b",
        "\r\n",
        "é" * 300,
        "=",
        "<<",
    ),
    *(
        "2001-13-45",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2027-01-31",
        "NaN",
        "1e999",
        "0x_",
        "1:30",
    ),
    *("ab" * 32, "AB" * 32, "../../etc/passwd", "[" * 40, "{{ lookup('pipe', 'id') }}", "ek-" + "0" * 20, "Revoked"),
    *([], {}, [[]], [{}], {"": None}, ["x"] * 800, {str(number): number for number in range(400)}, [[[[[[[[]]]]]]]]),
)
_WORDS = tuple(
    token.encode()
    for token in (
        *(
            "&a [*a, *a]",
            "&a",
            "*a",
            "!!python/object/apply:os.getcwd []",
            "!!binary x",
            "!!timestamp 1",
            "<<: *a",
            "? ",
        ),
        *(
            "[" * 40,
            "{" * 40,
            "]" * 9,
            "- " * 60,
            "---\n",
            "...\n",
            "%YAML 1.2\n",
            "\t",
            "\0",
            "\x1b[2J",
            "\u202e",
            "\ufeff",
        ),
        *(
            "9" * 5000,
            "0x" + "f" * 4000,
            "1e999",
            "NaN",
            "Infinity",
            "-",
            ".inf",
            "1_0",
            "0o7",
            "1:1:1",
            "2001-13-45",
            "~",
        ),
        *(
            '"',
            "'",
            "\\",
            "\\ud800",
            "\\u0000",
            '"a":1,"a":1,',
            "a: 1\na: 1\n",
            ",",
            ":",
            "#",
            "|\n",
            ">\n",
            "\n",
            "\r",
            "\x85",
        ),
        *(" " * 3000, "x" * 9000, "\ud7ff", "😀", "=", "serial", "ek_sha256"),
    )
)
TOKENS = (*_WORDS, b"\xff\xfe", b"\xc3", b"\xed\xa0\x80")


def mutated(seed: bytes, draw: random.Random, prefix: int) -> bytes:
    """Return a few changes of a good document: of its bytes, or of what it says."""
    head, data = seed[:prefix], seed[prefix:]
    if draw.random() < 0.5:  # as often the one as the other
        data = _restructured(data, draw)
    for _unused in range(draw.randint(0, _MAX_CHANGES)):
        data = _damaged(data, draw)
    return head + data[:_MAX_BYTES]


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _loaded(seed: bytes) -> Any:
    return yaml.load(seed, Loader=_LOADER)  # a safe one


def _restructured(data: bytes, draw: random.Random) -> bytes:
    try:
        document = _loaded(data)
    except yaml.YAMLError:
        return _damaged(data, draw)
    for _unused in range(draw.randint(1, _MAX_CHANGES)):
        document = _changed(document, draw)
    if draw.random() < 0.5:
        return json.dumps(document, ensure_ascii=draw.random() < 0.5, default=str).encode("utf-8", "surrogatepass")
    return str(yaml.dump(document, Dumper=_DUMPER, allow_unicode=draw.random() < 0.5)).encode("utf-8", "surrogatepass")


def _changed(value: Any, draw: random.Random) -> Any:  # noqa: PLR0911  # one for each kind of change
    """Return ``value`` with one place of it replaced, left out, doubled, wrapped or named otherwise."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        name = draw.choice(list(value))
        kind = draw.randrange(6)
        if kind == 0:
            return {key: one for key, one in value.items() if key != name}
        if kind == 1:
            return {**value, draw.choice(("x", "", "\x1b[2J", 7, None, "spec", "key" * 200)): draw.choice(HOSTILE)}
        return {**value, name: _changed(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        kind = draw.randrange(5)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value * draw.choice((2, 30))
        return [*value[:at], _changed(value[at], draw), *value[at + 1 :]]
    return draw.choice((*HOSTILE, [value], {"x": value}, [value, value], str(value), f"{value}\x1b[2J"))


def _damaged(data: bytes, draw: random.Random) -> bytes:
    at = draw.randint(0, len(data))
    end = min(len(data), at + draw.choice((1, 1, 2, 8, 60)))
    kind = draw.randrange(5)
    if kind == 0:
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:at] + data[at:end] * draw.choice((2, 3, 50)) + data[end:]
    return data[:at] + draw.choice(TOKENS) + (data[at:] if kind == 3 else data[end:])


def tried(name: str, *, count: int, seed: int) -> Figures:
    """Return what ``count`` mutations of a document came to; raises `AssertionError` with the first that is a bug."""
    document, draw, figures = DOCUMENTS[name], random.Random(f"{name} {seed}"), Figures()
    seeds = document.seeds()
    document.read(seeds[0])  # else every mutation would stop at the first check
    for number in range(count):
        data = mutated(draw.choice(seeds), draw, document.prefix)
        try:
            _one(document, data, figures)
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}, mutation {number}: {data[:400]!r}") from error
    return figures


def _one(document: Document, data: bytes, figures: Figures) -> None:
    before = _peak()
    took = _timed(document, data, figures)
    if took > MAX_CPU_SECONDS:  # other work runs beside
        took = min(_timed(document, data, Figures()) for _unused in range(REPEATS))
    grown = _peak() - before
    figures.slowest, figures.largest = max(figures.slowest, took), max(figures.largest, grown)
    assert took <= MAX_CPU_SECONDS, f"expected at most {MAX_CPU_SECONDS} s of the CPU, took {took:.2f}"
    assert grown <= MAX_MEBIBYTES, f"expected at most {MAX_MEBIBYTES} MiB, took {grown}"


def _timed(document: Document, data: bytes, figures: Figures) -> float:
    began = time.thread_time()
    try:
        document.read(data)
        figures.accepted += 1
    except AttestedError as error:
        took = time.thread_time() - began
        figures.refused += 1
        told = {"msg": error.message, "hint": error.hint, "reason": error.code}
        rows = failure_lines("w-1", told, stage=Stage(name="x", began=0.0), playbook="x.yml")
        shown = "\n".join([str(error), *rows])
        assert not [one for one in shown if one != "\n" and unicodedata.category(one) in _OBEYED], shown[:500]
        return took
    return time.thread_time() - began


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main(argv: Sequence[str] | None = None) -> int:
    """Try the documents that the command line names, all by default, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(DOCUMENTS))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    for name in options.names or DOCUMENTS:
        found = tried(name, count=options.count, seed=options.seed)
        print(
            f"{name:<36} {options.count:>6} mutations, {found.accepted:>5} accepted, {found.refused:>5} refused, "
            f"at most {found.slowest:.3f} s and {found.largest} MiB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
