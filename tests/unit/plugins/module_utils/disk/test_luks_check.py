# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judging a header: ours and Constellation's pass, and each of the hostile ones is refused with its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import (
    CONSTELLATION_DISK,
    STATE_DISK,
    VerifiedHeader,
    state_token,
    verify_header,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.tests.support.luks import metadata, vector, with_bytes, with_json
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD, THEIRS = vector(), vector("constellation")
UUID = "11111111-2222-4333-8444-55555555555b"
BOTH = frozenset({0, 1})


def judged(data: bytes, **options: object) -> VerifiedHeader:
    return verify_header(read_header(data), **{"shape": STATE_DISK, **options})  # type: ignore[arg-type]


def test_our_disk_is_what_it_must_be() -> None:
    header = judged(GOOD, uuid=UUID)
    assert (header.uuid, header.initialised, header.integrity, header.slots) == (UUID, True, "hmac(sha256)", (0,))
    assert header.total_bytes == 16 << 20
    assert judged(GOOD, uuid=UUID, volume=header.volume) == header


def test_a_disk_is_initialised_by_its_token_alone() -> None:
    assert not judged(vector("state-disk-fresh")).initialised
    fresh = with_json(GOOD, lambda one: one["tokens"].update({"0": state_token(initialised=False)}))
    assert not judged(fresh).initialised


def test_two_slots_are_right_only_while_a_key_is_exchanged() -> None:
    exchanging = vector("state-disk-two-slots")
    assert judged(exchanging, slots=BOTH).slots == (0, 1)
    assert code_of(lambda: judged(exchanging)) == "LUKS_KEYSLOTS"
    assert code_of(lambda: judged(GOOD, slots=BOTH)) == "LUKS_KEYSLOTS"


@pytest.mark.parametrize(
    ("name", "integrity"), [("constellation", "hmac(sha256)"), ("constellation-plain", "")], ids=["with", "without"]
)
def test_what_constellations_commands_amount_to_is_taken_as_theirs(name: str, integrity: str) -> None:
    header = judged(vector(name), shape=CONSTELLATION_DISK)
    assert (header.initialised, header.integrity) == (True, integrity)
    assert code_of(lambda: judged(vector(name))) == "LUKS_DISK_DIFFERS: the label"


def test_a_disk_that_anybody_made_is_not_ours() -> None:
    assert code_of(lambda: judged(vector("default"))) == "LUKS_DISK_DIFFERS: the label"
    assert code_of(lambda: judged(vector("default"), shape=CONSTELLATION_DISK)) == "LUKS_HEADER_FOREIGN: sectors of"


def _edit(*path: str, to: object) -> Callable[[dict], None]:
    def edit(members: dict) -> None:
        for name in path[:-1]:
            members = members[name]
        members[path[-1]] = to

    return edit


def _copied(section: str, *, number: str = "1", **changes: object) -> Callable[[dict], None]:
    def edit(members: dict) -> None:
        members[section][number] = {**members[section]["0"], **changes}

    return edit


def _all(*edits: Callable[[dict], None]) -> Callable[[dict], None]:
    def edit(members: dict) -> None:
        for one in edits:
            one(members)

    return edit


def _area(offset: str) -> dict[str, object]:
    return {**metadata(GOOD)["keyslots"]["0"]["area"], "offset": offset}


