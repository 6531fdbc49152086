# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubeconfig merged into one that has others: nothing is lost, and what is not understood is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import admin_access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import Access, kubeconfig_body
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "alice@prod"
OTHERS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "clusters": [{"name": "prod", "cluster": {"server": "https://other:6443", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "alice", "user": {"token": "2026-11-26", "exec": {"command": "login", "args": ["ü", "1"]}}}],
    "contexts": [{"name": "mine", "context": {"cluster": "prod", "user": "alice", "namespace": "one"}}],
    "current-context": "mine",
    "extensions": [{"name": "tool", "extension": {"since": "2026-11-26T10:00:00Z", "size": 3}}],
}


def body(*, server: str = "api.prod.example:6443", ca: bytes = b"CA", certificate: bytes = b"one") -> dict[str, Any]:
    access = Access(cluster_name="prod", server=server, tls_server_name="api", cluster_ca=ca, certificate=certificate)
    return kubeconfig_body(access, private_key=b"key", user="alice")


def merge(path: Path, **changes: Any) -> dict[str, Any]:
    admin_access.merged(path, body(**changes)).write()
    written: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return written


def of(entries: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one for one in entries if one["name"] == name]


@pytest.mark.parametrize("text", [None, "", "---\n", "apiVersion: v1\nclusters: null\n"])
def test_where_nothing_is_the_context_is_the_current_one(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "new" / "config"
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    written = merge(path)
    assert written["current-context"] == NAME
    assert written["contexts"] == [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}]
    assert written["clusters"] == [{"name": NAME, "cluster": body()["clusters"][0]["cluster"]}]
    assert path.stat().st_mode & 0o777 == 0o600


def test_everything_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHERS, allow_unicode=True), encoding="utf-8")
    written = merge(path)
    for plural in ("clusters", "users", "contexts"):
        assert len(of(written[plural], NAME)) == 1
        written[plural] = [one for one in written[plural] if one["name"] != NAME]
    assert written == OTHERS


def test_a_renewal_changes_the_credential_and_keeps_what_the_admin_set(tmp_path: Path) -> None:
    path = tmp_path / "config"
    written = merge(path)
    written["contexts"][0]["context"]["namespace"] = "two"
    written["clusters"][0]["cluster"]["proxy-url"] = "http://proxy"
    path.write_text("# a remark\n" + yaml.safe_dump(written), encoding="utf-8")
    before = path.read_bytes()
    assert admin_access.merged(path, body()).text == before, "nothing changes, remarks neither"
    again = merge(path, certificate=b"two", ca=b"another CA")
    assert again["contexts"][0]["context"] == {"cluster": NAME, "user": NAME, "namespace": "two"}
    assert again["clusters"][0]["cluster"]["proxy-url"] == "http://proxy"
    assert again["users"] == [{"name": NAME, "user": body(certificate=b"two")["users"][0]["user"]}]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real, path = tmp_path / "dotfiles" / "config", tmp_path / "config"
    real.write_text(yaml.safe_dump(OTHERS))
    path.symlink_to(real)
    merge(path)
    assert path.is_symlink()
    assert NAME in real.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("clusters: [", "no supported YAML", id="broken"),
        pytest.param("$ANSIBLE_VAULT;1.1;AES256\n3039\n", "of the kind Config", id="encrypted"),
        pytest.param("kind: List\n", "of the kind Config", id="another kind"),
        pytest.param("- 1\n", "of the kind Config", id="a list"),
        pytest.param("a: &a 1\nb: *a\n", "no supported YAML", id="an alias"),
        pytest.param("kind: Config\n---\nkind: Config\n", "no supported YAML", id="two documents"),
        pytest.param("kind: Config\nclusters: {a: 1}\n", "expected clusters", id="no list"),
        pytest.param("kind: Config\nusers: [{user: {}}]\n", "expected users", id="no name"),
        pytest.param("kind: Config\ncontexts: [{name: a, context: 1}]\n", "expected contexts", id="no context"),
    ],
)
def test_what_is_not_understood_is_left_alone(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SiteError, match=said) as caught:
        merge(path)
    assert (caught.value.code, path.read_text()) == ("OPTION_INVALID", text)
    assert str(path) in caught.value.message


def test_a_cluster_of_another_site_with_the_same_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    merge(path, server="api.other.example:6443", ca=b"other")
    before = path.read_bytes()
    with pytest.raises(SiteError, match="it is another cluster") as caught:
        merge(path)
    assert (caught.value.code, path.read_bytes()) == ("OPTION_INVALID", before)


def test_an_own_file_takes_the_place_of_an_earlier_one_alone(tmp_path: Path) -> None:
    root = tmp_path / "site"
    root.mkdir()
    (root / "hosts.yml").touch()
    site, path = Site.at(root), tmp_path / "alice"
    admin_access.own_file(path, body(), site=site).write()
    assert admin_access.own_file(path, body(), site=site).is_current
    admin_access.own_file(path, body(certificate=b"two"), site=site).write()
    assert yaml.safe_load(path.read_text()) == body(certificate=b"two")
    merge(path)
    before = path.read_bytes()
    with pytest.raises(SiteError, match="left unchanged"):
        admin_access.own_file(path, body(), site=site)
    assert path.read_bytes() == before
