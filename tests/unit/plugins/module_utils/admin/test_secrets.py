# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets of a site: all or nothing, encrypted, belonging together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets, site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.secrets import Origin
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site, parse_salt
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import generate_master_secret
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_image import require_key_of
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

if TYPE_CHECKING:
    from pathlib import Path


class XorVault:
    """A vault of one byte: enough to tell clear from encrypted."""

    def encrypt(self, data: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    decrypt = encrypt


class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 11, 21, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "hosts.yml").write_text("---\n", encoding="utf-8")
    (tmp_path / ".secrets").mkdir()
    return Site.at(tmp_path)


def make(site: Site, origin: Origin | None = None) -> site_directory.ClusterFile:
    return secrets.apply(
        site, secrets.plan(site, origin), name="prod", vault=XorVault(), clock=FixedClock(), random=SystemRandom()
    )


def test_what_was_made_is_opened_again_and_belongs_together(site: Site) -> None:
    public = make(site)
    bundle = secrets.load(site, XorVault())
    assert (bundle.cluster_id, bundle.measurement_salt) == (public.cluster_id, public.measurement_salt)


def test_second_run_changes_no_byte(site: Site) -> None:
    make(site)
    before = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    make(site)
    assert {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()} == before


def test_no_secret_lies_in_clear(site: Site) -> None:
    make(site)
    bundle = secrets.load(site, XorVault())
    clear = [bundle.master.to_json(), bundle.join_ca_key.reveal()]
    files = [path.read_bytes() for path in site.root.rglob("*") if path.is_file()]
    assert not any(secret in data for secret in clear for data in files)
    assert any(XorVault().encrypt(clear[0]) in data for data in files)


def test_secret_files_are_for_their_owner_only(site: Site) -> None:
    make(site)
    assert {path.stat().st_mode & 0o777 for path in site.secrets.iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["master_secret", "join_ca_key", "policy_key", "cluster_file"])
def test_partial_set_is_refused_and_left_alone(site: Site, name: str) -> None:
    make(site)
    getattr(site, name).unlink()
    with pytest.raises(AttestedError) as refused:
        make(site)
    assert refused.value.code == "SITE_SECRETS_INCOMPLETE"
    assert not getattr(site, name).exists()


def test_master_secret_of_another_cluster_is_refused(site: Site, tmp_path: Path) -> None:
    make(site)
    other_root = tmp_path / "other"
    (other_root / ".secrets").mkdir(parents=True)
    (other_root / "hosts.yml").write_text("---\n", encoding="utf-8")
    other = Site.at(other_root)
    make(other)
    site.master_secret.write_bytes(other.master_secret.read_bytes())
    with pytest.raises(AttestedError) as refused:
        secrets.load(site, XorVault())
    assert refused.value.code == "CLUSTER_ID_MISMATCH"


def origin_of(site: Site) -> Origin:
    bundle = secrets.load(site, XorVault())
    return Origin(master=bundle.master, measurement_salt=bundle.measurement_salt)


def test_a_new_site_of_a_known_master_secret_has_its_cluster_id_and_its_own_keys(site: Site, tmp_path: Path) -> None:
    first = make(site)
    (tmp_path / "new" / ".secrets").mkdir(parents=True)
    (tmp_path / "new" / "hosts.yml").write_text("---\n", encoding="utf-8")
    new = Site.at(tmp_path / "new")
    second = make(new, origin_of(site))
    assert secrets.load(new, XorVault()).master == secrets.load(site, XorVault()).master
    assert second.cluster_id == first.cluster_id
    assert second.join_ca != first.join_ca


def test_without_a_salt_a_known_master_secret_makes_another_cluster(site: Site) -> None:
    master = generate_master_secret(SystemRandom())
    first = make(site, Origin(master=master))
    assert secrets.load(site, XorVault()).master == master
    for path in (site.master_secret, site.join_ca_key, site.policy_key, site.cluster_file):
        path.unlink()
    assert make(site, Origin(master=master)).cluster_id != first.cluster_id


