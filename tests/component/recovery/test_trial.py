# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that tries an offered key, for real: its own memory, the real cryptsetup, a header on a disk."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.services import recovery_helper
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_client import ClusterKeys
from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_handler import (
    HelperTrial,
    Locked,
    Offer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey, seal
from ansible_collections.attested.kubernetes.tests.support import plain_key_process
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.init_bed import make_keys
from ansible_collections.attested.kubernetes.tests.support.recovery_bed import DISK, OTHER_DISK
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import JoinCa
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
    from ansible_collections.attested.kubernetes.plugins.module_utils.services.recovery_messages import RecoverySecrets

SECRET, BINDING = b"s" * 32, b"b" * 32


class Listening:
    """A runner that keeps what went in and came out of a process."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def run(self, argv: Any, **known: Any) -> Any:
        done = SystemRunner().run(argv, **known)
        self.heard += [" ".join(argv).encode(), known["stdin"], repr(known["env"]).encode(), done.stdout, done.stderr]
        return done


@pytest.fixture
def right(keys: tuple[JoinCa, KeyBundle]) -> RecoverySecrets:
    return ClusterKeys.of_bundle(keys[1]).of_node(DISK)


@pytest.fixture
def locked(keys: tuple[JoinCa, KeyBundle], memory: Path, disk: Path) -> Locked:
    return Locked(device=str(disk), disk=DISK, cluster_id=keys[1].cluster_id, memory=memory / "recovery")


def offer(secrets: RecoverySecrets, salt: bytes) -> Offer:
    key = OneTimeKey.generate()
    box = seal(secrets.to_bytes(), secret=SECRET, binding=BINDING, recipient=key.public)
    return Offer(box=box, secret=SECRET, binding=BINDING, one_time_key=key, measurement_salt=salt)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_right_key_lies_on_tmpfs_for_root_alone_and_then_nowhere(
    locked: Locked, right: RecoverySecrets, keys: tuple[JoinCa, KeyBundle]
) -> None:
    runner = Listening()
    trial = HelperTrial(locked, runner=runner, program=plain_key_process.__name__)
    with trial.tried(offer(right, keys[1].measurement_salt)) as key_file:
        assert key_file.read_bytes() == right.disk_key.reveal()
        assert (key_file.stat().st_mode & 0o777, key_file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(locked.memory.iterdir()) == []
    secrets = (right.disk_key, right.measurement_secret, keys[1].master.key)
    needles = [needle for one in secrets for needle in spellings(one.reveal())]
    assert any(locked.disk.uuid.encode() in one for one in runner.heard)  # what is there is found
    assert [needle for needle in needles for heard in runner.heard if needle in heard] == []


WRONG: list[tuple[Callable[[RecoverySecrets], RecoverySecrets], str]] = [
    (lambda good: replace(good, disk_key=DiskKey(b"w" * 32)), "RECOVERY_KEY_WRONG"),
    (lambda good: replace(good, disk=OTHER_DISK), "RECOVERY_DISK_DIFFERS"),
    (lambda _good: ClusterKeys.of_bundle(make_keys()[1]).of_node(DISK), "CLUSTER_ID_MISMATCH"),
]


@pytest.mark.parametrize(("change", "code"), WRONG, ids=[code for _change, code in WRONG])
def test_a_wrong_offer_is_told_and_nothing_is_written(
    locked: Locked, right: RecoverySecrets, keys: tuple[JoinCa, KeyBundle], change: Any, code: str, disk: Path
) -> None:
    before = digest(disk)
    trial = HelperTrial(locked, program=plain_key_process.__name__)
    with pytest.raises(AttestedError) as caught, trial.tried(offer(change(right), keys[1].measurement_salt)):
        pytest.fail("a wrong key was handed over")
    assert (caught.value.code, digest(disk)) == (code, before)
    assert not locked.memory.exists() or list(locked.memory.iterdir()) == []


def test_a_header_that_is_not_ours_is_not_given_to_cryptsetup(
    locked: Locked, right: RecoverySecrets, keys: tuple[JoinCa, KeyBundle]
) -> None:
    """The process as it is, with nothing left out: this disk has no integrity."""
    trial = HelperTrial(locked)
    assert trial._program == recovery_helper.__name__
    with pytest.raises(AttestedError) as caught, trial.tried(offer(right, keys[1].measurement_salt)):
        pytest.fail("a key was tried on a foreign header")
    assert Coded(caught.value) == "LUKS_HEADER_FOREIGN: integrity by"
