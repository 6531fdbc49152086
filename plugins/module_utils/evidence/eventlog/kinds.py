# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event types, and the layouts of event data that are shown to people.

Numbers and layouts: TCG PC Client Platform Firmware Profile 1.05, 10.4; UEFI Specification 2.10, 5.3 and 10.3;
tags of Linux' EFI stub (``include/linux/efi.h``). Data with another layout gives an empty result, never an error.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from ..._deps.crypto import unreadable, x509
from ...policy.events import ENTRY_MARK
from ...policy.profile import MeasuredEvent
from ...tpm.constants import ALG_SHA256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .tcg import FirmwareEvent, FirmwareLog, UserspaceRecord


EV_SEPARATOR = 0x00000004
EV_ACTION = 0x00000005
EV_EVENT_TAG = 0x00000006
EV_S_CRTM_VERSION = 0x00000008
EV_PLATFORM_CONFIG_FLAGS = 0x0000000A
EV_IPL = 0x0000000D
EV_EFI_VARIABLE_DRIVER_CONFIG = 0x80000001
EV_EFI_VARIABLE_BOOT = 0x80000002
EV_EFI_BOOT_SERVICES_APPLICATION = 0x80000003
EV_EFI_BOOT_SERVICES_DRIVER = 0x80000004
EV_EFI_GPT_EVENT = 0x80000006
EV_EFI_ACTION = 0x80000007
EV_EFI_PLATFORM_FIRMWARE_BLOB = 0x80000008
EV_EFI_VARIABLE_BOOT2 = 0x8000000C
EV_EFI_VARIABLE_AUTHORITY = 0x800000E0

SECTIONS = (
    ".linux",
    ".osrel",
    ".cmdline",
    ".initrd",
    ".ucode",
    ".splash",
    ".dtb",
    ".uname",
    ".sbat",
    ".pcrpkey",
    ".profile",
    ".dtbauto",
    ".hwids",
    ".efifw",
)
"""Sections of a unified kernel image in the order in which systemd-stub measures them (UAPI.5; systemd-stub(7))."""

TAG_LOAD_OPTIONS = 0x8F3B22ED
TAG_INITRD = 0x8F3B22EC

SHORT_VALUE = 16
"""Values of variables up to this many bytes are shown; of longer values only the size."""

_NAMES = {
    0x00000000: "EV_PREBOOT_CERT",
    0x00000001: "EV_POST_CODE",
    0x00000002: "EV_UNUSED",
    EV_SEPARATOR: "EV_SEPARATOR",
    EV_ACTION: "EV_ACTION",
    EV_EVENT_TAG: "EV_EVENT_TAG",
    0x00000007: "EV_S_CRTM_CONTENTS",
    EV_S_CRTM_VERSION: "EV_S_CRTM_VERSION",
    0x00000009: "EV_CPU_MICROCODE",
    EV_PLATFORM_CONFIG_FLAGS: "EV_PLATFORM_CONFIG_FLAGS",
    0x0000000B: "EV_TABLE_OF_DEVICES",
    0x0000000C: "EV_COMPACT_HASH",
    EV_IPL: "EV_IPL",
    0x0000000E: "EV_IPL_PARTITION_DATA",
    0x0000000F: "EV_NONHOST_CODE",
    0x00000010: "EV_NONHOST_CONFIG",
    0x00000011: "EV_NONHOST_INFO",
    0x00000012: "EV_OMIT_BOOT_DEVICE_EVENTS",
    0x00000013: "EV_POST_CODE2",
    EV_EFI_VARIABLE_DRIVER_CONFIG: "EV_EFI_VARIABLE_DRIVER_CONFIG",
    EV_EFI_VARIABLE_BOOT: "EV_EFI_VARIABLE_BOOT",
    EV_EFI_BOOT_SERVICES_APPLICATION: "EV_EFI_BOOT_SERVICES_APPLICATION",
    EV_EFI_BOOT_SERVICES_DRIVER: "EV_EFI_BOOT_SERVICES_DRIVER",
    0x80000005: "EV_EFI_RUNTIME_SERVICES_DRIVER",
    EV_EFI_GPT_EVENT: "EV_EFI_GPT_EVENT",
    EV_EFI_ACTION: "EV_EFI_ACTION",
    EV_EFI_PLATFORM_FIRMWARE_BLOB: "EV_EFI_PLATFORM_FIRMWARE_BLOB",
    0x80000009: "EV_EFI_HANDOFF_TABLES",
    0x8000000A: "EV_EFI_PLATFORM_FIRMWARE_BLOB2",
    0x8000000B: "EV_EFI_HANDOFF_TABLES2",
    EV_EFI_VARIABLE_BOOT2: "EV_EFI_VARIABLE_BOOT2",
    0x8000000D: "EV_EFI_GPT_EVENT2",
    0x80000010: "EV_EFI_HCRTM_EVENT",
    EV_EFI_VARIABLE_AUTHORITY: "EV_EFI_VARIABLE_AUTHORITY",
    0x800000E1: "EV_EFI_SPDM_FIRMWARE_BLOB",
    0x800000E2: "EV_EFI_SPDM_FIRMWARE_CONFIG",
}

