# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last net: what a machine knows to be secret is found in every usual spelling and hidden, and what looks like it.

The machine's own keys are read for that, by root and in memory only; they are compared with and never kept.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AttestedError
from ..keys.wrap import KeyPaths, KeyStore
from ..system import HIDDEN, hide, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .material import Piece

_LIMIT = 64 << 10
_MAX_FILES = 512
_PLACES = ("etc/kubernetes", "run/attested/tickets", "var/lib/kubelet/pki")
_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s(.*?)-----END", re.DOTALL)
_DATA = re.compile(rb"client-key-data[\"']?:\s*[\"']?([A-Za-z0-9+/=]+)")
_SECRET = re.compile(rb"\bsecret:\s*[\"']?([A-Za-z0-9+/=]{16,})")
_LONG_LINE = 32
_MIDDLE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Hider:
    """Hides ``secrets`` (bytes, in every usual spelling) and ``words`` (as they are)."""

    secrets: frozenset[bytes] = field(default=frozenset(), repr=False)
    words: frozenset[str] = field(default=frozenset(), repr=False)

    def hide(self, text: str) -> tuple[str, int]:
        """Return ``text`` without them and without what looks like a secret, and how often something was hidden."""
        clean = hide(text, secrets=self.secrets, words=self.words)
        return clean, max(clean.count(HIDDEN) - text.count(HIDDEN), int(clean != text))

    def clean(self, piece: Piece) -> Piece:
        """Return ``piece`` with its content hidden once more."""
        content, hidden = self.hide(piece.content)
        return replace(piece, content=content, hidden=piece.hidden + hidden)


def secrets_of_machine(root: Path = Path("/")) -> Hider:
    """Return what hides the secrets that lie on this machine: private keys, and the opened keys of a key service."""
    secrets: set[bytes] = set(_opened(root))
    words: set[str] = set()
    for data in _files(root):
        keys = [data, *(_decoded(found) for found in _DATA.findall(data))]
        words |= {found.decode("ascii") for found in (*_DATA.findall(data), *_SECRET.findall(data))}
        secrets |= {_decoded(found) for found in _SECRET.findall(data)}
        for body in (found for one in keys for found in _KEY.findall(one)):
            lines, middle = _of_key(body)
            words |= lines
            secrets |= middle
    return Hider(secrets=frozenset(secrets - {b""}), words=frozenset(words))


def _of_key(body: bytes) -> tuple[set[str], set[bytes]]:
    """Return the lines of a PEM body but the first, which all keys of a kind share, and bytes of its middle."""
    lines = [line.decode("ascii", "replace") for line in body.split() if len(line) >= _LONG_LINE]
    der = _decoded(b"".join(body.split()))
    middle = der[len(der) // 3 : len(der) // 3 + _MIDDLE]
    return set(lines[1:] or lines), {middle} - {b""}


def _files(root: Path) -> Iterator[bytes]:
    paths = (path for place in _PLACES for path in sorted((root / place).rglob("*")))
    for _number, path in zip(range(_MAX_FILES), paths, strict=False):
        with contextlib.suppress(AttestedError, OSError):
            if path.is_file():
                yield read_bytes(path, limit=_LIMIT)


def _opened(root: Path) -> Iterator[bytes]:
    """Return the opened keys of the key service, where there are any and the libraries to read them."""
    store = KeyStore(KeyPaths(opened=root / KeyPaths().opened.relative_to("/")))
    with contextlib.suppress(AttestedError):
        bundle = store.opened()
        if bundle is not None:
            yield from (one.reveal() for one in bundle.ring.secrets())
            for body in _KEY.findall(bundle.join_ca_key.reveal()):
                yield _decoded(b"".join(body.split()))[-_MIDDLE:]


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
