# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action `admin_kubeconfig` with a control plane that signs: what is due, who an admin is, and what is kept."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.action import admin_kubeconfig
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.node import ca_rotation
from ansible_collections.attested.kubernetes.tests.support.admin_site import AdminSite
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa
from cryptography import x509

if TYPE_CHECKING:
    from pathlib import Path

OWN, CLIENTS = "attested:admin", x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
ALICE = {"admin": "alice", "groups": ["developers", "on-call"], "hours": 8}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdminSite:
    """A site and a control plane, in whose file of CAs is a remark."""
    ca = ClusterCa(tmp_path / "machine").certificate
    KubernetesPaths(root=tmp_path / "machine").ca.write_bytes(b"a remark\n" + ca)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "home" / "config"))
    return AdminSite(tmp_path / "prod", KubernetesPaths(root=tmp_path / "machine"), monkeypatch)


def subject(site: AdminSite, user: str = OWN) -> tuple[list[str], set[str], int]:
    """Return names, groups and hours of an admin's certificate."""
    leaf = site.certificate(user)
    names, groups = (
        [str(one.value) for one in leaf.subject.get_attributes_for_oid(kind)]
        for kind in (x509.NameOID.COMMON_NAME, x509.NameOID.ORGANIZATION_NAME)
    )
    assert leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value == CLIENTS
    return names, set(groups), round((leaf.not_valid_after_utc - leaf.not_valid_before_utc) / timedelta(hours=1))


def later(monkeypatch: pytest.MonkeyPatch, **time: int) -> None:
    """Let the admin's machine and the control plane have this much later a time."""

    class Later(SystemClock):
        def now(self) -> Any:
            return super().now() + timedelta(**time)

    for module in (admin_kubeconfig, ca_rotation):
        monkeypatch.setattr(module, "SystemClock", Later)


def test_the_sites_own_is_made_once_and_only_a_request_leaves(site: AdminSite) -> None:
    first = site.act()
    assert not first.get("failed"), first
    assert subject(site) == ([OWN], {"kubeadm:cluster-admins"}, 24)
    assert [sorted(one) for one in site.asked] == [[], ["groups", "hours", "name", "request"]]
    told = json.dumps([first, site.asked]).encode()
    assert [one for one in site.canaries() if one in told + b"".join(site.files().values())] == []
    body, before = site.kubeconfig(), site.files()
    assert body["clusters"][0]["cluster"]["server"] == "https://api.prod.example:6443"
    assert base64.b64decode(body["users"][0]["user"]["client-key-data"]) == site.key()
    again = site.act()
    assert (first["changed"], again["changed"], again["said"]) == (True, False, [])
    assert (site.asked, site.files()) == ([{}], before)


@pytest.mark.parametrize(
    ("hours", "due"), [pytest.param(17, False, id="a third is left"), pytest.param(19, True, id="a fifth is left")]
)
def test_it_is_renewed_with_less_than_a_quarter_of_its_life_left(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch, hours: int, due: bool
) -> None:
    site.act()
    key, end = site.key(), site.certificate().not_valid_after_utc
    later(monkeypatch, hours=hours)
    assert site.act()["changed"] is due
    assert (site.key(), site.certificate().not_valid_after_utc > end) == (key, due)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        pytest.param({"renew": True}, "it was requested", id="asked for"),
        pytest.param({"groups": ["developers"]}, "the present one is for developers, on-call", id="fewer groups"),
        pytest.param({"groups": []}, "the present one is for developers, on-call", id="no group"),
        pytest.param({"hours": 12}, "the present one is for 8 hours", id="another life"),
        pytest.param({"groups": ["on-call", "developers"], "hours": 8}, "", id="the same in another order"),
        pytest.param({}, "", id="nothing said, so it stays"),
    ],
)
def test_a_further_admins_is_renewed_for_what_was_said(site: AdminSite, options: dict[str, Any], why: str) -> None:
    site.act(**ALICE)
    foreseen = site.act(admin="alice", check_mode=True, **options)
    done = site.act(admin="alice", **options)
    assert (foreseen["changed"], done["changed"]) == (bool(why), bool(why))
    assert foreseen["said"] == done["said"]
    assert why in "".join(done["said"])
    groups = set(options.get("groups", ALICE["groups"]))
    assert subject(site, "alice") == (["alice"], groups, options.get("hours", 8))
    assert site.act(admin="alice")["changed"] is False


def test_a_further_admin_has_no_group_unless_one_is_said_and_the_sites_own_stays(site: AdminSite) -> None:
    site.act()
    before = site.files()
    site.act(admin="bob@example.org")
    assert subject(site, "bob@example.org") == (["bob@example.org"], set(), 24)
    assert {name: data for name, data in site.files().items() if name in before} == before
    assert site.key("bob@example.org") != site.key()


