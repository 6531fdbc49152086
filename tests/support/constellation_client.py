# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's client of a verification service, written from its wire format without our code.

``/verify.API/GetAttestation`` in plain text: request field 2 is the nonce, answer field 1 the document. The document is
JSON; its quote's extra data is SHA-256 of (no instance information, then SHA-256 of user data and nonce).
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import grpc
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

METHOD = "/verify.API/GetAttestation"
USER_DATA = b"VerifyService"
NONCE = bytes(range(32))
_EXTRA_DATA_AT = 4 + 2 + 2 + 34
"""TPMS_ATTEST: magic, type, qualified signer (a SHA-256 name with its length), then the extra data."""


def request_of(nonce: bytes | None) -> bytes:
    """Return the request's bytes; without a nonce the field is absent."""
    return b"" if nonce is None else b"\x12" + _varint(len(nonce)) + nonce


def document_in(answer: bytes) -> bytes:
    """Return the content of field 1, which must be the whole answer."""
    assert answer[0] == 0x0A
    length, shift, at = 0, 0, 1
    while True:
        byte = answer[at]
        length, shift, at = length | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            break
    assert len(answer) == at + length
    return answer[at:]


async def ask(
    endpoint: str, nonce: bytes | None = NONCE, *, method: str = METHOD, request: bytes | None = None
) -> bytes:
    """Return the document; raises `grpc.aio.AioRpcError`."""
    async with grpc.aio.insecure_channel(endpoint, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        call = channel.unary_unary(method)
        return document_in(await call(request_of(nonce) if request is None else request, timeout=60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A document, parsed by Constellation's rules."""

    extra_data: bytes
    digest: bytes
    pcrs: dict[int, bytes]
    user_data: bytes


def read(document: bytes) -> Read:
    """Return the quote of a document, with its signature verified by the key in the document."""
    outer: dict[str, Any] = json.loads(document)
    inner = outer["Attestation"]
    assert (outer["InstanceInfo"], inner["TeeAttestation"], set(inner)) == (
        None, None, {"ak_pub", "quotes", "TeeAttestation"},
    )  # fmt: skip
    (quote,) = inner["quotes"]
    assert quote["pcrs"]["hash"] == 11
    attest, signature = base64.b64decode(quote["quote"]), base64.b64decode(quote["raw_sig"])
    assert attest[:6] == bytes.fromhex("ff5443478018")
    _verify(base64.b64decode(inner["ak_pub"]), attest, signature)
    length = int.from_bytes(attest[_EXTRA_DATA_AT : _EXTRA_DATA_AT + 2], "big")
    return Read(
        extra_data=attest[_EXTRA_DATA_AT + 2 : _EXTRA_DATA_AT + 2 + length],
        digest=attest[-32:],
        pcrs={int(index): base64.b64decode(value) for index, value in quote["pcrs"]["pcrs"].items()},
        user_data=base64.b64decode(outer["UserData"]),
    )


def expected_extra_data(nonce: bytes) -> bytes:
    """Return the extra data that a quote for ``nonce`` must have."""
    return hashlib.sha256(hashlib.sha256(USER_DATA + nonce).digest()).digest()


def extended(value: bytes, cluster_id: bytes) -> bytes:
    """Return register 15 after the event of a cluster's id."""
    return hashlib.sha256(value + hashlib.sha256(cluster_id).digest()).digest()


def _verify(ak: bytes, attest: bytes, signature: bytes) -> None:
    """TPMT_PUBLIC of P-256 ends with both coordinates; TPMT_SIGNATURE of ECDSA has two numbers after 4 bytes."""
    assert (ak[:4], signature[:4]) == (bytes.fromhex("0023000b"), bytes.fromhex("0018000b"))
    y, rest = ak[-32:], ak[:-34]
    x = rest[-32:]
    key = ec.EllipticCurvePublicNumbers(int.from_bytes(x), int.from_bytes(y), ec.SECP256R1()).public_key()
    size = int.from_bytes(signature[4:6])
    r, s = int.from_bytes(signature[6 : 6 + size]), int.from_bytes(signature[8 + size :])
    key.verify(utils.encode_dss_signature(r, s), attest, ec.ECDSA(hashes.SHA256()))


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])