GLOBAL_VARIABLE = bytes.fromhex("61dfe48bca93d211aa0d00e098032b8c")
"""EFI_GLOBAL_VARIABLE, the vendor of SecureBoot, PK and KEK (UEFI 2.10, 3.3)."""

SHIM_LOCK = bytes.fromhex("50ab5d6046e00043abb63dd810dd8b23")
"""The vendor of shim's variables (SbatLevel, MokListRT)."""

KEY_DATABASES = ("PK", "KEK", "db", "dbx")
"""Secure Boot's variables that are lists of keys and hashes (UEFI 2.10, 32.3)."""

SBAT_LEVEL = "SbatLevel"
"""Shim's variable with the revoked generations of programs, as text."""

_GUID_BYTES = 16
_VARIABLE_HEAD = _GUID_BYTES + 8 + 8
_IMAGE_HEAD = 32
_BLOB_BYTES = 16
_GPT_HEADER = 92
_GPT_HEAD = _GPT_HEADER + 8
_GPT_NAME_AT = 56
_GPT_MIN_ENTRY = 128
_MEDIA_FILE_PATH = (4, 4)
_NODE_HEAD = 4
_MAX_SECTION_NAME = 8


class EfiVariable(NamedTuple):
    """UEFI_VARIABLE_DATA: name, value, and the vendor's GUID as stored (little-endian fields)."""

    name: str
    value: bytes
    vendor: bytes


def name(kind: int) -> str:
    """Return the specification's name of an event type, or its number."""
    return _NAMES.get(kind, f"event type {kind:#010x}")


def utf16(data: bytes) -> str:
    """Return UTF-16 text without its terminator."""
    return data.decode("utf-16-le", errors="replace").rstrip("\x00")


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def efi_variable(data: bytes) -> EfiVariable | None:
    """Return the variable in UEFI_VARIABLE_DATA (GUID, two lengths, name, value)."""
    name_bytes, value_bytes = 2 * _number(data, _GUID_BYTES, 8), _number(data, _GUID_BYTES + 8, 8)
    if len(data) != _VARIABLE_HEAD + name_bytes + value_bytes:
        return None
    value_at = _VARIABLE_HEAD + name_bytes
    return EfiVariable(utf16(data[_VARIABLE_HEAD:value_at]), data[value_at:], data[:_GUID_BYTES])


def image_path(data: bytes) -> str:
    """Return the file path in UEFI_IMAGE_LOAD_EVENT's device path, empty if it has none."""
    at = _IMAGE_HEAD
    while at + _NODE_HEAD <= len(data):
        size = _number(data, at + 2, 2)
        if size < _NODE_HEAD:
            return ""
        if (data[at], data[at + 1]) == _MEDIA_FILE_PATH:
            return utf16(data[at + _NODE_HEAD : at + size])
        at += size
    return ""


def firmware_blob(data: bytes) -> str:
    """Return address and length of UEFI_PLATFORM_FIRMWARE_BLOB."""
    if len(data) != _BLOB_BYTES:
        return ""
    return f"{_number(data, 0, 8):#x}, {_number(data, 8, 8)} bytes"


def partition_names(data: bytes) -> tuple[str, ...]:
    """Return the names in UEFI_GPT_DATA (header, number of partitions, entries)."""
    entry_size, count = _number(data, 84, 4), _number(data, _GPT_HEADER, 8)
    if entry_size < _GPT_MIN_ENTRY or len(data) != _GPT_HEAD + entry_size * count:
        return ()
    entries = (data[at : at + entry_size] for at in range(_GPT_HEAD, len(data), entry_size))
    return tuple(utf16(entry[_GPT_NAME_AT:_GPT_MIN_ENTRY]) for entry in entries)


def tag(data: bytes) -> int:
    """Return the number of a TCG_PCClientTaggedEvent."""
    return _number(data, 0, 4)


def section_name(data: bytes) -> str:
    """Return the section that systemd-stub names in UTF-16, empty for any other text."""
    text = utf16(data)
    plain = text.isascii() and text.startswith(".") and text[1:].isalnum()
    return text if plain and len(text) <= _MAX_SECTION_NAME else ""