SLOT, SEGMENT, DIGEST, TOKEN = ("keyslots", "0"), ("segments", "0"), ("digests", "0"), ("tokens", "0")
NULL = "cipher_null-ecb"
SYSTEMD = {"type": "systemd-tpm2", "keyslots": ["0"], "tpm2-pcrs": [7]}
HOSTILE: list[object] = [
    pytest.param(
        _edit(*SEGMENT, "encryption", to=NULL), "LUKS_HEADER_FOREIGN: the cipher", id="data under the null cipher"
    ),
    pytest.param(_edit(*SEGMENT, "encryption", to="null"), "LUKS_HEADER_FOREIGN: the cipher", id="data under nothing"),
    pytest.param(
        _edit(*SEGMENT, "encryption", to="aes-cbc-plain"),
        "LUKS_HEADER_FOREIGN: the cipher",
        id="data under another cipher",
    ),
    pytest.param(
        _edit(*SEGMENT, "encryption", to="capi:" + NULL),
        "LUKS_HEADER_FOREIGN: the cipher",
        id="the null cipher, renamed",
    ),
    pytest.param(
        _edit(*SLOT, "area", "encryption", to=NULL),
        "LUKS_HEADER_FOREIGN: the cipher",
        id="a slot under the null cipher",
    ),
    pytest.param(
        _edit(*SLOT, "area", "key_size", to=32), "LUKS_HEADER_FOREIGN: the cipher", id="a slot under half the key"
    ),
    pytest.param(
        lambda one: one["segments"]["0"].pop("integrity"), "LUKS_HEADER_FOREIGN: integrity by", id="no integrity"
    ),
    pytest.param(
        _edit(*SEGMENT, "integrity", "type", to="none"), "LUKS_HEADER_FOREIGN: integrity by", id="integrity by nothing"
    ),
    pytest.param(
        _edit(*SEGMENT, "integrity", "type", to="crc32c"),
        "LUKS_HEADER_FOREIGN: integrity by",
        id="integrity without a key",
    ),
    pytest.param(_edit(*SEGMENT, "sector_size", to=512), "LUKS_HEADER_FOREIGN: sectors of", id="small sectors"),
    pytest.param(_edit(*SEGMENT, "offset", to="33554432"), "LUKS_HEADER_FOREIGN: layout", id="data elsewhere"),
    pytest.param(_edit(*SEGMENT, "offset", to="0"), "LUKS_HEADER_FOREIGN: layout", id="data over the header"),
    pytest.param(_edit(*SEGMENT, "iv_tweak", to="1"), "LUKS_HEADER_FOREIGN: layout", id="another tweak"),
    pytest.param(
        _edit("config", "keyslots_size", to="4096"), "LUKS_HEADER_FOREIGN: layout", id="slots in another area"
    ),
    pytest.param(_copied("segments"), "LUKS_HEADER_FOREIGN: expected a segment", id="a second segment"),
    pytest.param(_edit("segments", to={}), "LUKS_HEADER_FOREIGN: expected a segment", id="no segment"),
    pytest.param(_copied("keyslots", area=_area("417792")), "LUKS_KEYSLOTS", id="a slot more"),
    pytest.param(_edit("keyslots", to={}), "LUKS_KEYSLOTS", id="no slot"),
    pytest.param(_edit(*SLOT, "key_size", to=64), "LUKS_KEYSLOTS", id="a volume key without its half for integrity"),
    pytest.param(_edit(*SLOT, "af", "stripes", to=1), "LUKS_KEYSLOTS", id="a key that is not split"),
    pytest.param(_edit(*SLOT, "af", "hash", to="sha1"), "LUKS_KEYSLOTS", id="a key split by SHA-1"),
    pytest.param(_edit(*SLOT, "priority", to=0), "LUKS_KEYSLOTS", id="a slot to be ignored"),
    pytest.param(_edit(*SLOT, "kdf", "iterations", to=1), "LUKS_HEADER_FOREIGN: within its bounds", id="one iteration"),
    pytest.param(
        _edit(*SLOT, "kdf", "iterations", to=4294967295),
        "LUKS_HEADER_FOREIGN: within its bounds",
        id="iterations for an hour",
    ),
    pytest.param(
        _edit(*SLOT, "kdf", "hash", to="sha1"), "LUKS_HEADER_FOREIGN: within its bounds", id="a key derived by SHA-1"
    ),
    pytest.param(_edit(*SLOT, "kdf", "salt", to=""), "LUKS_HEADER_FOREIGN: within its bounds", id="no salt"),
    pytest.param(_edit(*SLOT, "area", "offset", to="0"), "LUKS_HEADER_FOREIGN: layout", id="a slot over the header"),
    pytest.param(
        _edit(*SLOT, "area", "offset", to="16777216"), "LUKS_HEADER_FOREIGN: layout", id="a slot over the data"
    ),
    pytest.param(_edit(*SLOT, "area", "offset", to="32769"), "LUKS_HEADER_FOREIGN: layout", id="a slot between blocks"),
    pytest.param(
        _edit(*SLOT, "area", "size", to="4096"), "LUKS_HEADER_FOREIGN: layout", id="a slot too small for its key"
    ),
    pytest.param(_edit("digests", to={}), "LUKS_HEADER_FOREIGN: digest", id="no digest"),
    pytest.param(_copied("digests"), "LUKS_HEADER_FOREIGN: digest", id="a second digest"),
    pytest.param(_copied("digests", keyslots=[]), "LUKS_HEADER_FOREIGN: digest", id="a digest of no slot"),
    pytest.param(_edit(*DIGEST, "keyslots", to=[]), "LUKS_HEADER_FOREIGN: digest", id="a digest that proves no slot"),
    pytest.param(
        _edit(*DIGEST, "segments", to=[]), "LUKS_HEADER_FOREIGN: digest", id="a slot that is bound to no data"
    ),
    pytest.param(_edit(*DIGEST, "segments", to=["1"]), "LUKS_HEADER_FOREIGN: digest", id="a digest of another segment"),
    pytest.param(_edit(*DIGEST, "type", to="none"), "LUKS_HEADER_FOREIGN: digest", id="a digest of another kind"),
    pytest.param(_edit(*DIGEST, "hash", to="sha1"), "LUKS_HEADER_FOREIGN: digest", id="a digest by SHA-1"),
    pytest.param(_edit(*DIGEST, "iterations", to=4294967295), "LUKS_HEADER_FOREIGN: digest", id="a digest for an hour"),
    pytest.param(_edit(*DIGEST, "digest", to="AAAA"), "LUKS_HEADER_FOREIGN: digest", id="a short digest"),
    pytest.param(_edit("tokens", to={}), "LUKS_HEADER_FOREIGN: expected the token", id="no token"),
    pytest.param(_edit("tokens", "1", to=SYSTEMD), "LUKS_HEADER_FOREIGN: expected the token", id="a token more"),
    pytest.param(
        _edit(*TOKEN, to=SYSTEMD), "LUKS_HEADER_FOREIGN: expected the token", id="the token of another program"
    ),
    pytest.param(
        _edit(*TOKEN, "keyslots", to=["0"]), "LUKS_HEADER_FOREIGN: expected the token", id="a token that opens a slot"
    ),
    pytest.param(
        _edit(*TOKEN, "version", to=2), "LUKS_HEADER_FOREIGN: expected the token", id="a token of a later version"
    ),
    pytest.param(
        _edit(*TOKEN, "version", to=True), "LUKS_HEADER_FOREIGN: expected the token", id="a token whose version is true"
    ),
    pytest.param(
        _edit(*TOKEN, "initialised", to=1),
        "LUKS_HEADER_FOREIGN: expected the token",
        id="a token that is 1 initialised",
    ),
    pytest.param(
        _edit(*TOKEN, "more", to="x" * 2000), "LUKS_HEADER_FOREIGN: expected the token", id="a token with a member more"
    ),
    pytest.param(
        _edit("config", "requirements", to={"mandatory": ["online-reencrypt-v2"]}),
        "LUKS_HEADER_FOREIGN: no re-encryption",
        id="a re-encryption required",
    ),
    pytest.param(
        _edit("config", "requirements", to={"mandatory": ["offline-reencrypt"]}),
        "LUKS_HEADER_FOREIGN: no re-encryption",
        id="an offline re-encryption required",
    ),
    pytest.param(
        _edit("config", "requirements", to={"mandatory": ["opal"]}),
        "LUKS_HEADER_FOREIGN: no requirement and no flag",
        id="a requirement",
    ),
    pytest.param(
        _edit("config", "flags", to=["allow-discards"]),
        "LUKS_HEADER_FOREIGN: no requirement and no flag",
        id="an activation flag",
    ),
    pytest.param(
        _edit("config", "flags", to=["no-journal"]),
        "LUKS_HEADER_FOREIGN: no requirement and no flag",
        id="integrity without its journal",
    ),
]


