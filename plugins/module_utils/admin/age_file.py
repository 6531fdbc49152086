# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of age (age-encryption.org/v1) with the library `pyrage`, for X25519 recipients and identities only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from .._deps.age import age
from ..errors import KeyServiceError, SiteError, SystemFault
from ..keyservice.master import SecretBytes
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence


MAGIC = b"age-encryption.org/"

_VERSION = b"v1\n"
_MAX_RECIPIENTS = 32
_MAX_HEADER_BYTES = 16384
_RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}")
_IDENTITY = re.compile(r"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}")
_STRANGER = "No matching keys"


def close_to(content: bytes, recipients: Sequence[str]) -> bytes:
    """Return ``content`` encrypted to ``recipients`` as a file of age; raises KIT_KEY_UNUSABLE."""
    keys = _keys_of(recipients)
    return bytes(age().encrypt(content, keys))


def require_recipients(recipients: Sequence[str]) -> None:
    """Raise KIT_KEY_UNUSABLE unless `close_to` and `close_stream` accept ``recipients``."""
    _keys_of(recipients)


def _keys_of(recipients: Sequence[str]) -> list[Any]:
    if not 1 <= len(set(recipients)) <= _MAX_RECIPIENTS:
        raise _unusable(f"1 to {_MAX_RECIPIENTS} recipients")
    library = age()
    keys = []
    for recipient in dict.fromkeys(recipients):
        if not _RECIPIENT.fullmatch(recipient):
            raise _unusable("recipients age1… of X25519")
        try:
            keys.append(library.x25519.Recipient.from_str(recipient))
        except library.RecipientError:
            raise _unusable(f"a recipient of age, {recipient} has a typing mistake,") from None
    return keys


def open_by(data: bytes, identities: Sequence[SecretBytes]) -> SecretBytes:
    """Return the decrypted content of the file of age ``data``.

    1. It is of version 1 (FILE_VERSION_UNKNOWN). 2. Its header is not too long (KIT_DAMAGED). 3. One of ``identities``
    is a recipient (KIT_KEY_WRONG). 4. It is complete and unaltered (KIT_DAMAGED).
    """
    library = age()
    if not data.startswith(MAGIC + _VERSION):  # 1
        raise KeyServiceError(
            "expected a kit as a file of age, version 1, got another version", reason=Reason.FILE_VERSION_UNKNOWN
        )
    if b"\n---" not in data[:_MAX_HEADER_BYTES]:  # 2
        raise KeyServiceError("expected the end of age's header, it is cut off", reason=Reason.KIT_DAMAGED)
    keys = [library.x25519.Identity.from_str(one.reveal().decode("ascii")) for one in identities]
    try:
        return SecretBytes(library.decrypt(data, keys))
    except library.DecryptError as error:
        if _STRANGER in str(error):  # 3
            raise KeyServiceError(
                f"expected an identity that this kit is encrypted to, none of {len(keys)} is",
                reason=Reason.KIT_KEY_WRONG,
            ) from None
        raise KeyServiceError(  # 4
            "expected a complete file of age, it was altered or cut off", reason=Reason.KIT_DAMAGED
        ) from None


# The same as streams, for content that does not fit into memory.


class Source(Protocol):
    """A readable stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most ``size`` bytes, none at the end."""


class Sink(Protocol):
    """A writable stream of bytes; it must not raise, because the library would hide the error."""

    def write(self, data: bytes, /) -> int:
        """Write all of ``data`` and return its length."""

    def flush(self) -> None:
        """Write buffered data."""


def close_stream(source: Source, target: Sink, recipients: Sequence[str]) -> None:
    """Write the content of ``source`` to ``target`` as a file of age; raises KIT_KEY_UNUSABLE, FILE_UNUSABLE."""
    library, keys = age(), _keys_of(recipients)
    try:
        library.encrypt_io(source, target, keys)
    except (library.EncryptError, OSError) as error:
        raise SystemFault(f"cannot write a file of age: {error}", reason=Reason.FILE_UNUSABLE) from error


def open_stream(source: Source, sink: Sink, identities: Sequence[SecretBytes]) -> None:
    """Write the content of the file of age ``source`` to ``sink``, each piece after it is authenticated.

    1. One of ``identities`` is a recipient (KIT_KEY_WRONG). 2. It is a complete and unaltered file of age
    (BACKUP_DAMAGED); the last piece is written only then.
    """
    library = age()
    keys = [library.x25519.Identity.from_str(one.reveal().decode("ascii")) for one in identities]
    try:
        library.decrypt_io(source, sink, keys)
    except (library.DecryptError, OSError) as error:
        if _STRANGER in str(error):  # 1
            raise KeyServiceError(
                f"expected an identity that this backup is encrypted to, none of {len(keys)} is",
                reason=Reason.KIT_KEY_WRONG,
            ) from None
        raise KeyServiceError(  # 2
            "expected a complete file of age, it was altered or cut off", reason=Reason.BACKUP_DAMAGED
        ) from None


def make_identity() -> tuple[SecretBytes, str]:
    """Return a new identity and its recipient."""
    made = age().x25519.Identity.generate()
    return SecretBytes(str(made).encode("ascii")), str(made.to_public())


def parse_identities(data: bytes) -> tuple[SecretBytes, ...]:
    """Return the identities in a file of `age-keygen`; raises KIT_KEY_UNUSABLE without quoting the file."""
    lines = [line.strip() for line in data.decode("ascii", "replace").splitlines()]
    texts = [line for line in lines if line and not line.startswith("#")]
    if not texts or len(texts) > _MAX_RECIPIENTS or not all(map(_IDENTITY.fullmatch, texts)):
        raise _unusable("lines AGE-SECRET-KEY-1…, unencrypted, as age-keygen writes them,")
    library = age()
    try:
        for text in texts:
            library.x25519.Identity.from_str(text)
    except library.IdentityError:
        raise _unusable("identities of age without a typing mistake") from None
    return tuple(SecretBytes(text.encode("ascii")) for text in texts)


def _unusable(expected: str) -> KeyServiceError:
    return KeyServiceError(f"expected {expected} got something else", reason=Reason.KIT_KEY_UNUSABLE)


# A passphrase that a person can type on any keyboard, and that is long enough.

MIN_PASSPHRASE = 12
_MAX_PASSPHRASE = 256
_PRINTABLE = range(32, 127)


def require_passphrase(data: bytes) -> SecretBytes:
    """Return ``data`` without the end of its line; raises PASSPHRASE_UNUSABLE.

    Only printable ASCII is accepted: another keyboard, or another Unicode normal form of the same letter, must not lock
    the owner out.
    """
    text = data.removesuffix(b"\n").removesuffix(b"\r")
    if not all(byte in _PRINTABLE for byte in text):
        raise _passphrase_unusable("printable ASCII characters only")
    if not MIN_PASSPHRASE <= len(text) <= _MAX_PASSPHRASE:
        raise _passphrase_unusable(f"{MIN_PASSPHRASE} to {_MAX_PASSPHRASE} characters")
    return SecretBytes(text)


def _passphrase_unusable(expected: str) -> SiteError:
    return SiteError(f"expected a passphrase of {expected}", reason=Reason.PASSPHRASE_UNUSABLE)
