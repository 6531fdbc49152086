# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kit of a site: written when it would say something else, and the site brought back from it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import recovery_kit, secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import (
    KitKeys,
    Lock,
    close_kit,
    open_kit,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.kits import CHEAP, NOW, PASSPHRASE, KeyInMemory
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.admin.test_secrets import XorVault, make

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VAULT = XorVault()
TOKEN = KeyInMemory()  # a passphrase costs 64 MiB each time; what closes a kit makes no difference here
LOCK = Lock(token_key=TOKEN.public_key())
KEYS = KitKeys(token=TOKEN)
IDENTITY = "host_vars/w-1/identity.yml"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = tmp_path / "prod"
    for name, text in (("hosts.yml", "---\n"), (IDENTITY, "attested_ek: a\n"), ("policy/r650.yml", "kind: x\n")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / ".secrets").mkdir()
    made = Site.at(root)
    make(made)
    return made


@pytest.fixture
def order(tmp_path: Path) -> recovery_kit.KitOrder:
    return recovery_kit.KitOrder(path=tmp_path / "prod.kit", lock=LOCK)


def write(site: Site, order: recovery_kit.KitOrder) -> bool:
    """Bring the kit up to date; return whether there was something to do."""
    plan = recovery_kit.plan_kit(site, VAULT, order, now=NOW)
    recovery_kit.apply_kit(site, plan, random=SystemRandom())
    return not plan.current


def older(site: Site) -> bytes:
    """Return another kit of the site, as somebody may have put it back."""
    return close_kit(recovery_kit.gather(site, VAULT, now=NOW.replace(year=2020)), LOCK, random=SystemRandom())


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        call()
    return Coded(caught.value)


def test_a_lost_site_comes_back_byte_by_byte(site: Site, order: recovery_kit.KitOrder, tmp_path: Path) -> None:
    assert write(site, order)
    before = tree(site.root)
    shutil.rmtree(site.root)
    site.root.mkdir()
    (site.root / "hosts.yml").write_text("---\n", encoding="utf-8")
    opened = open_kit(order.path.read_bytes(), KEYS)
    plan = recovery_kit.plan_restoration(site, opened, VAULT)
    assert plan.written == ("master-secret.json", "join-ca-key.pem", "policy-key.pem", IDENTITY, "policy/r650.yml",
                            "cluster.yml")  # fmt: skip
    recovery_kit.restore(site, plan, VAULT)
    after = tree(site.root)
    assert after == {name: data for name, data in before.items() if name != ".secrets/recovery-kit.mark"}
    assert secrets.load(site, VAULT).cluster_id == opened.cluster_id
    assert {path.stat().st_mode & 0o777 for path in site.secrets.iterdir()} == {0o600}
    assert site.secrets.stat().st_mode & 0o777 == 0o700
    again = recovery_kit.plan_restoration(site, opened, VAULT)
    assert (again.written, again.kept) == ((), ())


def test_a_second_run_changes_nothing_whatever_the_time(site: Site, order: recovery_kit.KitOrder) -> None:
    assert write(site, order)
    before = (order.path.read_bytes(), site.kit_mark.read_bytes())
    assert not write(site, order)
    assert recovery_kit.plan_kit(site, VAULT, order, now=NOW.replace(year=2030)).current
    assert (order.path.read_bytes(), site.kit_mark.read_bytes()) == before
    assert order.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda site, path: (site.root / IDENTITY).write_text("attested_ek: b\n"), id="an identity"),
        pytest.param(lambda site, path: (site.root / "policy/new.yml").write_text("kind: y\n"), id="a profile"),
        pytest.param(lambda site, path: path.unlink(), id="the kit is gone"),
        pytest.param(lambda site, path: path.write_bytes(older(site)), id="the kit is another one"),
        pytest.param(lambda site, path: site.kit_mark.unlink(), id="the mark is gone"),
        pytest.param(lambda site, path: site.kit_mark.write_bytes(b"0" * 65), id="the mark is another"),
    ],
)
def test_what_changed_has_it_written_again(
    change: Callable[[Site, Path], object], site: Site, order: recovery_kit.KitOrder
) -> None:
    write(site, order)
    change(site, order.path)
    assert write(site, order)
    assert not write(site, order)
    open_kit(order.path.read_bytes(), KEYS)


def test_another_lock_has_it_written_again(site: Site, order: recovery_kit.KitOrder) -> None:
    write(site, order)
    other = KeyInMemory()
    assert write(site, replace(order, lock=Lock(token_key=other.public_key())))
    assert refused(lambda: open_kit(order.path.read_bytes(), KEYS)) == "KIT_KEY_WRONG: encrypted to"
    open_kit(order.path.read_bytes(), KitKeys(token=other))
    with_passphrase = replace(order, lock=Lock(passphrase=PASSPHRASE, cost=CHEAP))
    assert write(site, with_passphrase)
    assert not write(site, with_passphrase)
    another = SecretBytes(b"another passphrase")
    assert write(site, replace(order, lock=Lock(passphrase=another, cost=CHEAP)))
    open_kit(order.path.read_bytes(), KitKeys(passphrase=another))


