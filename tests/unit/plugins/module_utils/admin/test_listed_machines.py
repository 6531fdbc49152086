# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a list enrolls: all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.action.node_identity import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result

KEYS = {serial: f"{number:064x}" for number, serial in enumerate(("A1", "B2", "C3", "D4"), start=1)}
OTHER = "ab" * 32


class Site:
    """A site with a control plane and two workers, found by serial number, by serial number and by name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "hosts.yml").write_text("---\n", encoding="utf-8")
        self.hosts: dict[str, dict[str, Any]] = {
            "cp-1": {"attested_serial": "A1", "ansible_host": "192.0.2.1"},
            "w-1": {"attested_serial": "B2", "ansible_host": "192.0.2.2"},
            "w-2": {"ansible_host": "192.0.2.3"},
        }
        self.listed: dict[str, str] = {"A1": KEYS["A1"], "B2": KEYS["B2"], "w-2": KEYS["C3"]}

    def enroll(self, *, check_mode: bool = False, nodes: Iterable[str] = ("cp-1", "w-1", "w-2")) -> Result:
        path = self.root / "rack.yml"
        path.write_text(yaml.safe_dump(self.listed), encoding="utf-8")
        action: ActionModule = object.__new__(ActionModule)
        said = {name: {**known, **self.said(name)} for name, known in self.hosts.items()}
        action.task_vars = {"hostvars": said, "groups": {"control_planes": ["cp-1"], "workers": ["w-1", "w-2"]}}
        return action.perform({"site": str(self.root), "machines": str(path), "nodes": list(nodes)}, check_mode)

    def said(self, name: str) -> dict[str, Any]:
        path = self.root / "host_vars" / name / "identity.yml"
        found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        return found

    def written(self) -> list[str]:
        return sorted(path.parent.name for path in self.root.glob("host_vars/*/identity.yml"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_check_then_apply_then_nothing_more(site: Site) -> None:
    foreseen = site.enroll(check_mode=True)
    assert (foreseen.changed, site.written()) == (True, [])
    assert foreseen.diff is not None
    assert f"attested_ek: sha256:{KEYS['C3']}" in str(foreseen.diff.after)
    done = site.enroll()
    assert (done.values, done.diff) == (foreseen.values, foreseen.diff)
    assert (done.values["enrolled"], site.written()) == (["cp-1", "w-1", "w-2"], ["cp-1", "w-1", "w-2"])
    assert site.said("w-1") == {
        "attested_ek": f"sha256:{KEYS['B2']}",
        "attested_ek_known_by": "delivery list rack.yml, serial B2",
    }
    again = site.enroll()
    assert (again.changed, again.values["enrolled"], again.values["known"]) == (False, [], ["cp-1", "w-1", "w-2"])


def test_the_others_are_told(site: Site) -> None:
    del site.listed["B2"]
    site.listed["spare"] = OTHER
    done = site.enroll()
    assert (done.values["absent"], done.values["spare"]) == (["w-1"], ["spare"])
    assert site.written() == ["cp-1", "w-2"]


def test_each_host_is_told_once(site: Site) -> None:
    """One is known by its second key, one gets an identity, and of two without an entry one has a key already."""
    alias = {f"sha256:{OTHER}": f"sha256:{KEYS['A1']}"}
    site.hosts["cp-1"] |= {"attested_ek": f"sha256:{OTHER}", "attested_ek_aliases": alias}
    site.hosts["w-2"] |= {"attested_ek": f"sha256:{KEYS['D4']}"}
    site.listed = {"A1": KEYS["A1"], "B2": KEYS["B2"], "z": "0" * 64, "y": "1" * 64, "x": "2" * 64}
    found = site.enroll().values
    told = {name: found[name] for name in ("enrolled", "known", "absent", "spare")}
    assert told == {"enrolled": ["w-1"], "known": ["cp-1"], "absent": [], "spare": ["x", "y", "z"]}


def test_only_the_chosen_hosts_are_enrolled(site: Site) -> None:
    done = site.enroll(nodes=["w-1"])
    assert (site.written(), done.values["absent"], done.values["spare"]) == (["w-1"], [], [])


def test_a_host_keeps_what_the_cluster_and_the_admin_said_of_it(site: Site) -> None:
    disk = "81111111-2222-4333-8444-555555555555"
    path = site.root / "host_vars" / "w-1" / "identity.yml"
    path.parent.mkdir(parents=True)
    path.write_text(f"attested_disk_id: {disk}\n", encoding="utf-8")
    site.hosts["w-1"] |= {"attested_ek_replaced": [f"sha256:{OTHER}"], "attested_admission": "Refused"}
    site.enroll()
    said = site.said("w-1")
    assert (said["attested_disk_id"], said["attested_admission"]) == (disk, "Refused")
    assert said["attested_ek_replaced"] == [f"sha256:{OTHER}"]


@pytest.mark.parametrize(
    ("listed", "known", "code", "said"),
    [
        pytest.param({"B2": "nonsense"}, {}, "EK_SOURCE_UNUSABLE", "w-1: expected a SHA-256", id="no hash"),
        pytest.param({"B2": KEYS["A1"]}, {}, "EK_SOURCE_UNUSABLE", "its own", id="one key for two machines"),
        pytest.param({"B2": f"sha256:{KEYS['A1']}"}, {}, "IDENTITY_AMBIGUOUS", "cp-1 and w-1", id="in two spellings"),
        pytest.param({}, {"attested_serial": "A1"}, "IDENTITY_AMBIGUOUS", "cp-1 and w-1", id="a number twice"),
        pytest.param({}, {"attested_ek": f"sha256:{OTHER}"}, "EK_CHANGED", f"TPM {OTHER}", id="another is known"),
        pytest.param(
            {}, {"attested_ek_replaced": [f"sha256:{KEYS['B2']}"]}, "IDENTITY_REVOKED", "replaced before", id="replaced"
        ),
        pytest.param(
            {},
            {
                "attested_ek": f"sha256:{OTHER}",
                "attested_ek_aliases": {f"sha256:{OTHER}": f"sha256:{KEYS['A1']}"},
                "attested_serial": "",
            },
            "EK_ALIAS_TAKEN",
            "cp-1",
            id="the second key of another",
        ),
    ],
)
def test_nothing_is_written_where_one_entry_is_wrong(
    site: Site, listed: dict[str, str], known: dict[str, Any], code: str, said: str
) -> None:
    site.listed |= listed
    site.hosts["w-1"] |= known
    with pytest.raises(AttestedError, match=said) as caught:
        site.enroll()
    assert (caught.value.code, site.written()) == (code, [])


def test_a_file_that_says_more_is_not_written_over(site: Site) -> None:
    path = site.root / "host_vars" / "w-1" / "identity.yml"
    path.parent.mkdir(parents=True)
    path.write_text("attested_serial: B2\n", encoding="utf-8")
    with pytest.raises(AttestedError, match="attested_serial; move these variables into another file") as caught:
        site.enroll()
    assert (caught.value.code, site.written()) == ("SITE_INVENTORY", ["w-1"])
    assert path.read_text(encoding="utf-8") == "attested_serial: B2\n"


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "; and 1 more"), (10, "; and 5 more")])
def test_many_problems_are_told_in_short(site: Site, count: int, more: str) -> None:
    names = [f"w-{number}" for number in range(10, 10 + count)]
    path = site.root / "rack.yml"
    path.write_text(yaml.safe_dump({name: f"x{name}" for name in names}), encoding="utf-8")
    action: ActionModule = object.__new__(ActionModule)
    hosts = {name: {"ansible_host": name} for name in names}
    action.task_vars = {"hostvars": hosts, "groups": {"workers": names}}
    with pytest.raises(AttestedError) as caught:
        action.perform({"site": str(site.root), "machines": str(path), "nodes": names}, check_mode=False)
    assert caught.value.code == "EK_SOURCE_UNUSABLE"
    assert caught.value.message.count("expected a SHA-256") == 5
    assert caught.value.message.endswith(more or "'xw-14'")