@pytest.mark.parametrize(("edit", "code"), HOSTILE)
def test_a_hostile_header_is_refused_with_its_code(edit: Callable[[dict], None], code: str) -> None:
    assert code_of(lambda: judged(with_json(GOOD, edit))) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(
            lambda: judged(GOOD, uuid="21111111-2222-4333-8444-55555555555b"),
            "LUKS_DISK_DIFFERS: expected the disk",
            id="another disk",
        ),
        pytest.param(lambda: judged(with_bytes(GOOD, 24, b"b")), "LUKS_DISK_DIFFERS: the label", id="another label"),
        pytest.param(lambda: judged(with_bytes(GOOD, 208, b"b")), "LUKS_DISK_DIFFERS: the label", id="a subsystem"),
    ],
)
def test_another_disk_is_not_ours(change: Callable[[], object], code: str) -> None:
    assert code_of(change) == code


@pytest.mark.parametrize("member", ["salt", "digest"])
def test_a_volume_with_another_key_shows(member: str) -> None:
    """The same UUID, label and shape around a key of the attacker's: what a clone with its own volume looks like."""
    known = judged(GOOD).volume
    other = metadata(vector("state-disk-fresh"))["digests"]["0"][member]
    foreign = with_json(GOOD, _edit(*DIGEST, member, to=other))
    assert judged(foreign).volume != known
    assert code_of(lambda: judged(foreign, volume=known)) == "LUKS_VOLUME_FOREIGN"


