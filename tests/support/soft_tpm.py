# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test attester: valid TPM structures signed by a key in this process; it proves nothing, so it is only for tests.

It has the interface that `evidence.challenge.answer` requires of a TPM, needs only 0.2 ms, and can sign false claims.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Quote
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import (
    KEY_SIZE,
    LoadedKey,
    cfb_decrypt,
    kdf_a,
    kdf_e,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import (
    ALG_ECDSA,
    ALG_SHA256,
    GENERATED_MAGIC,
    PCR_COUNT,
    RH_ENDORSEMENT,
    TAG_ATTEST_QUOTE,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    Attest,
    ClockInfo,
    PcrSelection,
    Public,
    Reader,
    Signature,
    ecc_key,
    ecc_point,
    read_point,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import AK, EK_ECC
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import Credential

_CURVE_BYTES = 32


def initial_registers() -> dict[int, bytes]:
    """Return the registers of a TPM after its start: zero, 17 to 22 ones."""
    return {index: (b"\xff" if 17 <= index <= 22 else b"\x00") * 32 for index in range(PCR_COUNT)}


class SoftTpm:
    """A "TPM" whose keys, registers (SHA-256 bank) and counters are plain attributes; ``reset`` is a reboot."""

    def __init__(self, pcrs: Mapping[int, bytes] | None = None, *, certificates: tuple[bytes, ...] = ()) -> None:
        """Create new keys; ``pcrs``: the registers after the boot."""
        self._ek_keys: dict[bytes, ec.EllipticCurvePrivateKey] = {}
        self._ak_key = ec.generate_private_key(ec.SECP256R1())
        ak = replace(AK, unique=ecc_point(self._ak_key.public_key()))
        self.ek = self.another_ek(certificates=certificates)
        self.ak = _loaded(ak)
        self.boot = {**initial_registers(), **(pcrs or {})}
        self.pcrs = dict(self.boot)
        self.clock_info = ClockInfo(clock=1000, reset_count=2, restart_count=0, safe=True)

    def another_ek(self, *, certificates: tuple[bytes, ...] = ()) -> LoadedKey:
        """Return a new endorsement key of this TPM, which then also opens credentials for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = replace(EK_ECC, unique=ecc_point(key.public_key()))
        self._ek_keys[public.name()] = key
        return LoadedKey(handle=0x80000000, public=public, name=public.name(), certificates=certificates)

    def reset(self) -> None:
        """Restart with the same boot chain."""
        self.pcrs = dict(self.boot)
        self.clock_info = replace(self.clock_info, reset_count=self.clock_info.reset_count + 1)

    def with_ak_public(self, **changes: object) -> LoadedKey:
        """Return the attestation key with changed public attributes."""
        return _loaded(replace(self.ak.public, **changes))  # type: ignore[arg-type]

    def pcr_read(self, indices: Iterable[int], *, bank: int = ALG_SHA256) -> dict[int, bytes]:
        """Return register values; there is only one bank."""
        if bank != ALG_SHA256:
            raise TpmError(f"expected the SHA-256 bank, got {bank:#06x}", reason=Reason.TPM_PCR_UNAVAILABLE)
        return {index: self.pcrs[index] for index in sorted(set(indices))}

    def pcr_extend(self, index: int, digests: Mapping[int, bytes]) -> None:
        """Extend a register."""
        self.pcrs[index] = hashlib.sha256(self.pcrs[index] + digests[ALG_SHA256]).digest()

    def pcr_event(self, index: int, data: bytes) -> dict[int, bytes]:
        """Hash ``data`` into a register and return the digests."""
        digests = {ALG_SHA256: hashlib.sha256(data).digest()}
        self.pcr_extend(index, digests)
        return digests

    def quote(self, ak: LoadedKey, qualifying_data: bytes, pcrs: Iterable[int]) -> Quote:
        """Return a quote; the clock advances by a millisecond."""
        return self.signed(self.attest(ak, qualifying_data, pcrs))

    def attest(self, ak: LoadedKey, qualifying_data: bytes, pcrs: Iterable[int]) -> Attest:
        """Return the content of a quote, for changes before it is signed."""
        self.clock_info = replace(self.clock_info, clock=self.clock_info.clock + 1)
        selection = PcrSelection.of(pcrs)
        return Attest(
            magic=GENERATED_MAGIC,
            type=TAG_ATTEST_QUOTE,
            qualified_signer=ak.public.qualified_name(RH_ENDORSEMENT),
            extra_data=qualifying_data,
            clock_info=self.clock_info,
            firmware_version=1,
            pcr_selections=(selection,),
            pcr_digest=hashlib.sha256(b"".join(self.pcrs[index] for index in selection.indices)).digest(),
        )

    def signed(self, attest: Attest) -> Quote:
        """Return ``attest`` with a signature of the attestation key."""
        return self.signed_bytes(attest.marshal())

    def signed_bytes(self, data: bytes) -> Quote:
        """Return any bytes with a signature of the attestation key, which a TPM would refuse."""
        r, s = utils.decode_dss_signature(self._ak_key.sign(data, ec.ECDSA(hashes.SHA256())))
        parts = tuple(number.to_bytes(_CURVE_BYTES, "big") for number in (r, s))
        return Quote(data, Signature(alg=ALG_ECDSA, hash_alg=ALG_SHA256, parts=parts).marshal())

    def activate_credential(self, ak: LoadedKey, ek: LoadedKey, credential: Credential) -> bytes:
        """Return the secret of a credential for these two keys; raises TPM_CREDENTIAL_REFUSED (part 1, 24)."""
        seed = self._seed(credential, ek.public)
        reader = Reader(Reader(credential.id_object, "TPM2B_ID_OBJECT").sized(1024), "TPMS_ID_OBJECT")
        integrity, identity = reader.sized(64), reader.rest()
        expected = hmac.digest(kdf_a(seed, b"INTEGRITY"), identity + ak.name, "sha256")
        if not hmac.compare_digest(integrity, expected):
            raise TpmError("expected a credential for this EK and this AK", reason=Reason.TPM_CREDENTIAL_REFUSED)
        storage_key = kdf_a(seed, b"STORAGE", context=ak.name, size=KEY_SIZE)
        return Reader(cfb_decrypt(storage_key, bytes(KEY_SIZE), identity), "TPM2B_DIGEST").sized(64)

    def _seed(self, credential: Credential, ek: Public) -> bytes:
        key = self._ek_keys.get(ek.name())
        if key is None:
            raise TpmError("expected an EK of this TPM, got another one's", reason=Reason.TPM_CREDENTIAL_REFUSED)
        encrypted = Reader(credential.encrypted_secret, "TPM2B_ENCRYPTED_SECRET").sized(1024)
        theirs = read_point(Reader(encrypted, "TPMS_ECC_POINT"))
        try:
            shared = key.exchange(ec.ECDH(), ecc_key(ek.parameters.curve, theirs))  # type: ignore[union-attr]
        except TpmError as error:
            raise TpmError("expected a credential for this EK", reason=Reason.TPM_CREDENTIAL_REFUSED) from error
        ours = ecc_point(key.public_key())
        return kdf_e(shared, b"IDENTITY", context=theirs.x + ours.x)


def _loaded(public: Public) -> LoadedKey:
    return LoadedKey(handle=0x80000001, public=public, name=public.name())
