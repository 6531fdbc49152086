# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S60: a backup of etcd as a way in: it is read, altered, of another cluster, or sent on to another machine."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import (
    Manifest,
    hand_on,
    pack,
    unpack,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.etcd_snapshot import require_replaceable
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes

THREAT = Threat(
    id="S60",
    title="A backup of etcd that is read, altered, of another cluster, or restored over a healthy one",
    case="",
    bed="bytes",
    stops=(
        ("admin/etcd_archive.py", "BACKUP_DAMAGED"),
        ("admin/etcd_archive.py", "BACKUP_OTHER_CLUSTER"),
        ("admin/age_file.py", "KIT_KEY_WRONG"),
        ("node/etcd_snapshot.py step 1", "RESTORE_CLUSTER_HEALTHY"),
    ),
)

pytestmark = pytest.mark.skipif(bool(missing_for_age()), reason=missing_for_age())
SECRET = b"a token of a service account"
SNAPSHOT = SECRET * 10_000
CLUSTER = bytes(range(32))
CA = "9f2c1d5e9f2c1d5e"
MANIFEST = Manifest(
    taken="2026-11-25T23:15:00Z",
    node="cp-1",
    cluster_id=CLUSTER.hex(),
    policy_generation=3,
    revision=48211,
    kubernetes_version="1.35.4",
    authorities={"ca": [CA]},
    size=len(SNAPSHOT),
    sha256=hashlib.sha256(SNAPSHOT).hexdigest(),
)


@pytest.fixture
def keys() -> tuple[SecretBytes, str]:
    return make_identity()


@pytest.fixture
def backup(tmp_path: Path, keys: tuple[SecretBytes, str]) -> Path:
    (tmp_path / "snapshot.db").write_bytes(SNAPSHOT)
    pack(MANIFEST, tmp_path / "snapshot.db", tmp_path / "etcd.age", [keys[1]])
    return tmp_path / "etcd.age"


def restored(path: Path, identity: SecretBytes, *, cluster: bytes = CLUSTER, ca: str = CA) -> bytes:
    """Return the snapshot as a control plane of this cluster takes it."""
    out = io.BytesIO()
    unpack(path, out, [identity], begin=lambda one: one.require_cluster(cluster, {"ca": [ca]}))
    return out.getvalue()


def test_who_finds_it_reads_nothing(backup: Path, keys: tuple[SecretBytes, str]) -> None:
    assert restored(backup, keys[0]) == SNAPSHOT
    assert [one for one in spellings(SECRET) if one in backup.read_bytes()] == []
    assert code_of(lambda: restored(backup, make_identity()[0])) == "KIT_KEY_WRONG"


def test_every_bit_of_it_counts(backup: Path, keys: tuple[SecretBytes, str]) -> None:
    data = backup.read_bytes()
    for at in (len(data) // 2, len(data) - 1, data.index(b"\n---") + 10):
        backup.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert code_of(lambda: restored(backup, keys[0])) == "BACKUP_DAMAGED"
    for end in (0, 10, len(data) // 2, len(data) - 1):
        backup.write_bytes(data[:end])
        assert code_of(lambda: restored(backup, keys[0])) == "BACKUP_DAMAGED"


def test_that_of_another_cluster_or_of_other_cas_is_not_restored(backup: Path, keys: tuple[SecretBytes, str]) -> None:
    assert code_of(lambda: restored(backup, keys[0], cluster=bytes(32))) == "BACKUP_OTHER_CLUSTER"
    assert code_of(lambda: restored(backup, keys[0], ca="0" * 16)) == "BACKUP_OTHER_CLUSTER"


def test_what_was_sent_to_one_machine_opens_on_no_other(
    backup: Path, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    """Each run has an identity of its own, and the one of the kit opens nothing that lies on a machine."""
    places = [tmp_path / name for name in ("first", "second")]
    identities = [hand_on(backup, place, [keys[0]], begin=lambda _one: None)[1] for place in places]
    assert restored(places[0], identities[0]) == SNAPSHOT
    for identity in (identities[1], keys[0]):
        assert code_of(lambda identity=identity: restored(places[0], identity)) == "KIT_KEY_WRONG"


def test_a_healthy_etcd_is_not_put_back_in_time() -> None:
    assert code_of(lambda: require_replaceable(healthy=True, confirmed=False)) == "RESTORE_CLUSTER_HEALTHY"
    require_replaceable(healthy=True, confirmed=True)
    require_replaceable(healthy=False, confirmed=False)
