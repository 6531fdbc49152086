# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Key material at rest: what opens it, what does not, and what survives."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    AttestedError,
    KeyServiceError,
    SystemFault,
    TpmError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import (
    KeyBundle,
    KeyPaths,
    make_bundle,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.wrap import (
    DiskSealer,
    KeyStore,
    RestSealer,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.policy_site import POLICY_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CANARY = b"canary-canary-canary-canary-0002"
PCRS = {4: b"\x04" * 32, 15: bytes(32)}


class FakeSealer:
    """Keeps what it sealed beside the values, and compares them with the machine's values now."""

    def __init__(self, now: Mapping[int, bytes]) -> None:
        self.now = dict(now)

    def seal(self, secret: bytes, pcrs: Mapping[int, bytes]) -> str:
        values = {str(index): value.hex() for index, value in pcrs.items()}
        return json.dumps({"secret": bytes(byte ^ 0x5A for byte in secret).hex(), "pcrs": values})

    def unseal(self, sealed: str) -> bytes:
        document = json.loads(sealed)
        if any(self.now[int(index)].hex() != value for index, value in document["pcrs"].items()):
            raise TpmError("expected the sealed registers, got others", reason=Reason.TPM_POLICY_MISMATCH)
        return bytes(byte ^ 0x5A for byte in bytes.fromhex(document["secret"]))


def _bundle(salt: bytes = b"m" * 32) -> KeyBundle:
    master = MasterSecret(key=SecretBytes(CANARY), salt=SecretBytes(b"s" * 32))
    return make_bundle(
        master=master,
        measurement_salt=salt,
        join_ca_key=SecretBytes(CANARY),
        join_ca_certificate=b"PEM",
        policy_key=POLICY_KEY,
    )


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    paths = KeyPaths(rest=tmp_path / "rest", opened=tmp_path / "opened")
    return KeyStore(paths, require_memory=lambda directory: None)


@pytest.fixture
def sealer() -> FakeSealer:
    return FakeSealer(PCRS)


def _reboot(store: KeyStore) -> None:
    store.paths.opened_file.unlink()


def test_keys_survive_the_death_of_a_process_without_the_tpm(store: KeyStore, sealer: FakeSealer) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    sealer.now[15] = b"\xff" * 32  # the lock was taken: the TPM would refuse now
    assert store.unlock(sealer) == _bundle()


def test_keys_open_again_after_the_same_boot(store: KeyStore, sealer: FakeSealer) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    _reboot(store)
    assert store.opened() is None
    assert store.unlock(sealer) == _bundle()
    assert store.opened() == _bundle()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({4: b"\x05" * 32}, id="another boot loader"),
        pytest.param({15: b"\xff" * 32}, id="a machine that is locked already"),
    ],
)
def test_keys_stay_closed_after_a_changed_boot(store: KeyStore, sealer: FakeSealer, changed: dict[int, bytes]) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    _reboot(store)
    sealer.now.update(changed)
    with pytest.raises(KeyServiceError) as caught:
        store.unlock(sealer)
    assert caught.value.code == "STATE_CHANGED"
    assert store.opened() is None


def test_another_error_of_the_tpm_is_not_called_a_changed_boot(store: KeyStore, sealer: FakeSealer) -> None:
    class Busy(FakeSealer):
        def unseal(self, sealed: str) -> bytes:
            raise TpmError("busy", reason=Reason.TPM_BUSY)

    store.write(_bundle(), sealer, pcrs=PCRS)
    _reboot(store)
    with pytest.raises(TpmError) as caught:
        store.unlock(Busy(PCRS))
    assert caught.value.code == "TPM_BUSY"


def test_without_keys_it_says_so(store: KeyStore, sealer: FakeSealer) -> None:
    with pytest.raises(KeyServiceError) as caught:
        store.unlock(sealer)
    assert caught.value.code == "KEYS_ABSENT"


def _change(name: str, value: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        document[name] = value

    return change


def _flip(document: dict[str, Any]) -> None:
    raw = bytearray(base64.b64decode(document["ciphertext"]))
    raw[0] ^= 1
    document["ciphertext"] = base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_flip, id="one bit of the ciphertext"),
        pytest.param(_change("cluster_id", "00" * 32), id="the cluster id of another cluster"),
        pytest.param(_change("version", 2), id="another version"),
        pytest.param(_change("algorithm", "none"), id="another algorithm"),
        pytest.param(_change("nonce", "AA=="), id="a short nonce"),
        pytest.param(_change("nonce", None), id="no nonce"),
    ],
)
def test_a_changed_file_is_called_damaged(store: KeyStore, sealer: FakeSealer, change: Any) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    _reboot(store)
    document = json.loads(store.paths.rest_file.read_bytes())
    change(document)
    store.paths.rest_file.write_text(json.dumps(document))
    with pytest.raises(AttestedError) as caught:
        store.unlock(sealer)
    assert caught.value.code == "KEYS_DAMAGED"


