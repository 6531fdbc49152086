# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sealed data opens in the state that it was sealed to, and in no other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import ResponseError
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_endorsement_key, persist_keys
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import SealedObject, seal, unseal
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

SECRET = bytes(range(32))
REGISTERS = (0, 4, 7, 9, 11, 15)


def _boot(tpm: Tpm, name: str) -> None:
    boot = boots.load(name)
    replay(tpm, firmware=boot.firmware, userspace=boot.userspace)


def test_it_opens_after_a_reset_into_the_same_boot_and_not_after_another(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        _boot(tpm, "deb13-base")
        stored = seal(tpm, SECRET, tpm.pcr_read(REGISTERS)).to_json()
    swtpm.reset()
    with opened(swtpm) as tpm:
        _boot(tpm, "deb13-base")
        assert unseal(tpm, SealedObject.from_json(stored)) == SECRET
    swtpm.reset()
    with opened(swtpm) as tpm:
        _boot(tpm, "deb13-cmdline")
        with pytest.raises(TpmError, match=r"\[0, 4, 7, 9, 11, 15\]") as caught:
            unseal(tpm, SealedObject.from_json(stored))
    assert caught.value.reason is Reason.TPM_POLICY_MISMATCH


def test_it_can_be_sealed_to_values_that_are_yet_to_come(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        sealed = seal(tpm, SECRET, boots.load("deb13-base").pcrs | {10: bytes(32)})
        with pytest.raises(TpmError) as caught:
            unseal(tpm, sealed)
        assert caught.value.reason is Reason.TPM_POLICY_MISMATCH
        _boot(tpm, "deb13-base")
        assert unseal(tpm, sealed) == SECRET


def test_the_lock_event_closes_it(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        sealed = seal(tpm, SECRET, tpm.pcr_read([15]))
        tpm.pcr_event(15, b"cluster id")
        with pytest.raises(TpmError) as caught:
            unseal(tpm, sealed)
    assert caught.value.reason is Reason.TPM_POLICY_MISMATCH


def test_it_opens_with_kept_keys_and_with_made_ones(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    swtpm = swtpms("plain", certified=False)
    with opened(swtpm) as tpm:
        assert not load_endorsement_key(tpm).persistent
        sealed = seal(tpm, SECRET, tpm.pcr_read([0]))
        assert unseal(tpm, sealed) == SECRET
    with opened(swtpm) as tpm:
        persist_keys(tpm)
        assert load_endorsement_key(tpm).persistent
        assert unseal(tpm, sealed) == SECRET


@pytest.mark.parametrize("size", [1, 128])
def test_the_shortest_and_the_longest_secret(size: int, swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        assert unseal(tpm, seal(tpm, b"x" * size, tpm.pcr_read([0]))) == b"x" * size


@pytest.mark.parametrize(
    ("secret", "pcrs"),
    [
        pytest.param(b"", {0: bytes(32)}, id="no secret"),
        pytest.param(bytes(129), {0: bytes(32)}, id="a secret too long"),
        pytest.param(SECRET, {}, id="no register: it would open always"),
        pytest.param(SECRET, {0: bytes(20)}, id="a value of another bank"),
        pytest.param(SECRET, {24: bytes(32)}, id="a register that does not exist"),
    ],
)
def test_what_cannot_be_sealed(secret: bytes, pcrs: dict[int, bytes], swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm, pytest.raises(TpmError) as caught:
        seal(tpm, secret, pcrs)
    assert caught.value.reason is Reason.TPM_MALFORMED


def test_another_tpm_does_not_open_it(swtpms: Callable[..., Swtpm], opened: Opened) -> None:
    with opened(swtpms("a")) as tpm:
        sealed = seal(tpm, SECRET, tpm.pcr_read([0]))
    with opened(swtpms("b")) as tpm, pytest.raises(ResponseError, match="TPM2_LOAD, got TPM_RC_INTEGRITY"):
        unseal(tpm, sealed)


def test_stored_data_that_was_changed_does_not_open(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        sealed = seal(tpm, SECRET, tpm.pcr_read([0]))
        changed = sealed.private[:-1] + bytes([sealed.private[-1] ^ 1])
        with pytest.raises(ResponseError, match="TPM_RC_INTEGRITY"):
            unseal(tpm, replace(sealed, private=changed))


def test_naming_other_registers_than_it_was_sealed_to_does_not_open_it(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        sealed = seal(tpm, SECRET, tpm.pcr_read([0, 15]))
        tpm.pcr_extend(15, {ALG_SHA256: bytes(32)})
        with pytest.raises(TpmError) as caught:
            unseal(tpm, replace(sealed, pcrs=(0,)))
    assert caught.value.reason is Reason.TPM_POLICY_MISMATCH


def test_nothing_stays_in_the_tpm_after_success_and_after_failure(swtpm: Swtpm, opened: Opened) -> None:
    with opened(swtpm) as tpm:
        sealed = seal(tpm, SECRET, {0: b"\xff" * 32})
        for _unused in range(5):
            with pytest.raises(TpmError):
                unseal(tpm, sealed)
        assert [tpm.handles(first) for first in (0x80000000, 0x02000000)] == [(), ()]
