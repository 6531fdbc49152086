# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a TPM keeps for us: data sealed to register values (part 1, 19.7.7; PolicyPCR), and a counter."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.documents import load_json
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .client import password_checked
from .commands import (
    RC_HANDLE,
    RC_PCR_CHANGED,
    RC_POLICY_FAIL,
    Command,
    Entity,
    LoadedKey,
    Password,
    ResponseError,
    pcr_policy_digest,
)
from .keys import load_endorsement_key
from .structures import PcrSelection, Public, Reader, malformed, marshal_selections, sized, u16, u32
from .templates import SRK, matches, sealed_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .client import Tpm
    from .commands import Session


# A counter in the TPM's non-volatile memory, which never decreases, even after resets, power cuts and its deletion.
#
# A TPM starts a new counter above every counter that it ever had (part 3, 31.8), so a counter that is deleted and
# defined
# again never has an old value. A session salted to the EK authenticates reads and increments, so a changed response on
# the bus is detected (TPM_RESPONSE_FORGED).

COUNTER_SIZE = 8
COUNTER_ATTRIBUTES = c.NV_OWNER_WRITE | c.NV_OWNER_READ | c.NV_AUTH_READ | c.NV_NO_DA | c.NV_TYPE_COUNTER
"""Only the owner can increment, every program can read; not orderly, so increments survive a power cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvPublic:
    """TPMS_NV_PUBLIC: the public area of an index. ``attributes`` are TPMA_NV bits."""

    index: int
    name_alg: int
    attributes: int
    auth_policy: bytes
    size: int

    @classmethod
    def parse(cls, data: bytes) -> NvPublic:
        """Return the public area in ``data``; raises TPM_MALFORMED."""
        reader = Reader(data, "TPMS_NV_PUBLIC")
        public = cls(
            index=reader.u32(),
            name_alg=reader.u16(),
            attributes=reader.u32(),
            auth_policy=reader.sized(c.MAX_DIGEST),
            size=reader.u16(),
        )
        reader.end()
        return public

    def marshal(self) -> bytes:
        """Return TPMS_NV_PUBLIC."""
        return u32(self.index) + u16(self.name_alg) + u32(self.attributes) + sized(self.auth_policy) + u16(self.size)

    @property
    def written(self) -> bool:
        """Whether the index has a value; a counter has none before its first increment."""
        return bool(self.attributes & c.NV_WRITTEN)

    @property
    def entity(self) -> Entity:
        """The index as a handle of a command; the first write changes its Name."""
        digest = hashlib.new(c.HASH_NAMES[self.name_alg], self.marshal()).digest()
        return Entity(self.index, u16(self.name_alg) + digest)


class NvCounter:
    """The counter at one index of the owner's hierarchy, over an open TPM."""

    def __init__(self, tpm: Tpm, index: int = c.NV_POLICY_COUNTER) -> None:
        """Use the open ``tpm``."""
        self._tpm = tpm
        self._index = index

    def define(self) -> int:
        """Return the counter's value; define the counter and increment it once if it is missing.

        Raises TPM_NV_FOREIGN if the index is something else, and TPM_HIERARCHY_AUTH.
        """
        if self._public() is None:
            self._define()
        public = self._required()
        return self._read(public) if public.written else self.increment()

    def read(self) -> int | None:
        """Return the value, None if the counter is missing or was never incremented; raises TPM_NV_FOREIGN."""
        public = self._public()
        return self._read(public) if public is not None and public.written else None

    def increment(self) -> int:
        """Add one and return the new value; raises TPM_NV_FOREIGN, TPM_HIERARCHY_AUTH."""
        public = self._required()
        with self._owned() as session:
            handles = (Entity.of(c.RH_OWNER), public.entity)
            self._tpm.execute(Command(code=c.CC_NV_INCREMENT, handles=handles, auths=(session,)))
        return self._read(self._required())

    def _define(self) -> None:
        wanted = NvPublic(
            index=self._index, name_alg=c.ALG_SHA256, attributes=COUNTER_ATTRIBUTES, auth_policy=b"", size=COUNTER_SIZE
        )
        with self._owned() as session:
            self._tpm.execute(
                Command(
                    code=c.CC_NV_DEFINE_SPACE,
                    handles=(Entity.of(c.RH_OWNER),),
                    parameters=sized(b"") + sized(wanted.marshal()),
                    auths=(session,),
                )
            )

    def _read(self, public: NvPublic) -> int:
        with self._authenticated(b"") as session:
            handles = (public.entity, public.entity)
            parameters = u16(COUNTER_SIZE) + u16(0)
            command = Command(code=c.CC_NV_READ, handles=handles, parameters=parameters, auths=(session,))
            reader = self._tpm.execute(command).parameters
        value = reader.sized(COUNTER_SIZE)
        reader.end()
        if len(value) != COUNTER_SIZE:
            raise malformed(f"a counter of {COUNTER_SIZE} bytes", f"{len(value)}")
        return int.from_bytes(value, "big")

    def _required(self) -> NvPublic:
        public = self._public()
        if public is None:
            raise TpmError(f"expected a counter at {self._index:#010x}, found none", reason=Reason.TPM_NV_FOREIGN)
        return public

    def _public(self) -> NvPublic | None:
        """Return the checked public area of the index; session HMACs cover its Name, so a forged area fails later."""
        try:
            reader = self._tpm.execute(Command(code=c.CC_NV_READ_PUBLIC, handles=(Entity.of(self._index),))).parameters
        except ResponseError as error:
            if error.base != RC_HANDLE:
                raise
            return None
        public = NvPublic.parse(reader.sized(c.MAX_BUFFER))
        self._require_ours(public)
        return public

    def _require_ours(self, public: NvPublic) -> None:
        got = (public.index, public.name_alg, public.attributes & ~c.NV_WRITTEN, public.auth_policy, public.size)
        wanted = (self._index, c.ALG_SHA256, COUNTER_ATTRIBUTES, b"", COUNTER_SIZE)
        if got != wanted:
            raise TpmError(
                f"expected a counter of ours at {self._index:#010x} (attributes {COUNTER_ATTRIBUTES:#010x}, "
                f"{COUNTER_SIZE} bytes), found attributes {public.attributes:#010x} and {public.size} bytes",
                reason=Reason.TPM_NV_FOREIGN,
            )

    @contextlib.contextmanager
    def _owned(self) -> Iterator[Session]:
        """Yield a session that authorises the owner hierarchy; a wrong password raises TPM_HIERARCHY_AUTH."""
        auth = self._tpm.hierarchy_auth(c.RH_OWNER)
        with self._authenticated(auth) as session, password_checked(c.RH_OWNER):
            yield session

    @contextlib.contextmanager
    def _authenticated(self, auth: bytes) -> Iterator[Session]:
        ek = load_endorsement_key(self._tpm)
        with self._tpm.session(ek, c.SESSION_HMAC, encrypts=False) as session:
            session.auth = auth
            yield session


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
