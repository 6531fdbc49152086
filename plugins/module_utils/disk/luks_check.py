# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify that a LUKS2 header is that of a state disk: every field is compared, none is ignored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DiskError
from ..reasons import Reason
from .luks_header import AREA_BYTES

if TYPE_CHECKING:
    from .luks_header import Digest, Header, Kdf, Keyslot, Metadata, Segment


# The required format of a state disk of this collection, and of Constellation, as tables.

CIPHER = "aes-xts-plain64"
INTEGRITY = "hmac(sha256)"
SECTOR_BYTES = 4096
XTS_KEY_BYTES = 64
MAC_KEY_BYTES = 32
LABEL = "attested-state"
STATE_TOKEN = "attested-state-disk"  # noqa: S105  # the type of a LUKS2 token
STATE_TOKEN_VERSION = 1
CONSTELLATION_TOKEN = "constellation-state-disk"  # noqa: S105  # the type of Constellation's token


@dataclass(frozen=True, slots=True, kw_only=True)
class KdfBounds:
    """The allowed key derivation function of a slot, and the bounds of its cost."""

    type: str
    hash: str
    cost: tuple[int, int]
    memory_kib: tuple[int, int]
    threads: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskShape:
    """The required values of a header.

    ``label`` None allows any label. ``integrity`` lists the allowed kinds. ``token`` and ``token_version`` (0: the
    token has no version) are the required LUKS2 token. ``flag`` is the member of the token that holds whether the disk
    was initialised.
    """

    label: str | None
    integrity: frozenset[str]
    kdf: KdfBounds
    token: str
    token_version: int
    flag: str
    keyslots_bytes: int = 16744448


STATE_DISK = DiskShape(
    label=LABEL,
    integrity=frozenset({INTEGRITY}),
    # The key is 32 random bytes and cannot be guessed, so an expensive derivation would only slow down every boot.
    kdf=KdfBounds(type="pbkdf2", hash="sha256", cost=(1000, 1000), memory_kib=(0, 0), threads=(1, 1)),
    token=STATE_TOKEN,
    token_version=STATE_TOKEN_VERSION,
    flag="initialised",
)
CONSTELLATION_DISK = DiskShape(
    label=None,
    integrity=frozenset({INTEGRITY, ""}),
    kdf=KdfBounds(type="argon2id", hash="", cost=(1, 100), memory_kib=(32, 1 << 20), threads=(1, 4)),
    token=CONSTELLATION_TOKEN,
    token_version=0,
    flag="diskIsInitialized",
)


def state_token(*, initialised: bool) -> dict[str, Any]:
    """Return the LUKS2 token of a state disk that is formatted, or in use (``initialised``)."""
    return {"type": STATE_TOKEN, "keyslots": [], "version": STATE_TOKEN_VERSION, "initialised": initialised}


_STRIPES = 4000
_HASH = "sha256"
_SALT_BYTES = 32
_BLOCK = 4096
_DIGEST_ITERATIONS = (1000, 10_000_000)
_VOLUME_LABEL = b"attested.kubernetes/luks/volume/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedHeader:
    """A verified header of a state disk; only `verify_header` makes one.

    ``volume`` (32 public bytes) identifies the encrypted volume. It depends on the volume key and not on the slots.
    ``sha256`` is the hash of the header's bytes. Only a copy of these bytes may be opened.
    """

    uuid: str
    initialised: bool
    integrity: str
    slots: tuple[int, ...]
    sequence: int
    volume: bytes
    sha256: bytes
    total_bytes: int


