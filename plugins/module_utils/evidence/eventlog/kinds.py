# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event types, and the layouts of event data that are shown to people.

Numbers and layouts: TCG PC Client Platform Firmware Profile 1.05, 10.4; UEFI Specification 2.10, 5.3 and 10.3;
tags of Linux' EFI stub (``include/linux/efi.h``). Data with another layout gives an empty result, never an error.
"""

from __future__ import annotations

from typing import NamedTuple

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
