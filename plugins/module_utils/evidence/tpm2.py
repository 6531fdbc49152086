# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify one quote in numbered steps, from the evidence and the expected qualifying data alone."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .._deps.crypto import ec, exceptions, hashes, padding, rsa
from ..errors import Refusal, TpmError
from ..key_kinds import KeyUse, is_accepted, kind_of
from ..reasons import Reason
from ..tpm.constants import (
    ALG_RSAPSS,
    ALG_SHA256,
    ATTR_DECRYPT,
    ATTR_FIXED_PARENT,
    ATTR_FIXED_TPM,
    ATTR_RESTRICTED,
    ATTR_SENSITIVE_DATA_ORIGIN,
    ATTR_SIGN,
    GENERATED_MAGIC,
    RH_ENDORSEMENT,
    TAG_ATTEST_QUOTE,
)
from ..tpm.structures import Attest, EccParameters, PcrSelection, Public, RsaParameters, Scheme, Signature
from .evidence import Evidence, unobserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..tpm.client import Quote
    from ..tpm.commands import LoadedKey
    from ..tpm.structures import ClockInfo
    from ..tpm.templates import Credential
    from .evidence import Reached


# Names and types of the method ``tpm2``.

VARIANT = "tpm2"

STEPS = (
    "The attestation key is a restricted signing key of a TPM",
    "The quote parses",
    "The signature of the quote verifies",
    "The signer is a primary key of the endorsement hierarchy",
    "The quote is over this exchange",
    "The quote selects exactly the registers delivered",
    "The quote is over the values delivered",
)
"""The checks of `verify_quote`, in order, for display."""


