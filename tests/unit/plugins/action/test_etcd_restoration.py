# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action `etcd_restoration`: what is wrong is refused before a machine hears of it; the identity stays here."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.action.etcd_restoration import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import Manifest, pack, unpack
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile, render
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kits import missing_for_age

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.skipif(bool(missing_for_age()), reason=missing_for_age())
SNAPSHOT = b"a canary in etcd" * 10_000
CLUSTER = bytes(range(32))
MANIFEST = Manifest(
    taken="2026-11-25T23:15:00Z",
    node="cp-1",
    cluster_id=CLUSTER.hex(),
    policy_generation=3,
    revision=48211,
    kubernetes_version="1.35.4",
    authorities={"ca": ["9f2c1d5e9f2c1d5e"]},
    size=len(SNAPSHOT),
    sha256=hashlib.sha256(SNAPSHOT).hexdigest(),
)
OPTIONS = {"node_config": "/etc/attested/node.yml", "state": "restored", "confirm_healthy": False}
SEALED = {"handle": "handle", "sealed": "c2VhbGVk"}


class Restoration(ActionModule):  # type: ignore[misc]
    """The action with a control plane that is verified, or refused, and keeps what it gets."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.refusal: Refusal | None = None
        self.asked: list[Mapping[str, Any]] = []
        self.got = b""
        self.content = b""

    def control_plane(self, params: Mapping[str, Any], *, purpose: Any) -> Any:
        assert purpose.value == "share"
        if self.refusal is not None:
            raise self.refusal
        machine = SimpleNamespace(seal=self._take)
        return SimpleNamespace(verdict=SimpleNamespace(profile="lab"), machine=machine), "handle"

    def _take(self, data: bytes) -> bytes:
        self.got = data
        return b"sealed"

    def execute(self, module: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        assert module == "attested.kubernetes.etcd_snapshot"
        self.asked.append(arguments)
        if "path" in arguments:
            self.content = Path(arguments["path"]).read_bytes()
        return {}

    @contextmanager
    def folder_there(self) -> Iterator[str]:
        folder = Path(self._task.args["site"]) / "there"
        folder.mkdir()
        yield str(folder)
        shutil.rmtree(folder)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with a backup and the identity that opens it."""
    pem = b"-----BEGIN CERTIFICATE-----\n"
    facts = ClusterFile(cluster_id=CLUSTER, measurement_salt=bytes(32), join_ca=pem, policy_key=pem)
    (tmp_path / "hosts.yml").write_text("nodes: {}\n")
    (tmp_path / "cluster.yml").write_bytes(render(facts))
    identity, recipient = make_identity()
    (tmp_path / "identity.txt").write_bytes(identity.reveal() + b"\n")
    (tmp_path / "snapshot.db").write_bytes(SNAPSHOT)
    pack(MANIFEST, tmp_path / "snapshot.db", tmp_path / "etcd.age", [recipient])
    return tmp_path


def act(
    site: Path, *, check_mode: bool = False, refusal: Refusal | None = None, **options: Any
) -> tuple[dict[str, Any], Restoration]:
    known = {"async_val": 0, "check_mode": check_mode, "diff": True, "environment": None, "action": "etcd_restoration"}
    args = {"site": str(site), "backup": str(site / "etcd.age"), "identity_file": str(site / "identity.txt"), **options}
    connection = SimpleNamespace(transport="ssh", _shell=SimpleNamespace(tmpdir=None), put_file=shutil.copy)
    task, become = SimpleNamespace(args=args, **known), SimpleNamespace(become=False)
    action = Restoration(task, connection, become, loader=None, templar=None, shared_loader_obj=None)
    action.refusal = refusal
    return action.run(task_vars={}), action


def test_a_machine_gets_the_content_under_another_identity_and_never_that_of_the_kit(site: Path) -> None:
    answer, machine = act(site, confirm_healthy=True)
    assert (answer["changed"], answer["profile"], answer["manifest"]) == (True, "lab", MANIFEST.values())
    kit = (site / "identity.txt").read_bytes().strip()
    assert machine.got.startswith(b"AGE-SECRET-KEY-1")
    assert machine.got != kit
    (site / "sent.age").write_bytes(machine.content)
    assert unpack(site / "sent.age", None, [SecretBytes(machine.got)], begin=lambda _one: None) == MANIFEST
    told = json.dumps([answer, machine.asked]).encode()
    for secret in (kit, machine.got, b"canary"):
        assert secret not in told + machine.content
    assert machine.asked == [{**OPTIONS, "confirm_healthy": True, **SEALED, "path": f"{site}/there/etcd.age"}]
    assert not (site / "there").exists()


def test_check_mode_opens_all_of_it_and_sends_nothing(site: Path) -> None:
    answer, machine = act(site, check_mode=True)
    assert answer["changed"]
    assert machine.asked == [OPTIONS]
    assert machine.got == b""


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        pytest.param(lambda site: (site / "etcd.age").write_bytes(b""), "BACKUP_DAMAGED", id="an empty file"),
        pytest.param(
            lambda site: (site / "etcd.age").write_bytes((site / "etcd.age").read_bytes()[:-1]),
            "BACKUP_DAMAGED",
            id="its last byte is missing",
        ),
        pytest.param(lambda site: (site / "etcd.age").unlink(), "FILE_UNUSABLE", id="no file"),
        pytest.param(
            lambda site: (site / "identity.txt").write_bytes(make_identity()[0].reveal()),
            "KIT_KEY_WRONG",
            id="another identity",
        ),
        pytest.param(lambda site: (site / "identity.txt").write_bytes(b"x"), "KIT_KEY_UNUSABLE", id="no identity"),
        pytest.param(
            lambda site: (site / "cluster.yml").write_text(
                (site / "cluster.yml").read_text().replace(CLUSTER.hex(), "ab" * 32)
            ),
            "BACKUP_OTHER_CLUSTER",
            id="another cluster",
        ),
    ],
)
def test_what_is_refused_here_reaches_no_machine(site: Path, spoil: Any, code: str, check_mode: bool) -> None:
    spoil(site)
    answer, machine = act(site, check_mode=check_mode)
    assert answer["reason"] == code
    assert machine.asked == []
    assert "canary" not in json.dumps(answer)


def test_a_machine_that_is_refused_gets_nothing(site: Path) -> None:
    refusal = Refusal("expected PCR 4", reason=Reason.PCR_MISMATCH)
    answer, machine = act(site, refusal=refusal)
    assert answer["reason"] == "PCR_MISMATCH"
    assert (machine.asked, machine.got) == ([], b"")
