# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands and responses as bytes, with their authorisations (part 1, 18 and 19)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .marshal import Reader, malformed, sized, u8, u16, u32
from .responses import ResponseError

if TYPE_CHECKING:
    from .structures import Public

_HEADER_SIZE = 10
_NAMES = {value: name.removeprefix("CC_") for name, value in vars(c).items() if name.startswith("CC_")}


@dataclass(frozen=True, slots=True)
class Entity:
    """What a handle stands for: its number and its Name, which an HMAC covers."""

    handle: int
    name: bytes

    @classmethod
    def of(cls, handle: int) -> Entity:
        """Return a register, session or hierarchy: its Name is its handle."""
        return cls(handle, u32(handle))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKey:
    """A key in the TPM. ``certificates``: of an EK, its own in DER, then those of its issuers that the TPM holds."""

    handle: int
    public: Public
    name: bytes
    certificates: tuple[bytes, ...] = ()

    @property
    def entity(self) -> Entity:
        """The key as a handle of a command."""
        return Entity(self.handle, self.name)

    @property
    def persistent(self) -> bool:
        """Whether the key stays in the TPM."""
        return self.handle >= c.FIRST_PERSISTENT


class Authorization(Protocol):
    """One element of the authorisation area."""

    def encrypt(self, parameters: bytes) -> bytes:
        """Return the command's parameters, the first one encrypted if this session does so."""

    def authorize(self, cp_hash: bytes) -> bytes:
        """Return the TPMS_AUTH_COMMAND."""

    def verify(self, rp_hash: bytes, nonce: bytes, attributes: int, code: bytes) -> None:
        """Check one TPMS_AUTH_RESPONSE; raises TPM_RESPONSE_FORGED."""

    def decrypt(self, parameters: bytes) -> bytes:
        """Undo what the TPM did to the response's first parameter."""


class Password:
    """The empty password, in clear: for objects and hierarchies without one."""

    def encrypt(self, parameters: bytes) -> bytes:
        """Leave the parameters as they are."""
        return parameters

    def authorize(self, cp_hash: bytes) -> bytes:  # noqa: ARG002 - a password covers nothing
        """Return TPM_RS_PW with nothing in it."""
        return u32(c.RS_PASSWORD) + sized(b"") + u8(c.SESSION_CONTINUE) + sized(b"")

    def verify(self, rp_hash: bytes, nonce: bytes, attributes: int, code: bytes) -> None:
        """Do nothing: a password proves nothing in the response either."""

    def decrypt(self, parameters: bytes) -> bytes:
        """Leave the parameters as they are."""
        return parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: the first handles are those that ``auths`` authorise, in order; ``returns_handle`` of the reply."""

    code: int
    handles: tuple[Entity, ...] = ()
    parameters: bytes = b""
    auths: tuple[Authorization, ...] = ()
    returns_handle: bool = False

    @property
    def name(self) -> str:
        """The command's name in the specification, for errors."""
        return f"TPM2_{_NAMES.get(self.code, hex(self.code))}"


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful response: its handle (0 without) and a reader over its parameters, decrypted."""

    handle: int
    parameters: Reader


def encode(command: Command) -> bytes:
    """Return the bytes of ``command``; encrypts first, then authorises what is sent (part 1, 19.6 and 21)."""
    parameters = command.parameters
    for auth in command.auths:
        parameters = auth.encrypt(parameters)
    names = b"".join(entity.name for entity in command.handles)
    cp_hash = hashlib.sha256(u32(command.code) + names + parameters).digest()
    area = b"".join(auth.authorize(cp_hash) for auth in command.auths)
    body = b"".join(u32(entity.handle) for entity in command.handles)
    body += (u32(len(area)) + area if area else b"") + parameters
    tag = c.TAG_SESSIONS if area else c.TAG_NO_SESSIONS
    if _HEADER_SIZE + len(body) > c.MAX_COMMAND:
        raise malformed(f"a command of at most {c.MAX_COMMAND} bytes", f"{_HEADER_SIZE + len(body)}")
    return u16(tag) + u32(_HEADER_SIZE + len(body)) + u32(command.code) + body


def response_code(response: bytes) -> int:
    """Return the response code; the transport has seen to it that there is a whole header."""
    return int.from_bytes(response[6:10], "big")


def decode(command: Command, response: bytes) -> Reply:
    """Return what the TPM answered to ``command``.

    Raises `ResponseError` for an error, TPM_MALFORMED, and TPM_RESPONSE_FORGED when a session's HMAC is wrong.
    """
    reader = Reader(response, f"the response to {command.name}")
    tag, size, code = reader.u16(), reader.u32(), reader.u32()
    if size != len(response):
        raise malformed(f"{size} bytes in the response to {command.name}", f"{len(response)}")
    if code:
        raise ResponseError(code, command.name)
    if tag != (c.TAG_SESSIONS if command.auths else c.TAG_NO_SESSIONS):
        raise _unauthenticated(command) if command.auths else malformed("a response without sessions", f"{tag:#06x}")
    handle = reader.u32() if command.returns_handle else 0
    if not command.auths:
        return Reply(handle, reader)
    return Reply(handle, Reader(_open_parameters(command, reader), f"the response to {command.name}"))


def _open_parameters(command: Command, reader: Reader) -> bytes:
    parameters = reader.take(reader.u32())
    rp_hash = hashlib.sha256(u32(0) + u32(command.code) + parameters).digest()
    for auth in command.auths:
        auth.verify(rp_hash, reader.sized(c.MAX_DIGEST), reader.u8(), reader.sized(c.MAX_DIGEST))
    reader.end()
    for auth in command.auths:
        parameters = auth.decrypt(parameters)
    return parameters


def _unauthenticated(command: Command) -> TpmError:
    return TpmError(
        f"expected an authenticated response to {command.name}, got one without", reason=Reason.TPM_RESPONSE_FORGED
    )
