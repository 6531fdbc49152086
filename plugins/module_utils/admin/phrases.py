# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One secret as Shamir shares in words (SLIP-39, one group).

The library `shamir-mnemonic` does the arithmetic. This file adds what the library does not report: which word of which
share is wrong, and which of several shares does not belong to the others. It also refuses some shares that SLIP-39
allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from .._deps.slip39 import slip39, slip39_checksum, slip39_words
from ..errors import KeyServiceError
from ..keyservice.master import SecretBytes
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Random

MAX_SHARES = 16
MIN_THRESHOLD = 2

_WORD_BITS = 10
_CHECK_WORDS = 3
_MIN_WORDS = 20
_MAX_WORDS = 200
_SPLIT_BITS = 15
# PBKDF2 runs 10000 << exponent times: the least without a passphrase, 320000 times with one
_EXPONENT_PLAIN = 0
_EXPONENT_PASSPHRASE = 5
_MAX_EXPONENT = 8
_CUSTOM = (b"shamir_extendable", b"shamir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """The words of one share with a valid checksum; ``name`` says where they came from.

    ``split`` identifies one split of a secret; ``place`` counts from 1, ``threshold`` is the number of shares that are
    needed.
    """

    name: str
    split: int
    place: int
    threshold: int
    words: str = field(repr=False)


def split_secret(
    secret: SecretBytes, *, threshold: int, count: int, passphrase: SecretBytes, random: Random
) -> tuple[str, ...]:
    """Return ``count`` phrases of which any ``threshold`` rebuild ``secret``; raises OPTION_INVALID.

    The library draws the polynomial's coefficients from the system's random generator itself.
    """
    require_counts(threshold, count)
    library = slip39()
    encrypted = library.EncryptedMasterSecret.from_master_secret(
        secret.reveal(),
        passphrase.reveal(),
        int.from_bytes(random.token(2), "big") >> (16 - _SPLIT_BITS),
        True,  # noqa: FBT003  # the library's own default: "extendable"
        _EXPONENT_PASSPHRASE if len(passphrase) else _EXPONENT_PLAIN,
    )
    ((*shares,),) = library.split_ems(1, [(threshold, count)], encrypted)
    return tuple(str(share.mnemonic()) for share in shares)


def require_counts(threshold: int, count: int) -> None:
    """Raise OPTION_INVALID unless ``count`` shares with this ``threshold`` are allowed."""
    if not MIN_THRESHOLD <= threshold <= count <= MAX_SHARES:
        raise KeyServiceError(
            f"expected {MIN_THRESHOLD} <= needed <= made <= {MAX_SHARES} shares, got {threshold} and {count}",
            reason=Reason.OPTION_INVALID,
        )


def read_phrase(name: str, words: Sequence[str]) -> Phrase:
    """Return the share of ``words``.

    1. Every word is in the list (SHARE_WORDS_WRONG). 2. Their number is possible for a share (SHARE_MALFORMED).
    3. The checksum matches (SHARE_WORDS_WRONG). 4. It is a share of one group of which several are needed, and its
    iteration exponent is not too large (SHARE_MALFORMED).
    """
    library = slip39()
    lowered = [word.lower() for word in words]
    _require_words(name, lowered)  # 1
    if not _MIN_WORDS <= len(lowered) <= _MAX_WORDS:  # 2
        raise _malformed(name, f"{_MIN_WORDS} to {_MAX_WORDS} words, got {len(lowered)}")
    _require_checksum(name, lowered)  # 3
    phrase = " ".join(lowered)
    try:
        share = library.Share.from_mnemonic(phrase)
    except library.MnemonicError:
        raise _malformed(name, "words that are a share of SLIP-39") from None  # the cause quotes words
    one_group = (share.group_index, share.group_threshold, share.group_count) == (0, 1, 1)
    if not one_group or share.member_threshold < MIN_THRESHOLD or share.iteration_exponent > _MAX_EXPONENT:  # 4
        raise _malformed(name, "a share of one group of which several are needed")
    return Phrase(
        name=name,
        split=share.identifier << 5 | share.extendable << 4 | share.iteration_exponent,
        place=share.index + 1,
        threshold=share.member_threshold,
        words=phrase,
    )


def combine_phrases(phrases: Sequence[Phrase], passphrase: SecretBytes) -> SecretBytes:
    """Return the secret of ``phrases``; a wrong passphrase gives another secret, which is not detected here.

    All phrases are checked, also those beyond the threshold: a phrase that is not on the others' polynomial is found.
    Raises SHARES_TOO_FEW, SHARES_UNLIKE.
    """
    _require_set(phrases)
    needed = phrases[0].threshold
    last = max(len(phrases) - needed, 0)
    found = [_recover(phrases[start : start + needed]) for start in range(last + 1)]
    if any(one != found[0] for one in found):
        raise _other_split(phrases)
    return SecretBytes(found[0].decrypt(passphrase.reveal()))


def _recover(phrases: Sequence[Phrase]) -> Any:
    library = slip39()
    try:
        return library.recover_ems(library.decode_mnemonics([one.words for one in phrases]))
    except library.MnemonicError:
        raise _other_split(phrases) from None


def _require_set(phrases: Sequence[Phrase]) -> None:
    seen: dict[int, str] = {}
    for phrase in phrases:
        if (phrase.split, phrase.threshold) != (phrases[0].split, phrases[0].threshold):
            raise _other_split((phrases[0], phrase))
        if phrase.place in seen:
            raise KeyServiceError(
                f"expected different shares, {seen[phrase.place]} and {phrase.name} are both share {phrase.place}",
                reason=Reason.SHARES_UNLIKE,
            )
        seen[phrase.place] = phrase.name
    needed = phrases[0].threshold if phrases else MIN_THRESHOLD
    if len(phrases) < needed:
        raise KeyServiceError(f"expected {needed} shares, got {len(phrases)}", reason=Reason.SHARES_TOO_FEW)


def _require_words(name: str, words: Sequence[str]) -> None:
    known = slip39_words().WORD_INDEX_MAP
    unknown = [str(place) for place, word in enumerate(words, start=1) if word not in known]
    if unknown:
        places = ", ".join(unknown[:10])
        raise KeyServiceError(
            f"expected words of the list in {name}, word {places} is not one of them",
            reason=Reason.SHARE_WORDS_WRONG,
        )


def _require_checksum(name: str, words: Sequence[str]) -> None:
    known = slip39_words().WORD_INDEX_MAP
    indices = [known[word] for word in words]
    custom = _CUSTOM[not indices[1] >> 4 & 1]
    if not any(_syndrome(indices, custom)):
        return
    suspects = sorted({place for one in _CUSTOM for place in _mending(indices, one)})
    where = f"word {suspects[0]} is the likeliest mistake" if len(suspects) == 1 else "more than one word is wrong"
    raise KeyServiceError(f"expected words that belong together in {name}: {where}", reason=Reason.SHARE_WORDS_WRONG)


def _mending(words: Sequence[int], custom: bytes) -> list[int]:
    """Return the places (from 1) at which another word would repair the checksum; the word itself is not computed."""
    wrong = _joined(_syndrome(words, custom))
    return [place + 1 for place in range(len(words)) if _is_sum_of(wrong, _errors(len(words), place))]


def _syndrome(words: Sequence[int], custom: bytes) -> tuple[int, ...]:
    """Return the difference of the last words from the checksum of the others: three words, all 0 if they match."""
    right = slip39_checksum().create_checksum(words[:-_CHECK_WORDS], custom)
    return tuple(one ^ other for one, other in zip(right, words[-_CHECK_WORDS:], strict=True))


@cache
def _errors(count: int, place: int) -> tuple[int, ...]:
    """Return the syndrome of each wrong bit of the word at ``place``; the code is linear."""
    nothing = _joined(_syndrome([0] * count, b""))
    bits = ([1 << bit if at == place else 0 for at in range(count)] for bit in range(_WORD_BITS))
    return tuple(_joined(_syndrome(words, b"")) ^ nothing for words in bits)


def _joined(words: Sequence[int]) -> int:
    total = 0
    for word in words:
        total = total << _WORD_BITS | word
    return total


def _is_sum_of(value: int, parts: Sequence[int]) -> bool:
    reduced: list[int] = []
    for part in (*parts, value):
        rest = part
        for one in reduced:
            rest = min(rest, rest ^ one)
        reduced.append(rest)
    return reduced[-1] == 0


def _other_split(phrases: Sequence[Phrase]) -> KeyServiceError:
    names = ", ".join(one.name for one in phrases)
    return KeyServiceError(f"expected shares of one split, {names} are not", reason=Reason.SHARES_UNLIKE)


def _malformed(name: str, expected: str) -> KeyServiceError:
    return KeyServiceError(f"expected {expected} in {name}", reason=Reason.SHARE_MALFORMED)
