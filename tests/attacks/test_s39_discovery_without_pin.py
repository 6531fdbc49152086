# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S39: a node that finds its API without a pinned CA: it is never rendered, and never read."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import render_kubeconfig
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.render import render_init, render_join
from ansible_collections.attested.kubernetes.plugins.module_utils.node.config import parse_node_config
from ansible_collections.attested.kubernetes.tests.support import house
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.kubeadm.test_render import (
    CLUSTER,
    NODE,
    PATHS,
)
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.node.test_config import PEM

THREAT = Threat(
    id="S39",
    title="Discovery without a CA pin",
    case="Kubespray falls back to unsafeSkipCAVerification",
    bed="tree",
    stops=(
        ("kubeadm/render.py", ""),
        ("node/config.py", "NODE_CONFIG_MALFORMED"),
    ),
)

SKIPPING = re.compile(r"unsafe-?skip-?ca-?verification|insecure-skip-tls-verify|discovery-token", re.IGNORECASE)
NODE_CONFIG = {
    "version": 1,
    "name": "w-1",
    "cluster_name": "prod",
    "cluster_id": "ab" * 32,
    "endpoints": ["10.0.0.11:9090"],
    "join_ca": PEM,
    "tcti": "device:/dev/tpmrm0",
    "logs": {"firmware": "/sys/kernel/security/x", "userspace": "/run/log/x"},
}


def test_no_word_of_it_is_shipped() -> None:
    assert SKIPPING.search("unsafeSkipCAVerification: true")
    folders = {"plugins", "roles", "playbooks", "inventory", "meta"}
    found = []
    for path in house.tracked():
        if path.relative_to(ROOT).parts[0] in folders and path.suffix in {".py", ".yml", ".j2", ".service", ".sh", ""}:
            found += [house.shown(path)] if SKIPPING.search(path.read_text(encoding="utf-8", errors="replace")) else []
    assert found == []


@pytest.mark.parametrize("control_plane", [False, True], ids=["worker", "control plane"])
def test_a_join_finds_its_api_in_a_file(*, control_plane: bool) -> None:
    document = yaml.safe_load(render_join(NODE, paths=PATHS, control_plane=control_plane))
    written = PATHS.discovery_config if control_plane else PATHS.kubelet_config
    assert document["discovery"] == {"file": {"kubeConfigPath": str(written)}}
    assert not SKIPPING.search(render_init(CLUSTER, NODE, paths=PATHS).decode())


def test_that_file_pins_the_ca() -> None:
    text = render_kubeconfig(server="https://a:1", ca=b"ca", cluster_name="c", user="u", credential=Path("/c.pem"))
    (cluster,) = yaml.safe_load(text)["clusters"]
    pinned = {"server": "https://a:1", "certificate-authority-data": base64.b64encode(b"ca").decode()}
    assert cluster["cluster"] == pinned


@pytest.mark.parametrize(
    "join_ca",
    [
        pytest.param("", id="empty"),
        pytest.param(None, id="nothing"),
        pytest.param("skip", id="a word"),
        pytest.param(PEM * 3, id="more pins than a rotation needs"),
    ],
)
def test_a_node_without_a_pin_does_not_start(join_ca: Any) -> None:
    assert parse_node_config(yaml.safe_dump(NODE_CONFIG).encode()).join_ca == PEM.encode()
    changed = yaml.safe_dump({**NODE_CONFIG, "join_ca": join_ca}).encode()
    assert code_of(lambda: parse_node_config(changed)) == "NODE_CONFIG_MALFORMED"
    left_out = {name: value for name, value in NODE_CONFIG.items() if name != "join_ca"}
    assert code_of(lambda: parse_node_config(yaml.safe_dump(left_out).encode())) == "NODE_CONFIG_MALFORMED"
