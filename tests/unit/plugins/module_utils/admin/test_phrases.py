# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phrases against the published vectors of SLIP-39 (its passphrase is TREZOR), and what is wrong with a typed one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares import (
    combine_phrases,
    read_phrase,
    split_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

PASSPHRASE = SecretBytes(b"TREZOR")
NONE = SecretBytes(b"")
VECTORS = json.loads((Path(__file__).parents[4] / "vectors/slip39/phrases.json").read_text(encoding="utf-8"))


def _vector(number: int) -> tuple[str, ...]:
    return tuple(VECTORS[str(number)])


ONE_OF_ONE = _vector(1)
WRONG_CHECKSUM = _vector(2)
WRONG_PADDING = _vector(3)
SHORT = _vector(4)
OTHER_IDS = _vector(6)
OTHER_EXPONENTS = _vector(7)
SAME_INDEX = _vector(11)
OTHER_THRESHOLDS = _vector(12)
WRONG_DIGEST = _vector(13)
SEVERAL_GROUPS = _vector(14)
LONG = _vector(23)


def read(phrases: tuple[str, ...]) -> list:
    return [read_phrase(f"paper {place}", phrase.split()) for place, phrase in enumerate(phrases, start=1)]


@pytest.mark.parametrize(
    ("phrases", "secret"),
    [
        pytest.param(SHORT, "b43ceb7e57a0ea8766221624d01b0864", id="vector 4: two of three, 128 bits"),
        pytest.param(SHORT[::-1], "b43ceb7e57a0ea8766221624d01b0864", id="in another order"),
        pytest.param(
            LONG,
            "c938b319067687e990e05e0da0ecce1278f75ff58d9853f19dcaeed5de104aae",
            id="vector 23: two of three, 256 bits",
        ),
    ],
)
def test_published_shares_give_their_published_secret(phrases: tuple[str, ...], secret: str) -> None:
    assert combine_phrases(read(phrases), PASSPHRASE).reveal().hex() == secret


@pytest.mark.parametrize(
    ("phrases", "code"),
    [
        pytest.param(WRONG_CHECKSUM, "SHARE_WORDS_WRONG: belong together", id="vector 2: a wrong checksum"),
        pytest.param(WRONG_PADDING, "SHARE_MALFORMED", id="vector 3: wrong padding"),
        pytest.param(SHORT[:1], "SHARES_TOO_FEW", id="vector 5: one of two"),
        pytest.param((), "SHARES_TOO_FEW", id="none at all"),
        pytest.param(OTHER_IDS, "SHARES_UNLIKE: one split", id="vector 6: other identifiers"),
        pytest.param(OTHER_EXPONENTS, "SHARES_UNLIKE: one split", id="vector 7: other iteration exponents"),
        pytest.param(SAME_INDEX, "SHARES_UNLIKE: different shares", id="vector 11: one index twice"),
        pytest.param(OTHER_THRESHOLDS, "SHARE_MALFORMED", id="vector 12: other thresholds, one of them 1"),
        pytest.param(WRONG_DIGEST, "SHARES_UNLIKE: one split", id="vector 13: a wrong digest"),
        pytest.param(ONE_OF_ONE, "SHARE_MALFORMED", id="vector 1: one of one, which is no split"),
        pytest.param(SEVERAL_GROUPS, "SHARE_MALFORMED", id="vector 14: a share of several groups"),
        pytest.param(("academic",), "SHARE_MALFORMED", id="too short to be one"),
        pytest.param((" ".join(["academic"] * 201),), "SHARE_MALFORMED", id="too long to be read"),
    ],
)
def test_published_mistakes_have_their_codes(phrases: tuple[str, ...], code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        combine_phrases(read(phrases), PASSPHRASE)
    assert Coded(caught.value) == code


@pytest.mark.parametrize("place", [1, 2, 3, 17, 31, 32, 33])
def test_one_wrong_word_is_named_by_share_and_place(place: int) -> None:
    words = LONG[0].split()
    words[place - 1] = "zero"
    with pytest.raises(AttestedError) as caught:
        read_phrase("the blue envelope", words)
    assert Coded(caught.value) == "SHARE_WORDS_WRONG: belong together"
    assert f"in the blue envelope: word {place} is the likeliest mistake" in caught.value.message


def test_two_exchanged_words_are_not_blamed_on_one() -> None:
    words = LONG[0].split()
    words[10], words[11] = words[11], words[10]
    with pytest.raises(AttestedError, match="more than one word is wrong"):
        read_phrase("paper", words)


def test_words_that_are_not_in_the_list_are_named_by_place_and_not_shown() -> None:
    words = LONG[0].split()
    words[4], words[20] = "kubernetes", "ansible"
    with pytest.raises(AttestedError) as caught:
        read_phrase("paper", words)
    assert Coded(caught.value) == "SHARE_WORDS_WRONG: words of the list"
    assert "word 5, 21 is not" in caught.value.message
    assert "kubernetes" not in str(caught.value)


def test_no_error_shows_a_word() -> None:
    """The library's own texts quote the share; ours must not carry them, nor their cause."""
    for phrases in (WRONG_CHECKSUM, WRONG_PADDING, WRONG_DIGEST, OTHER_THRESHOLDS, SAME_INDEX):
        with pytest.raises(AttestedError) as caught:
            combine_phrases(read(phrases), PASSPHRASE)
        assert not set(" ".join(phrases).split()) & set(str(caught.value).replace(",", " ").split()) - {"length"}
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_large_and_small_letters_are_one() -> None:
    assert combine_phrases(read(tuple(one.upper() for one in SHORT)), PASSPHRASE) == combine_phrases(
        read(SHORT), PASSPHRASE
    )


def test_a_share_that_asks_for_hours_of_work_is_refused() -> None:
    from shamir_mnemonic import Share  # noqa: PLC0415  # the one test that builds a share by hand

    slow = Share(1, True, 15, 0, 1, 1, 0, 2, bytes(32))
    with pytest.raises(AttestedError) as caught:
        read_phrase("paper", slow.words())
    assert caught.value.code == "SHARE_MALFORMED"


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (1, 3), (4, 3), (3, 17), (0, 0), (-1, 5)])
def test_a_split_that_protects_nothing_or_cannot_be_is_refused(threshold: int, count: int) -> None:
    with pytest.raises(AttestedError) as caught:
        split_secret(SecretBytes(bytes(32)), threshold=threshold, count=count, passphrase=NONE, random=SystemRandom())
    assert caught.value.code == "OPTION_INVALID"


def test_a_surplus_share_of_another_secret_with_the_same_number_is_found() -> None:
    """The 15 bits that name a split can be the same by chance; the polynomial is not."""

    class Fixed:
        def token(self, size: int) -> bytes:
            return b"\1" * size

    one, other = (
        read(split_secret(SecretBytes(bytes([fill]) * 32), threshold=2, count=3, passphrase=NONE, random=Fixed()))
        for fill in (1, 2)
    )
    assert one[0].split == other[0].split
    assert combine_phrases(one, NONE).reveal() == b"\1" * 32
    for mixed in ([one[0], one[1], other[2]], [one[0], other[1]]):
        with pytest.raises(AttestedError) as caught:
            combine_phrases(mixed, NONE)
        assert Coded(caught.value) == "SHARES_UNLIKE: one split"
