# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seal data to register values: the TPM unseals it only if the registers have them (part 1, 19.7.7; PolicyPCR)."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.documents import load_json
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .commands import RC_PCR_CHANGED, RC_POLICY_FAIL, Command, LoadedKey, Password, ResponseError
from .keys import load_endorsement_key
from .sessions import pcr_policy_digest
from .structures import PcrSelection, Public, Reader, malformed, marshal_selections, sized, u32
from .templates import SRK, matches, sealed_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .client import Tpm
    from .sessions import Session

_VERSION = 1
_ALGORITHM = "tpm2-ecc-srk-policypcr-sha256"
_MAX_JSON = 8192
_VALUE_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedObject:
    """Sealed data, safe to store on a disk: TPMT_PUBLIC, the content of TPM2B_PRIVATE, and the bound registers.

    Only the TPM that sealed it can unseal it. It does not prove which program sealed it, so the caller must
    authenticate the unsealed data (a wrapping key is authentic if it unwraps something).
    """

    public: bytes
    private: bytes
    pcrs: tuple[int, ...]

    def to_json(self) -> str:
        """Return the stored form, version 1."""
        document = {
            "version": _VERSION,
            "alg": _ALGORITHM,
            "pcrs": list(self.pcrs),
            "public": base64.b64encode(self.public).decode(),
            "private": base64.b64encode(self.private).decode(),
        }
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SealedObject:
        """Return the object that `to_json` rendered; raises TPM_MALFORMED for any other text."""
        document = _load_document(text)
        pcrs = document["pcrs"]
        if not isinstance(pcrs, list) or any(not isinstance(index, int) or isinstance(index, bool) for index in pcrs):
            raise malformed("a list of registers in a sealed object", f"{pcrs!r:.100}")
        selection = PcrSelection.of(pcrs)
        return cls(public=_decode(document["public"]), private=_decode(document["private"]), pcrs=selection.indices)


def _load_document(text: str) -> dict[str, object]:
    try:
        document = load_json(text) if len(text) <= _MAX_JSON else None
    except ValueError as error:
        raise malformed("a sealed object as JSON", str(error)) from error
    if not isinstance(document, dict) or set(document) != {"version", "alg", "pcrs", "public", "private"}:
        raise malformed("version, alg, pcrs, public and private in a sealed object", f"{text!r:.100}")
    is_whole = isinstance(document["version"], int) and not isinstance(document["version"], bool)
    if not is_whole or (document["version"], document["alg"]) != (_VERSION, _ALGORITHM):
        raise malformed(
            f"a sealed object of version {_VERSION} and {_ALGORITHM}",
            f"{document['version']!r:.50}, {document['alg']!r:.50}",
        )
    return document


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError) as error:
        raise malformed("base64 in a sealed object", str(error)) from error


def seal(tpm: Tpm, secret: bytes, pcrs: Mapping[int, bytes]) -> SealedObject:
    """Seal ``secret`` (1 to 128 bytes) to the SHA-256 values ``pcrs``, which may differ from the current values.

    At least one register is required; ``secret`` is encrypted on the bus. Raises TPM_MALFORMED, TPM_HIERARCHY_AUTH.
    """
    selection = _selection(pcrs)
    if not 0 < len(secret) <= c.MAX_SEALED:
        raise malformed(f"a secret of 1 to {c.MAX_SEALED} bytes", f"{len(secret)}")
    values = b"".join(pcrs[index] for index in selection.indices)
    template = sealed_template(pcr_policy_digest(marshal_selections([selection]), values))
    ek, srk = load_endorsement_key(tpm), tpm.create_primary(c.RH_OWNER, SRK)
    try:
        with tpm.session(ek, c.SESSION_HMAC) as session:
            return _create(tpm, srk, session, secret=secret, template=template, selection=selection)
    finally:
        tpm.flush(srk.handle)


def _selection(pcrs: Mapping[int, bytes]) -> PcrSelection:
    selection = PcrSelection.of(pcrs)
    if not selection.indices or any(len(value) != _VALUE_SIZE for value in pcrs.values()):
        raise malformed("at least one register, and SHA-256 values", f"{len(pcrs)} registers")
    return selection


def _create(
    tpm: Tpm, srk: LoadedKey, session: Session, *, secret: bytes, template: Public, selection: PcrSelection
) -> SealedObject:
    sensitive = sized(sized(b"") + sized(secret))
    parameters = sensitive + sized(template.marshal()) + sized(b"") + u32(0)
    command = Command(code=c.CC_CREATE, handles=(srk.entity,), parameters=parameters, auths=(session,))
    reader = tpm.execute(command).parameters
    private, public = reader.sized(c.MAX_BUFFER), reader.sized(c.MAX_BUFFER)
    if not matches(Public.parse(public), template):
        raise malformed("a sealed object of the template", f"{public.hex()}")
    return SealedObject(public=public, private=private, pcrs=selection.indices)


def unseal(tpm: Tpm, sealed: SealedObject) -> bytes:
    """Return the secret of ``sealed``, encrypted on the bus; raises TPM_POLICY_MISMATCH if the registers differ.

    The TPM needs room for two objects besides those that this client has loaded.
    """
    ek, loaded = load_endorsement_key(tpm), _load(tpm, sealed)
    try:
        with tpm.session(ek, c.SESSION_POLICY) as session:
            return _open(tpm, loaded, session, sealed)
    finally:
        tpm.flush(loaded.handle)


def _load(tpm: Tpm, sealed: SealedObject) -> LoadedKey:
    public = Public.parse(sealed.public)
    srk = tpm.create_primary(c.RH_OWNER, SRK)
    try:
        parameters = sized(sealed.private) + sized(sealed.public)
        reply = tpm.execute(
            Command(
                code=c.CC_LOAD, handles=(srk.entity,), parameters=parameters, auths=(Password(),), returns_handle=True
            )
        )
    finally:
        tpm.flush(srk.handle)
    return LoadedKey(handle=reply.handle, public=public, name=public.name())


def _open(tpm: Tpm, loaded: LoadedKey, session: Session, sealed: SealedObject) -> bytes:
    # With an empty digest the TPM takes the current register values; TPM2_Unseal fails if they are wrong.
    selection = sized(b"") + marshal_selections([PcrSelection.of(sealed.pcrs)])
    tpm.execute(Command(code=c.CC_POLICY_PCR, handles=(session.entity,), parameters=selection))
    try:
        reader: Reader = tpm.execute(Command(code=c.CC_UNSEAL, handles=(loaded.entity,), auths=(session,))).parameters
    except ResponseError as error:
        if error.base not in {RC_POLICY_FAIL, RC_PCR_CHANGED}:
            raise
        raise TpmError(  # pylint: disable=bad-exception-cause
            f"expected the values that the secret was sealed to in the registers {list(sealed.pcrs)}, they differ",
            reason=Reason.TPM_POLICY_MISMATCH,
        ) from error
    secret = reader.sized(c.MAX_BUFFER)
    reader.end()
    return secret
