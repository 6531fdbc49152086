# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of `encryption.py` as an ordered list of keys: parse and render it, name keys. Pure.

Each value in etcd holds the *name* of the key that encrypts it, so a name must never mean two keys. The name of every
key after the first therefore contains a number, which orders the keys by age, and a fingerprint of the key.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

from ..core.documents import load_documents
from ..errors import KubeadmError
from ..reasons import Reason
from ..rotation.encryption_key import CLEAR, KEY_NAME
from ..transport.binding import label
from .encryption import API_VERSION, KIND, RESOURCES, require_encryption
from .render import documents

_FINGERPRINT_DIGITS = 16
_USE = "secrets-at-rest/key"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKey:
    """A key, and its name in the values of etcd."""

    name: str
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the key and do not reveal it."""
        return fingerprint(self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionFile:
    """The keys of one control plane.

    The first key, or no key if ``clear_first``, encrypts. The other keys only decrypt.
    """

    keys: tuple[EncryptionKey, ...]
    clear_first: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the keys in order, with `CLEAR` first if Secrets are written in clear."""
        return (*((CLEAR,) if self.clear_first else ()), *(key.name for key in self.keys))

    @classmethod
    def parse(cls, content: bytes) -> EncryptionFile:
        """Parse a file that init or a rotation made. Messages never quote ``content``.

        Raises ENCRYPTION_MALFORMED, and ENCRYPTION_FOREIGN if an admin added other resources or providers: a rotation
        cannot know their purpose.
        """
        try:
            (document,) = load_documents(content.decode("utf-8"))
            first, second = _providers(document)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise _foreign() from None  # The message of the parser may quote a line of the file.
        clear_first = first == {CLEAR: {}}
        box, other = (second, first) if clear_first else (first, second)
        if other != {CLEAR: {}} or set(box) != {"secretbox"}:
            raise _foreign()
        require_encryption(_rendered(box, {CLEAR: {}}))
        keys = tuple(
            EncryptionKey(name=one["name"], secret=base64.b64decode(one["secret"])) for one in box["secretbox"]["keys"]
        )
        for key in keys:
            _require_own_name(key)
        return cls(keys=keys, clear_first=clear_first)

    def render(self) -> bytes:
        """Return the content of the file."""
        shown = [{"name": key.name, "secret": base64.b64encode(key.secret).decode("ascii")} for key in self.keys]
        box: dict[str, Any] = {"secretbox": {"keys": shown}}
        return _rendered({CLEAR: {}}, box) if self.clear_first else _rendered(box, {CLEAR: {}})


def fingerprint(secret: bytes) -> str:
    """Return 16 hexadecimal digits of the hash of a key (32 random bytes, so it cannot be guessed)."""
    return hashlib.sha256(label(_USE, version=1) + secret).hexdigest()[:_FINGERPRINT_DIGITS]


def name_key(secret: bytes, *, number: int) -> EncryptionKey:
    """Return a new key with its permanent name."""
    return EncryptionKey(name=f"key-{number}-{fingerprint(secret)}", secret=secret)


def _providers(document: Any) -> Any:
    if (document["apiVersion"], document["kind"]) != (API_VERSION, KIND):
        raise ValueError(KIND)
    (entry,) = document["resources"]
    if set(document) != {"apiVersion", "kind", "resources"} or entry["resources"] != list(RESOURCES):
        raise ValueError(KIND)
    return entry["providers"]


def _require_own_name(key: EncryptionKey) -> None:
    match = KEY_NAME.fullmatch(key.name)
    if match and match[2] and match[2] != key.fingerprint:
        raise KubeadmError(
            f"expected the key that the name {key.name} was made for, found another one under it",
            reason=Reason.ENCRYPTION_MALFORMED,
        )


def _rendered(*providers: dict[str, Any]) -> bytes:
    entry = {"resources": list(RESOURCES), "providers": list(providers)}
    return documents({"apiVersion": API_VERSION, "kind": KIND, "resources": [entry]})


def _foreign() -> KubeadmError:
    return KubeadmError(
        f"expected an {KIND} of secretbox and identity for secrets alone, as init makes it, found something else",
        reason=Reason.ENCRYPTION_FOREIGN,
    )
