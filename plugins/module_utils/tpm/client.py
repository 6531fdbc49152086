# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of one TPM: each method is one command of the specification (part 3) or a short fixed sequence."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.host import SystemClock, SystemRandom
from ..errors import TpmError
from ..reasons import Reason
from . import constants as c
from .authorization import DEFAULT_DIRECTORY, HeldAuths, tpm_lock
from .commands import (
    RC_FAILURE,
    WRONG_AUTH,
    Command,
    Entity,
    LoadedKey,
    Password,
    PendingSession,
    Reply,
    ResponseError,
    Session,
)
from .structures import PcrSelection, Public, malformed, marshal_selections, read_selections, sized, u16, u32
from .transport import Connection, connect, parse_tcti

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ..core.host import Clock, Random
    from .authorization import HierarchyAuths
    from .commands import Authorization
    from .templates import Credential
    from .transport import Transport

_READ_ATTEMPTS = 5
_HIERARCHY_FLAGS = {
    c.RH_OWNER: (c.PERMANENT_OWNER_AUTH_SET, "owner"),
    c.RH_ENDORSEMENT: (c.PERMANENT_ENDORSEMENT_AUTH_SET, "endorsement"),
}


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote from the TPM: TPMS_ATTEST and TPMT_SIGNATURE, as `tpm2_quote` writes them."""

    attest: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmProperties:
    """The properties of a TPM; ``banks`` are the active hash algorithms, texts are for display only.

    ``disabled``: the names of the hierarchies (owner, endorsement) that are disabled until the next restart.
    ``in_lockout``: the TPM refuses passwords of objects with protection against dictionary attacks.
    """

    manufacturer: str
    vendor: str
    firmware_version: int
    banks: tuple[int, ...]
    owner_auth_set: bool
    endorsement_auth_set: bool
    in_lockout: bool
    disabled: tuple[str, ...]


class Tpm(Connection):
    """One TPM, for one thread. `close` flushes all that was loaded, also after a failure.

    Every method raises TPM_UNREACHABLE, TPM_BUSY, TPM_COMMAND_FAILED (as `ResponseError`) or TPM_MALFORMED.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        random: Random,
        clock: Clock,
        timeout_seconds: float,
        auths: HierarchyAuths | None = None,
    ) -> None:
        super().__init__(transport, random=random, clock=clock, timeout_seconds=timeout_seconds)
        self._keys: dict[str, LoadedKey] = {}
        self._auths: HierarchyAuths = {} if auths is None else auths

    def banks(self) -> tuple[int, ...]:
        """Return the hash algorithms of the active register banks."""
        _unused, reader = self.capability(c.CAP_PCRS, 0, 1)
        return tuple(selection.bank for selection in read_selections(reader) if selection.indices)

    def properties(self) -> TpmProperties:
        """Return manufacturer, version, banks and the state of the hierarchies."""
        count = c.PT_FIRMWARE_VERSION_2 - c.PT_MANUFACTURER + 1
        fixed, permanent = self.property_range(c.PT_MANUFACTURER, count), self.property(c.PT_PERMANENT)
        vendor = b"".join(u32(fixed.get(tag, 0)) for tag in range(c.PT_VENDOR_STRING_1, c.PT_VENDOR_STRING_4 + 1))
        version = fixed.get(c.PT_FIRMWARE_VERSION_1, 0) << 32 | fixed.get(c.PT_FIRMWARE_VERSION_2, 0)
        return TpmProperties(
            manufacturer=_text(u32(fixed.get(c.PT_MANUFACTURER, 0))),
            vendor=_text(vendor),
            firmware_version=version,
            banks=self.banks(),
            owner_auth_set=bool(permanent & c.PERMANENT_OWNER_AUTH_SET),
            endorsement_auth_set=bool(permanent & c.PERMANENT_ENDORSEMENT_AUTH_SET),
            in_lockout=bool(permanent & c.PERMANENT_IN_LOCKOUT),
            disabled=self._disabled(),
        )

    def _disabled(self) -> tuple[str, ...]:
        state = self.property(c.PT_STARTUP_CLEAR)
        wanted = {"owner": c.STARTUP_OWNER_ENABLED, "endorsement": c.STARTUP_ENDORSEMENT_ENABLED}
        return tuple(name for name, flag in wanted.items() if not state & flag)

    def hierarchy_auth(self, hierarchy: int) -> bytes:
        """Return the auth value of a hierarchy (RH_OWNER, RH_ENDORSEMENT), empty if the hierarchy has none.

        Raises TPM_HIERARCHY_AUTH with its name if the hierarchy has an auth value that is not known here.
        """
        flag, name = _HIERARCHY_FLAGS[hierarchy]
        if not self.property(c.PT_PERMANENT) & flag:
            return b""
        value = self._auths.get(hierarchy)
        if value is None:
            raise TpmError(
                f"expected the {name} hierarchy without a password, it has one, and none is stored here",
                reason=Reason.TPM_HIERARCHY_AUTH,
            )
        return value

    @contextlib.contextmanager
    def authorized(self, hierarchy: int) -> Iterator[Authorization]:
        """Yield the authorisation of ``hierarchy``: the empty password, or an HMAC, which does not show the auth value.

        The commands in the block raise TPM_HIERARCHY_AUTH with its name if the TPM refuses the auth value.
        """
        auth = self.hierarchy_auth(hierarchy)
        if not auth:
            yield Password()
            return
        with self.session(None, c.SESSION_HMAC, encrypts=False) as session:
            session.auth = auth
            with password_checked(hierarchy):
                yield session

    # Registers

    def pcr_read(self, indices: Iterable[int], *, bank: int = c.ALG_SHA256) -> dict[int, bytes]:
        """Return the values of the registers ``indices`` at one moment; raises TPM_PCR_UNAVAILABLE, TPM_BUSY.

        A TPM returns eight registers at a time, so the reads are repeated if its update counter changes between them.
        """
        for _unused in range(_READ_ATTEMPTS):
            values, counters = self._pcr_read_all(PcrSelection.of(indices, bank=bank))
            if len(counters) <= 1:
                return values
        raise TpmError(
            f"expected registers that stay the same during a read, they changed {_READ_ATTEMPTS} times",
            reason=Reason.TPM_BUSY,
        )

    def _pcr_read_all(self, wanted: PcrSelection) -> tuple[dict[int, bytes], set[int]]:
        values: dict[int, bytes] = {}
        counters: set[int] = set()
        while missing := tuple(index for index in wanted.indices if index not in values):
            counter, part = self._pcr_read_some(PcrSelection(wanted.bank, missing))
            if not part:
                raise TpmError(
                    f"expected a bank of algorithm {wanted.bank:#06x} with the registers {list(missing)}, "
                    "the TPM has none",
                    reason=Reason.TPM_PCR_UNAVAILABLE,
                )
            values.update(part)
            counters.add(counter)
        return values, counters

    def _pcr_read_some(self, wanted: PcrSelection) -> tuple[int, dict[int, bytes]]:
        reply = self.execute(Command(code=c.CC_PCR_READ, parameters=marshal_selections([wanted])))
        reader = reply.parameters
        counter = reader.u32()
        found = [index for selection in read_selections(reader) for index in selection.indices]
        values = [reader.sized(c.MAX_DIGEST) for _unused in range(reader.count(c.PCR_COUNT))]
        reader.end()
        if len(found) != len(values) or not set(found) <= set(wanted.indices):
            raise malformed(f"values of the registers {list(wanted.indices)}", f"{len(values)} of {found}")
        return counter, dict(zip(found, values, strict=True))

    def pcr_extend(self, index: int, digests: Mapping[int, bytes]) -> None:
        """Extend register ``index`` by one digest for each bank (algorithm to digest)."""
        listed = b"".join(u16(alg) + digest for alg, digest in digests.items())
        self._on_register(c.CC_PCR_EXTEND, index, u32(len(digests)) + listed)

    def pcr_event(self, index: int, data: bytes) -> dict[int, bytes]:
        """Let the TPM hash ``data`` (at most 1024 bytes) in every bank into register ``index``; return the digests."""
        reader = self._on_register(c.CC_PCR_EVENT, index, sized(data)).parameters
        digests = {}
        for _unused in range(reader.count(c.MAX_SELECTIONS)):
            alg = reader.u16()
            if alg not in c.DIGEST_SIZES:
                raise malformed("a SHA-1 or SHA-2 bank", f"{alg:#06x}")
            digests[alg] = reader.take(c.DIGEST_SIZES[alg])
        reader.end()
        return digests

    def _on_register(self, code: int, index: int, parameters: bytes) -> Reply:
        (register,) = PcrSelection.of([index]).indices
        handles = (Entity.of(register),)
        return self.execute(Command(code=code, handles=handles, parameters=parameters, auths=(Password(),)))

    def quote(self, ak: LoadedKey, qualifying_data: bytes, pcrs: Iterable[int]) -> Quote:
        """Return a quote of ``ak`` over the SHA-256 values of ``pcrs``, with ``qualifying_data`` (at most 64 bytes)."""
        parameters = sized(qualifying_data) + u16(c.ALG_NULL) + marshal_selections([PcrSelection.of(pcrs)])
        command = Command(code=c.CC_QUOTE, handles=(ak.entity,), parameters=parameters, auths=(Password(),))
        reader = self.execute(command).parameters
        return Quote(reader.sized(c.MAX_BUFFER), reader.rest())

    # Non-volatile storage

    def nv_indices(self) -> tuple[int, ...]:
        """Return the defined NV indices, beginning at that of the first EK certificate."""
        return self.handles(c.NV_EK_FIRST)

    def nv_read(self, index: int) -> bytes:
        """Return the content of the NV index, which must be readable without a password."""
        attributes, size = self._nv_public(index)
        reader_handle = Entity.of(index if attributes & c.NV_AUTH_READ else c.RH_OWNER)
        chunk = min(self.property(c.PT_NV_BUFFER_MAX) or c.MAX_BUFFER, c.MAX_BUFFER)
        data = b""
        while len(data) < size:
            parameters = u16(min(chunk, size - len(data))) + u16(len(data))
            handles = (reader_handle, Entity.of(index))
            command = Command(code=c.CC_NV_READ, handles=handles, parameters=parameters, auths=(Password(),))
            part = self.execute(command).parameters.sized(c.MAX_BUFFER)
            if not part:
                raise malformed(f"{size} bytes in NV index {index:#010x}", f"{len(data)}")
            data += part
        return data

    def _nv_public(self, index: int) -> tuple[int, int]:
        reader = self.execute(Command(code=c.CC_NV_READ_PUBLIC, handles=(Entity.of(index),))).parameters
        size = reader.u16()
        if reader.u32() != index:
            raise malformed(f"the public area of NV index {index:#010x}", f"another one of {size} bytes")
        reader.u16()
        attributes = reader.u32()
        reader.sized(c.MAX_DIGEST)
        data_size = reader.u16()
        if data_size > c.MAX_NV:
            raise malformed(f"at most {c.MAX_NV} bytes in NV index {index:#010x}", f"{data_size}")
        return attributes, data_size

    # Keys

    def once(self, label: str, load: Callable[[], LoadedKey]) -> LoadedKey:
        """Return the key ``label``, loaded by ``load`` at the first call; a TPM has room for only three objects."""
        if label not in self._keys:
            self._keys[label] = load()
        return self._keys[label]

    def unload(self, label: str) -> None:
        """Flush the key ``label`` if it is transient, so that the next `once` loads it again."""
        key = self._keys.pop(label, None)
        if key is not None and not key.persistent:
            self.flush(key.handle)

    def create_primary(self, hierarchy: int, template: Public) -> LoadedKey:
        """Return the primary key of ``template`` in ``hierarchy``, which is the same key each time."""
        parameters = sized(sized(b"") + sized(b"")) + sized(template.marshal()) + sized(b"") + u32(0)
        with self.authorized(hierarchy) as authorization:
            command = Command(
                code=c.CC_CREATE_PRIMARY,
                handles=(Entity.of(hierarchy),),
                parameters=parameters,
                auths=(authorization,),
                returns_handle=True,
            )
            reply = self.execute(command)
        public = Public.parse(reply.parameters.sized(c.MAX_BUFFER))
        if public.as_template() != template.as_template():
            raise malformed("a key of the template", f"type {public.type:#06x}, attributes {public.attributes:#010x}")
        return LoadedKey(handle=reply.handle, public=public, name=public.name())

    def read_public(self, handle: int) -> tuple[Public, bytes]:
        """Return the public area of an object and its qualified name."""
        reader = self.execute(Command(code=c.CC_READ_PUBLIC, handles=(Entity.of(handle),))).parameters
        public = Public.parse(reader.sized(c.MAX_BUFFER))
        reader.sized(c.MAX_DIGEST + 2)
        qualified_name = reader.sized(c.MAX_DIGEST + 2)
        reader.end()
        return public, qualified_name

    def evict(self, key: LoadedKey, persistent_handle: int) -> None:
        """Make ``key`` persistent in the TPM at ``persistent_handle``."""
        handles = (Entity.of(c.RH_OWNER), key.entity)
        parameters = u32(persistent_handle)
        with self.authorized(c.RH_OWNER) as owner:
            self.execute(Command(code=c.CC_EVICT_CONTROL, handles=handles, parameters=parameters, auths=(owner,)))

    # Sessions

    @contextlib.contextmanager
    def session(self, ek: LoadedKey | None, kind: int, *, encrypts: bool = True) -> Iterator[Session]:
        """Open a session (SESSION_HMAC or SESSION_POLICY), salted to ``ek`` if it is given; flush it at the end.

        With ``encrypts`` it encrypts the first parameter, which must be a TPM2B, in both directions.
        """
        pending = PendingSession(ek, kind, self.random, encrypts=encrypts)
        session = pending.finish(self.execute(pending.command))
        try:
            yield session
        finally:
            with contextlib.suppress(ResponseError):
                self.flush(session.handle)

    def activate_credential(self, ak: LoadedKey, ek: LoadedKey, credential: Credential) -> bytes:
        """Return the secret of ``credential``, encrypted on the bus; raises TPM_CREDENTIAL_REFUSED."""
        credential.verify_form()
        with self.session(ek, c.SESSION_POLICY) as session:
            self._policy_secret(session, c.RH_ENDORSEMENT)
            command = Command(
                code=c.CC_ACTIVATE_CREDENTIAL,
                handles=(ak.entity, ek.entity),
                parameters=credential.id_object + credential.encrypted_secret,
                auths=(Password(), session),
            )
            try:
                reader = self.execute(command).parameters
            except ResponseError as error:
                raise _credential_refused(error) from error  # pylint: disable=bad-exception-cause
        secret = reader.sized(c.MAX_DIGEST)
        reader.end()
        return secret

    def prove_authorization(self, hierarchy: int) -> None:
        """Check the auth value of ``hierarchy`` with the TPM, without any effect; raises TPM_HIERARCHY_AUTH."""
        with self.session(None, c.SESSION_POLICY, encrypts=False) as session, password_checked(hierarchy):
            self._policy_secret(session, hierarchy)

    def _policy_secret(self, session: Session, hierarchy: int) -> None:
        """Satisfy the policy of the EK templates: PolicySecret with the auth value of ``hierarchy``."""
        handles = (Entity.of(hierarchy), session.entity)
        # nonceTPM, cpHashA and policyRef empty; no expiration.
        parameters = sized(b"") + sized(b"") + sized(b"") + u32(0)
        with self.authorized(hierarchy) as authorization:
            command = Command(code=c.CC_POLICY_SECRET, handles=handles, parameters=parameters, auths=(authorization,))
            self.execute(command)


