# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shares of a master secret: any k of n rebuild it, fewer do not, and two clusters cannot be mixed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import require_passphrase
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares import (
    Share,
    ShareOrder,
    combine_shares,
    parse_share,
    shares_of,
    split_master,
    split_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import (
    cluster_id,
    measurement_secret,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.tests.support.canary import spellings
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from hypothesis import given, settings
from hypothesis import strategies as st

MASTER = MasterSecret(key=SecretBytes(bytes(range(32))), salt=SecretBytes(bytes(range(100, 132))))
OTHER = MasterSecret(key=SecretBytes(bytes(range(1, 33))), salt=SecretBytes(bytes(range(100, 132))))
SALT = b"\7" * 32
NONE = SecretBytes(b"")
PASSPHRASE = SecretBytes(b"correct horse battery")


def texts(
    master: MasterSecret = MASTER,
    *,
    threshold: int = 3,
    count: int = 5,
    salt: bytes = SALT,
    passphrase: SecretBytes = NONE,
) -> tuple[str, ...]:
    order = ShareOrder(threshold=threshold, count=count, passphrase=passphrase)
    return split_master(master, salt=salt, order=order, random=SystemRandom())


def read(shares: tuple[str, ...]) -> list[Share]:
    return [parse_share(f"share-{place}.txt", text.encode()) for place, text in enumerate(shares, start=1)]


def refused(shares: list[Share], passphrase: SecretBytes = NONE) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        combine_shares(shares, passphrase)
    return caught.value


def words_of(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.startswith("#") and ":" not in line)
    return [token for line in lines for token in line.split() if not token.isdigit()]


@pytest.fixture(scope="module")
def guarded() -> tuple[str, ...]:
    return texts(threshold=2, count=2, passphrase=PASSPHRASE)


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_k_of_n_rebuild_and_any_k_less_one_do_not(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 5), label="n")
    threshold = data.draw(st.integers(2, count), label="k")
    master = MasterSecret(
        key=SecretBytes(data.draw(st.binary(min_size=32, max_size=32))),
        salt=SecretBytes(data.draw(st.binary(min_size=32, max_size=32))),
    )
    shares = read(texts(master, threshold=threshold, count=count))
    for chosen in combinations(shares, threshold):
        assert combine_shares(chosen, NONE).master == master
    for chosen in combinations(shares, threshold - 1):
        assert refused(list(chosen)).code == "SHARES_TOO_FEW"


def test_fewer_shares_do_not_rebuild_when_they_lie_about_their_number() -> None:
    """The count in the words is a help, not the protection: the arithmetic itself gives nothing."""
    from shamir_mnemonic import Share as Raw  # noqa: PLC0415  # to change a share behind its checksum

    lying = []
    for share in read(texts())[:2]:
        raw = replace(Raw.from_mnemonic(share.phrase.words), member_threshold=2)
        lying.append(parse_share("lie", raw.mnemonic().encode()))
    assert Coded(refused(lying)) == "SHARES_UNLIKE: one split"


def test_a_share_says_of_which_cluster_it_is_and_shows_no_secret() -> None:
    shares = texts()
    cluster = cluster_id(measurement_secret(MASTER), SALT).hex()
    for place, text in enumerate(shares, start=1):
        assert f"# Share {place} of 5 " in text
        assert f"cluster-id: {cluster}\nmeasurement-salt: {SALT.hex()}\nmaster-secret: {MASTER.fingerprint()}\n" in text
        assert len(words_of(text)) == 62
        assert "A passphrase is not needed" in text
        for secret in (MASTER.key, MASTER.salt, measurement_secret(MASTER)):
            assert not [needle for needle in spellings(secret.reveal()) if needle in text.encode()]
    assert "words=" not in repr(read(shares))
    values = re.sub(r"\w+[=(]", "", repr(read(shares)[0]))  # without names of fields: "salt" may be a word of a share
    assert not set(words_of(shares[0])) & set(re.findall(r"[a-z]+", values)) - {"share"}


def test_what_is_rebuilt_knows_its_cluster() -> None:
    rebuilt = combine_shares(read(texts())[1:4], NONE)
    assert rebuilt.master == MASTER
    assert rebuilt.facts.cluster_id == cluster_id(measurement_secret(MASTER), SALT).hex()
    assert rebuilt.facts.fingerprint == MASTER.fingerprint()
    assert repr(MASTER) in repr(rebuilt) or "master=" not in repr(rebuilt)


def test_the_words_alone_are_enough_however_they_are_typed() -> None:
    bare = [" ".join(words_of(text)) for text in texts()[:2]]
    numbered = "\n".join(f"{place}. {word.upper()}" for place, word in enumerate(words_of(texts()[0]), start=1))
    shares = [parse_share("typed", one.encode()) for one in bare]
    assert Coded(refused(shares)) == "SHARES_UNLIKE: one split" or shares[0].phrase.split == shares[1].phrase.split
    assert parse_share("typed", numbered.encode()).phrase.place == 1
    one_split = [parse_share("typed", " ".join(words_of(text)).encode()) for text in texts(salt=b"")]
    assert combine_shares(one_split, NONE).facts.cluster_id == ""
    assert combine_shares(one_split, NONE).master == MASTER


def test_many_shares_can_come_in_one_stream() -> None:
    stream = "".join(texts()).replace("\n", "\r\n").encode()
    shares = shares_of("standard input", stream)
    assert [share.phrase.place for share in shares] == [1, 2, 3, 4, 5]
    assert shares[2].phrase.name == "standard input, share 3"
    assert combine_shares(shares, NONE).master == MASTER
    assert shares_of("nothing", b"\n\n") == ()


def test_shares_of_two_clusters_do_not_mix() -> None:
    mine, theirs = read(texts()), read(texts(OTHER))
    error = refused([mine[0], mine[1], theirs[2]])
    assert Coded(error) == "SHARES_UNLIKE: cluster"
    assert "share-3.txt" in error.message


def test_shares_of_two_splits_of_one_secret_do_not_mix() -> None:
    first, second = read(texts()), read(texts())
    while first[0].phrase.split == second[0].phrase.split:  # one in 32768
        second = read(texts())
    assert Coded(refused([first[0], first[1], second[2]])) == "SHARES_UNLIKE: one split"


def test_one_share_twice_is_no_second_share() -> None:
    first, _second, third, *_rest = read(texts())
    error = refused([first, third, replace(first, phrase=replace(first.phrase, name="copy"))])
    assert (error.code, error.message) == (
        "SHARES_UNLIKE",
        "expected different shares, share-1.txt and copy are both share 1",
    )


@pytest.mark.parametrize(
    "field", [pytest.param("master-secret", id="another secret"), pytest.param("cluster-id", id="another cluster")]
)
def test_facts_that_the_words_do_not_bear_out_are_refused(field: str) -> None:
    forged = tuple(re.sub(rf"({field}: )....", r"\g<1>0000", text) for text in texts())
    assert Coded(refused(read(forged))) == "SHARES_UNLIKE: cluster"


def test_a_passphrase_is_needed_and_must_be_the_right_one(guarded: tuple[str, ...]) -> None:
    assert "A passphrase is needed too" in guarded[0]
    assert PASSPHRASE.reveal().decode() not in "".join(guarded)
    assert combine_shares(read(guarded), PASSPHRASE).master == MASTER
    for wrong in (NONE, SecretBytes(b"incorrect horse battery")):
        assert refused(read(guarded), wrong).code == "SHARE_PASSPHRASE"


def test_shares_of_something_else_are_not_taken_for_a_master_secret() -> None:
    phrases = split_secret(SecretBytes(bytes(68)), threshold=2, count=2, passphrase=NONE, random=SystemRandom())
    assert refused([parse_share("wallet", one.encode()) for one in phrases]).code == "SHARE_PASSPHRASE"


def test_a_later_version_of_what_the_words_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares"
    with monkeypatch.context() as later:
        later.setattr(f"{module}._VERSION", 2)
        shares = read(texts())
    assert Coded(refused(shares)) == "FILE_VERSION_UNKNOWN: share"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(
            lambda text: text.replace("share/v1", "share/v2"), "FILE_VERSION_UNKNOWN: share", id="a later format"
        ),
        pytest.param(lambda text: text.replace("cluster-id: ", "cluster-id: 0"), "SHARE_MALFORMED", id="a digit more"),
        pytest.param(lambda text: text.replace("cluster-id", "clusterid"), "SHARE_MALFORMED", id="an unknown fact"),
        pytest.param(lambda text: text + text.splitlines()[5] + "\n", "SHARE_MALFORMED", id="a fact twice"),
        pytest.param(
            lambda text: text.replace("62 ", "62 \N{LATIN SMALL LETTER E WITH ACUTE}"), "SHARE_MALFORMED", id="no ASCII"
        ),
        pytest.param(lambda text: text + "#" * 16384, "SHARE_MALFORMED", id="too long"),
        pytest.param(lambda text: text.rstrip().rsplit(" ", 1)[0], "SHARE_MALFORMED", id="the last word missing"),
        pytest.param(lambda text: text.rstrip() + " academic", "SHARE_MALFORMED", id="a word too many"),
        pytest.param(lambda text: text.rstrip() + "x", "SHARE_WORDS_WRONG: words of the list", id="a letter too many"),
        pytest.param(lambda _text: "", "SHARE_MALFORMED", id="nothing"),
    ],
)
def test_a_text_that_is_no_share_is_refused(change, code: str) -> None:
    with pytest.raises(AttestedError) as caught:
        parse_share("paper", change(texts()[0]).encode())
    assert Coded(caught.value) == code


