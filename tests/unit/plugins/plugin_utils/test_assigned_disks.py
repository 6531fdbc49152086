# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ids of disks in the files of a site: written once, kept by who writes the identity, in the recovery kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.action.node_identity import ActionModule as NodeIdentity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import recovery_kit
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result

EK = {"w-1": "a" * 64, "w-2": "b" * 64}
DISK = "81111111-2222-4333-8444-555555555555"
OTHER = "91111111-2222-4333-8444-555555555555"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of which enroll wrote w-1, and a person w-2 into hosts.yml alone."""
    (tmp_path / "hosts.yml").write_text("---\n", encoding="utf-8")
    enroll(tmp_path)
    return tmp_path


def enroll(site: Path) -> Result:
    action: NodeIdentity = object.__new__(NodeIdentity)
    options: dict[str, Any] = {"node": "w-1", "ek_sha256": EK["w-1"], "known_by": "console fingerprint"}
    more = {"admission": "Approved", "replaced": [], "ek_aliases": {}, "records": None, "machines": None}
    return action.perform({"site": str(site), **options, **more}, check_mode=False)


def write(site: Path, *identities: tuple[str, str], check_mode: bool = False) -> Result:
    """Write what the cluster assigned, as a run after the last one does: it reads the files anew."""
    action: NodeIdentity = object.__new__(NodeIdentity)
    files = {node: site / "host_vars" / node / "identity.yml" for node in EK}
    said = {node: yaml.safe_load(path.read_bytes()) for node, path in files.items() if path.exists()}
    hosts = {node: {"attested_ek": f"sha256:{ek}", **said.get(node, {})} for node, ek in EK.items()}
    action.task_vars = {"hostvars": hosts, "groups": {"workers": list(EK)}}
    found = [{"node": node, "ek_sha256": EK[node], "disk_id": disk} for node, disk in identities]
    return action.perform({"site": str(site), "records": [{"identities": found}], "machines": None}, check_mode)


def files(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_check_then_apply_then_nothing_more(site: Path) -> None:
    before = files(site)
    assigned = (("w-1", DISK), ("w-2", OTHER))
    foreseen = write(site, *assigned, check_mode=True)
    assert (foreseen.changed, files(site)) == (True, before)
    assert foreseen.diff is not None
    assert f"attested_disk_id: {DISK}" in str(foreseen.diff.after)
    done = write(site, *assigned)
    assert (done.changed, done.values, done.diff) == (True, foreseen.values, foreseen.diff)
    places = [site / "host_vars" / node / "identity.yml" for node in EK]
    assert [yaml.safe_load(path.read_bytes())["attested_disk_id"] for path in places] == [DISK, OTHER]
    assert [path.stat().st_mode & 0o777 for path in places] == [0o644, 0o644]
    again = write(site, *assigned)
    assert (again.changed, again.values["files"], again.warnings) == (False, [], ())
    assert write(site, *assigned, check_mode=True).changed is False


def test_another_id_is_written_and_a_person_is_told(site: Path) -> None:
    write(site, ("w-1", DISK))
    done = write(site, ("w-1", OTHER))
    assert done.changed
    assert [DISK in one and OTHER in one for one in done.warnings] == [True]


def test_nothing_is_written_where_one_of_them_is_wrong(site: Path) -> None:
    before = files(site)
    with pytest.raises(AttestedError) as caught:
        write(site, ("w-1", DISK), ("w-2", "nonsense"))
    assert (caught.value.code, files(site)) == ("DISK_ID_MALFORMED", before)


def test_enrolling_again_keeps_the_disk_and_changes_nothing(site: Path) -> None:
    write(site, ("w-1", DISK))
    before = files(site)
    assert enroll(site).changed is False
    assert files(site) == before


def test_the_recovery_kit_takes_it_along(site: Path) -> None:
    write(site, ("w-1", DISK))
    found = dict(recovery_kit._files(Site.at(site), site / "policy"))
    assert f"attested_disk_id: {DISK}\n".encode() in found["host_vars/w-1/identity.yml"]
