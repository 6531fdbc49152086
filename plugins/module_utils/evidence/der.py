# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A strict reader of the DER (X.690) elements that `cryptography` does not expose; definite lengths only."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Refusal
from ..reasons import Reason

SEQUENCE, INTEGER, BIT_STRING, OCTET_STRING, OBJECT_ID, IA5_STRING = 0x30, 0x02, 0x03, 0x04, 0x06, 0x16
VERSION = 0xA0

_LONG, _MAX_OCTETS, _MULTI_BYTE = 0x80, 3, 0x1F


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element: its tag byte, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self) -> tuple[Element, ...]:
        """Return the elements that the content is made of; raises `Refusal` EVIDENCE_MALFORMED."""
        return elements(self.content)


def elements(data: bytes) -> tuple[Element, ...]:
    """Return the elements that follow each other in ``data``; raises `Refusal` EVIDENCE_MALFORMED."""
    found = []
    while data:
        found.append(_first(data))
        data = data[len(found[-1].encoded) :]
    return tuple(found)


def only(data: bytes, tag: int) -> Element:
    """Return the only element of ``data``, which must have this ``tag``; raises `Refusal` EVIDENCE_MALFORMED."""
    found = elements(data)
    if len(found) != 1 or found[0].tag != tag:
        raise _malformed(f"one element {tag:#04x}", f"{[one.tag for one in found[:4]]}")
    return found[0]


def integer(element: Element) -> int:
    """Return a non-negative INTEGER; raises `Refusal` EVIDENCE_MALFORMED."""
    content = element.content
    minimal = bool(content) and not (len(content) > 1 and content[0] == 0 and content[1] < _LONG)
    if element.tag != INTEGER or not minimal or content[0] >= _LONG:
        raise _malformed("a non-negative integer", content[:16].hex())
    return int.from_bytes(content, "big")


def _first(data: bytes) -> Element:
    if len(data) < 2 or data[0] & _MULTI_BYTE == _MULTI_BYTE:  # noqa: PLR2004 - a tag and a length byte
        raise _malformed("a tag and a length", data[:2].hex())
    start, length = 2, data[1]
    if length >= _LONG:
        octets = length - _LONG
        start, length = 2 + octets, int.from_bytes(data[2 : 2 + octets], "big")
        if not 1 <= octets <= _MAX_OCTETS or length < max(_LONG, 1 << 8 * (octets - 1)):
            raise _malformed("a definite, shortest length", data[:5].hex())
    if len(data) < start + length:
        raise _malformed(f"{length} bytes", f"{max(0, len(data) - start)}")
    return Element(tag=data[0], content=data[start : start + length], encoded=data[: start + length])


def _malformed(expected: str, got: str) -> Refusal:
    return Refusal(f"expected {expected} in DER, got {got or 'nothing'}", reason=Reason.EVIDENCE_MALFORMED)
