# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S54: YAML and JSON that take all memory or end in a traceback, and one bad object that stops all tickets."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import read_delivered
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import parse_manifest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import load_config
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import import_master_secret
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import authorities_of
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import parse_list
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import parse_documents, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import JoinServiceConfig
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded, code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

THREAT = Threat(
    id="S54",
    title="Foreign documents that exhaust, crash, or hide others",
    case="found here: a delivery list of 341 bytes, a date out of range in one profile",
    bed="bytes",
    stops=(
        ("core/documents.py", "EK_SOURCE_UNUSABLE"),
        ("core/documents.py", "SITE_CLUSTER_FILE"),
        ("core/documents.py", "CONFIG_INVALID"),
        ("core/documents.py", "KUBECONFIG_MALFORMED"),
        ("policy/fields.py", "MANIFEST_INVALID"),
        ("keyservice/live_policy.py", ""),
    ),
)

CEILING = 8 << 20
EK = "ab" * 32
BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n".encode() for before, one in zip("abcdef", "bcdefg", strict=True)
)
TWINS = b"SN1: %s\nSN1: %s\n" % (EK.encode(), b"cd" * 32)
DEEP = b"[" * 50_000


def delivered(data: bytes, directory: Path) -> object:
    """Read a list as a reseller sends it."""
    path = directory / "list.yml"
    path.write_bytes(data)
    return read_delivered(path, serial="SN1")


def configured(data: bytes, directory: Path) -> object:
    """Read a service's configuration."""
    path = directory / "join.yml"
    path.write_bytes(data)
    return load_config(JoinServiceConfig, path)


READERS: list[tuple[Callable[[bytes, Path], object], str]] = [
    (delivered, "EK_SOURCE_UNUSABLE"),
    (configured, "CONFIG_INVALID"),
    (lambda data, _directory: site_directory.parse(data), "SITE_CLUSTER_FILE"),
    (lambda data, _directory: parse_node_config(data), "NODE_CONFIG_MALFORMED"),
    (lambda data, _directory: authorities_of(data), "KUBECONFIG_MALFORMED"),
    (lambda data, _directory: parse_documents([("site", data.decode("utf-8", "surrogateescape"))]), "MANIFEST_INVALID"),
    (lambda data, _directory: parse_manifest(data), "BUNDLE_MALFORMED"),
    (lambda data, _directory: parse_list(data), "FILE_UNUSABLE"),
    (lambda data, _directory: import_master_secret(data), "SITE_SECRET_MALFORMED: master secret"),
]
HOSTILE = [
    pytest.param(BOMB, id="aliases that unfold to five million"),
    pytest.param(DEEP, id="fifty thousand brackets"),
    pytest.param(b"a: 0x" + b"9" * 5000, id="a number that cannot be printed"),
    pytest.param(b"a: 2001-13-45", id="a date that is none"),
    pytest.param(b'["\\ud800"]', id="half of a letter"),
    pytest.param(b"[1e999]", id="a number without end"),
    pytest.param(b"<<: [{a: 1}]", id="a merge"),
    pytest.param(b"\xff\xfe", id="no text"),
]


@pytest.mark.parametrize("data", HOSTILE)
@pytest.mark.parametrize(("read", "code"), [pytest.param(*one, id=one[1]) for one in READERS])
def test_refused_within_a_ceiling(
    tmp_path: Path, read: Callable[[bytes, Path], object], code: str, data: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(AttestedError) as caught:
            read(data, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert Coded(caught.value) == code
    assert len(caught.value.message) < 2000
    assert peak < CEILING


def test_a_serial_number_that_stands_twice_names_nobodys_key(tmp_path: Path) -> None:
    """The last of two equal keys would win: whoever may add a line to the list takes the machine over."""
    assert delivered(TWINS.splitlines()[0], tmp_path).ek_sha256 == EK  # type: ignore[attr-defined]
    assert code_of(lambda: delivered(TWINS, tmp_path)) == "EK_SOURCE_UNUSABLE"


DATES = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]


@pytest.mark.parametrize("date", DATES)
def test_a_date_out_of_range_has_a_code(date: str) -> None:
    good = "apiVersion: attested-kubernetes.dev/v1alpha1\nkind: MeasurementProfile\nmetadata: {name: p}\n"
    text = good + "spec: {posture: boot, registers: [], expires: " + date + "}\n"
    assert parse_documents([("p", text.replace(date, "2999-01-01T00:00:00Z"))]).profiles
    assert code_of(lambda: parse_documents([("p", text)])) == "MANIFEST_INVALID"


@pytest.mark.parametrize(
    "spec",
    [
        *(pytest.param({"posture": "boot", "registers": [], "expires": one}, id=f"a date of {one}") for one in DATES),
        pytest.param({"posture": "everything", "registers": []}, id="a posture that a later release has"),
        pytest.param({"posture": "boot", "registers": 7}, id="registers that are a number"),
        pytest.param(None, id="no spec at all"),
    ],
)
def test_one_bad_profile_stops_no_ticket(spec: Any) -> None:
    """It admits nobody itself, is named, and the good one decides, from memory as well as from the API."""
    bed = Bed()
    bed.gateway.apply({"kind": "MeasurementProfile", "metadata": {"name": "odd"}, "spec": spec})
    bed.watch()
    assert bed.release().node_name == "w-1"
    (named,) = bed.live.unreadable()
    assert "MeasurementProfile odd" in named
    assert [one.name for one in bed.live.profiles()] == [learned(bed.boot).name]


def test_an_exception_for_a_bad_profile_admits_nobody() -> None:
    """The site signed its name and digest, and still nothing in it can be read as a register."""
    bed = Bed()
    good = render_profile(learned(bed.boot))
    bed.gateway.apply({**good, "spec": {**good["spec"], "expires": DATES[0]}})
    assert code_of(bed.release) == "POLICY_EMPTY"


def test_one_bad_identity_stops_its_own_machine_alone() -> None:
    bed = Bed()
    other = {"ekSha256": "cd" * 32, "nodeName": "w-2", "role": "of no meaning", "admission": "Approved"}
    bed.gateway.apply({"kind": "NodeIdentity", "metadata": {"name": f"ek-{'cd' * 10}"}, "spec": other})
    assert bed.release().node_name == "w-1"
    assert code_of(lambda: bed.live.identity_for("cd" * 32)) == "MANIFEST_INVALID"


def test_a_revocation_in_a_bad_object_is_one() -> None:
    """Who cannot undo a revocation must not be able to hide it behind a field of no meaning."""
    bed = Bed()
    assert bed.release().node_name == "w-1"
    name, ek = bed.identity.name, bed.identity.ek_sha256
    odd = {"ekSha256": ek, "nodeName": "w-1", "role": "of no meaning", "admission": "Revoked"}
    bed.gateway.apply({"kind": "NodeIdentity", "metadata": {"name": name}, "spec": odd})
    assert code_of(bed.release) == "MANIFEST_INVALID"
    bed.gateway.apply(
        {"kind": "NodeIdentity", "metadata": {"name": name}, "spec": {**odd, "role": "worker", "admission": "Approved"}}
    )
    assert code_of(bed.release) == "POLICY_ROLLED_BACK"