def test_a_lost_master_secret_is_put_back_and_nothing_else_is_touched(site: Site) -> None:
    make(site)
    origin = origin_of(site)
    site.master_secret.unlink()
    kept = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    make(site, origin)
    assert secrets.load(site, XorVault()).master == origin.master
    assert {path: path.read_bytes() for path in kept} == kept
    assert site.master_secret.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("lost", [pytest.param(True, id="lost"), pytest.param(False, id="still there")])
def test_the_master_secret_of_another_cluster_is_not_put_in(site: Site, lost: bool) -> None:
    make(site)
    if lost:
        site.master_secret.unlink()
    with pytest.raises(AttestedError) as refused:
        make(site, Origin(master=generate_master_secret(SystemRandom())))
    assert refused.value.code == "CLUSTER_ID_MISMATCH"
    assert site.master_secret.exists() is not lost


def test_a_master_secret_from_elsewhere_does_not_hide_another_missing_key(site: Site) -> None:
    make(site)
    origin = origin_of(site)
    site.join_ca_key.unlink()
    with pytest.raises(AttestedError) as refused:
        make(site, origin)
    assert refused.value.code == "SITE_SECRETS_INCOMPLETE"


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 33])
def test_a_salt_is_64_digits(text: str) -> None:
    with pytest.raises(AttestedError) as refused:
        parse_salt(text)
    assert Coded(refused.value) == "SITE_SECRET_MALFORMED: measurement salt"


def test_directory_without_inventory_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(AttestedError) as refused:
        Site.at(tmp_path)
    assert refused.value.code == "SITE_NOT_FOUND"


def test_loading_before_making_is_refused(site: Site) -> None:
    with pytest.raises(AttestedError) as refused:
        secrets.load(site, XorVault())
    assert refused.value.code == "SITE_SECRETS_INCOMPLETE"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda text: "[]", "expected a mapping", id="a list"),
        pytest.param(lambda text: "a: [", "expected YAML", id="broken YAML"),
        pytest.param(
            lambda text: text.replace("version: 1", "version: 2"), "expected version 1, got 2", id="another version"
        ),
        pytest.param(
            lambda text: text.replace("cluster_id: ", "cluster_id: zz"), "cluster_id", id="an id that is no hex"
        ),
        pytest.param(
            lambda text: text.replace("-----BEGIN PUB", "-----begin PUB"), "policy_key", id="a key without PEM"
        ),
        pytest.param(lambda text: text + "extra: 1\n", "unknown field extra", id="an unknown field"),
    ],
)
def test_malformed_cluster_file_is_refused_by_name(site: Site, change, said: str) -> None:
    make(site)
    text = change(site.cluster_file.read_text(encoding="utf-8"))
    with pytest.raises(AttestedError, match=said) as refused:
        site_directory.parse(text.encode())
    assert refused.value.code == "SITE_CLUSTER_FILE"


def test_parse_is_the_inverse_of_render(site: Site) -> None:
    public = make(site)
    assert site_directory.parse(site_directory.render(public)) == public


def make_boot_key(site: Site) -> None:
    if secrets.plan_boot_key(site):
        secrets.make_boot_key(site, name="prod", vault=XorVault(), clock=FixedClock())


def test_a_key_for_secure_boot_is_made_once_and_lies_encrypted(site: Site) -> None:
    make_boot_key(site)
    before = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()}
    make_boot_key(site)
    assert {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file()} == before
    assert not any(b"PRIVATE" in content for content in before.values())
    clear = XorVault().decrypt(before[site.secure_boot_key])
    require_key_of(clear, site.secure_boot_certificate, named="the key")


@pytest.mark.parametrize("lost", ["secure_boot_key", "secure_boot_certificate"])
def test_half_of_a_key_for_secure_boot_is_refused(site: Site, lost: str) -> None:
    make_boot_key(site)
    getattr(site, lost).unlink()
    with pytest.raises(AttestedError) as caught:
        secrets.plan_boot_key(site)
    assert (caught.value.code, getattr(site, lost).name in caught.value.message) == ("SITE_SECRETS_INCOMPLETE", True)


def test_a_key_for_secure_boot_is_none_of_the_secrets_that_belong_together(site: Site) -> None:
    make_boot_key(site)
    make(site)
    assert secrets.plan(site).missing == ()