def test_the_mark_tells_neither_secret_nor_passphrase(site: Site, order: recovery_kit.KitOrder) -> None:
    write(site, replace(order, lock=Lock(passphrase=PASSPHRASE, cost=CHEAP)))
    bundle = secrets.load(site, VAULT)
    needles = [
        one for value in (bundle.master.key, bundle.master.salt, PASSPHRASE) for one in spellings(value.reveal())
    ]
    mark = site.kit_mark.read_bytes()
    assert len(mark) == 65
    assert not [needle for needle in needles if needle in mark]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"precious", "PLACE_TAKEN", id="something else"),
        pytest.param(b"attested-kit/v1\nhalf", "KIT_DAMAGED: it is cut off", id="a kit that is cut off"),
        pytest.param(b"attested-kit/v9\n", "FILE_VERSION_UNKNOWN: expected a kit", id="a kit of a newer version"),
    ],
)
def test_what_is_no_kit_of_this_cluster_is_never_replaced(
    data: bytes, code: str, site: Site, order: recovery_kit.KitOrder
) -> None:
    order.path.write_bytes(data)
    assert refused(lambda: write(site, order)) == code
    assert order.path.read_bytes() == data


def test_a_kit_of_another_cluster_a_folder_and_a_link_are_never_replaced(
    site: Site, order: recovery_kit.KitOrder, tmp_path: Path
) -> None:
    write(site, order)
    other = tmp_path / "other"
    (other / ".secrets").mkdir(parents=True)
    (other / "hosts.yml").write_text("---\n", encoding="utf-8")
    make(Site.at(other))
    assert refused(lambda: write(Site.at(other), order)) == "PLACE_TAKEN"
    assert refused(lambda: write(site, replace(order, path=other))) == "PLACE_TAKEN"
    (tmp_path / "link").symlink_to(order.path)
    assert refused(lambda: write(site, replace(order, path=tmp_path / "link"))) == "PLACE_TAKEN"


def test_a_break_while_it_is_written_leaves_the_old_kit(
    site: Site, order: recovery_kit.KitOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(site, order)
    before = order.path.read_bytes()
    (site.root / IDENTITY).write_text("attested_ek: b\n", encoding="utf-8")

    def broken(descriptor: int) -> None:
        raise OSError(28, f"No space left for {descriptor}")

    monkeypatch.setattr("os.fsync", broken)
    assert refused(lambda: write(site, order)) == "FILE_UNUSABLE"
    monkeypatch.undo()
    assert order.path.read_bytes() == before
    assert sorted(path.name for path in order.path.parent.iterdir()) == ["prod", "prod.kit"]
    assert write(site, order)


def test_what_the_site_has_stays_and_only_the_rest_is_written(site: Site, order: recovery_kit.KitOrder) -> None:
    write(site, order)
    opened = open_kit(order.path.read_bytes(), KEYS)
    (site.root / IDENTITY).write_text("attested_ek: newer\n", encoding="utf-8")
    site.join_ca_key.unlink()
    plan = recovery_kit.plan_restoration(site, opened, VAULT)
    assert (plan.written, plan.kept) == (("join-ca-key.pem",), (IDENTITY,))
    recovery_kit.restore(site, plan, VAULT)
    assert (site.root / IDENTITY).read_text(encoding="utf-8") == "attested_ek: newer\n"
    assert secrets.load(site, VAULT).cluster_id == opened.cluster_id


def test_profiles_of_another_directory_go_back_there(site: Site, order: recovery_kit.KitOrder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "profiles"
    shutil.move(site.root / "policy", elsewhere)
    (elsewhere / ".draft.yml").write_text("not for a kit", encoding="utf-8")
    write(site, replace(order, policy_directory=elsewhere))
    opened = open_kit(order.path.read_bytes(), KEYS)
    assert "policy/r650.yml" in dict(opened.files)
    shutil.rmtree(elsewhere)
    planned = recovery_kit.plan_restoration(site, opened, VAULT, policy_directory=elsewhere)
    recovery_kit.restore(site, planned, VAULT, policy_directory=elsewhere)
    assert [path.name for path in elsewhere.iterdir()] == ["r650.yml"]


@pytest.mark.parametrize("lost", ["cluster.yml", ".secrets/master-secret.json", "all but cluster.yml"])
def test_the_kit_of_another_cluster_is_refused_by_whatever_is_left(
    lost: str, site: Site, order: recovery_kit.KitOrder, tmp_path: Path
) -> None:
    other = Site.at(shutil.copytree(site.root, tmp_path / "other"))
    for path in (other.cluster_file, other.master_secret, other.join_ca_key, other.policy_key):
        path.unlink()
    make(other)
    write(other, order)
    opened = open_kit(order.path.read_bytes(), KEYS)
    if lost == "all but cluster.yml":
        shutil.rmtree(site.secrets)
    else:
        (site.root / lost).unlink()
    before = tree(site.root)
    assert refused(lambda: recovery_kit.plan_restoration(site, opened, VAULT)) == "KIT_OTHER_CLUSTER"
    assert tree(site.root) == before


def test_a_kit_whose_public_facts_are_of_another_cluster_is_refused(site: Site, order: recovery_kit.KitOrder) -> None:
    write(site, order)
    opened = open_kit(order.path.read_bytes(), KEYS)
    foreign = dict(opened.files)["cluster.yml"].replace(opened.cluster_id.hex().encode(), b"ab" * 32)
    mixed = replace(opened, files=(("cluster.yml", foreign),))
    assert refused(lambda: recovery_kit.plan_restoration(site, mixed, VAULT)) == "KIT_OTHER_CLUSTER"


def test_a_policy_key_that_is_not_the_sites_is_found_before_a_kit_is_written(
    site: Site, order: recovery_kit.KitOrder
) -> None:
    other = Site.at(shutil.copytree(site.root, site.root.parent / "other"))
    for path in (other.cluster_file, other.master_secret, other.join_ca_key, other.policy_key):
        path.unlink()
    make(other)
    shutil.copy(other.policy_key, site.policy_key)
    assert refused(lambda: write(site, order)) == "POLICY_KEY_UNUSABLE"
    assert not order.path.exists()
