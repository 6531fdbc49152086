# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disk the cluster assigned to whom, and how that gets into a file that says other things too."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    disk_in,
    plan_disks,
    read_nodes,
    render_identity_file,
    with_disk,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId

EK = {"cp-1": "a" * 64, "w-1": "b" * 64, "w-2": "c" * 64}
GROUPS = {"control_planes": ["cp-1"], "workers": ["w-1", "w-2"]}
DISK = "81111111-2222-4333-8444-555555555555"
OTHER = "91111111-2222-4333-8444-555555555555"


def nodes(**disks: str) -> Any:
    """The inventory; ``disks`` are what it says already, ``cp_1`` for cp-1."""
    said = {name.replace("_", "-"): disk for name, disk in disks.items()}
    hosts = {name: {"attested_ek": f"sha256:{ek}", "attested_disk_id": said.get(name, "")} for name, ek in EK.items()}
    return read_nodes(hosts, GROUPS)


def told(node: str, disk: str) -> dict[str, str]:
    return {"node": node, "ek_sha256": EK[node], "disk_id": disk}


def planned(*identities: dict[str, str], **disks: str) -> dict[str, str]:
    return {one.node: one.disk.uuid for one in plan_disks(nodes(**disks), identities)}


def test_each_machine_has_the_disk_that_its_identity_says() -> None:
    assert planned(told("cp-1", DISK), told("w-1", OTHER), told("w-2", "")) == {"cp-1": DISK, "w-1": OTHER}


def test_the_key_of_the_tpm_counts_and_not_the_name_beside_it() -> None:
    """An identity that bears a node's name and another machine's key says nothing of that node."""
    assert planned({"node": "w-1", "ek_sha256": "d" * 64, "disk_id": DISK}) == {}


def test_two_control_planes_that_say_the_same_are_one_word() -> None:
    assert planned(told("w-1", DISK), told("w-1", ""), told("w-1", DISK)) == {"w-1": DISK}


def test_another_id_than_the_site_says_is_told() -> None:
    (same,) = plan_disks(nodes(w_1=DISK), [told("w-1", DISK)])
    (other,) = plan_disks(nodes(w_1=DISK), [told("w-1", OTHER)])
    assert same.exchanged == ""
    assert DISK in other.exchanged
    assert OTHER in other.exchanged


@pytest.mark.parametrize(
    ("identities", "disks", "code"),
    [
        pytest.param([told("w-1", DISK), told("w-1", OTHER)], {}, "IDENTITY_AMBIGUOUS", id="two ids of one machine"),
        pytest.param([told("w-1", DISK), told("w-2", DISK)], {}, "SITE_INVENTORY", id="one disk for two nodes"),
        pytest.param([told("w-2", DISK)], {"w_1": DISK}, "SITE_INVENTORY", id="the disk of another one"),
        pytest.param([told("w-1", DISK.upper().replace("8", "A", 1))], {}, "DISK_ID_MALFORMED", id="another spelling"),
        pytest.param([told("w-1", "../../etc")], {}, "DISK_ID_MALFORMED", id="no id at all"),
    ],
)  # fmt: skip
def test_what_would_give_one_node_the_key_of_another_is_refused(
    identities: list[dict[str, str]], disks: dict[str, str], code: str
) -> None:
    with pytest.raises(AttestedError) as caught:
        planned(*identities, **disks)
    assert caught.value.code == code


def test_two_nodes_may_exchange_their_disks_at_once() -> None:
    found = planned(told("w-1", OTHER), told("w-2", DISK), w_1=DISK, w_2=OTHER)
    assert found == {"w-1": OTHER, "w-2": DISK}


@pytest.mark.parametrize("disk", ["x", DISK.upper().replace("8", "A", 1), f"{DISK} "])
def test_an_inventory_with_no_disk_id_is_refused(disk: str) -> None:
    with pytest.raises(AttestedError) as caught:
        nodes(w_1=disk)
    assert caught.value.code == "SITE_INVENTORY"
    assert "attested_disk_id of w-1" in caught.value.message


WRITTEN = render_identity_file(ek_sha256=EK["w-1"], known_by="console", replaced=["d" * 64])


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(WRITTEN, id="as enroll writes it"),
        pytest.param(WRITTEN + f"attested_disk_id: {OTHER}\n".encode(), id="with another id"),
        pytest.param(b"# mine\nrack: 7\nattested_disk_id: \nplace: {row: 3}", id="by hand, no end of line"),
        pytest.param(b"", id="no file"),
        pytest.param(b"---\n", id="an empty document"),
    ],
)
def test_the_id_is_added_and_all_else_stays(before: bytes) -> None:
    after = with_disk(before, DiskId(DISK), place="identity.yml")
    expected = {**(yaml.safe_load(before) or {}), "attested_disk_id": DISK}
    assert yaml.safe_load(after) == expected
    assert b"# mine" in after or b"# mine" not in before
    assert disk_in(after, place="identity.yml") == DISK
    assert with_disk(after, DiskId(DISK), place="identity.yml") == after


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"{rack: 7}\n", id="in braces"),
        pytest.param(b"- rack\n", id="a list"),
        pytest.param(b"rack: [\n", id="no YAML"),
        pytest.param(b"rack: 7\n...\n", id="an end of the document"),
        pytest.param(b"note: |\n  attested\nattested_disk_id:\n  x\n", id="an id over two lines"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_to_a_person(before: bytes) -> None:
    with pytest.raises(AttestedError) as caught:
        with_disk(before, DiskId(DISK), place="identity.yml")
    assert caught.value.code == "SITE_INVENTORY"
    assert "identity.yml" in caught.value.message


def test_enroll_writes_the_same_bytes_with_an_id() -> None:
    rendered = render_identity_file(ek_sha256=EK["w-1"], known_by="console", replaced=["d" * 64], disk=DISK)
    assert with_disk(WRITTEN, DiskId(DISK), place="identity.yml") == rendered