def test_the_disk_never_sees_the_secret(store: KeyStore, sealer: FakeSealer) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    at_rest = store.paths.rest_file.read_bytes()
    assert CANARY in store.paths.opened_file.read_bytes()
    assert CANARY not in at_rest
    assert base64.b64encode(CANARY) not in at_rest
    assert CANARY.hex().encode() not in at_rest


def test_only_root_may_read_either_copy(store: KeyStore, sealer: FakeSealer) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    for file in (store.paths.rest_file, store.paths.opened_file):
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700


def test_writing_the_same_again_changes_nothing(store: KeyStore, sealer: FakeSealer) -> None:
    assert store.write(_bundle(), sealer, pcrs=PCRS) is True
    before = store.paths.rest_file.read_bytes()
    assert store.write(_bundle(), sealer, pcrs=PCRS) is False
    assert store.paths.rest_file.read_bytes() == before


@pytest.mark.parametrize(
    ("bundle", "pcrs"),
    [
        pytest.param(_bundle(b"n" * 32), PCRS, id="another salt"),
        pytest.param(_bundle(), {**PCRS, 4: b"\x05" * 32}, id="another judged boot"),
    ],
)
def test_writing_something_else_replaces_it(
    store: KeyStore, sealer: FakeSealer, bundle: KeyBundle, pcrs: dict[int, bytes]
) -> None:
    store.write(_bundle(), sealer, pcrs=PCRS)
    assert store.write(bundle, sealer, pcrs=pcrs) is True
    _reboot(store)
    assert store.unlock(FakeSealer(pcrs)) == bundle


def test_nothing_is_opened_outside_memory(tmp_path: Path, sealer: FakeSealer) -> None:
    def refuse(directory: Path) -> None:
        raise SystemFault(f"{directory} is on a disk", reason=Reason.NOT_TMPFS)

    store = KeyStore(KeyPaths(rest=tmp_path / "rest", opened=tmp_path / "opened"), require_memory=refuse)
    with pytest.raises(SystemFault):
        store.write(_bundle(), sealer, pcrs=PCRS)
    assert not store.paths.opened_file.exists()
    assert not store.paths.rest_file.exists()


# ---- on a state disk


def test_on_an_open_state_disk_keys_open_whatever_was_booted_and_after_the_lock(store: KeyStore) -> None:
    store.write(_bundle(), DiskSealer(), pcrs=PCRS)
    _reboot(store)
    assert store.is_on_disk()
    assert store.unlock(DiskSealer()) == _bundle()


def test_without_a_state_disk_they_are_the_tpms(store: KeyStore, sealer: FakeSealer) -> None:
    assert not store.is_on_disk()
    store.write(_bundle(), sealer, pcrs=PCRS)
    assert not store.is_on_disk()


class FakeTpm:
    """No part of it is asked for."""


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_lies_at_rest_says_who_opens_it(monkeypatch: pytest.MonkeyPatch, on_disk: bool) -> None:
    by_tpm = FakeSealer(PCRS)
    either = RestSealer(FakeTpm(), on_disk=on_disk)  # type: ignore[arg-type]
    monkeypatch.setattr(either, "_by_tpm", by_tpm)
    sealed = either.seal(CANARY, PCRS)
    assert sealed.startswith("{") is not on_disk
    assert either.unseal(sealed) == CANARY
    assert either.unseal(by_tpm.seal(CANARY, PCRS)) == CANARY
    assert either.unseal(DiskSealer().seal(CANARY, PCRS)) == CANARY


def test_a_wrapping_key_on_the_disk_that_is_none_is_refused(store: KeyStore) -> None:
    store.write(_bundle(), DiskSealer(), pcrs=PCRS)
    document = json.loads(store.paths.rest_file.read_bytes())
    store.paths.rest_file.write_text(json.dumps({**document, "wrapping_key": "state-disk:no base64"}))
    _reboot(store)
    with pytest.raises(AttestedError) as caught:
        store.unlock(DiskSealer())
    assert caught.value.code == "KEYS_DAMAGED"
