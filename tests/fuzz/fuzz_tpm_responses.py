# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a TPM answers, as a stream of frames: the first byte says what it was asked."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import constants as c
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Tpm
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import LoadedKey
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import (
    load_attestation_key,
    load_endorsement_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.storage import NvCounter
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import (
    PcrSelection,
    Public,
    marshal_selections,
    sized,
    u8,
    u16,
    u32,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.transport import _read_response
from ansible_collections.attested.kubernetes.tests.support.tpm import (
    CountingRandom,
    SteppingClock,
    public_area,
    response,
    vector,
)

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import Quote

CERTIFICATE = 0x01C00002
EK = Public.parse(public_area("ek"))
AK = Public.parse(public_area("ak-ecc"))
KEY = LoadedKey(handle=0x81010002, public=AK, name=AK.name())


class Stream:
    """A TPM at the end of a line that brings these bytes."""

    managed = False

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def transact(self, command: bytes, *, timeout_seconds: float) -> bytes:
        del command, timeout_seconds
        return _read_response(self._stream.read, "the stream")

    def close(self) -> None:
        """Nothing is open."""


def _quoted(tpm: Tpm) -> Quote:
    return tpm.quote(KEY, b"nonce", (0, 15))


CALLS = (
    lambda tpm: tpm.pcr_read(range(8)),
    lambda tpm: tpm.pcr_event(15, b"x"),
    lambda tpm: tpm.handles(0x81000000),
    lambda tpm: tpm.properties(),
    lambda tpm: tpm.nv_read(CERTIFICATE),
    lambda tpm: tpm.read_public(0x81010001),
    _quoted,
    load_endorsement_key,
    load_attestation_key,
    lambda tpm: NvCounter(tpm).read(),
)


def _authorised(parameters: bytes) -> bytes:
    return response(0, u32(len(parameters)) + parameters + sized(b"") + u8(1) + sized(b""), tag=0x8002)


def _handles(*handles: int) -> bytes:
    return response(0, u8(0) + u32(1) + u32(len(handles)) + b"".join(map(u32, handles)))


def _property(tag: int, value: int) -> bytes:
    return response(0, u8(0) + u32(6) + u32(1) + u32(tag) + u32(value))


def _named(public: Public) -> bytes:
    names = sized(public.name()) + sized(public.qualified_name(c.RH_ENDORSEMENT))
    return response(0, sized(public.marshal()) + names)


def _stored(content: bytes) -> bytes:
    public = u32(CERTIFICATE) + u16(0x000B) + u32(0x62070001) + sized(b"") + u16(len(content))
    return response(0, sized(public) + sized(b"")) + _property(0x12C, 1024) + _authorised(sized(content))


def seeds() -> list[bytes]:
    registers = marshal_selections([PcrSelection.of(range(8))]) + u32(8) + sized(bytes(32)) * 8
    certificate = b"\x30\x82\x01\x00" + bytes(EK.unique)
    quote = sized(vector("quote-ak-ecc.tpms_attest")) + vector("quote-ak-ecc.tpmt_signature")
    return [
        b"\0" + response(0, u32(7) + registers),
        b"\1" + _authorised(u32(1) + u16(0x000B) + bytes(32)),
        b"\2" + _handles(0x81000001, 0x81010001),
        b"\3" + _property(0x105, 0x49424D00) + _property(0x200, 0) + response(0, u8(0) + u32(5) + registers[:10]),
        b"\4" + _stored(b"12345"),
        b"\5" + _named(EK),
        b"\6" + _authorised(quote),
        b"\7" + _handles(CERTIFICATE) + _handles(c.PERSISTENT_EK_RSA) + _named(EK) + _stored(certificate),
        b"\x08" + _handles(c.PERSISTENT_AK) + _named(AK),
        b"\x09" + response(0x18B),
    ]


def one_input(data: bytes) -> None:
    if data:
        tpm = Tpm(Stream(data[1:]), random=CountingRandom(), clock=SteppingClock(), timeout_seconds=1)
        CALLS[data[0] % len(CALLS)](tpm)
        tpm.close()