@pytest.mark.parametrize("text", ["", "3", "3/", "/5", "3/5/7", "5/3", "1/3", "2/17", "-2/3", "3 / 5", "0003/5"])
def test_an_order_is_k_of_n_that_can_be_made(text: str) -> None:
    with pytest.raises(AttestedError) as caught:
        ShareOrder.parse(text, NONE)
    assert caught.value.code == "OPTION_INVALID"
    assert re.match(r"expected (k/n|2 <= needed)", caught.value.message)


def test_an_order_says_how_many_are_needed_first() -> None:
    order = ShareOrder.parse("3/5", PASSPHRASE)
    assert (order.threshold, order.count, order.passphrase) == (3, 5, PASSPHRASE)
    assert "correct" not in repr(order)


@pytest.mark.parametrize(
    "passphrase",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"short", id="short"),
        pytest.param(b"x" * 257, id="long"),
        pytest.param("correct höre battery".encode(), id="not on every keyboard"),
        pytest.param(b"correct horse\tbattery", id="a tab"),
    ],
)
def test_a_passphrase_that_would_lock_out_is_refused(passphrase: bytes) -> None:
    with pytest.raises(AttestedError) as caught:
        require_passphrase(passphrase)
    assert caught.value.code == "PASSPHRASE_UNUSABLE"


def test_the_end_of_the_line_is_no_part_of_a_passphrase() -> None:
    assert require_passphrase(PASSPHRASE.reveal() + b"\r\n") == PASSPHRASE