def test_a_volume_stays_the_same_when_its_slots_change() -> None:
    salted = with_json(GOOD, _edit(*SLOT, "kdf", "salt", to=metadata(THEIRS)["keyslots"]["0"]["kdf"]["salt"]))
    assert judged(salted).volume == judged(GOOD).volume
    assert judged(salted).sha256 != judged(GOOD).sha256


def test_slots_of_two_keys_do_not_overlap() -> None:
    exchanging = vector("state-disk-two-slots")
    first = metadata(exchanging)["keyslots"]["0"]["area"]["offset"]
    overlapping = with_json(exchanging, _edit("keyslots", "1", "area", "offset", to=first))
    assert code_of(lambda: judged(overlapping, slots=BOTH)) == "LUKS_HEADER_FOREIGN: layout"
    one_proven = with_json(exchanging, _edit(*DIGEST, "keyslots", to=["0"]))
    assert code_of(lambda: judged(one_proven, slots=BOTH)) == "LUKS_HEADER_FOREIGN: digest"


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        pytest.param(
            _edit(*SLOT, "kdf", "memory", to=4294967295),
            "LUKS_HEADER_FOREIGN: within its bounds",
            id="4 TiB of memory for one try",
        ),
        pytest.param(
            _edit(*SLOT, "kdf", "time", to=4294967295),
            "LUKS_HEADER_FOREIGN: within its bounds",
            id="a century for one try",
        ),
        pytest.param(
            _edit(*SLOT, "kdf", "cpus", to=1024), "LUKS_HEADER_FOREIGN: within its bounds", id="a thousand threads"
        ),
        pytest.param(
            _edit(*SLOT, "kdf", "type", to="argon2i"), "LUKS_HEADER_FOREIGN: within its bounds", id="the older Argon2"
        ),
        pytest.param(_edit(*SEGMENT, "encryption", to=NULL), "LUKS_HEADER_FOREIGN: the cipher", id="the null cipher"),
        pytest.param(
            _edit(*TOKEN, "version", to=1), "LUKS_HEADER_FOREIGN: expected the token", id="a token with our member"
        ),
        pytest.param(
            _edit(*TOKEN, to=state_token(initialised=True)), "LUKS_HEADER_FOREIGN: expected the token", id="our token"
        ),
    ],
)
def test_a_header_that_is_not_constellations_is_refused(edit: Callable[[dict], None], code: str) -> None:
    assert code_of(lambda: judged(with_json(THEIRS, edit), shape=CONSTELLATION_DISK)) == code


@pytest.mark.parametrize("path", [*SLOT[:1], *SEGMENT[:1], *DIGEST[:1]])
def test_no_field_is_merely_read_over(path: str) -> None:
    """Every number and text of a section but salts and proofs is pinned: another value is another code."""
    for name, value in _scalars(metadata(GOOD)[path]["0"]):
        if name[-1] in {"salt", "digest", "iterations"}:
            continue
        other = value + 1 if isinstance(value, int) else "other" if not value.isdecimal() else str(int(value) + 1)
        with pytest.raises(Exception, match="LUKS_"):
            judged(with_json(GOOD, _edit(path, "0", *name, to=other)))


def _scalars(value: dict, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], int | str]]:
    found: list[tuple[tuple[str, ...], int | str]] = []
    for name, inner in value.items():
        if isinstance(inner, dict):
            found += _scalars(inner, (*path, name))
        elif isinstance(inner, (int, str)):
            found.append(((*path, name), inner))
    return found
