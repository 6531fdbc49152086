# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-unlock` against a real TPM: the same boot opens the keys and locks once, another one does neither."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import LockState
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import NodeLock, NodeLockPaths
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import (
    KeyBundle,
    KeyPaths,
    make_bundle,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.unlock import main, unlock
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.wrap import KeyStore, TpmSealer
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

    Open = Callable[[Swtpm], AbstractContextManager[Tpm]]

MASTER = MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32))
BUNDLE = make_bundle(
    master=MASTER,
    measurement_salt=b"m" * 32,
    join_ca_key=SecretBytes(b"PEM"),
    join_ca_certificate=b"PEM",
    policy_key=POLICY_KEY,
)


class ControlPlane:
    """One machine: its TPM, its disk and its memory."""

    def __init__(self, swtpm: Swtpm, opened: Open, root: Path) -> None:
        self.swtpm = swtpm
        self.opened = opened
        self.rest, self.run = root / "rest", root / "run"
        self.userspace = root / "tpm2-measure.log"

    @property
    def store(self) -> KeyStore:
        paths = KeyPaths(rest=self.rest, opened=self.run / "key-service")
        return KeyStore(paths, require_memory=lambda directory: None)

    def boot(self, kernel: bytes = b"kernel") -> None:
        """Reset: memory is gone, the registers start over, and the boot measures its kernel."""
        if self.run.exists():
            for file in sorted(self.run.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        self.run.mkdir(exist_ok=True)
        self.swtpm.reset()
        with self.opened(self.swtpm) as tpm:
            tpm.pcr_extend(4, {0x000B: hashlib.sha256(kernel).digest()})

    def receive(self, bundle: KeyBundle = BUNDLE) -> None:
        """Do what init does with the opened bundle, before it takes the lock."""
        with self.opened(self.swtpm) as tpm:
            self.store.write(bundle, TpmSealer(tpm), pcrs=tpm.pcr_read([4, 15]))

    def unlock(self, cluster_id: bytes = BUNDLE.cluster_id) -> bool:
        with self.opened(self.swtpm) as tpm:
            paths = NodeLockPaths(directory=self.run, userspace_log=self.userspace)
            lock = NodeLock(tpm, paths=paths)
            done = unlock(self.store, sealer=TpmSealer(tpm), lock=lock, cluster_id=cluster_id)
            assert done.bundle == BUNDLE
            assert done.acquisition.reading.state is LockState.LOCKED
            return done.acquisition.won


@pytest.fixture
def machine(swtpm: Swtpm, opened: Open, tmp_path: Path) -> ControlPlane:
    made = ControlPlane(swtpm, opened, tmp_path)
    made.boot()
    made.receive()
    return made


def test_each_boot_locks_once_and_repeats_in_peace(machine: ControlPlane) -> None:
    for _unused in range(2):
        machine.boot()
        assert machine.unlock() is True
        assert machine.unlock() is False
        assert (machine.run / "locked").exists()


def test_a_process_killed_between_opening_and_locking_goes_on(machine: ControlPlane) -> None:
    machine.boot()
    with machine.opened(machine.swtpm) as tpm:
        machine.store.unlock(TpmSealer(tpm))
    assert machine.unlock() is True


def test_a_changed_boot_stays_closed_and_unlocked(machine: ControlPlane) -> None:
    machine.boot(b"another kernel")
    with pytest.raises(AttestedError) as caught:
        machine.unlock()
    assert caught.value.code == "STATE_CHANGED"
    assert not (machine.run / "locked").exists()
    assert machine.store.opened() is None


def test_keys_of_another_cluster_do_not_lock_the_machine(machine: ControlPlane) -> None:
    machine.boot()
    with pytest.raises(AttestedError) as caught:
        machine.unlock(b"\x01" * 32)
    assert caught.value.code == "CLUSTER_ID_MISMATCH"
    assert not (machine.run / "locked").exists()


def test_a_locked_machine_whose_memory_was_wiped_stays_closed(machine: ControlPlane) -> None:
    machine.boot()
    machine.unlock()
    machine.store.paths.opened_file.unlink()
    with pytest.raises(AttestedError) as caught:
        machine.unlock()
    assert caught.value.code == "STATE_CHANGED"


def test_the_keys_do_not_open_on_another_machine(
    machine: ControlPlane, swtpms: Callable[..., Swtpm], opened: Open, tmp_path: Path
) -> None:
    thief = ControlPlane(swtpms("b"), opened, tmp_path / "thief")
    (tmp_path / "thief").mkdir()
    thief.boot()
    thief.rest.mkdir()
    (thief.rest / "keys.json").write_bytes(machine.store.paths.rest_file.read_bytes())
    with pytest.raises(AttestedError):
        thief.unlock()
    assert thief.store.opened() is None


def test_the_program_says_what_is_missing(swtpm: Swtpm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        f"--cluster-id={'00' * 32}",
        f"--tcti={swtpm.tcti}",
        f"--state-directory={tmp_path / 'rest'}",
        f"--runtime-directory={tmp_path / 'run'}",
    ]
    assert main(words) == 1
    assert "KEYS_ABSENT" in capsys.readouterr().err