def verify_header(
    header: Header,
    shape: DiskShape,
    *,
    uuid: str | None = None,
    volume: bytes | None = None,
    slots: frozenset[int] = frozenset({0}),
) -> VerifiedHeader:
    """Verify a header and return it; raises the code of the first check that fails.

    ``uuid`` is the assigned UUID (None: any), ``volume`` the volume of the last unlock (None: unknown), ``slots`` the
    slots that must be in use: {0} except during a key exchange.

    1. UUID and label (LUKS_DISK_DIFFERS).
    2. No re-encryption, no other requirement or flag (LUKS_HEADER_FOREIGN).
    3. One segment with the required cipher, integrity, sector size and offset (LUKS_HEADER_FOREIGN).
    4. The slots (LUKS_KEYSLOTS), each with the required cipher, key derivation and its own area (LUKS_HEADER_FOREIGN).
    5. One digest over all slots (LUKS_HEADER_FOREIGN).
    6. The volume of the last unlock (LUKS_VOLUME_FOREIGN).
    7. The token of a state disk, and no other (LUKS_HEADER_FOREIGN).
    The caller must verify the header of a copy, and open that copy.
    """
    metadata = header.metadata
    _verify_names(header, shape, uuid)  # 1
    _verify_flags(metadata.requirements, metadata.flags)  # 2
    segment = _verified_segment(metadata, shape)  # 3
    _verify_slots(metadata.keyslots, shape, segment=segment, slots=slots)  # 4
    digest = _verified_digest(metadata.digests, slots)  # 5
    found = _verified_volume(_volume(header.uuid, segment, digest), expected=volume)  # 6
    return VerifiedHeader(
        uuid=header.uuid,
        initialised=_initialised(header, shape),  # 7
        integrity=segment.integrity,
        slots=tuple(sorted(slots)),
        sequence=header.sequence,
        volume=found,
        sha256=header.digest,
        total_bytes=header.total_bytes,
    )


def _verify_names(header: Header, shape: DiskShape, uuid: str | None) -> None:
    if uuid is not None and header.uuid != uuid:
        raise _error(f"expected the disk {uuid}, got {header.uuid}", Reason.LUKS_DISK_DIFFERS)
    if shape.label is not None and (header.label, header.subsystem) != (shape.label, ""):
        raise _error(
            f"expected the label {shape.label!r} and no subsystem, got {header.label!r} and {header.subsystem!r}",
            Reason.LUKS_DISK_DIFFERS,
        )


def _verify_flags(requirements: tuple[str, ...], flags: tuple[str, ...]) -> None:
    if any("reencrypt" in name for name in requirements):
        raise _error(f"expected no re-encryption, got {requirements}", Reason.LUKS_HEADER_FOREIGN)
    if requirements or flags:
        raise _error(f"expected no requirement and no flag, got {(*requirements, *flags)}", Reason.LUKS_HEADER_FOREIGN)


def _verified_segment(metadata: Metadata, shape: DiskShape) -> Segment:
    if set(metadata.segments) != {0}:
        raise _error(f"expected a segment 0 and no other, got {sorted(metadata.segments)}", Reason.LUKS_HEADER_FOREIGN)
    segment = metadata.segments[0]
    _verify_segment(segment, shape, metadata.keyslots_bytes)
    return segment


def _verify_segment(segment: Segment, shape: DiskShape, keyslots_bytes: int) -> None:
    if segment.cipher != CIPHER:
        raise _error(f"expected the cipher {CIPHER}, got {segment.cipher!r}", Reason.LUKS_HEADER_FOREIGN)
    if segment.integrity not in shape.integrity:
        raise _error(
            f"expected integrity by {sorted(shape.integrity)}, got {segment.integrity!r}", Reason.LUKS_HEADER_FOREIGN
        )
    if segment.sector_bytes != SECTOR_BYTES:
        raise _error(
            f"expected sectors of {SECTOR_BYTES} bytes, got {segment.sector_bytes}", Reason.LUKS_HEADER_FOREIGN
        )
    place = (keyslots_bytes, segment.offset, segment.tweak)
    expected = (shape.keyslots_bytes, AREA_BYTES + shape.keyslots_bytes, 0)
    if place != expected:
        raise _error(
            f"layout: expected key slots, data and tweak at {expected}, got {place}", Reason.LUKS_HEADER_FOREIGN
        )


def _verify_slots(found: dict[int, Keyslot], shape: DiskShape, *, segment: Segment, slots: frozenset[int]) -> None:
    if set(found) != slots:
        raise _error(f"expected key slots {sorted(slots)}, got {sorted(found)}", Reason.LUKS_KEYSLOTS)
    for slot in found.values():
        _verify_slot(slot, shape, key_bytes=XTS_KEY_BYTES + (MAC_KEY_BYTES if segment.integrity else 0))
    _verify_areas(list(found.values()), end=segment.offset)


def _verify_slot(slot: Keyslot, shape: DiskShape, *, key_bytes: int) -> None:
    if (slot.cipher, slot.cipher_key_bytes) != (CIPHER, XTS_KEY_BYTES):
        raise _error(f"expected the cipher {CIPHER} for a slot, got {slot.cipher!r}", Reason.LUKS_HEADER_FOREIGN)
    found = (slot.key_bytes, slot.stripes, slot.split_hash, slot.priority)
    if found != (key_bytes, _STRIPES, _HASH, None):
        raise _error(f"expected a slot of {key_bytes} bytes in {_STRIPES} stripes, got {found}", Reason.LUKS_KEYSLOTS)
    _verify_kdf(slot.kdf, shape)


