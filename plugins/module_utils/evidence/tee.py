# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SEV-SNP and TDX share: a key that identifies the machine, and the report data that bind it to one exchange.

There is no endorsement key here. The identity is an enrolled X25519 key. The machine keeps the private key in memory
that the processor encrypts, and the report names the public key. All guests of one host share its chip, so chip ids
are an additional allow-list and never an identity.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Refusal
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from ..transport.sealed_box import seal_to_key

if TYPE_CHECKING:
    from collections.abc import Collection

REPORT_DATA_BYTES = 64
KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TeeBinding:
    """The input of the digest in a report's 64 bytes of report data.

    ``key``: the machine's X25519 public key. ``qualifying_data``: 32 bytes of the exchange, as in a TPM quote.
    ``vtpm_ak_name``: the name of the attestation key of a virtual TPM that the caller verified too; empty without one.
    """

    variant: str
    key: bytes
    qualifying_data: bytes
    vtpm_ak_name: bytes = b""

    def report_data(self) -> bytes:
        """Return SHA-512 of the parts, each with a length prefix; raises `Refusal` BINDING_MALFORMED."""
        if (len(self.key), len(self.qualifying_data)) != (KEY_BYTES, KEY_BYTES):
            raise Refusal(
                f"expected a key and qualifying data of {KEY_BYTES} bytes each, got {len(self.key)} and "
                f"{len(self.qualifying_data)}",
                reason=Reason.BINDING_MALFORMED,
            )
        parts = (self.variant.encode(), self.qualifying_data, self.key, self.vtpm_ak_name)
        return hashlib.sha512(length_prefixed(label("tee-report-data"), *parts)).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TeeIdentity:
    """An enrolled key that a verified report names; only `verify_identity` creates one."""

    binding: TeeBinding

    @property
    def key_sha256(self) -> str:
        """The machine's name: SHA-256 of its key, 64 hex digits."""
        return key_name(self.binding.key)

    def seal(self, plaintext: bytes) -> bytes:
        """Return ``plaintext`` encrypted with HPKE to the key, for this exchange only."""
        return seal_to_key(plaintext, recipient=self.binding.key, binding=self.binding.report_data())


def key_name(key: bytes) -> str:
    """Return the name under which a key is enrolled."""
    return hashlib.sha256(key).hexdigest()


def verify_identity(binding: TeeBinding, *, reported: bytes, enrolled: Collection[str]) -> TeeIdentity:
    """Return the identity of ``binding``. ``reported``: the report data of a report whose signature was verified.

    Raises `Refusal` TEE_KEY_UNKNOWN if the key is not enrolled, and BINDING_MISMATCH if the report data differ.
    """
    if key_name(binding.key) not in enrolled:
        raise Refusal(f"expected an enrolled key, got the key {key_name(binding.key)}", reason=Reason.TEE_KEY_UNKNOWN)
    expected = binding.report_data()
    if not hmac.compare_digest(reported, expected):
        raise Refusal(f"expected report data {expected.hex()}, got {reported.hex()}", reason=Reason.BINDING_MISMATCH)
    return TeeIdentity(binding=binding)


def require(holds: bool, sentence: str, reason: Reason) -> None:
    """Raise `Refusal` "expected ``sentence``" with ``reason`` unless the check ``holds``."""
    if not holds:
        raise Refusal(f"expected {sentence}", reason=reason)
