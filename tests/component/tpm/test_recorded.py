# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded machine again: its TPM, its boots, its credentials."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest, Public
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import Credential, make_credential
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.replay import replay
from ansible_collections.attested.kubernetes.tests.support.tpm import public_area, vector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

STATE = boots.BOOTS.parent / "tpm" / "tpm2-00.permall"


@pytest.fixture
def recorded(swtpms: Callable[..., Swtpm], tmp_path: Path) -> Swtpm:
    """The TPM of all recorded boots, before the first of them."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    shutil.copy(STATE, folder / STATE.name)
    return swtpms("recorded", state=folder)


def test_its_keys_are_the_recorded_ones(recorded: Swtpm, opened: Opened) -> None:
    with opened(recorded) as tpm:
        ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    assert ek.public.marshal() == public_area("ek")
    assert ek.certificates == (vector("ek.crt.der"),)
    assert ak.public.marshal() == public_area("ak-ecc")
    assert ak.name == vector("ak-ecc.name")


def test_the_recorded_credential_opens(recorded: Swtpm, opened: Opened) -> None:
    stored = Credential(vector("cred-ak-ecc.tpm2b_id_object"), vector("cred-ak-ecc.tpm2b_encrypted_secret"))
    with opened(recorded) as tpm:
        secret = tpm.activate_credential(load_attestation_key(tpm), load_endorsement_key(tpm), stored)
    assert secret == vector("cred-ak-ecc.secret.bin") == vector("cred-ak-ecc.activated.bin")


def test_the_recorded_credential_for_another_attestation_key_does_not(recorded: Swtpm, opened: Opened) -> None:
    stored = Credential(vector("cred-ak-rsa.tpm2b_id_object"), vector("cred-ak-rsa.tpm2b_encrypted_secret"))
    with opened(recorded) as tpm, pytest.raises(TpmError, match="0x1DF") as caught:
        tpm.activate_credential(load_attestation_key(tpm), load_endorsement_key(tpm), stored)
    assert caught.value.reason is Reason.TPM_CREDENTIAL_REFUSED


def test_a_credential_made_from_the_recorded_keys_opens(recorded: Swtpm, opened: Opened) -> None:
    made = make_credential(Public.parse(public_area("ek")), vector("ak-ecc.name"), b"s" * 32, SystemRandom())
    with opened(recorded) as tpm:
        assert tpm.activate_credential(load_attestation_key(tpm), load_endorsement_key(tpm), made) == b"s" * 32


@pytest.mark.parametrize("name", ["deb13-base", "deb13-cmdline", "deb13-secureboot", "deb13-grub-secureboot"])
def test_a_replayed_boot_has_the_recorded_registers(name: str, swtpm: Swtpm, opened: Opened) -> None:
    boot = boots.load(name)
    with opened(swtpm) as tpm:
        assert replay(tpm, firmware=boot.firmware, userspace=boot.userspace) > 40
        found = tpm.pcr_read(range(24))
    # IMA's register follows from its own log, which is not replayed.
    assert {**found, 10: b""} == {**boot.pcrs, 10: b""}


def test_a_quote_after_a_replay_says_what_the_recorded_quote_says(recorded: Swtpm, opened: Opened) -> None:
    boot = boots.load("deb13-base")
    without_ima = [index for index in range(24) if index != 10]
    with opened(recorded) as tpm:
        replay(tpm, firmware=boot.firmware, userspace=boot.userspace)
        quote = Attest.parse(tpm.quote(load_attestation_key(tpm), b"n", without_ima).attest)
    recorded_quote = Attest.parse(vector("quote-ak-ecc.tpms_attest"))
    assert quote.qualified_signer == recorded_quote.qualified_signer
    assert quote.pcr_digest == hashlib.sha256(b"".join(boot.pcrs[index] for index in without_ima)).digest()


def test_a_reset_takes_the_boot_away_and_is_counted(recorded: Swtpm, opened: Opened) -> None:
    def resets() -> int:
        with opened(recorded) as tpm:
            return Attest.parse(tpm.quote(load_attestation_key(tpm), b"n", [0]).attest).clock_info.reset_count

    before, boot = resets(), boots.load("deb13-base")
    with opened(recorded) as tpm:
        replay(tpm, firmware=boot.firmware)
    recorded.reset()
    with opened(recorded) as tpm:
        assert tpm.pcr_read([4]) == {4: bytes(32)}
    assert resets() == before + 1
