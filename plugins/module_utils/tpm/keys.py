# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find, create and persist the endorsement key and the attestation key of this machine.

The EK is RSA-2048 of template L-1 if the TPM has a certificate for it, else ECC P-256 of L-2 if the TPM has a
certificate for that. Without any certificate it is L-1. A TPM with certificates for other EKs only is refused.

The *second* key of the chip is the other one of L-1 and L-2, with its certificate if the TPM has one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import TpmError
from ..reasons import Reason
from ..result import Diff, Result
from . import constants as c
from .client import open_tpm
from .commands import RC_HANDLE, LoadedKey, ResponseError
from .constants import ALG_SHA256, HASH_NAMES
from .templates import AK, EK_ECC, EK_RSA, matches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .client import Tpm, TpmProperties
    from .structures import Public


_EK, _AK = "endorsement key", "attestation key"
_SECOND = "second endorsement key"
_MAX_CHAIN = 16
_P256_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyKind:
    """The template and the persistent handle of one key; ``certificate`` is an NV index, 0 without a certificate."""

    label: str
    template: Public
    persistent: int
    certificate: int = 0


ATTESTATION = KeyKind(label=_AK, template=AK, persistent=c.PERSISTENT_AK)
_ENDORSEMENT_RSA = KeyKind(label=_EK, template=EK_RSA, persistent=c.PERSISTENT_EK_RSA, certificate=c.NV_EK_RSA_2048_L1)
_ENDORSEMENT_ECC = KeyKind(label=_EK, template=EK_ECC, persistent=c.PERSISTENT_EK_ECC, certificate=c.NV_EK_ECC_P256_L2)


@dataclass(frozen=True, slots=True)
class Persistence:
    """The plan of `persist_keys`: ``missing`` keys are made persistent; ``occupied`` handles have other objects."""

    missing: tuple[KeyKind, ...]
    occupied: tuple[KeyKind, ...]

    @property
    def changed(self) -> bool:
        """Whether the plan has something to do."""
        return bool(self.missing)

    def sentences(self) -> tuple[str, ...]:
        """Return the plan for display, one sentence for each key."""
        kept = tuple(f"{kind.label}: kept at {kind.persistent:#010x}" for kind in self.missing)
        left = tuple(
            f"{kind.label}: {kind.persistent:#010x} holds another object, which stays; the key is made at each use"
            for kind in self.occupied
        )
        return kept + left


def choose_endorsement_key(nv_indices: tuple[int, ...]) -> KeyKind:
    """Return the EK to use, given the NV indices that exist; raises TPM_EK_UNSUPPORTED."""
    for kind in (_ENDORSEMENT_RSA, _ENDORSEMENT_ECC):
        if kind.certificate in nv_indices:
            return kind
    others = [name for index, name in c.NV_EK_OTHER.items() if index in nv_indices]
    if others:
        raise TpmError(
            "expected a certificate for an EK of RSA-2048 (L-1) or ECC P-256 (L-2), "
            f"the TPM has one only for {', '.join(others)}",
            reason=Reason.TPM_EK_UNSUPPORTED,
        )
    return replace(_ENDORSEMENT_RSA, certificate=0)


def choose_second_key(nv_indices: tuple[int, ...]) -> KeyKind:
    """Return the other EK than the one to use, given the NV indices that exist; raises TPM_EK_UNSUPPORTED."""
    first = choose_endorsement_key(nv_indices)
    other = _ENDORSEMENT_ECC if first.persistent == _ENDORSEMENT_RSA.persistent else _ENDORSEMENT_RSA
    return replace(other, label=_SECOND, certificate=other.certificate if other.certificate in nv_indices else 0)


def load_endorsement_key(tpm: Tpm) -> LoadedKey:
    """Return the EK with its certificates; raises TPM_EK_UNSUPPORTED, TPM_EK_MISMATCH, TPM_HIERARCHY_AUTH."""
    return tpm.once(_EK, lambda: _load_certified(tpm, choose_endorsement_key))


def load_second_endorsement_key(tpm: Tpm) -> LoadedKey:
    """Return the chip's other EK with its certificates; raises as `load_endorsement_key`.

    It is not persistent: a hardware TPM creates it again for each client, which may take over ten seconds for RSA.
    """
    return tpm.once(_SECOND, lambda: _load_certified(tpm, choose_second_key))


def load_attestation_key(tpm: Tpm) -> LoadedKey:
    """Return the AK: restricted, ECC P-256, primary of the endorsement hierarchy; raises TPM_HIERARCHY_AUTH."""
    return tpm.once(_AK, lambda: _load(tpm, ATTESTATION))


def plan_persistence(tpm: Tpm) -> Persistence:
    """Return which keys are not persistent yet, and which cannot be."""
    used = tpm.handles(c.FIRST_PERSISTENT)
    kinds = (choose_endorsement_key(tpm.nv_indices()), ATTESTATION)
    return Persistence(
        missing=tuple(kind for kind in kinds if kind.persistent not in used),
        occupied=tuple(kind for kind in kinds if kind.persistent in used and _persistent_public(tpm, kind) is None),
    )


def persist_keys(tpm: Tpm) -> Persistence:
    """Make EK and AK persistent, so that later uses need not create them; return what was done.

    Handles in use are never overwritten; keys that were loaded before must be loaded again. Raises TPM_HIERARCHY_AUTH
    if the owner hierarchy has a password that is not known.
    """
    plan = plan_persistence(tpm)
    for kind in plan.missing:
        tpm.unload(kind.label)
        key = _create(tpm, kind)
        tpm.evict(key, kind.persistent)
        tpm.flush(key.handle)
    return plan


