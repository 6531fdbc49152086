# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sealing box opens for one secret, one exchange and one key only."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import (
    OneTimeKey,
    open_sealed,
    seal,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

SECRET = b"s" * 32
BINDING = b"b" * 32
# A box recorded on another day: OneTimeKey.restore(bytes(range(32))), SECRET and BINDING as above.
RECORDED_KEY = bytes(range(32))
RECORDED_BOX = bytes.fromhex(
    "0801120c1975b41958c550a46a7afd4d1a512c947c2e8249100e50e2507057f1ca7236690258338e70e268e28f1fbde5d9b7"
    "db420e58749931f660b975f6e7564f0068300f7e09858c8e424cbd9e7a9d8597edc4068034f78d91bbc5f7c30231e36cbf"
)


class FixedRandom:
    def token(self, size: int) -> bytes:
        return b"\x07" * size


@pytest.fixture
def key() -> OneTimeKey:
    return OneTimeKey.generate()


def sealed_to(key: OneTimeKey, plaintext: bytes = b"disk key") -> bytes:
    return seal(plaintext, secret=SECRET, binding=BINDING, recipient=key.public)


def refusal_of(box: bytes, key: OneTimeKey, *, secret: bytes = SECRET, binding: bytes = BINDING) -> str:
    with pytest.raises(Refusal) as caught:
        open_sealed(box, secret=secret, binding=binding, one_time_key=key)
    return Coded(caught.value)


def test_a_box_opens_for_whom_it_is(key: OneTimeKey) -> None:
    assert open_sealed(sealed_to(key), secret=SECRET, binding=BINDING, one_time_key=key) == b"disk key"


def test_a_recorded_box_opens_with_what_it_was_made_for() -> None:
    """The stored format does not change by accident."""
    key = OneTimeKey.restore(RECORDED_KEY)
    assert open_sealed(RECORDED_BOX, secret=SECRET, binding=BINDING, one_time_key=key) == b"a recorded ticket"


def test_recorded_ticket_opened_on_another_machine() -> None:
    """Another machine activates no credential of this one, so it has another secret."""
    key = OneTimeKey.restore(RECORDED_KEY)
    assert refusal_of(RECORDED_BOX, key, secret=b"t" * 32) == "SEAL_UNOPENABLE"


def test_recorded_ticket_opened_on_the_right_machine_after_another_boot() -> None:
    """The machine can activate the credential again, but its one-time key went with the boot."""
    assert refusal_of(RECORDED_BOX, OneTimeKey.generate()) == "SEAL_UNOPENABLE"


def test_recorded_ticket_opened_for_another_exchange() -> None:
    key = OneTimeKey.restore(RECORDED_KEY)
    assert refusal_of(RECORDED_BOX, key, binding=b"c" * 32) == "SEAL_UNOPENABLE"


def test_the_inner_layer_alone_refuses_another_key(key: OneTimeKey) -> None:
    """Who knows the secret and the exchange still needs the key that the quote named."""
    assert refusal_of(sealed_to(key), OneTimeKey.generate()) == "SEAL_UNOPENABLE"


@pytest.mark.parametrize("position", range(len(RECORDED_BOX)))
def test_a_box_with_one_flipped_bit_is_refused(position: int) -> None:
    changed = bytearray(RECORDED_BOX)
    changed[position] ^= 1
    assert refusal_of(bytes(changed), OneTimeKey.restore(RECORDED_KEY)) in {
        "MESSAGE_MALFORMED",
        "SEAL_UNOPENABLE",
        "PROTOCOL_VERSION",
    }


@pytest.mark.parametrize("version", [0, 2])
def test_a_box_of_an_unknown_version_is_refused_by_name(version: int, key: OneTimeKey) -> None:
    box = message_class("attested.v1.SealedBox").FromString(sealed_to(key))
    box.version = version
    with pytest.raises(Refusal, match=f"expected a sealed box of version 1, got version {version}") as caught:
        open_sealed(box.SerializeToString(), secret=SECRET, binding=BINDING, one_time_key=key)
    assert Coded(caught.value) == "PROTOCOL_VERSION: a sealed box of version"


@pytest.mark.parametrize(
    ("nonce", "ciphertext"),
    [
        pytest.param(b"", b"x" * 80, id="no nonce"),
        pytest.param(b"n" * 12, b"", id="no ciphertext"),
        pytest.param(b"n" * 400, b"x" * 80, id="a nonce that is far too long"),
    ],
)
def test_a_hollow_box_is_refused(nonce: bytes, ciphertext: bytes, key: OneTimeKey) -> None:
    box = message_class("attested.v1.SealedBox")(version=1, nonce=nonce, ciphertext=ciphertext)
    assert refusal_of(box.SerializeToString(), key) == "SEAL_UNOPENABLE"


def test_an_oversized_box_is_refused_before_it_is_parsed(key: OneTimeKey) -> None:
    assert refusal_of(b"\x00" * ((1 << 20) + 1), key) == "MESSAGE_TOO_LARGE"


@pytest.mark.parametrize(
    "recipient",
    [
        pytest.param(bytes(32), id="a point of low order, with which everybody shares one secret"),
        pytest.param(b"", id="no key"),
        pytest.param(b"k" * 31, id="a key that is one byte short"),
    ],
)
def test_nothing_is_sealed_to_a_bad_key(recipient: bytes) -> None:
    with pytest.raises(Refusal, match="expected an X25519 public key") as caught:
        seal(b"x", secret=SECRET, binding=BINDING, recipient=recipient)
    assert caught.value.code == "BINDING_MALFORMED"


def test_two_boxes_of_one_secret_differ(key: OneTimeKey) -> None:
    assert sealed_to(key) != sealed_to(key)


def test_the_nonce_comes_from_the_source_that_is_passed_in(key: OneTimeKey) -> None:
    box = seal(b"x", secret=SECRET, binding=BINDING, recipient=key.public, random=FixedRandom())
    assert message_class("attested.v1.SealedBox").FromString(box).nonce == b"\x07" * 12


def test_a_key_shows_only_its_public_half() -> None:
    key = OneTimeKey.restore(RECORDED_KEY)
    assert repr(key) == f"OneTimeKey(public={key.public.hex()})"
    assert RECORDED_KEY.hex() not in repr(key)


def test_a_key_that_went_through_tmpfs_still_opens(key: OneTimeKey) -> None:
    again = OneTimeKey.restore(key.export())
    assert open_sealed(sealed_to(key), secret=SECRET, binding=BINDING, one_time_key=again) == b"disk key"