# Describe events in words, for explanation only: no decision uses the descriptions.
#
# An event's digest does not cover its type and its data. So a text is *proven* only if the text's own hash is the
# digest;
# a label before the text, such as the kind of a command, is not proven. For some events a log holds only a digest (the
# kernel's load options, the sections of a unified kernel image). The machine sends its command line as a hint for them,
# which is shown if its hash is the digest.

# Secure Boot's keys in events: signature lists of PK, KEK, db and dbx, and the key that was used.
#
# Layouts: UEFI Specification 2.10, 32.4.1 (EFI_SIGNATURE_LIST, EFI_SIGNATURE_DATA). For display only: data with another
# layout is described by its size.

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
    return _measured(event, words, index=event.number, kind=name(event.kind))


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
    return _Words(f"{name(event.kind)} ({len(event.data)} bytes)", (event.data,))


def _separator(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words("separator", (event.data,))


def _plain_text(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words(event.data.rstrip(b"\x00").decode(errors="replace"), (event.data,))


def _version(event: FirmwareEvent, _hint: str) -> _Words:
    return _Words(f"firmware version {utf16(event.data)!r}", (event.data,))


def _variable(event: FirmwareEvent, _hint: str) -> _Words:
    variable = efi_variable(event.data)
    if variable is None:
        return _other(event, _hint)
    return _Words(f"EFI variable {variable.name} = {_value(event, variable)}", (event.data,))


def _value(event: FirmwareEvent, variable: EfiVariable) -> str:
    """Return the value for display: keys by name, short values as they are, other values by their size."""
    value = variable.value
    if event.kind == EV_EFI_VARIABLE_DRIVER_CONFIG and variable.name in KEY_DATABASES:
        return described_keys(value)
    if event.kind == EV_EFI_VARIABLE_AUTHORITY and variable.name != SBAT_LEVEL:
        return described_authority(value)
    if variable.name == SBAT_LEVEL and value.isascii():
        return " ".join(value.decode().split())
    return (value.hex() if len(value) <= SHORT_VALUE else f"{len(value)} bytes") or "empty"


def _image(event: FirmwareEvent, _hint: str) -> _Words:
    path = image_path(event.data)
    return _Words(f"EFI program {path}" if path else "EFI program without a file path")


def _blob(event: FirmwareEvent, _hint: str) -> _Words:
    blob = firmware_blob(event.data)
    return _Words(f"firmware volume at {blob}" if blob else "firmware volume")


def _partitions(event: FirmwareEvent, _hint: str) -> _Words:
    names = partition_names(event.data)
    return _Words(f"partition table with {', '.join(names) or 'no partition'}", (event.data,))


def _tagged(event: FirmwareEvent, hint: str) -> _Words:
    kind = tag(event.data)
    if kind == TAG_LOAD_OPTIONS:
        return _command_line(event, hint, *load_options(hint))
    return _Words("initrd" if kind == TAG_INITRD else f"tagged event {kind:#x}")


def _boot_loader(event: FirmwareEvent, hint: str) -> _Words:
    """Describe EV_IPL: a section of a unified kernel image, a command of GRUB, or a file that a loader read."""
    section = section_name(event.data)
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
    where = "section .cmdline" if event.kind == EV_IPL else "load options"
    if event.digests.get(ALG_SHA256) not in {hashlib.sha256(one).digest() for one in hashed}:
        return _Words(f"kernel command line ({where}), text not known")
    return _Words(f"kernel command line ({where}): {hint}", hashed, _RANK_COMMAND_LINE)


def load_options(command_line: str) -> tuple[bytes, bytes]:
    """Return the two forms that the kernel's EFI stub may hash: with a final zero (systemd-stub) and without (GRUB)."""
    plain = command_line.encode("utf-16-le", errors="replace")
    return f"{command_line}\x00".encode("utf-16-le", errors="replace"), plain


_DESCRIBERS: dict[int, Callable[[FirmwareEvent, str], _Words]] = {
    EV_SEPARATOR: _separator,
    EV_ACTION: _plain_text,
    EV_EVENT_TAG: _tagged,
    EV_S_CRTM_VERSION: _version,
    EV_PLATFORM_CONFIG_FLAGS: _plain_text,
    EV_IPL: _boot_loader,
    EV_EFI_VARIABLE_DRIVER_CONFIG: _variable,
    EV_EFI_VARIABLE_BOOT: _variable,
    EV_EFI_BOOT_SERVICES_APPLICATION: _image,
    EV_EFI_BOOT_SERVICES_DRIVER: _image,
    EV_EFI_GPT_EVENT: _partitions,
    EV_EFI_ACTION: _plain_text,
    EV_EFI_PLATFORM_FIRMWARE_BLOB: _blob,
    EV_EFI_VARIABLE_BOOT2: _variable,
    EV_EFI_VARIABLE_AUTHORITY: _variable,
}
