# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pinned sources of the role say what the versions table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.bundle import PARTS
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import (
    RELEASES,
    SOURCES,
    linker_flags,
    release_for,
    source_for,
    version_of,
)

ROOT = Path(__file__).parents[5]
ROLE = ROOT / "roles/bundle_builder"
RELEASE = release_for("1.35")


@pytest.mark.parametrize("source", [s for s in SOURCES if s.module != "pause"], ids=lambda source: source.name)
def test_each_program_is_pinned_in_its_module(source):
    text = (ROLE / "files/go" / source.module / "go.mod").read_text()
    module = re.sub(r"/cmd/.*", "", source.package)

    assert re.search(rf"\s{re.escape(module)} v{re.escape(version_of(source, RELEASE))}( |$)", text, re.MULTILINE)


def test_every_wheel_of_a_node_is_admitted_by_its_hash():
    for name in ("requirements-node.txt", "requirements-control-plane.txt"):
        lines = [line for line in (ROLE / "files/python" / name).read_text().splitlines() if not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


def test_the_module_offers_exactly_the_parts_that_exist():
    text = (ROOT / "plugins/modules/component_bundle.py").read_text()
    listed = re.search(r"  part:.*?choices:\n((?:      - \S+\n)+)", text, re.DOTALL)

    assert listed is not None
    assert tuple(re.findall(r"- (\S+)", listed.group(1))) == PARTS


def test_kubernetes_programs_are_told_their_version():
    assert "gitVersion=v1.35.4" in linker_flags(source_for("kubelet"), RELEASE)
    assert "gitMinor=35" in linker_flags(source_for("kubelet"), RELEASE)


def test_a_minor_names_the_release_of_its_key():
    assert all(release.kubernetes.startswith(f"{minor}.") for minor, release in RELEASES.items())
