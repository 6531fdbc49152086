# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of `encryption.py` as keys in an order: read, made anew in another order, named. Pure.

Etcd says of each value by the *name* of which key it was closed, so a name must never mean two keys. That of every key
after the first therefore holds a fingerprint of it, and a number that says which of two is newer.
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
    """A key and the name by which etcd's values know it."""

    name: str
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell keys apart and say nothing of them."""
        return fingerprint(self.secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionFile:
    """The keys of one control plane: Secrets are written with the first, or in clear; the others only read."""

    keys: tuple[EncryptionKey, ...]
    clear_first: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The names in their order, `CLEAR` first where Secrets are written in clear."""
        return (*((CLEAR,) if self.clear_first else ()), *(key.name for key in self.keys))

    @classmethod
    def parse(cls, content: bytes) -> EncryptionFile:
        """Return what a file says that init or a rotation made.

        Raises ENCRYPTION_MALFORMED, and ENCRYPTION_FOREIGN where an admin wrote more into it: other resources or
        providers are his own, and a rotation would have to guess what he means by them. Messages never quote it.
        """
        try:
            (document,) = load_documents(content.decode("utf-8"))
            first, second = _providers(document)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise _foreign() from None  # the parser's words may hold a line of the file
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
        """Return the file."""
        shown = [{"name": key.name, "secret": base64.b64encode(key.secret).decode("ascii")} for key in self.keys]
        box: dict[str, Any] = {"secretbox": {"keys": shown}}
        return _rendered({CLEAR: {}}, box) if self.clear_first else _rendered(box, {CLEAR: {}})


def fingerprint(secret: bytes) -> str:
    """Return 16 hexadecimal digits of a hash of a key (32 random bytes, so nobody finds it by trying)."""
    return hashlib.sha256(label(_USE, version=1) + secret).hexdigest()[:_FINGERPRINT_DIGITS]


def name_key(secret: bytes, *, number: int) -> EncryptionKey:
    """Return a new key under the name that it has for ever."""
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
