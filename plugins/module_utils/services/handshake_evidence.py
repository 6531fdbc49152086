# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""E1, the evidence in the node's TLS certificate. Only its form and freshness are checked.

The join service judges no machine by E1: it keeps peers without a TPM out of the connection table. The key service
compares the bound quote with it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..evidence.registry import issue_handshake_evidence, verify_handshake_evidence
from ..tpm.keys import load_attestation_key, load_endorsement_key
from ..transport.certificate import EVIDENCE_OID

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..evidence.tpm2 import QuotingTpm
    from ..tpm.client import Tpm
    from ..tpm.commands import LoadedKey

_REGISTERS = (DEFAULT_REGISTER,)
"""A quote must select a register; which one does not matter here."""


class Attesting(Protocol):
    """A machine that can prove itself: its TPM, its endorsement key, its attestation key."""

    @property
    def tpm(self) -> QuotingTpm:
        """The TPM."""

    @property
    def ek(self) -> LoadedKey:
        """The endorsement key, with its certificates."""

    @property
    def ak(self) -> LoadedKey:
        """The attestation key."""

    def release(self) -> None:
        """Let other clients use the TPM, after the call to one join service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attester:
    """A machine's TPM with its two keys loaded; the caller that opened the TPM closes it."""

    tpm: QuotingTpm
    ek: LoadedKey
    ak: LoadedKey

    def release(self) -> None:
        """Do nothing: the caller that opened the TPM closes it."""


class OccasionalAttester:
    """A machine's TPM that is opened when a join service requests evidence, and closed after each call.

    The TPM has one client at a time. While a join service does not answer, the node lock and an init on the same
    machine need the TPM. Used by one thread at a time.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Tpm]]) -> None:
        """Store ``opened``, which opens the TPM each time it is needed."""
        self._opened = opened
        self._held = ExitStack()
        self._tpm: Tpm | None = None

    @property
    def tpm(self) -> Tpm:
        """The TPM, opened now unless it is open; raises TPM_BUSY, TPM_UNREACHABLE."""
        if self._tpm is None:
            self._tpm = self._held.enter_context(self._opened())
        return self._tpm

    @property
    def ek(self) -> LoadedKey:
        """The endorsement key, loaded once while the TPM is open."""
        return load_endorsement_key(self.tpm)

    @property
    def ak(self) -> LoadedKey:
        """The attestation key, loaded once while the TPM is open."""
        return load_attestation_key(self.tpm)

    def release(self) -> None:
        """Close the TPM if it is open."""
        self._tpm = None
        self._held.close()


class DoorkeeperIssuer:
    """Makes E1 on this machine's TPM."""

    def __init__(self, attester: Attesting) -> None:
        """Quote with the attestation key of ``attester``."""
        self._attester = attester

    @property
    def oid(self) -> str:
        """The extension that carries it."""
        return EVIDENCE_OID

    def issue(self, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return evidence over the key of this machine's certificate and the service's nonce."""
        one = self._attester
        return issue_handshake_evidence(one.tpm, one.ak, spki_sha256=user_data, nonce=nonce, pcrs=_REGISTERS)


class DoorkeeperValidator:
    """Accepts any genuine quote over the service's own nonce and the peer's key."""

    @property
    def oid(self) -> str:
        """The extension that carries it."""
        return EVIDENCE_OID

    def validate(self, document: bytes, *, user_data: bytes, nonce: bytes) -> bytes:
        """Return the name of the attestation key; raises `Refusal` unless ``document`` is such a quote."""
        return verify_handshake_evidence(document, spki_sha256=user_data, nonce=nonce).ak_name
