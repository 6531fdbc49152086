# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody listens on the bus, or changes what passes: no secret in clear, no changed answer believed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import constants as c
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import Session
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import seal, unseal
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import make_credential
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.transport import connect, parse_tcti

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.transport import Transport
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

SECRET = b"canary-0123456789-canary-987654"


@dataclass
class Bus:
    """A transport with a listener: ``traffic`` is all that passed; ``change`` may replace a response."""

    inner: Transport
    traffic: bytes = b""
    change: Callable[[bytes, bytes], bytes] = field(default=lambda command, response: response)
    managed: bool = False

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        response = self.change(command, self.inner.transact(command, timeout_seconds=timeout_seconds))
        self.traffic += command + response
        return response

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def bus(swtpm: Swtpm) -> Bus:
    return Bus(connect(parse_tcti(swtpm.tcti), timeout_seconds=20, clock=SystemClock()))


@pytest.fixture
def tpm(bus: Bus) -> Iterator[Tpm]:
    with contextlib.closing(Tpm(bus, random=SystemRandom(), clock=SystemClock(), timeout_seconds=20)) as opened:
        yield opened


def _activate(tpm: Tpm) -> bytes:
    ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    return tpm.activate_credential(ak, ek, make_credential(ek.public, ak.name, SECRET, SystemRandom()))


def _seal_and_unseal(tpm: Tpm) -> bytes:
    return unseal(tpm, seal(tpm, SECRET, tpm.pcr_read([0, 15])))


EXCHANGES = [
    pytest.param(_activate, id="ActivateCredential"),
    pytest.param(_seal_and_unseal, id="Create and Unseal"),
]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_listener_does_not_see_the_secret(exchange: Callable[[Tpm], bytes], tpm: Tpm, bus: Bus) -> None:
    assert exchange(tpm) == SECRET
    assert len(bus.traffic) > 1000
    assert SECRET[:8] not in bus.traffic
    assert SECRET[-8:] not in bus.traffic


class _OpenSession(Session):
    """Our session without parameter encryption: the same authorisation, everything in clear."""

    def encrypt(self, parameters: bytes) -> bytes:
        self._nonce_caller = self._random.token(32)
        self._attributes = c.SESSION_CONTINUE
        return parameters

    def decrypt(self, parameters: bytes) -> bytes:
        return parameters


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_the_listener_would_see_it_without_encryption(
    exchange: Callable[[Tpm], bytes], tpm: Tpm, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tpm.session

    @contextlib.contextmanager
    def in_clear(*arguments: object) -> Iterator[Session]:
        with real(*arguments) as session:
            session.__class__ = _OpenSession
            yield session

    monkeypatch.setattr(tpm, "session", in_clear)
    assert exchange(tpm) == SECRET
    assert SECRET in bus.traffic


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("offset", [14, 20, -1], ids=["in its size", "in the secret", "in the HMAC"])
def test_an_answer_with_one_bit_changed_is_not_believed(
    exchange: Callable[[Tpm], bytes], offset: int, tpm: Tpm, bus: Bus
) -> None:
    protected = {c.CC_ACTIVATE_CREDENTIAL, c.CC_CREATE, c.CC_UNSEAL}

    def change(command: bytes, response: bytes) -> bytes:
        if int.from_bytes(command[6:10], "big") not in protected:
            return response
        changed = bytearray(response)
        changed[offset] ^= 1
        return bytes(changed)

    bus.change = change
    with pytest.raises(TpmError) as caught:
        exchange(tpm)
    assert caught.value.reason is Reason.TPM_RESPONSE_FORGED
