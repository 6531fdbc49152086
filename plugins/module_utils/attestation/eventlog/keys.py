# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot's keys as they stand in events: signature lists of PK, KEK, db and dbx, and the key that was used.

Layouts: UEFI Specification 2.10, 32.4.1 (EFI_SIGNATURE_LIST, EFI_SIGNATURE_DATA). For people: what does not have its
layout is counted in bytes, and nothing decides by it.
"""

from __future__ import annotations

import hashlib

from ..._deps.crypto import unreadable, x509
from ...policy import ENTRY_MARK

_GUID_BYTES = 16
_LIST_HEAD = _GUID_BYTES + 12
_MAX_ENTRIES = 1024
_X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
_SHA256 = bytes.fromhex("2616c4c14c509240aca941f936934328")
_HASH_BYTES = 32
_SHORT = 16
_MOST_HASHES = 16
_NO_CERTIFICATE = ", no certificate"


def described_keys(value: bytes) -> str:
    """Return the entries of a signature database: certificates by subject and hash, hashes by their first digits.

    Of many hashes (a dbx has hundreds) the number and the last one are told.
    """
    if not value:
        return "empty"
    names: list[str] = []
    hashes: list[bytes] = []
    others = at = 0
    while at + _LIST_HEAD <= len(value) and len(names) + others <= _MAX_ENTRIES:
        size, head, each = (int.from_bytes(value[at + o : at + o + 4], "little") for o in (16, 20, 24))
        entries = value[at + _LIST_HEAD + head : at + size]
        if size < _LIST_HEAD or at + size > len(value) or each <= _GUID_BYTES or len(entries) % each:
            return f"{len(value)} bytes"
        kind = value[at : at + _GUID_BYTES]
        found = [entries[place + _GUID_BYTES : place + each] for place in range(0, len(entries), each)]
        names += map(described_certificate, found) if kind == _X509 else ()
        hashes += found if kind == _SHA256 else ()
        others += len(found) if kind not in {_X509, _SHA256} else 0
        at += size
    counted = [f"{others} other entries"] if others else []
    return ENTRY_MARK.join([*names, *_described_hashes(hashes), *counted])


def _described_hashes(hashes: list[bytes]) -> list[str]:
    if len(hashes) <= _MOST_HASHES:
        return [f"hash {one.hex()[:_SHORT]}" for one in hashes]
    return [f"{len(hashes)} hashes", f"the last {hashes[-1].hex()[:_SHORT]}"]


def described_authority(value: bytes) -> str:
    """Return what allowed a program: one entry of a database, its owner in front; or a certificate of shim's own."""
    if len(value) == _GUID_BYTES + _HASH_BYTES:
        return f"hash {value[_GUID_BYTES:].hex()[:_SHORT]}"
    owned = described_certificate(value[_GUID_BYTES:])
    return described_certificate(value) if owned.endswith(_NO_CERTIFICATE) else owned


def described_certificate(data: bytes) -> str:
    """Return subject and fingerprint of a certificate in DER; of anything else its size or short value."""
    try:
        subject = x509.load_der_x509_certificate(data).subject.rfc4514_string()
    except unreadable():
        return data.hex() if len(data) <= _SHORT else f"{len(data)} bytes{_NO_CERTIFICATE}"
    return f"{subject} (sha256 {hashlib.sha256(data).hexdigest()[:16]})"
