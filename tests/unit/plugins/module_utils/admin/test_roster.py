# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of an inventory is recovered, in which order, by which disk."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    Roster,
    make_roster,
    read_nodes,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

GROUPS = {"control_planes": ["m-1", "m-2"], "workers": ["a-1", "z-1"]}
EVERY = ["a-1", "m-1", "m-2", "z-1"]


def disk_of(number: int) -> str:
    return f"{number}1111111-2222-4333-8444-555555555555"


HOSTS: dict[str, dict[str, Any]] = {
    name: {"attested_ek": "sha256:" + f"{place + 1:064x}", "attested_disk_id": disk_of(place)}
    for place, name in enumerate(EVERY)
}


def roster(*names: str, files: dict[str, bytes] | None = None, **changes: dict[str, Any]) -> Roster:
    hosts = {name: HOSTS[name] | changes.get(name.replace("-", "_"), {}) for name in EVERY}
    return make_roster(names, read_nodes(hosts, GROUPS), files or {})


def kept(name: str, disk: str) -> dict[str, bytes]:
    return {f"host_vars/{name}/identity.yml": f"attested_ek: sha256:00\nattested_disk_id: {disk}\n".encode()}


BROKEN = {"host_vars/m-1/identity.yml": b"["}


def disks(found: Roster) -> dict[str, str]:
    return {one.name: one.disk.uuid if one.disk else "" for one in found.candidates}


def test_control_planes_come_first_and_each_has_its_own_disk() -> None:
    found = roster(*reversed(EVERY))
    assert list(disks(found)) == ["m-1", "m-2", "a-1", "z-1"]
    assert disks(found) == {name: HOSTS[name]["attested_disk_id"] for name in EVERY}


def test_only_who_is_named_is_asked() -> None:
    assert list(disks(roster("z-1"))) == ["z-1"]


def test_what_the_site_lacks_is_taken_from_the_kit() -> None:
    found = roster("a-1", files=kept("a-1", disk_of(7)), a_1={"attested_disk_id": ""})
    assert disks(found) == {"a-1": disk_of(7)}


def test_what_the_site_says_counts_before_the_kit() -> None:
    assert disks(roster("a-1", files=kept("a-1", disk_of(7)))) == {"a-1": disk_of(0)}


def test_one_whose_disk_nobody_knows_is_a_candidate_without_one() -> None:
    assert disks(roster("a-1", "m-1", a_1={"attested_disk_id": ""})) == {"m-1": disk_of(1), "a-1": ""}


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        pytest.param({"attested_admission": "Refused"}, "its machine is Refused", id="removed"),
        pytest.param({"attested_admission": "Revoked"}, "its machine is Revoked", id="revoked"),
        pytest.param({"attested_ek": ""}, "its machine is not enrolled", id="never enrolled"),
    ],
)
def test_who_is_not_admitted_is_left_out_and_named(variables: dict[str, str], why: str) -> None:
    found = roster("a-1", "m-1", a_1=variables)
    assert list(disks(found)) == ["m-1"]
    assert found.left_out == {"a-1": why}


@pytest.mark.parametrize(
    ("names", "changes", "files", "words"),
    [
        pytest.param(["a-1", "nas"], {}, {}, "got nas", id="a host that is no node"),
        pytest.param([], {}, {}, "got none", id="nobody"),
        pytest.param(["a-1"], {"a_1": {"attested_admission": "Revoked"}}, {}, "a-1: its machine", id="nobody left"),
        pytest.param(
            ["a-1"],
            {"a_1": {"attested_disk_id": ""}},
            kept("a-1", disk_of(1)),
            "a disk of its own",
            id="the kit gives it the disk of another one that is not even asked",
        ),
        pytest.param(["a-1"], {"m_1": {"attested_disk_id": ""}}, BROKEN, "of the kit", id="a broken file in the kit"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anybody_is_asked(
    names: list[str], changes: dict[str, Any], files: dict[str, bytes], words: str
) -> None:
    with pytest.raises(AttestedError) as caught:
        roster(*names, files=files, **changes)
    assert caught.value.code == "SITE_INVENTORY"
    assert words in caught.value.message