def _load_certified(tpm: Tpm, choose: Callable[[tuple[int, ...]], KeyKind]) -> LoadedKey:
    nv_indices = tpm.nv_indices()
    kind = choose(nv_indices)
    key = _load(tpm, kind)
    if not kind.certificate:
        return key
    certificate = der_prefix(tpm.nv_read(kind.certificate))
    _verify_certified(key.public, certificate)
    return replace(key, certificates=(certificate, *_read_chain(tpm, nv_indices)))


def _verify_certified(public: Public, certificate: bytes) -> None:
    # The verifier parses the certificate. Here the bytes of the key must occur in it, as they do in every encoding: old
    # certificates name an algorithm for the RSA key that parsers refuse.
    unique = public.unique
    wanted = unique if isinstance(unique, bytes) else unique.uncompressed(_P256_SIZE)
    if wanted not in certificate:
        raise TpmError(
            f"expected a certificate for the EK {public.spki_sha256()}, the one in the TPM is for another key",
            reason=Reason.TPM_EK_MISMATCH,
        )


def _read_chain(tpm: Tpm, nv_indices: tuple[int, ...]) -> list[bytes]:
    """Return the certificates of the issuers, which are stored one after the other across several NV indices."""
    chain = sorted(index for index in nv_indices if c.NV_EK_CHAIN_FIRST <= index <= c.NV_EK_CHAIN_LAST)
    data = b"".join(tpm.nv_read(index) for index in chain[:_MAX_CHAIN])
    certificates: list[bytes] = []
    while len(certificates) < _MAX_CHAIN and (certificate := der_prefix(data)).startswith(b"\x30"):
        certificates.append(certificate)
        data = data[len(certificate) :]
    return certificates


def der_prefix(data: bytes) -> bytes:
    """Return the DER sequence at the beginning of ``data`` without an NV index's padding; all data if it is no DER."""
    if len(data) < 2 or data[0] != 0x30:  # noqa: PLR2004 - tag and first length byte
        return b"" if not data.strip(b"\x00\xff") else data
    octets = data[1] - 0x80 if data[1] > 0x80 else 0  # noqa: PLR2004 - long form of a DER length
    length = int.from_bytes(data[2 : 2 + octets], "big") if octets else data[1]
    return data[: 2 + octets + length]


def _load(tpm: Tpm, kind: KeyKind) -> LoadedKey:
    if kind.persistent in tpm.handles(c.FIRST_PERSISTENT):
        public = _persistent_public(tpm, kind)
        if public is not None:
            return LoadedKey(handle=kind.persistent, public=public, name=public.name())
    return _create(tpm, kind)


def _create(tpm: Tpm, kind: KeyKind) -> LoadedKey:
    return tpm.create_primary(c.RH_ENDORSEMENT, kind.template)


def _persistent_public(tpm: Tpm, kind: KeyKind) -> Public | None:
    """Return the public area at the kind's handle if it is a primary key of its template in our hierarchy."""
    try:
        public, qualified_name = tpm.read_public(kind.persistent)
    except TpmError as error:
        hidden = isinstance(error, ResponseError) and error.base == RC_HANDLE  # its hierarchy is disabled
        if hidden or error.reason is Reason.TPM_MALFORMED:
            return None  # another kind of object
        raise
    ours = matches(public, kind.template) and qualified_name == public.qualified_name(c.RH_ENDORSEMENT)
    return public if ours else None


# The work of the module ``attestation_key``: make the keys persistent and return their names.

_LOCKOUT = (
    "TPM_LOCKOUT: the TPM is in lockout after wrong passwords for its objects. attested.kubernetes needs no such "
    "password; find the program that tries them, then run tpm2_dictionarylockout --clear-lockout"
)


def run(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Make EK and AK persistent in the TPM ``params["tcti"]``; values: ``ek_sha256``, ``ak_name``, ``ek_certified``.

    Raises TPM_HIERARCHY_DISABLED and TPM_PCR_UNAVAILABLE before any change; a TPM in lockout is a warning.
    """
    with open_tpm(params["tcti"], timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        known = tpm.properties()
        _require_usable(known)
        done = plan_persistence(tpm) if check_mode else persist_keys(tpm)
        return Result(
            changed=done.changed,
            values=_describe(tpm),
            diff=Diff(before="", after="".join(f"{line}\n" for line in done.sentences()), header="keys in the TPM"),
            warnings=(_LOCKOUT,) if known.in_lockout else (),
        )


def _require_usable(known: TpmProperties) -> None:
    """Raise TPM_HIERARCHY_DISABLED or TPM_PCR_UNAVAILABLE if persistent keys would be of no use."""
    if known.disabled:
        raise TpmError(
            f"expected the owner and the endorsement hierarchy enabled, got {' and '.join(known.disabled)} off",
            reason=Reason.TPM_HIERARCHY_DISABLED,
        )
    if ALG_SHA256 not in known.banks:
        banks = ", ".join(HASH_NAMES.get(bank, hex(bank)) for bank in known.banks)
        raise TpmError(
            f"expected an active register bank of sha256, got {banks or 'no bank at all'}",
            reason=Reason.TPM_PCR_UNAVAILABLE,
        )


def _describe(tpm: Tpm) -> dict[str, Any]:
    ek, ak = load_endorsement_key(tpm), load_attestation_key(tpm)
    return {
        "ek_sha256": ek.public.spki_sha256(),
        "ak_name": ak.name.hex(),
        "ek_certified": bool(ek.certificates),
    }
