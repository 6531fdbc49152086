# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S40: identifiers that are paths, or nearly the right one, for everything that takes an identifier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import parse_manifest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import check_kubelet_request
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_join
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import NodeSpec
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_identity,
)
from ansible_collections.attested.kubernetes.tests.attacks.test_s15_csr_for_another import request
from ansible_collections.attested.kubernetes.tests.attacks.test_s39_discovery_without_pin import NODE_CONFIG
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange, identity_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.bundle.conftest import document
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.kubeadm.test_render import PATHS
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable

THREAT = Threat(
    id="S40",
    title="Path tricks in identifiers",
    case="Cure53 SPI-01-003, SPI-01-007",
    bed="bytes",
    stops=(
        ("keyservice/derive.py", "DISK_ID_MALFORMED"),
        ("keyservice/kubelet.py step 3", "CSR_NAME_MISMATCH"),
        ("node/config.py", "NODE_CONFIG_MALFORMED"),
        ("policy/manifest.py", "MANIFEST_INVALID"),
        ("bundle/manifest.py", "BUNDLE_MALFORMED"),
        ("kubeadm/spec.py", "OPTION_INVALID"),
    ),
)

GOOD_DISK = "11111111-1111-4111-8111-111111111111"
TRICKS = ["../w-1", "..", ".", "/etc/passwd", "w%2f1", "w\\1", "", "w-1\n", "w-1\x00", " w-1", "W-1", "w" * 300, "w-1/"]


def disk(name: str) -> object:
    return DiskId(name)


def csr(name: str) -> object:
    names = ((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{name}"[:64]))
    return check_kubelet_request(request(names), node_name="w-1")


def node_config(name: str) -> object:
    return parse_node_config(yaml.safe_dump({**NODE_CONFIG, "name": name}).encode())


def cluster_config(name: str) -> object:
    return parse_node_config(yaml.safe_dump({**NODE_CONFIG, "cluster_name": name}).encode())


def identity(name: str) -> object:
    manifest = render_identity(identity_of(Exchange().tpm.ek))
    manifest["spec"]["nodeName"] = name
    return parse_documents([("x", render_document(manifest))])


def kubeadm(name: str) -> object:
    return render_join(NodeSpec(name=name, node_ip="10.0.0.21"), paths=PATHS)


TAKERS = [
    pytest.param(disk, GOOD_DISK, "DISK_ID_MALFORMED", id="disk id"),
    pytest.param(csr, "w-1", "CSR_NAME_MISMATCH", id="name in a certificate request"),
    pytest.param(node_config, "w-1", "NODE_CONFIG_MALFORMED", id="name in node.yml"),
    pytest.param(cluster_config, "prod", "NODE_CONFIG_MALFORMED", id="cluster in node.yml"),
    pytest.param(identity, "w-1", "MANIFEST_INVALID", id="name in an identity"),
    pytest.param(kubeadm, "w-1", "OPTION_INVALID", id="name for kubeadm"),
]


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize(("taker", "good", "code"), TAKERS)
def test_names(taker: Callable[[str], object], good: str, code: str, trick: str) -> None:
    assert taker(good)
    assert code_of(lambda: taker(trick)) == code


DISKS = ["11111111-1111-4111-8111-11111111111A", "{" + GOOD_DISK + "}", GOOD_DISK.replace("-", ""), f"{GOOD_DISK}/.."]


@pytest.mark.parametrize("trick", DISKS)
def test_disk_ids_in_another_spelling(trick: str) -> None:
    """Each would derive another key without a word."""
    assert DiskId(GOOD_DISK).info == f"key-{GOOD_DISK}"
    assert code_of(lambda: DiskId(trick)) == "DISK_ID_MALFORMED"


@pytest.mark.parametrize("trick", ["../x", "/etc/x", "a/../../x", "a//b", "./a", "a/", "", "manifest.json", "a\x00b"])
@pytest.mark.parametrize("field", ["path", "install_path"])
def test_paths_in_a_bundle(field: str, trick: str) -> None:
    manifest: dict[str, Any] = document()[0]
    assert parse_manifest(json.dumps(manifest).encode()).files
    manifest["files"][0][field] = trick if field == "path" else "/usr/local/bin/../" + trick
    assert code_of(lambda: parse_manifest(json.dumps(manifest).encode())) == "BUNDLE_MALFORMED"