class QuotingTpm(Protocol):
    """The TPM commands that evidence and the answer to a challenge need; `tpm.Tpm` implements them."""

    def pcr_read(self, indices: Iterable[int]) -> dict[int, bytes]:
        """Return the values of registers in the SHA-256 bank."""

    def quote(self, ak: LoadedKey, qualifying_data: bytes, pcrs: Iterable[int]) -> Quote:
        """Return a quote of ``ak``."""

    def activate_credential(self, ak: LoadedKey, ek: LoadedKey, credential: Credential) -> bytes:
        """Return the secret of a credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedQuote:
    """A quote whose signature, qualifying data, selection and digest were checked; only `verify_quote` makes one.

    ``pcrs`` are the values that the quote's digest covers (SHA-256 bank). Whether the AK belongs to a known TPM is not
    checked here.
    """

    ak_public: Public
    ak_name: bytes
    pcrs: Mapping[int, bytes]
    clock_info: ClockInfo


_DEMANDED = {
    "fixedTPM": ATTR_FIXED_TPM,
    "fixedParent": ATTR_FIXED_PARENT,
    "sensitiveDataOrigin": ATTR_SENSITIVE_DATA_ORIGIN,
    "restricted": ATTR_RESTRICTED,
    "sign": ATTR_SIGN,
}


def verify_quote(evidence: Evidence, *, qualifying_data: bytes, reached: Reached = unobserved) -> VerifiedQuote:
    """Return the verified quote of ``evidence``, after these steps.

    1. The attestation key's public area parses strictly (EVIDENCE_MALFORMED). It describes a restricted signing key,
       made in and fixed to a TPM, with SHA-256 for name and scheme (AK_ATTRIBUTES), and of an accepted kind
       (AK_KEY_UNSUPPORTED).
    2. The quote parses strictly, with the magic number and the type of a quote (QUOTE_MALFORMED).
    3. The signature is of the key's own scheme and verifies (QUOTE_SIGNATURE).
    4. The signer is a primary key of the endorsement hierarchy (AK_HIERARCHY).
    5. The qualifying data are those asked for (BINDING_MISMATCH).
    6. The selection is one list, of the SHA-256 bank, and exactly the registers delivered (QUOTE_SELECTION).
    7. The digest is over the values delivered (QUOTE_DIGEST).

    The caller must check that the key belongs to a known TPM (activation), that the registers are those it asked for,
    and that the values are acceptable.
    """
    reached(1)
    ak = parse_attestation_key(evidence.ak_public)
    reached(2)
    attest = parse_quote(evidence.quote)
    reached(3)
    verify_signature(ak, evidence.quote, evidence.signature)
    reached(4)
    _verify_signer(attest, ak)
    reached(5)
    _verify_exchange(attest, qualifying_data)
    reached(6)
    _verify_selection(attest, evidence.pcrs)
    reached(7)
    _verify_values(attest, evidence.pcrs)
    return VerifiedQuote(ak_public=ak, ak_name=ak.name(), pcrs=dict(evidence.pcrs), clock_info=attest.clock_info)


def verify_attestation_key(ak: Public) -> None:
    """Refuse an attestation key that could sign other data than structures of its own TPM, or that is weak (step 1).

    Raises `Refusal` AK_ATTRIBUTES, AK_KEY_UNSUPPORTED, and EVIDENCE_MALFORMED if the numbers are no key.
    """
    missing = [name for name, bit in _DEMANDED.items() if not ak.attributes & bit]
    _require(not missing, f"an attestation key that is {', '.join(missing)}, got one that is not", Reason.AK_ATTRIBUTES)
    _require(
        not ak.attributes & ATTR_DECRYPT,
        "an attestation key that cannot decrypt, got one that can",
        Reason.AK_ATTRIBUTES,
    )
    hashes_used = {ak.name_alg, _scheme(ak).hash_alg}
    _require(
        hashes_used == {ALG_SHA256},
        f"SHA-256 for the attestation key's name and scheme, got {[f'{one:#06x}' for one in sorted(hashes_used)]}",
        Reason.AK_ATTRIBUTES,
    )
    try:
        key = ak.key()
    except TpmError as error:
        raise Refusal(error.message, reason=Reason.EVIDENCE_MALFORMED) from error
    _require(
        is_accepted(KeyUse.ATTESTATION, key),
        f"an attestation key of {KeyUse.ATTESTATION.wanted}, got {kind_of(key)}",
        Reason.AK_KEY_UNSUPPORTED,
    )


def parse_attestation_key(data: bytes) -> Public:
    """Return the attestation key of a TPMT_PUBLIC (step 1); raises `Refusal` as `verify_attestation_key` does."""
    try:
        ak = Public.parse(data)
    except TpmError as error:
        raise Refusal(error.message, reason=Reason.EVIDENCE_MALFORMED) from error
    verify_attestation_key(ak)
    return ak


def parse_quote(data: bytes) -> Attest:
    """Return the quote of a TPMS_ATTEST (step 2); raises `Refusal` QUOTE_MALFORMED."""
    try:
        attest = Attest.parse(data)
    except TpmError as error:
        raise Refusal(error.message, reason=Reason.QUOTE_MALFORMED) from error
    _require(
        attest.magic == GENERATED_MAGIC and attest.type == TAG_ATTEST_QUOTE,
        f"the magic number and type of a quote, got {attest.magic:#010x} and {attest.type:#06x}",
        Reason.QUOTE_MALFORMED,
    )
    return attest


def verify_signature(ak: Public, quote: bytes, signed: bytes) -> None:
    """Verify the TPMT_SIGNATURE ``signed`` of ``quote`` with the key ``ak`` (step 3).

    Raises `Refusal` QUOTE_SIGNATURE, and EVIDENCE_MALFORMED if signature or key do not parse.
    """
    try:
        signature, key = Signature.parse(signed), ak.key()
    except TpmError as error:
        raise Refusal(error.message, reason=Reason.EVIDENCE_MALFORMED) from error
    scheme = _scheme(ak)
    _require(
        (signature.alg, signature.hash_alg) == (scheme.alg, scheme.hash_alg),
        f"a signature of the key's own scheme, got {signature.alg:#06x} with {signature.hash_alg:#06x}",
        Reason.QUOTE_SIGNATURE,
    )
    try:
        _check(key, signature, quote)
    except exceptions.InvalidSignature as error:
        raise Refusal(
            "expected a quote signed by the attestation key, got another signature", reason=Reason.QUOTE_SIGNATURE
        ) from error


def _verify_signer(attest: Attest, ak: Public) -> None:
    _require(
        attest.qualified_signer == ak.qualified_name(RH_ENDORSEMENT),
        "a primary key of the endorsement hierarchy as signer, got another",
        Reason.AK_HIERARCHY,
    )


def _verify_exchange(attest: Attest, qualifying_data: bytes) -> None:
    _require(
        hmac.compare_digest(attest.extra_data, qualifying_data),
        f"a quote over {qualifying_data.hex()}, got one over {attest.extra_data.hex() or 'nothing'}",
        Reason.BINDING_MISMATCH,
    )


def _verify_selection(attest: Attest, pcrs: Mapping[int, bytes]) -> None:
    delivered = PcrSelection(ALG_SHA256, tuple(sorted(pcrs)))
    _require(
        attest.pcr_selections == (delivered,) and bool(pcrs),
        f"a quote over the SHA-256 registers {list(delivered.indices)}, got {_listed(attest)}",
        Reason.QUOTE_SELECTION,
    )


def _verify_values(attest: Attest, pcrs: Mapping[int, bytes]) -> None:
    digest = hashlib.sha256(b"".join(pcrs[index] for index in sorted(pcrs))).digest()
    _require(
        hmac.compare_digest(attest.pcr_digest, digest),
        f"values whose digest is {attest.pcr_digest.hex()}, got {digest.hex()}",
        Reason.QUOTE_DIGEST,
    )


def _scheme(ak: Public) -> Scheme:
    """Return the signing scheme of the key; an empty scheme, without a hash, for other objects."""
    return ak.parameters.scheme if isinstance(ak.parameters, (EccParameters, RsaParameters)) else Scheme()


def _check(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, signature: Signature, signed: bytes) -> None:
    """Verify a signature with `cryptography`, which raises InvalidSignature."""
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature.raw(), signed, _padding(signature), hashes.SHA256())
    else:
        key.verify(signature.raw(), signed, ec.ECDSA(hashes.SHA256()))


def _padding(signature: Signature) -> padding.AsymmetricPadding:
    if signature.alg == ALG_RSAPSS:
        return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.AUTO)
    return padding.PKCS1v15()


def _listed(attest: Attest) -> str:
    banks = [f"{list(one.indices)} of bank {one.bank:#06x}" for one in attest.pcr_selections]
    return " and ".join(banks) or "no register"


def _require(holds: bool, sentence: str, reason: Reason) -> None:
    if not holds:
        raise Refusal(f"expected {sentence}", reason=reason)


# Make evidence with the TPM of this machine.

_ATTEMPTS = 5


def issue(tpm: QuotingTpm, ak: LoadedKey, *, qualifying_data: bytes, pcrs: Iterable[int]) -> Evidence:
    """Return a quote of ``ak`` over ``pcrs`` with the quoted values; ``qualifying_data`` has at most 64 bytes.

    If a register is extended between reading and quote, both are repeated. Raises `TpmError` TPM_BUSY after five
    attempts, and what the TPM raises.
    """
    wanted = tuple(sorted(set(pcrs)))
    for _unused in range(_ATTEMPTS):
        values = tpm.pcr_read(wanted)
        quote = tpm.quote(ak, qualifying_data, wanted)
        digest = hashlib.sha256(b"".join(values[index] for index in wanted)).digest()
        if Attest.parse(quote.attest).pcr_digest == digest:
            return Evidence(
                variant=VARIANT,
                ak_public=ak.public.marshal(),
                quote=quote.attest,
                signature=quote.signature,
                pcrs=values,
            )
    raise TpmError(
        f"expected registers that stay the same during a quote, they changed {_ATTEMPTS} times", reason=Reason.TPM_BUSY
    )
