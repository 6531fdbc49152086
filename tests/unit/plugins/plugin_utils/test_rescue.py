# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action `rescue`: the same as `attested rescue`, with paths and hashes in its result and no secret."""

from __future__ import annotations

import hashlib
import json
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.action.rescue import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.tests.support.canary import spellings, spellings_of_pem
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_extract import disk
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_values import (
    CLUSTER,
    SALT,
    STATE,
    UUID,
    master,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "constellation-mastersecret.json"
    path.write_bytes(master().to_json())
    return str(path)


def act(*, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    known = {"async_val": 0, "check_mode": check_mode, "diff": True, "environment": None, "action": "rescue"}
    connection = SimpleNamespace(transport="local", _shell=SimpleNamespace(tmpdir=None))
    task, become = SimpleNamespace(args=options, **known), SimpleNamespace(become=False)
    action = ActionModule(task, connection, become, loader=None, templar=None, shared_loader_obj=None)
    answer: dict[str, Any] = action.run(task_vars={})
    return answer


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_says_what_follows_and_writes_nothing_unless_told(secret: str, tmp_path: Path) -> None:
    before = files(tmp_path)
    answer = act(master_secret=secret, measurement_salt=SALT.hex(), disks=[UUID])
    assert (answer["changed"], answer["cluster_id"], answer["files"]) == (False, CLUSTER, [])
    assert answer["master_secret_fingerprint"] == master().fingerprint()
    assert [one["disk"] for one in answer["disks"]] == [UUID]
    assert files(tmp_path) == before


def test_check_then_write_then_nothing_more(secret: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    foreseen = act(check_mode=True, master_secret=secret, disks=[UUID], keys_to=str(keys))
    assert (foreseen["changed"], keys.exists()) == (True, False)
    done = act(master_secret=secret, disks=[UUID], keys_to=str(keys))
    assert done["changed"]
    assert done["files"] == foreseen["files"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    assert act(master_secret=secret, disks=[UUID], keys_to=str(keys))["changed"] is False
    (keys / "ssh_ca").chmod(0o644)
    assert act(master_secret=secret, disks=[UUID], keys_to=str(keys))["changed"] is True
    assert stat.S_IMODE((keys / "ssh_ca").stat().st_mode) == 0o600


def test_the_command_writes_the_same(secret: str, tmp_path: Path) -> None:
    act(master_secret=secret, disks=[UUID], keys_to=str(tmp_path / "ours"))
    assert (
        command.main(["rescue", "keys", "--master-secret", secret, "--disk", UUID, "--out", str(tmp_path / "its")]) == 0
    )
    assert act(master_secret=secret, disks=[UUID], keys_to=str(tmp_path / "its"))["changed"] is False
    ours, its = files(tmp_path / "ours"), files(tmp_path / "its")
    assert {name for name in its if ours[name] == its[name]} >= {f"{UUID}.key", "measurement-secret"}
    assert len(ours) == len(its) == 3


def test_another_key_in_its_place_is_replaced(secret: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    act(master_secret=secret, disks=[UUID], keys_to=str(keys))
    before = files(keys)
    (keys / "ssh_ca").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense\n")
    (keys / f"{UUID}.key").write_bytes(bytes(32))
    assert act(master_secret=secret, disks=[UUID], keys_to=str(keys))["changed"] is True
    assert files(keys)[f"{UUID}.key"] == before[f"{UUID}.key"]
    assert act(master_secret=secret, disks=[UUID], keys_to=str(keys))["changed"] is False


def test_no_secret_is_in_a_result_or_a_diff(secret: str, tmp_path: Path) -> None:
    keys, out = tmp_path / "keys", tmp_path / "out"
    answer = act(master_secret=secret, disks=[UUID], keys_to=str(keys), mounted=str(disk(tmp_path)), data_to=str(out))
    assert answer["diff"]["after"].count("\n") == 4
    said = json.dumps(answer).encode()
    raw = [master().key.reveal(), master().salt.reveal(), (keys / f"{UUID}.key").read_bytes()]
    raw += [(keys / "measurement-secret").read_bytes(), b"the CA's key"]
    needles = [one for secret_ in raw for one in spellings(secret_)] + spellings_of_pem((keys / "ssh_ca").read_bytes())
    assert [one for one in needles if one in said] == []


def test_data_of_a_mounted_disk_is_copied_with_hashes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    mounted = str(disk(tmp_path))
    foreseen = act(check_mode=True, mounted=mounted, data_to=str(out))
    assert (foreseen["changed"], foreseen["data"], out.exists()) == (True, {}, False)
    data = act(mounted=mounted, data_to=str(out))["data"]
    assert (data["files"], data["missing"], data["left_out"]) == (6, [], [])
    assert (data["pki"], data["etcd"]) == (f"{out}/kubernetes/pki", f"{out}/var/lib/etcd")
    assert data["sums_sha256"] == hashlib.sha256((out / "SHA256SUMS").read_bytes()).hexdigest()
    again = act(mounted=mounted, data_to=str(out))
    assert (again["failed"], again["reason"]) == (True, "FILE_UNUSABLE")


def test_nothing_is_written_where_everybody_could_read_it(secret: str, tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    place = str(tmp_path / "repository" / "keys")
    for options in ({"keys_to": place}, {"mounted": str(disk(tmp_path)), "data_to": place}):
        answer = act(master_secret=secret, disks=[UUID], **options)
        assert (answer["failed"], answer["reason"]) == (True, "SHARES_EXPOSED")
    assert list((tmp_path / "repository").iterdir()) == [tmp_path / "repository" / ".git"]


def test_the_secret_of_another_cluster_is_told_before_a_key_is_written(secret: str, tmp_path: Path) -> None:
    (tmp_path / "constellation-mastersecret.json").write_bytes(master(0x41).to_json())
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    keys = tmp_path / "keys"
    answer = act(master_secret=secret, state_file=str(tmp_path / "state.yaml"), disks=[UUID], keys_to=str(keys))
    assert (answer["failed"], answer["reason"], keys.exists()) == (True, "CLUSTER_ID_MISMATCH", False)
