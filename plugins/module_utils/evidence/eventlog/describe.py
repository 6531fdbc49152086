# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describe events in words, for explanation only: no decision uses the descriptions.

An event's digest does not cover its type and its data. So a text is *proven* only if the text's own hash is the digest;
a label before the text, such as the kind of a command, is not proven. For some events a log holds only a digest (the
kernel's load options, the sections of a unified kernel image). The machine sends its command line as a hint for them,
which is shown if its hash is the digest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from ..._deps.crypto import unreadable, x509
from ...policy.events import ENTRY_MARK
from ...policy.profile import MeasuredEvent
from ...tpm.constants import ALG_SHA256
from . import kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .tcg import FirmwareEvent, FirmwareLog, UserspaceRecord


# Secure Boot's keys in events: signature lists of PK, KEK, db and dbx, and the key that was used.
#
# Layouts: UEFI Specification 2.10, 32.4.1 (EFI_SIGNATURE_LIST, EFI_SIGNATURE_DATA). For display only: data with another
# layout is described by its size.

_GUID_BYTES = 16
_LIST_HEAD = _GUID_BYTES + 12
_MAX_ENTRIES = 1024
X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
SHA256 = bytes.fromhex("2616c4c14c509240aca941f936934328")
_HASH_BYTES = 32
_SHORT = 16
_MOST_HASHES = 16
_NO_CERTIFICATE = ", no certificate"


def described_keys(value: bytes) -> str:
    """Return the entries of a signature database: certificates by subject and hash, hashes by their first digits.

    For many hashes (a dbx has hundreds) only their number and the last one are returned.
    """
    if not value:
        return "empty"
    names: list[str] = []
    hashes: list[bytes] = []
    others = 0
    for kind, found in signature_lists(value):
        if not kind:
            return f"{len(value)} bytes"
        names += map(described_certificate, found) if kind == X509 else ()
        hashes += found if kind == SHA256 else ()
        others += len(found) if kind not in {X509, SHA256} else 0
        if len(names) + others > _MAX_ENTRIES:
            break
    counted = [f"{others} other entries"] if others else []
    return ENTRY_MARK.join([*names, *_described_hashes(hashes), *counted])


def signature_lists(value: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the lists of a signature database: the kind, and each entry without its owner.

    What does not have the layout ends it, as a list of no kind.
    """
    at = 0
    while at + _LIST_HEAD <= len(value):
        size, head, each = (int.from_bytes(value[at + o : at + o + 4], "little") for o in (16, 20, 24))
        entries = value[at + _LIST_HEAD + head : at + size]
        if size < _LIST_HEAD or at + size > len(value) or each <= _GUID_BYTES or len(entries) % each:
            yield b"", []
            return
        found = [entries[place + _GUID_BYTES : place + each] for place in range(0, len(entries), each)]
        yield value[at : at + _GUID_BYTES], found
        at += size


def _described_hashes(hashes: list[bytes]) -> list[str]:
    if len(hashes) <= _MOST_HASHES:
        return [f"hash {one.hex()[:_SHORT]}" for one in hashes]
    return [f"{len(hashes)} hashes", f"the last {hashes[-1].hex()[:_SHORT]}"]


def described_authority(value: bytes) -> str:
    """Return the key that allowed a program: a database entry after its owner's GUID, or a certificate of shim."""
    if len(value) == _GUID_BYTES + _HASH_BYTES:
        return f"hash {value[_GUID_BYTES:].hex()[:_SHORT]}"
    owned = described_certificate(value[_GUID_BYTES:])
    return described_certificate(value) if owned.endswith(_NO_CERTIFICATE) else owned


def described_certificate(data: bytes) -> str:
    """Return subject and fingerprint of a certificate in DER; of other data the size, or the value if it is short."""
    try:
        subject = x509.load_der_x509_certificate(data).subject.rfc4514_string()
    except unreadable():
        return data.hex() if len(data) <= _SHORT else f"{len(data)} bytes{_NO_CERTIFICATE}"
    return f"{subject} (sha256 {hashlib.sha256(data).hexdigest()[:16]})"


MAX_TEXT = 1024
"""Characters of a description; a kernel command line has at most 2048 bytes."""

_RANK_COMMAND_LINE = 0
_RANK_PROVEN = 1
_RANK_UNPROVEN = 5


class _Words(NamedTuple):
    text: str
    hashed: tuple[bytes, ...] = ()
    rank: int = _RANK_PROVEN


def describe(
    firmware: FirmwareLog, userspace: Iterable[UserspaceRecord], *, command_line: bytes = b""
) -> tuple[MeasuredEvent, ...]:
    """Return every event of both logs in words; ``command_line`` (/proc/cmdline) is shown only if its hash matches."""
    hint = command_line.rstrip(b"\n\x00").decode(errors="replace")
    measured = [_firmware_event(event, hint) for event in firmware.events]
    return (*measured, *(_userspace_event(record, index) for index, record in enumerate(userspace)))


def printable(text: str) -> str:
    """Return ``text`` on one line, without control characters, at most `MAX_TEXT` long."""
    kept = text[:MAX_TEXT]
    if not kept.isprintable():
        kept = "".join(letter if letter.isprintable() else "�" for letter in kept)
    return kept if len(text) <= MAX_TEXT else f"{kept}…"


def _firmware_event(event: FirmwareEvent, hint: str) -> MeasuredEvent:
    words = _DESCRIBERS.get(event.kind, _other)(event, hint)
    return _measured(event, words, index=event.number, kind=kinds.name(event.kind))


def _userspace_event(record: UserspaceRecord, index: int) -> MeasuredEvent:
    words = _Words(f"{record.kind}: {record.text}", (record.text.encode(errors="replace"),))
    return _measured(record, words, index=index, kind="systemd")


def _measured(event: FirmwareEvent | UserspaceRecord, words: _Words, *, index: int, kind: str) -> MeasuredEvent:
    digest = event.digests.get(ALG_SHA256, b"")
    proven = any(hashlib.sha256(candidate).digest() == digest for candidate in words.hashed)
    return MeasuredEvent(
        pcr=event.pcr,
        digest=digest,
        text=printable(words.text),
        proven=proven,
        rank=words.rank if proven else _RANK_UNPROVEN,
        index=index,
        kind=kind,
    )


def _other(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words(f"{kinds.name(event.kind)} ({len(event.data)} bytes)", (event.data,))


def _separator(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words("separator", (event.data,))


def _plain_text(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words(event.data.rstrip(b"\x00").decode(errors="replace"), (event.data,))


def _version(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words(f"firmware version {kinds.utf16(event.data)!r}", (event.data,))


def _variable(event: FirmwareEvent, _hint: str) -> _Words:
    variable = kinds.efi_variable(event.data)
    if variable is None:
        return _other(event, _hint)
    return _Words(f"EFI variable {variable.name} = {_value(event, variable)}", (event.data,))


def _value(event: FirmwareEvent, variable: kinds.EfiVariable) -> str:
    """Return the value for display: keys by name, short values as they are, other values by their size."""
    value = variable.value
    if event.kind == kinds.EV_EFI_VARIABLE_DRIVER_CONFIG and variable.name in kinds.KEY_DATABASES:
        return described_keys(value)
    if event.kind == kinds.EV_EFI_VARIABLE_AUTHORITY and variable.name != kinds.SBAT_LEVEL:
        return described_authority(value)
    if variable.name == kinds.SBAT_LEVEL and value.isascii():
        return " ".join(value.decode().split())
    return (value.hex() if len(value) <= kinds.SHORT_VALUE else f"{len(value)} bytes") or "empty"


def _image(event: FirmwareEvent, _hint: str) -> _Words:
    path = kinds.image_path(event.data)
    return _Words(f"EFI program {path}" if path else "EFI program without a file path")


def _blob(event: FirmwareEvent, _hint: str) -> _Words:
    blob = kinds.firmware_blob(event.data)
    return _Words(f"firmware volume at {blob}" if blob else "firmware volume")


def _partitions(event: FirmwareEvent, _hint: str) -> _Words:
    names = kinds.partition_names(event.data)
    return _Words(f"partition table with {', '.join(names) or 'no partition'}", (event.data,))


def _tagged(event: FirmwareEvent, hint: str) -> _Words:
    tag = kinds.tag(event.data)
    if tag == kinds.TAG_LOAD_OPTIONS:
        return _command_line(event, hint, *load_options(hint))
    return _Words("initrd" if tag == kinds.TAG_INITRD else f"tagged event {tag:#x}")


def _boot_loader(event: FirmwareEvent, hint: str) -> _Words:
    """Describe EV_IPL: a section of a unified kernel image, a command of GRUB, or a file that a loader read."""
    section = kinds.section_name(event.data)
    if section:
        return _section(event, section, hint)
    text = event.data.rstrip(b"\x00").decode(errors="replace")
    _kind, mark, argument = text.partition(": ")
    rank = _RANK_COMMAND_LINE if text.startswith("kernel_cmdline: ") else _RANK_PROVEN
    return _Words(text, (event.data, argument.encode() if mark else event.data), rank)


def _section(event: FirmwareEvent, section: str, hint: str) -> _Words:
    name = f"{section}\x00".encode()
    if event.digests.get(ALG_SHA256) == hashlib.sha256(name).digest():
        return _Words(f"kernel image has a section {section}", (name,))
    if section == ".cmdline":
        return _command_line(event, hint, hint.encode())
    return _Words(f"contents of the kernel image's section {section}")


def _command_line(event: FirmwareEvent, hint: str, *hashed: bytes) -> _Words:
    where = "section .cmdline" if event.kind == kinds.EV_IPL else "load options"
    if event.digests.get(ALG_SHA256) not in {hashlib.sha256(one).digest() for one in hashed}:
        return _Words(f"kernel command line ({where}), text not known")
    return _Words(f"kernel command line ({where}): {hint}", hashed, _RANK_COMMAND_LINE)


def load_options(command_line: str) -> tuple[bytes, bytes]:
    """Return the two forms that the kernel's EFI stub may hash: with a final zero (systemd-stub) and without (GRUB)."""
    plain = command_line.encode("utf-16-le", errors="replace")
    return f"{command_line}\x00".encode("utf-16-le", errors="replace"), plain


_DESCRIBERS: dict[int, Callable[[FirmwareEvent, str], _Words]] = {
    kinds.EV_SEPARATOR: _separator,
    kinds.EV_ACTION: _plain_text,
    kinds.EV_EVENT_TAG: _tagged,
    kinds.EV_S_CRTM_VERSION: _version,
    kinds.EV_PLATFORM_CONFIG_FLAGS: _plain_text,
    kinds.EV_IPL: _boot_loader,
    kinds.EV_EFI_VARIABLE_DRIVER_CONFIG: _variable,
    kinds.EV_EFI_VARIABLE_BOOT: _variable,
    kinds.EV_EFI_BOOT_SERVICES_APPLICATION: _image,
    kinds.EV_EFI_BOOT_SERVICES_DRIVER: _image,
    kinds.EV_EFI_GPT_EVENT: _partitions,
    kinds.EV_EFI_ACTION: _plain_text,
    kinds.EV_EFI_PLATFORM_FIRMWARE_BLOB: _blob,
    kinds.EV_EFI_VARIABLE_BOOT2: _variable,
    kinds.EV_EFI_VARIABLE_AUTHORITY: _variable,
}
