# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles and authorities as files of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    enrolled_identities,
    load_profiles,
    read_nodes,
    render_objects,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import (
    parse_documents,
    render_document,
    render_profile,
)
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = learned(boots.load("deb13-base"))


def test_active_profiles_are_loaded_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(render_document(render_profile(PROFILE)), encoding="utf-8")
    found = load_profiles(tmp_path, ["deb13-base"])
    assert [render_profile(profile) for profile in found] == [render_profile(PROFILE)]


@pytest.mark.parametrize(
    ("active", "code"),
    [
        pytest.param([], "POLICY_EMPTY", id="no active profile"),
        pytest.param(["other"], "PROFILE_UNKNOWN", id="a name without manifest"),
    ],
)
def test_site_without_usable_profile_is_refused(tmp_path: Path, active: list[str], code: str) -> None:
    with pytest.raises(AttestedError) as refused:
        load_profiles(tmp_path, active)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "data", [pytest.param(b"a: [", id="broken YAML"), pytest.param(b"\xff\xfe", id="bytes that are no UTF-8")]
)
def test_unreadable_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.yml").write_bytes(data)
    with pytest.raises(AttestedError) as refused:
        load_profiles(tmp_path, ["deb13-base"])
    assert refused.value.code == "MANIFEST_INVALID"


def test_rendered_objects_read_back(tmp_path: Path) -> None:
    hosts = {"w-1": {"attested_ek": "sha256:" + "a" * 64, "attested_ek_known_by": "console"}}
    identities = enrolled_identities(read_nodes(hosts, {"workers": ["w-1"]}))
    found = parse_documents([("site", render_objects([PROFILE], identities))])
    assert [render_profile(profile) for profile in found.profiles] == [render_profile(PROFILE)]
    assert found.identities == identities