def test_other_authorities_of_the_cluster_and_another_address_reach_it(site: AdminSite, tmp_path: Path) -> None:
    site.act(**ALICE)
    serial = site.certificate("alice").serial_number
    moved = site.act(admin="alice", server="lb.prod.example:443")
    assert moved["said"] == [f"{site.site.kubeconfig_of('alice')}, encrypted"]
    assert site.kubeconfig("alice")["clusters"][0]["cluster"]["server"] == "https://lb.prod.example:443"
    assert site.certificate("alice").serial_number == serial
    ca = ClusterCa(tmp_path / "other")
    site.paths = KubernetesPaths(root=tmp_path / "other")
    assert "the CAs changed" in site.act(admin="alice")["said"][0]
    cluster = site.kubeconfig("alice")["clusters"][0]["cluster"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == ca.certificate


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"admin": "system:admin"}, id="a user of the system"),
        pytest.param({"admin": "attested:key-service"}, id="a service of ours"),
        pytest.param({"admin": "../alice"}, id="a path"),
        pytest.param({"admin": "alice\n"}, id="a line"),
        pytest.param({"admin": "a" * 65}, id="a name that is too long"),
        pytest.param({"admin": "alice", "groups": ["system:masters"]}, id="a group of the system"),
        pytest.param({"admin": "alice", "groups": ["developers", "a,b c"]}, id="a group that is none"),
        pytest.param({"admin": "alice", "hours": 0}, id="no life"),
        pytest.param({"admin": "alice", "hours": 8761}, id="more than a year"),
        pytest.param({"groups": ["developers"]}, id="groups of the site's own"),
        pytest.param({"admin": OWN, "groups": ["developers"]}, id="the same, by its name"),
    ],
)
def test_who_no_admin_may_be_is_refused_before_anybody_is_asked(site: AdminSite, options: dict[str, Any]) -> None:
    answer = site.act(**options)
    assert (answer["failed"], answer["reason"]) == (True, "OPTION_INVALID")
    assert (site.asked, site.files()) == ([], {})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"groups": ["kubeadm:cluster-admins"]}, "INIT_CERTIFICATE_UNUSABLE", id="another group"),
        pytest.param({"groups": []}, "INIT_CERTIFICATE_UNUSABLE", id="no group"),
        pytest.param({"name": "mallory"}, "ADMIN_REQUEST_INVALID", id="another user"),
    ],
)
def test_a_certificate_that_was_not_asked_for_is_not_kept(
    site: AdminSite, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: str
) -> None:
    honest = ca_rotation.run_admin_certificate
    monkeypatch.setattr(ca_rotation, "run_admin_certificate", lambda said, **more: honest({**said, **changes}, **more))
    assert site.act(**ALICE)["reason"] == code
    assert list(site.files()) == ["admin-alice-key.pem"]


def test_check_mode_says_what_would_be_written_and_writes_nothing(site: AdminSite, tmp_path: Path) -> None:
    target = tmp_path / "alice.kubeconfig"
    answer = site.act(check_mode=True, file=str(target), merge=True, **ALICE)
    assert answer["said"] == [
        "a certificate of alice in developers, on-call for 8 hours, since there is no kubeconfig",
        f"{site.site.kubeconfig_of('alice')}, encrypted",
        f"{target}, in clear",
        f"{tmp_path / 'home' / 'config'}, in clear",
    ]
    assert (answer["changed"], site.files(), target.exists(), (tmp_path / "home").exists()) == (True, {}, False, False)
    assert site.act(file=str(target), merge=True, **ALICE)["said"] == answer["said"]
    assert site.act(file=str(target), merge=True, admin="alice")["changed"] is False


def test_copies_in_clear_are_for_their_owner_and_what_is_there_stays(site: AdminSite, tmp_path: Path) -> None:
    target, config = tmp_path / "own.kubeconfig", tmp_path / "home" / "config"
    site.act(merge=True, file=str(target))
    site.act(merge=True, **ALICE)
    assert yaml.safe_load(target.read_text()) == site.kubeconfig()
    body = yaml.safe_load(config.read_text())
    assert [one["name"] for one in body["contexts"]] == [f"{OWN}@prod", "alice@prod"]
    assert body["current-context"] == f"{OWN}@prod"
    assert {path.stat().st_mode & 0o777 for path in (target, config)} == {0o600}
    config.chmod(0o644)
    assert site.act(merge=True)["said"] == [f"{config}, in clear"]
    assert config.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["file", "merge"])
def test_a_file_of_somebody_elses_is_left_alone_and_nothing_is_signed(
    site: AdminSite, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "home" / "config"
    target.parent.mkdir()
    target.write_text("clusters: [", encoding="utf-8")
    answer = site.act(**{name: str(target) if name == "file" else True}, **ALICE)
    assert answer["reason"] == "OPTION_INVALID"
    assert str(target) in answer["msg"]
    assert (target.read_text(encoding="utf-8"), site.files(), site.asked) == ("clusters: [", {}, [{}])


def test_a_private_key_in_clear_does_not_go_into_the_repository_of_the_site(site: AdminSite) -> None:
    answer = site.act(file=str(site.root / "alice.kubeconfig"), **ALICE)
    assert answer["reason"] == "OPTION_INVALID"
    assert "outside of the site" in answer["msg"]


def test_options_of_signing_mean_nothing_without_it(site: AdminSite) -> None:
    with pytest.raises(Exception, match="missing parameter"):
        site.act(sign=None, **ALICE)
