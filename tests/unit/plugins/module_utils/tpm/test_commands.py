# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""commands.py and sessions.py: frames, and responses that are not what the TPM sent."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm import constants as c
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.commands import (
    Command,
    Entity,
    Password,
    ResponseError,
    Session,
    cfb_decrypt,
    cfb_encrypt,
    decode,
    encode,
    kdf_a,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Reader, sized, u8, u32
from ansible_collections.attested.kubernetes.tests.support.tpm import CountingRandom, response

KEY, TPM_NONCE, NEW_NONCE = b"k" * 32, b"t" * 32, b"T" * 32
OUR_NONCE = CountingRandom().token(32)
UNSEAL = 0x15E
TARGET = Entity(0x80000001, b"\x00\x0b" + b"n" * 32)


def _session() -> Session:
    return Session(handle=0x03000000, key=KEY, nonce_caller=b"", nonce_tpm=TPM_NONCE, random=CountingRandom())


def _command(parameters: bytes = b"") -> Command:
    return Command(code=UNSEAL, handles=(TARGET,), parameters=parameters, auths=(_session(),))


def _answer(parameters: bytes, *, key: bytes = KEY, code: int = UNSEAL, attributes: int = 0x41) -> bytes:
    """What a TPM that knows ``key`` answers: encrypted, then authenticated."""
    stream = kdf_a(key, b"CFB", context=NEW_NONCE + OUR_NONCE, size=32)
    body = sized(cfb_encrypt(stream[:16], stream[16:], parameters))
    rp_hash = hashlib.sha256(u32(0) + u32(code) + body).digest()
    tag = hmac.digest(key, rp_hash + NEW_NONCE + OUR_NONCE + u8(attributes), "sha256")
    return response(0, u32(len(body)) + body + sized(NEW_NONCE) + u8(attributes) + sized(tag), tag=0x8002)


def test_a_command_without_sessions_is_header_handles_and_parameters() -> None:
    frame = encode(Command(code=c.CC_READ_PUBLIC, handles=(TARGET,), parameters=b"xy"))
    assert frame.hex() == "8001" + "00000010" + "00000173" + "80000001" + "7879"


def test_a_password_is_empty_and_stands_between_handles_and_parameters() -> None:
    frame = encode(Command(code=c.CC_QUOTE, handles=(TARGET,), parameters=b"xy", auths=(Password(),)))
    assert frame.hex() == "8002" + "0000001d" + "00000158" + "80000001" + "00000009" + "400000090000010000" + "7879"


def test_the_first_parameter_is_encrypted_and_the_rest_stays() -> None:
    frame = encode(_command(sized(b"secret") + b"template"))
    stream = kdf_a(KEY, b"CFB", context=OUR_NONCE + TPM_NONCE, size=32)
    reader = Reader(frame[-16:], "parameters")
    assert cfb_decrypt(stream[:16], stream[16:], reader.sized(6)) == b"secret"
    assert reader.rest() == b"template"


@pytest.mark.parametrize(
    ("parameters", "attributes"),
    [
        pytest.param(sized(b"x"), 0x61, id="both directions where there is something to encrypt"),
        pytest.param(b"", 0x41, id="the response alone for a command without parameters"),
    ],
)
def test_the_session_encrypts(parameters: bytes, attributes: int) -> None:
    area = Reader(encode(_command(parameters))[18:], "area")
    assert (area.u32(), area.sized(32), area.u8(), len(area.sized(32))) == (0x03000000, OUR_NONCE, attributes, 32)


def test_an_authentic_response_is_decrypted() -> None:
    command = _command()
    encode(command)
    assert decode(command, _answer(b"the secret")).parameters.sized(64) == b"the secret"


GOOD = _answer(b"the secret")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_answer(b"the secret", key=b"K" * 32), id="by somebody without the salt"),
        pytest.param(_answer(b"the secret", code=c.CC_CREATE), id="to another command"),
        pytest.param(GOOD[:16] + bytes([GOOD[16] ^ 1]) + GOOD[17:], id="with one bit of the secret changed"),
        pytest.param(GOOD[:-1] + bytes([GOOD[-1] ^ 1]), id="with one bit of the HMAC changed"),
        pytest.param(GOOD.replace(b"\x41\x00\x20", b"\x01\x00\x20"), id="with the encrypt attribute taken away"),
        pytest.param(response(0, GOOD[10:-34] + sized(b""), tag=0x8002), id="without the HMAC"),
        pytest.param(response(0, sized(b"the secret")), id="without sessions"),
    ],
)
def test_a_response_is_refused_that_was_made(answer: bytes) -> None:
    command = _command()
    encode(command)
    assert answer != GOOD
    with pytest.raises(TpmError) as caught:
        decode(command, answer)
    assert caught.value.reason is Reason.TPM_RESPONSE_FORGED


def test_a_recorded_response_does_not_serve_twice() -> None:
    session = _session()
    command = Command(code=UNSEAL, handles=(TARGET,), auths=(session,))
    encode(command)
    decode(command, GOOD)
    session._random = type("Next", (), {"token": lambda _unused, size: b"\xff" * size})()
    encode(command)
    with pytest.raises(TpmError) as caught:
        decode(command, GOOD)
    assert caught.value.reason is Reason.TPM_RESPONSE_FORGED


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(response(0, b"", tag=0x8002), "without sessions", id="sessions where there are none"),
        pytest.param(response(0, b"")[:-1] + b"\0\0", "bytes in the response", id="a wrong size"),
        pytest.param(b"\x80\x01", "more bytes", id="no header"),
    ],
)
def test_a_response_that_is_none_is_refused(answer: bytes, text: str) -> None:
    with pytest.raises(TpmError, match=text) as caught:
        decode(Command(code=c.CC_PCR_READ), answer)
    assert caught.value.reason is Reason.TPM_MALFORMED


def test_an_error_of_the_tpm_names_the_command() -> None:
    with pytest.raises(ResponseError, match="success of TPM2_PCR_READ, got TPM_RC_VALUE") as caught:
        decode(Command(code=c.CC_PCR_READ), response(0x1C4))
    assert caught.value.code_number == 0x1C4


def test_a_command_longer_than_a_tpm_takes_is_not_sent() -> None:
    with pytest.raises(TpmError, match="at most 4096 bytes"):
        encode(Command(code=c.CC_PCR_EVENT, parameters=bytes(5000)))
