# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the admin has a way into the cluster already."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import admin_access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import Access
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa

if TYPE_CHECKING:
    from pathlib import Path

NOW = SystemClock().now()


class XorVault:
    """A vault of one byte: enough to tell clear from encrypted."""

    def encrypt(self, data: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    decrypt = encrypt


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose admin got a certificate for a day."""
    (tmp_path / "hosts.yml").write_text("---\n", encoding="utf-8")
    (tmp_path / ".secrets").mkdir()
    site, ca = Site.at(tmp_path), ClusterCa(tmp_path / "machine")
    access = Access(
        cluster_name="prod",
        server="api.prod.example:6443",
        tls_server_name="api.prod.example",
        cluster_ca=ca.certificate,
        certificate=ca.issue(admin_access.request_certificate(site, XorVault())),
    )
    admin_access.write_kubeconfig(site, XorVault(), access)
    return site


@pytest.mark.parametrize(
    ("cluster_name", "hours", "expected"),
    [
        pytest.param("prod", 0, True, id="fresh, for this cluster"),
        pytest.param("other", 0, False, id="for a cluster of another name"),
        pytest.param("prod", 19, False, id="about to end"),
    ],
)
def test_the_kubeconfig_counts_while_it_is_good(site: Site, cluster_name: str, hours: int, expected: bool) -> None:
    now = NOW + timedelta(hours=hours)
    assert admin_access.has_access(site, XorVault(), cluster_name=cluster_name, now=now) is expected


@pytest.mark.parametrize("name", ["admin_key", "admin_kubeconfig"])
def test_without_key_or_kubeconfig_there_is_no_access(site: Site, name: str) -> None:
    getattr(site, name).unlink()
    assert not admin_access.has_access(site, XorVault(), cluster_name="prod", now=NOW)


def test_a_kubeconfig_of_an_earlier_key_is_none(site: Site) -> None:
    site.admin_key.unlink()
    admin_access.request_certificate(site, XorVault())
    assert not admin_access.has_access(site, XorVault(), cluster_name="prod", now=NOW)


def test_a_kubeconfig_of_other_authorities_is_made_anew(site: Site, tmp_path: Path) -> None:
    """In a rotation it has to name both, and then to show a certificate of the one that signs first."""
    old = (tmp_path / "machine/etc/kubernetes/pki/ca.crt").read_bytes()
    new = ClusterCa(tmp_path / "another").certificate
    needs = {
        name: admin_access.needs_certificate(site, XorVault(), now=NOW, authorities=authorities)
        for name, authorities in {"": b"", "old": old, "old, new": old + new, "new, old": new + old, "new": new}.items()
    }
    assert needs == {"": False, "old": False, "old, new": True, "new, old": True, "new": True}


@pytest.mark.parametrize(("signs", "due"), [("old", False), ("new", True)])
def test_a_kubeconfig_that_names_both_is_due_once_the_other_one_signs(
    site: Site, tmp_path: Path, signs: str, due: bool
) -> None:
    cas = {name: ClusterCa(tmp_path / name) for name in ("old", "new")}
    both = cas[signs].certificate + cas["new" if signs == "old" else "old"].certificate
    access = Access(
        cluster_name="prod",
        server="api.prod.example:6443",
        tls_server_name="api.prod.example",
        cluster_ca=both,
        certificate=cas["old"].issue(admin_access.request_certificate(site, XorVault())),
    )
    admin_access.write_kubeconfig(site, XorVault(), access)
    assert admin_access.needs_certificate(site, XorVault(), now=NOW, authorities=both) is due


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="no YAML"),
        pytest.param(b"clusters: []", id="no cluster"),
        pytest.param(b"current-context: 1\nclusters: [{cluster: {}}]", id="no certificate"),
    ],
)
def test_a_kubeconfig_of_another_form_leads_to_a_new_one_and_to_no_reset(site: Site, text: bytes) -> None:
    site.admin_kubeconfig.write_bytes(XorVault().encrypt(text))
    with pytest.raises(SiteError) as caught:
        admin_access.has_access(site, XorVault(), cluster_name="prod", now=NOW)
    assert caught.value.code == "ADMIN_KUBECONFIG_MALFORMED"
    assert "reset" not in f"{caught.value.hint} {caught.value.reason.value.command}"