@contextlib.contextmanager
def password_checked(hierarchy: int) -> Iterator[None]:
    """Raise TPM_HIERARCHY_AUTH, with the name of ``hierarchy``, if a command in the block refuses its auth value."""
    try:
        yield
    except ResponseError as error:
        if error.base not in WRONG_AUTH:
            raise
        name = _HIERARCHY_FLAGS[hierarchy][1]
        raise TpmError(  # pylint: disable=bad-exception-cause
            f"expected the password of the {name} hierarchy, the TPM refuses the one that is stored here: "
            f"{error.message}",
            reason=Reason.TPM_HIERARCHY_AUTH,
        ) from error


def _credential_refused(error: ResponseError) -> TpmError:
    # libtpms returns FAILURE if the RSA key does not fit the encrypted secret. A TPM in failure mode would have refused
    # the earlier commands too.
    if not (error.about_parameter or error.base == RC_FAILURE):
        return error
    return TpmError(
        f"expected a credential for this EK and this AK, the TPM says: {error.message}",
        reason=Reason.TPM_CREDENTIAL_REFUSED,
    )


def _text(data: bytes) -> str:
    return "".join(filter(str.isprintable, data.decode("ascii", errors="ignore"))).strip()


@contextlib.contextmanager
def open_tpm(
    tcti: str,
    *,
    timeout_seconds: float = 10,
    lock_directory: str | Path = DEFAULT_DIRECTORY,
    random: Random | None = None,
    clock: Clock | None = None,
    auths: HierarchyAuths | None = None,
) -> Iterator[Tpm]:
    """Open the TPM at ``tcti`` under its lock and yield it; at the end flush all that was loaded.

    ``tcti``: ``device:/dev/tpmrm0``, ``swtpm:path=SOCKET`` or ``swtpm:host=HOST,port=PORT``. ``timeout_seconds`` bounds
    the wait for the lock and each command; ``auths`` are auth values of hierarchies (RH_OWNER, RH_ENDORSEMENT), by
    default those that this machine stores in ``lock_directory``.
    Raises OPTION_INVALID, TPM_BUSY, TPM_UNREACHABLE.
    """
    address = parse_tcti(tcti)
    now = clock or SystemClock()
    with tpm_lock(tcti, lock_directory, timeout_seconds=timeout_seconds, clock=now):
        transport = connect(address, timeout_seconds=timeout_seconds, clock=now)
        known = HeldAuths(tcti, lock_directory) if auths is None else auths
        tpm = Tpm(transport, random=random or SystemRandom(), clock=now, timeout_seconds=timeout_seconds, auths=known)
        with contextlib.closing(tpm):
            yield tpm