def _verify_kdf(kdf: Kdf, shape: DiskShape) -> None:
    bounds = shape.kdf
    inside = (
        bounds.cost[0] <= kdf.cost <= bounds.cost[1]
        and bounds.memory_kib[0] <= kdf.memory_kib <= bounds.memory_kib[1]
        and bounds.threads[0] <= kdf.threads <= bounds.threads[1]
    )
    if (kdf.type, kdf.hash, len(kdf.salt)) != (bounds.type, bounds.hash, _SALT_BYTES) or not inside:
        raise _error(
            f"expected {bounds.type} {bounds.hash} within its bounds, got {kdf.type} {kdf.hash} of cost {kdf.cost}, "
            f"{kdf.memory_kib} KiB, {kdf.threads} threads, {len(kdf.salt)} bytes of salt",
            Reason.LUKS_HEADER_FOREIGN,
        )


def _verify_areas(slots: list[Keyslot], *, end: int) -> None:
    free_from = AREA_BYTES
    for slot in sorted(slots, key=lambda one: one.offset):
        needed = -(-slot.key_bytes * slot.stripes // _BLOCK) * _BLOCK
        if slot.offset < free_from or slot.offset % _BLOCK or slot.size != needed or slot.offset + slot.size > end:
            raise _error(
                f"layout: expected {needed} bytes for a slot between {free_from} and {end}, "
                f"got {slot.size} at {slot.offset}",
                Reason.LUKS_HEADER_FOREIGN,
            )
        free_from = slot.offset + slot.size


def _verified_digest(digests: dict[int, Digest], slots: frozenset[int]) -> Digest:
    if set(digests) != {0}:
        raise _error(f"expected digest 0 alone, got {sorted(digests)}", Reason.LUKS_HEADER_FOREIGN)
    digest = digests[0]
    if slots != set(digest.keyslots) or digest.segments != (0,):
        raise _error(
            f"expected a digest over the slots {sorted(slots)} and segment 0, "
            f"got {digest.keyslots} and {digest.segments}",
            Reason.LUKS_HEADER_FOREIGN,
        )
    low, high = _DIGEST_ITERATIONS
    sizes = (len(digest.salt), len(digest.value))
    if (digest.type, digest.hash, *sizes) != ("pbkdf2", _HASH, _SALT_BYTES, 32) or not low <= digest.iterations <= high:
        raise _error(
            f"expected a digest by pbkdf2 {_HASH}, got {digest.type} {digest.hash}, {digest.iterations} times",
            Reason.LUKS_HEADER_FOREIGN,
        )
    return digest


def _verified_volume(found: bytes, *, expected: bytes | None) -> bytes:
    if expected is not None and expected != found:
        raise _error(f"expected the volume {expected.hex()}, got {found.hex()}", Reason.LUKS_VOLUME_FOREIGN)
    return found


def _initialised(header: Header, shape: DiskShape) -> bool:
    tokens = header.metadata.tokens
    expected = {"version", shape.flag} if shape.token_version else {shape.flag}
    token = tokens.get(0)
    if token is None or len(tokens) != 1:
        raise _error(f"expected the token 0 and no other, got {sorted(tokens)}", Reason.LUKS_HEADER_FOREIGN)
    flag = token.details.get(shape.flag)
    if (
        (token.type, token.keyslots, set(token.details)) != (shape.token, (), expected)
        or token.details.get("version", 0) != shape.token_version
        or isinstance(token.details.get("version"), bool)
        or not isinstance(flag, bool)
    ):
        raise _error(
            f"expected the token {shape.token} of version {shape.token_version}, "
            f"got {token.type!r} with {sorted(token.details)}",
            Reason.LUKS_HEADER_FOREIGN,
        )
    return flag


def _volume(uuid: str, segment: Segment, digest: Digest) -> bytes:
    parts = [
        _VOLUME_LABEL,
        *(text.encode("ascii") for text in (uuid, segment.cipher, segment.integrity, digest.hash)),
        *(number.to_bytes(8, "big") for number in (segment.offset, segment.sector_bytes, digest.iterations)),
        digest.salt,
        digest.value,
    ]
    return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def _error(message: str, reason: Reason) -> DiskError:
    return DiskError(message, reason=reason)
