# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The master secret of a cluster as shares that can be printed, stored in different places and typed in again.

A share is a text: public facts of the cluster, and 62 words. The words of all shares together encode 68 bytes: format
version (1), the first 3 bytes of a hash over the rest, key (32), salt (32). The words alone are enough. The facts
identify the cluster, and are compared with the rebuilt secret.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from .._deps.slip39 import slip39, slip39_checksum, slip39_words
from ..errors import KeyServiceError
from ..keyservice.derive import cluster_id, measurement_secret
from ..keyservice.master import MasterSecret, SecretBytes
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.host import Random


# One secret as Shamir shares in words (SLIP-39, one group).
#
# The library `shamir-mnemonic` does the arithmetic. This file adds what the library does not report: which word of
# which share is wrong, and which of several shares does not belong to the others. It also refuses some shares that
# SLIP-39 allows.

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


FORMAT = "attested-share/v1"
WORDS = 62

_VERSION = 1
_LABEL = b"attested.kubernetes/master-secret/share/"
_CHECK_BYTES = 3
_PART_BYTES = 32
_PAYLOAD_BYTES = 1 + _CHECK_BYTES + 2 * _PART_BYTES
_MAX_SHARE_BYTES = 16384
_WORDS_A_LINE = 4
_WIDEST_WORD = 8
_FACTS = {"cluster-id": 64, "measurement-salt": 64, "master-secret": 32}  # hex digits of each


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """The public facts of a cluster, in hex; "" is not known. ``fingerprint`` identifies the master secret."""

    cluster_id: str = ""
    measurement_salt: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOrder:
    """How to split: any ``threshold`` of ``count`` shares rebuild the secret; an empty ``passphrase`` is none."""

    threshold: int
    count: int
    passphrase: SecretBytes = field(default_factory=lambda: SecretBytes(b""), repr=False)

    @classmethod
    def parse(cls, text: str, passphrase: SecretBytes) -> ShareOrder:
        """Return the order in ``text``, which is k/n, such as 3/5; raises OPTION_INVALID."""
        found = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
        if not found:
            raise KeyServiceError("expected k/n, such as 3/5, got something else", reason=Reason.OPTION_INVALID)
        threshold, count = map(int, found.groups())
        require_counts(threshold, count)
        return cls(threshold=threshold, count=count, passphrase=passphrase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One share; the checksum of its words is valid."""

    phrase: Phrase
    facts: SplitFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A master secret that was rebuilt from shares, and the facts on the shares."""

    master: MasterSecret = field(repr=False)
    facts: SplitFacts


def split_master(master: MasterSecret, *, salt: bytes, order: ShareOrder, random: Random) -> tuple[str, ...]:
    """Return the texts of the shares, share 1 first, after a test that they rebuild the secret; raises OPTION_INVALID.

    ``salt`` is the measurement salt; with b"" (not known) the shares do not name the cluster.
    """
    facts = _facts_of(master, salt)
    phrases = split_secret(
        SecretBytes(_payload(master)),
        threshold=order.threshold,
        count=order.count,
        passphrase=order.passphrase,
        random=random,
    )
    texts = tuple(_render(phrase, facts, order, place=place) for place, phrase in enumerate(phrases, start=1))
    read = [parse_share(f"share {place}", text.encode()) for place, text in enumerate(texts, start=1)]
    if combine_shares(read, order.passphrase).master != master:
        raise KeyServiceError(
            "expected shares of one split, they do not rebuild their secret", reason=Reason.SHARES_UNLIKE
        )
    return texts


def combine_shares(shares: Sequence[Share], passphrase: SecretBytes) -> Rebuilt:
    """Return the master secret that ``shares`` rebuild.

    1. They do not name different clusters (SHARES_UNLIKE). 2. They are enough, different, and of one split
    (SHARES_TOO_FEW, SHARES_UNLIKE). 3. The hash of the rebuilt bytes matches; with a wrong passphrase it does not
    (SHARE_PASSPHRASE). 4. The secret and its cluster are those that the shares name (SHARES_UNLIKE).
    """
    facts = _common_facts(shares)  # 1
    payload = combine_phrases([share.phrase for share in shares], passphrase)  # 2
    master = _master_of(payload.reveal())  # 3
    known = _facts_of(master, bytes.fromhex(facts.measurement_salt))
    wrong = (facts.fingerprint not in {"", known.fingerprint}) or (
        known.cluster_id and facts.cluster_id not in {"", known.cluster_id}
    )
    if wrong:  # 4
        raise KeyServiceError(
            f"expected the cluster's master secret {facts.fingerprint or 'that they name'} from these shares, "
            f"they hold {known.fingerprint}",
            reason=Reason.SHARES_UNLIKE,
        )
    return Rebuilt(
        master=master,
        facts=SplitFacts(
            fingerprint=known.fingerprint,
            cluster_id=known.cluster_id or facts.cluster_id,
            measurement_salt=facts.measurement_salt,
        ),
    )


def shares_of(name: str, data: bytes) -> tuple[Share, ...]:
    """Return the shares of a text, separated by empty lines; raises as `parse_share` does."""
    texts = [one for one in re.split(rb"\n\s*\n", data.replace(b"\r\n", b"\n")) if one.strip()]
    names = [name] if len(texts) == 1 else [f"{name}, share {place}" for place in range(1, len(texts) + 1)]
    return tuple(parse_share(one, text) for one, text in zip(names, texts, strict=True))


def parse_share(name: str, data: bytes) -> Share:
    """Return the share in ``data``, its file or only its words; errors quote ``name``.

    1. It is a short text (SHARE_MALFORMED). 2. Lines with ``#`` are comments; ``name: value`` are known facts, each at
    most once (SHARE_MALFORMED, FILE_VERSION_UNKNOWN). 3. All else is words, with or without numbers, `WORDS` in total
    (SHARE_MALFORMED). 4. The words are valid (`read_phrase`).
    """
    if len(data) > _MAX_SHARE_BYTES:  # 1
        raise _malformed(name, f"at most {_MAX_SHARE_BYTES} bytes")
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise _malformed(name, "only ASCII") from None
    facts: dict[str, str] = {}
    words: list[str] = []
    for line in (one.strip() for one in lines):
        if line.startswith("#"):
            continue
        if ":" in line:  # 2
            _take_fact(name, line, facts)
            continue
        tokens = (token.rstrip(".,)") for token in line.split())
        words += [token for token in tokens if token and not token.isdigit()]
    if len(words) != WORDS:  # 3
        raise _malformed(name, f"{WORDS} words, got {len(words)}")
    return Share(
        phrase=read_phrase(name, words),  # 4
        facts=SplitFacts(
            cluster_id=facts.get("cluster-id", ""),
            measurement_salt=facts.get("measurement-salt", ""),
            fingerprint=facts.get("master-secret", ""),
        ),
    )


def _take_fact(name: str, line: str, facts: dict[str, str]) -> None:
    key, _colon, value = (part.strip().lower() for part in line.partition(":"))
    if key == "format" and value != FORMAT:
        raise KeyServiceError(
            f"expected a share of the format {FORMAT} in {name}, got another", reason=Reason.FILE_VERSION_UNKNOWN
        )
    digits = _FACTS.get(key)
    good = key == "format" or (digits is not None and re.fullmatch(rf"[0-9a-f]{{{digits}}}", value))
    if not good or key in facts:
        known = ", ".join(("format", *_FACTS))
        raise _malformed(name, f"only {known} before a colon, each once, with all its digits")
    facts[key] = value


def _render(phrase: str, facts: SplitFacts, order: ShareOrder, *, place: int) -> str:
    words = phrase.split()
    rows = [words[at : at + _WORDS_A_LINE] for at in range(0, len(words), _WORDS_A_LINE)]
    named = zip(_FACTS, (facts.cluster_id, facts.measurement_salt, facts.fingerprint), strict=True)
    lines = [
        f"# Share {place} of {order.count} of the master secret of an attested.kubernetes cluster.",
        f"# Any {order.threshold} of them rebuild it; fewer reveal nothing of it. Keep them apart.",
        f"# A passphrase {'is needed too; it is not on the shares' if len(order.passphrase) else 'is not needed'}.",
        "# To rebuild: attested secret combine (docs/recovery-kit.md). The words alone are enough.",
        f"format: {FORMAT}",
        *(f"{name}: {value}" for name, value in named if value),
        *(_row(row, first=_WORDS_A_LINE * at + 1) for at, row in enumerate(rows)),
    ]
    return "\n".join(lines) + "\n\n"


def _row(words: Sequence[str], *, first: int) -> str:
    return "  ".join(f"{place:2} {word:<{_WIDEST_WORD}}" for place, word in enumerate(words, start=first)).rstrip()


def _payload(master: MasterSecret) -> bytes:
    body = master.key.reveal() + master.salt.reveal()
    return bytes([_VERSION]) + _check(_VERSION, body) + body


def _check(version: int, body: bytes) -> bytes:
    return hashlib.sha256(_LABEL + bytes([version]) + body).digest()[:_CHECK_BYTES]


def _master_of(payload: bytes) -> MasterSecret:
    version, check, body = payload[0], payload[1 : 1 + _CHECK_BYTES], payload[1 + _CHECK_BYTES :]
    if len(payload) != _PAYLOAD_BYTES or check != _check(version, body):
        raise KeyServiceError(
            "expected a valid master secret from these shares, they give something else under this passphrase",
            reason=Reason.SHARE_PASSPHRASE,
        )
    if version != _VERSION:
        raise KeyServiceError(
            f"expected shares of version {_VERSION}, got {version}", reason=Reason.FILE_VERSION_UNKNOWN
        )
    return MasterSecret(key=SecretBytes(body[:_PART_BYTES]), salt=SecretBytes(body[_PART_BYTES:]))


def _facts_of(master: MasterSecret, salt: bytes) -> SplitFacts:
    return SplitFacts(
        cluster_id=cluster_id(measurement_secret(master), salt).hex() if salt else "",
        measurement_salt=salt.hex(),
        fingerprint=master.fingerprint(),
    )


def _common_facts(shares: Sequence[Share]) -> SplitFacts:
    found = {}
    for name in ("cluster_id", "measurement_salt", "fingerprint"):
        values = {getattr(share.facts, name): share.phrase.name for share in shares}
        values.pop("", None)
        if len(values) > 1:
            raise KeyServiceError(
                f"expected shares of one cluster, {' and '.join(sorted(values.values()))} name different ones",
                reason=Reason.SHARES_UNLIKE,
            )
        found[name] = next(iter(values), "")
    return SplitFacts(**found)
