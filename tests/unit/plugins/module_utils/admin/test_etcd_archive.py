# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup of etcd as a file: what goes in comes out, and each change of one point of it is refused by its code."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import etcd_archive
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import close_to, make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import (
    Manifest,
    digest_of,
    hand_on,
    pack,
    parse_manifest,
    surplus,
    unpack,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes

needs_age = pytest.mark.skipif(bool(missing_for_age()), reason=missing_for_age())
SNAPSHOT = b"a canary in etcd" * 40_000  # several pieces of age, none of them whole
CLUSTER = bytes(range(32))
MANIFEST = Manifest(
    taken="2026-11-25T23:15:00Z",
    node="cp-1",
    cluster_id=CLUSTER.hex(),
    policy_generation=3,
    revision=48211,
    kubernetes_version="1.35.4",
    authorities={"ca": ["9f2c1d5e9f2c1d5e"], "etcd-ca": ["0a4f5e2a7c11d58f"]},
    size=len(SNAPSHOT),
    sha256=hashlib.sha256(SNAPSHOT).hexdigest(),
)


def nothing(_manifest: Manifest) -> None:
    """Refuse nothing."""


@pytest.fixture
def keys() -> tuple[SecretBytes, str]:
    return make_identity()


@pytest.fixture
def backup(tmp_path: Path, keys: tuple[SecretBytes, str]) -> Path:
    (tmp_path / "snapshot.db").write_bytes(SNAPSHOT)
    path = tmp_path / MANIFEST.file_name
    assert pack(MANIFEST, tmp_path / "snapshot.db", path, [keys[1]]) == digest_of(path)
    return path


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(AttestedError) as caught:
        work()
    assert "canary" not in str(caught.value)
    return caught.value.code


def test_a_file_is_named_by_its_time() -> None:
    assert MANIFEST.file_name == "etcd-20261125T231500Z.age"
    assert parse_manifest(MANIFEST.to_line()) == MANIFEST


@needs_age
def test_what_went_in_comes_out_and_the_manifest_is_seen_first(backup: Path, keys: tuple[SecretBytes, str]) -> None:
    out = io.BytesIO()
    seen: list[tuple[Manifest, int]] = []
    found = unpack(backup, out, [keys[0]], begin=lambda one: seen.append((one, out.tell())))
    assert found == MANIFEST
    assert seen == [(MANIFEST, 0)]
    assert out.getvalue() == SNAPSHOT
    assert b"canary" not in backup.read_bytes()


@needs_age
def test_a_backup_that_is_handed_on_is_closed_to_another_identity_alone(
    backup: Path, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    manifest, identity = hand_on(backup, tmp_path / "on.age", [keys[0]], begin=nothing)
    out = io.BytesIO()
    assert unpack(tmp_path / "on.age", out, [identity], begin=nothing) == manifest == MANIFEST
    assert out.getvalue() == SNAPSHOT
    assert code_of(lambda: unpack(tmp_path / "on.age", None, [keys[0]], begin=nothing)) == "KIT_KEY_WRONG"


@needs_age
@pytest.mark.parametrize("use", ["unpack", "hand_on"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda data: data[:-1], "BACKUP_DAMAGED", id="its last byte is missing"),
        pytest.param(lambda data: data[: len(data) // 2], "BACKUP_DAMAGED", id="half of it"),
        pytest.param(lambda data: data[:100], "BACKUP_DAMAGED", id="cut off within age's header"),
        pytest.param(lambda data: data[: data.index(b"\n---") + 66_000], "BACKUP_DAMAGED", id="one piece of age"),
        pytest.param(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "BACKUP_DAMAGED", id="a late bit"),
        pytest.param(lambda data: data[:400] + bytes([data[400] ^ 1]) + data[401:], "BACKUP_DAMAGED", id="early bit"),
        pytest.param(lambda data: data + b"\0", "BACKUP_DAMAGED", id="a byte more"),
        pytest.param(lambda _data: b"", "BACKUP_DAMAGED", id="an empty file"),
        pytest.param(lambda _data: SNAPSHOT, "BACKUP_DAMAGED", id="a snapshot in clear"),
    ],
)  # fmt: skip
def test_a_changed_file_is_refused(
    change: Callable[[bytes], bytes], code: str, use: str, backup: Path, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    backup.write_bytes(change(backup.read_bytes()))
    if use == "unpack":
        assert code_of(lambda: unpack(backup, io.BytesIO(), [keys[0]], begin=nothing)) == code
    else:
        assert code_of(lambda: hand_on(backup, tmp_path / "on", [keys[0]], begin=nothing)) == code


@needs_age
def test_another_identity_opens_nothing(backup: Path) -> None:
    out = io.BytesIO()
    assert code_of(lambda: unpack(backup, out, [make_identity()[0]], begin=nothing)) == "KIT_KEY_WRONG"
    assert out.getvalue() == b""


@needs_age
@pytest.mark.parametrize("content", [b"", b"no line", b"x" * 100_000, b"[]\n", b"\n" + SNAPSHOT, b"\xff\n"])
def test_a_file_of_age_that_is_no_backup_is_refused(
    content: bytes, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    path = tmp_path / "other.age"
    path.write_bytes(close_to(content, [keys[1]]))
    assert code_of(lambda: unpack(path, io.BytesIO(), [keys[0]], begin=nothing)) == "BACKUP_DAMAGED"


@needs_age
@pytest.mark.parametrize(
    "wrong", [replace(MANIFEST, size=1), replace(MANIFEST, sha256="0" * 64)], ids=["size", "digest"]
)
def test_a_snapshot_that_is_not_that_of_its_manifest_is_refused(
    wrong: Manifest, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    (tmp_path / "snapshot.db").write_bytes(SNAPSHOT)
    pack(wrong, tmp_path / "snapshot.db", tmp_path / "x.age", [keys[1]])
    assert code_of(lambda: unpack(tmp_path / "x.age", None, [keys[0]], begin=nothing)) == "BACKUP_DAMAGED"


@needs_age
@pytest.mark.parametrize("use", ["unpack", "hand_on"])
def test_a_refusal_of_the_manifest_keeps_its_code_and_nothing_of_the_snapshot_follows(
    use: str, backup: Path, keys: tuple[SecretBytes, str], tmp_path: Path
) -> None:
    def refuse(manifest: Manifest) -> None:
        manifest.require_cluster(bytes(32))

    out = io.BytesIO()
    if use == "unpack":
        assert code_of(lambda: unpack(backup, out, [keys[0]], begin=refuse)) == "BACKUP_OTHER_CLUSTER"
        assert out.getvalue() == b""
    else:
        assert code_of(lambda: hand_on(backup, tmp_path / "on", [keys[0]], begin=refuse)) == "BACKUP_OTHER_CLUSTER"


@needs_age
def test_a_full_disk_is_told_as_such(backup: Path, keys: tuple[SecretBytes, str]) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        assert code_of(lambda: unpack(backup, full, [keys[0]], begin=nothing)) == "FILE_UNUSABLE"
    assert code_of(lambda: hand_on(backup, Path("/dev/full"), [keys[0]], begin=nothing)) == "FILE_UNUSABLE"


def _with(**changes: Any) -> bytes:
    document = {**json.loads(MANIFEST.to_line()), **changes}
    return json.dumps({name: value for name, value in document.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param(_with(format="attested-etcd-backup/v2"), "FILE_VERSION_UNKNOWN", id="a later version"),
        pytest.param(_with(format="attested-kit/v1"), "BACKUP_DAMAGED", id="a kit"),
        pytest.param(_with(format=...), "BACKUP_DAMAGED", id="no format"),
        pytest.param(_with(revision=...), "BACKUP_DAMAGED", id="a field is missing"),
        pytest.param(_with(extra=1), "BACKUP_DAMAGED", id="a field more"),
        pytest.param(_with(taken="../../etc/passwd"), "BACKUP_DAMAGED", id="a path as its time"),
        pytest.param(_with(revision=-1), "BACKUP_DAMAGED", id="a negative revision"),
        pytest.param(_with(revision=True), "BACKUP_DAMAGED", id="a truth value as revision"),
        pytest.param(_with(size="1"), "BACKUP_DAMAGED", id="a text as size"),
        pytest.param(_with(cluster_id="00"), "BACKUP_DAMAGED", id="a short cluster id"),
        pytest.param(_with(authorities=[]), "BACKUP_DAMAGED", id="a list of CAs"),
        pytest.param(_with(authorities={"ca": "x"}), "BACKUP_DAMAGED", id="a CA without a list"),
        pytest.param(_with(authorities={"ca": ["\x1b[2J"]}), "BACKUP_DAMAGED", id="a key's name with an escape"),
        pytest.param(b"{" * 10_000, "BACKUP_DAMAGED", id="deep"),
        pytest.param(_with(node="x" * 40_000), "BACKUP_DAMAGED", id="long"),
    ],
)
def test_another_manifest_is_refused(line: bytes, code: str) -> None:
    assert code_of(lambda: parse_manifest(line)) == code


def test_a_backup_is_of_one_cluster_and_its_cas() -> None:
    MANIFEST.require_cluster(CLUSTER, MANIFEST.authorities)
    MANIFEST.require_cluster(CLUSTER, {"ca": ["9f2c1d5e9f2c1d5e", "ffffffffffffffff"]})  # a rotation is on its way
    with pytest.raises(KeyServiceError, match=r"expected cluster 0000.*; expected the ca ff.*, got 9f2c") as caught:
        MANIFEST.require_cluster(bytes(32), {"ca": ["ffffffffffffffff"], "etcd-ca": ["0a4f5e2a7c11d58f"]})
    assert caught.value.reason is Reason.BACKUP_OTHER_CLUSTER


@pytest.mark.parametrize(
    ("keep", "gone"),
    [
        (1, ["etcd-20261123T000000Z.age", "etcd-20261124T000000Z.age"]),
        (2, ["etcd-20261123T000000Z.age"]),
        (3, []),
        (9, []),
    ],
)  # fmt: skip
def test_the_newest_stay_and_what_is_not_ours_is_left_alone(keep: int, gone: list[str]) -> None:
    names = [f"etcd-2026112{day}T000000Z.age" for day in (5, 3, 4)]
    others = ["etcd-20261101T000000Z.age.bak", "etcd-1.age", "prod.age", "etcd-20261101T000000Z.age~"]
    assert list(surplus([*names, *others], keep=keep)) == gone


@needs_age
def test_age_itself_opens_it(backup: Path, keys: tuple[SecretBytes, str], tmp_path: Path) -> None:
    import pyrage  # noqa: PLC0415  # optional

    identity = pyrage.x25519.Identity.from_str(keys[0].reveal().decode())
    line, _newline, rest = pyrage.decrypt(backup.read_bytes(), [identity]).partition(b"\n")
    assert json.loads(line)["format"] == etcd_archive.FORMAT
    assert rest == SNAPSHOT


@needs_age
def test_nothing_is_read_whole_into_memory(tmp_path: Path, keys: tuple[SecretBytes, str]) -> None:
    big = tmp_path / "snapshot.db"
    with big.open("wb") as out:
        out.truncate(64 << 20)
    manifest = replace(MANIFEST, size=64 << 20, sha256=digest_of(big))
    tracemalloc.start()
    try:
        pack(manifest, big, tmp_path / "big.age", [keys[1]])
        _manifest, identity = hand_on(tmp_path / "big.age", tmp_path / "on.age", [keys[0]], begin=nothing)
        with (tmp_path / "out").open("wb") as out:
            unpack(tmp_path / "on.age", out, [identity], begin=nothing)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert digest_of(tmp_path / "out") == manifest.sha256
    assert peak < 4 << 20
