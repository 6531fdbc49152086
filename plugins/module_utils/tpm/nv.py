# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A counter in the TPM's non-volatile memory, which never decreases, even after resets, power cuts and its deletion.

A TPM starts a new counter above every counter that it ever had (part 3, 31.8), so a counter that is deleted and defined
again never has an old value. A session salted to the EK authenticates reads and increments, so a changed response on
the bus is detected (TPM_RESPONSE_FORGED).
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .client import password_checked
from .commands import RC_HANDLE, Command, Entity, ResponseError
from .keys import load_endorsement_key
from .structures import Reader, malformed, sized, u16, u32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .client import Tpm
    from .sessions import Session

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
