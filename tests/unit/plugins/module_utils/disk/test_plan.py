# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done with a disk, by what is on it: every refusal, and the rest of every interruption."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_check import STATE_DISK, verify_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.luks_header import read_header
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import (
    DiskFacts,
    Observed,
    Signature,
    Step,
    Target,
    Wanted,
    plan,
    require_by_id,
)
from ansible_collections.attested.kubernetes.tests.support.luks import vector, with_bytes, with_json
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

DEVICE = "/dev/disk/by-id/virtio-state"
FRESH, KEPT, EXCHANGING = (vector(name) for name in ("state-disk-fresh", "state-disk", "state-disk-two-slots"))
LUKS = (Signature(type="crypto_LUKS", offset=0), Signature(type="crypto_LUKS", offset=16384))
EXT4 = (Signature(type="ext4", offset=1080),)
ZERO, ONE, BOTH, NO = frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset()

FORMAT = [Step.REMEMBER, Step.FORMAT, Step.NOTE, Step.FORGET]
EXCHANGE = [Step.ADD_BESIDE, Step.DROP_FIRST, Step.ADD_PERMANENT, Step.DROP_BESIDE]
FIRST_USE = [
    Step.OPEN,
    Step.MAKE_FILESYSTEM,
    Step.MOUNT,
    Step.BEGIN_RECORD,
    Step.INITIALISE,
    Step.ADVANCE,
    Step.BIND,
]
UNLOCK = [Step.CHECK, Step.MOUNT, Step.ADVANCE, Step.BIND]


def disk(begin: bytes = bytes(32768), **changes: object) -> DiskFacts:
    luks = begin[:4] == b"LUKS"
    facts = DiskFacts(
        device=DEVICE,
        node="/dev/vdb",
        size_bytes=8 << 30,
        sector_bytes=512,
        signatures=LUKS if luks else (),
        blank=not any(begin),
        begin=begin,
    )
    return dataclasses.replace(facts, **changes)  # type: ignore[arg-type]


def uuid_of(begin: bytes) -> str:
    return read_header(begin).uuid


def wanted(begin: bytes = KEPT, **changes: object) -> Wanted:
    one = Wanted(device=DEVICE, uuid=uuid_of(begin), target=Target.OPENED, minimum_bytes=4 << 30)
    return dataclasses.replace(one, **changes)  # type: ignore[arg-type]


def steps(found: Observed, one: Wanted) -> list[Step]:
    return list(plan(found, one).steps)


def without_token(begin: bytes) -> bytes:
    return with_json(begin, lambda members: members["tokens"].clear())


def in_slot_one(begin: bytes) -> bytes:
    """The exchange between its second and third step."""

    def edit(members: dict) -> None:
        del members["keyslots"]["0"]
        members["digests"]["0"]["keyslots"] = ["1"]

    return with_json(begin, edit)


def test_an_empty_disk_is_formatted_and_taken_into_use() -> None:
    assert steps(Observed(disk=disk()), wanted()) == [*FORMAT, *EXCHANGE, *FIRST_USE]
    assert steps(Observed(disk=disk()), wanted(target=Target.FORMATTED)) == FORMAT


def test_a_disk_in_use_is_opened_checked_and_counted() -> None:
    found = Observed(disk=disk(KEPT), permanent=ZERO)
    assert steps(found, wanted()) == [Step.OPEN, *UNLOCK]
    assert steps(found, wanted(target=Target.FORMATTED)) == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param({"mounted": True, "counted": True, "bound": True}, [], id="all is done"),
        pytest.param({"mounted": True, "counted": True}, [Step.BIND], id="the directories are not in place"),
        pytest.param({"mounted": True}, UNLOCK, id="cut before this unlock was counted"),
        pytest.param({}, UNLOCK, id="cut after it was opened"),
    ],
)
def test_an_opened_disk_is_continued(state: dict[str, bool], expected: list[Step]) -> None:
    found = Observed(disk=disk(KEPT, mapped=True), permanent=ZERO, **state)  # type: ignore[arg-type]
    assert steps(found, wanted()) == expected


@pytest.mark.parametrize(
    ("begin", "first", "permanent", "expected"),
    [
        pytest.param(FRESH, ZERO, NO, [*EXCHANGE, *FIRST_USE], id="the exchange has not begun"),
        pytest.param(EXCHANGING, ZERO, ONE, [*EXCHANGE[1:], *FIRST_USE], id="beside the first one"),
        pytest.param(in_slot_one(EXCHANGING), NO, ONE, [*EXCHANGE[2:], *FIRST_USE], id="alone, in the other slot"),
        pytest.param(EXCHANGING, NO, BOTH, [*EXCHANGE[3:], *FIRST_USE], id="in both slots"),
        pytest.param(FRESH, NO, ZERO, FIRST_USE, id="exchanged and never used"),
        pytest.param(FRESH, NO, NO, [*FORMAT, *EXCHANGE, *FIRST_USE], id="the first key went with a reboot"),
        pytest.param(EXCHANGING, ZERO, NO, [*FORMAT, *EXCHANGE, *FIRST_USE], id="a key beside it that nobody has"),
    ],
)
def test_a_disk_that_was_never_used_is_continued_or_made_anew(
    begin: bytes, first: frozenset[int], permanent: frozenset[int], expected: list[Step]
) -> None:
    unused = with_json(begin, lambda members: members["tokens"]["0"].update(initialised=False))
    assert steps(Observed(disk=disk(unused), first=first, permanent=permanent), wanted(begin)) == expected


def test_a_formatted_disk_is_left_as_it_is_while_somebody_has_its_key() -> None:
    formatted = wanted(FRESH, target=Target.FORMATTED)
    assert steps(Observed(disk=disk(FRESH), first=ZERO), formatted) == []
    assert steps(Observed(disk=disk(FRESH), first=ZERO, began=True), formatted) == [Step.FORGET]
    assert steps(Observed(disk=disk(FRESH)), formatted) == FORMAT


def test_a_disk_that_was_never_used_is_closed_before_anything_else() -> None:
    found = Observed(disk=disk(FRESH, mapped=True), permanent=ZERO, mounted=True)
    assert steps(found, wanted(FRESH)) == [Step.CLOSE, *FIRST_USE]


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(without_token(FRESH), id="formatted, and no token"),
        pytest.param(b"LUKS\xba\xbe" + bytes(32762), id="half a header"),
        pytest.param(b"x".ljust(32768, b"y"), id="random data"),
    ],
)
def test_an_interrupted_format_is_repeated_only_if_the_journal_says_that_it_was_ours(begin: bytes) -> None:
    formatted = wanted(FRESH, target=Target.FORMATTED)
    assert steps(Observed(disk=disk(begin), began=True), formatted) == FORMAT
    assert code_of(lambda: plan(Observed(disk=disk(begin)), formatted))


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        pytest.param(disk(begin=b"x" * 32768, signatures=EXT4, blank=False), "STATE_DISK_OCCUPIED", id="a file system"),
        pytest.param(disk(signatures=EXT4), "STATE_DISK_OCCUPIED", id="a file system behind zeros"),
        pytest.param(disk(b"x" * 32768), "STATE_DISK_OCCUPIED", id="data of no known kind"),
        pytest.param(disk(vector("default")), "STATE_DISK_OCCUPIED", id="LUKS of somebody else"),
        pytest.param(disk(vector("constellation")), "STATE_DISK_OCCUPIED", id="LUKS of a Constellation node"),
        pytest.param(disk(FRESH), "STATE_DISK_FOREIGN", id="a state disk with another id"),
        pytest.param(disk(without_token(KEPT)), "LUKS_HEADER_FOREIGN: expected the token", id="ours without its token"),
        pytest.param(
            disk(with_bytes(KEPT, 24, b"other".ljust(48, b"\0"))),
            "LUKS_DISK_DIFFERS: the label",
            id="ours by its id alone",
        ),
        pytest.param(
            disk(with_bytes(KEPT, 4096, b"[")), "LUKS_HEADER_MALFORMED: JSON", id="a header that cannot be read"
        ),
        pytest.param(disk(KEPT, users=("/srv",)), "STATE_DISK_BUSY", id="mounted"),
        pytest.param(disk(KEPT, size_bytes=1 << 30), "STATE_DISK_TOO_SMALL", id="too small"),
        pytest.param(None, "STATE_DISK_MISSING", id="no disk"),
    ],
)
def test_what_is_not_ours_is_refused(facts: DiskFacts | None, code: str) -> None:
    assert code_of(lambda: plan(Observed(disk=facts, permanent=ZERO), wanted())) == code


def test_a_refusal_says_what_is_on_the_disk() -> None:
    with pytest.raises(Exception, match="found ext4 at 1080 ") as caught:
        plan(Observed(disk=disk(signatures=EXT4)), wanted())
    assert caught.value.code == "STATE_DISK_OCCUPIED"  # type: ignore[attr-defined]


def test_the_journal_of_a_format_does_not_give_away_another_file_system() -> None:
    """The format was cut, and then somebody else used the disk."""
    found = Observed(disk=disk(signatures=EXT4), began=True)
    assert code_of(lambda: plan(found, wanted())) == "STATE_DISK_OCCUPIED"
    other = Observed(disk=disk(FRESH), began=True)
    assert code_of(lambda: plan(other, wanted())) == "STATE_DISK_FOREIGN"


def _edited(begin: bytes, *, cipher: str = "", slots: bool = False) -> bytes:
    def edit(members: dict) -> None:
        if cipher:
            members["segments"]["0"]["encryption"] = cipher
        if slots:
            members["keyslots"]["2"] = members["keyslots"]["0"]

    return with_json(begin, edit)


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        pytest.param(_edited(KEPT, cipher="cipher_null-ecb"), "LUKS_HEADER_FOREIGN: the cipher", id="no encryption"),
        pytest.param(_edited(KEPT, slots=True), "LUKS_KEYSLOTS", id="one more key"),
        pytest.param(
            with_json(EXCHANGING, lambda members: members["tokens"]["0"].update(initialised=True)),
            "LUKS_KEYSLOTS",
            id="two keys in a disk that is in use",
        ),
    ],
)
@pytest.mark.parametrize("erase", ["", "virtio-state"], ids=["not named", "named to be erased"])
def test_a_hostile_header_under_our_id_is_refused_by_its_field(begin: bytes, code: str, erase: str) -> None:
    found = Observed(disk=disk(begin), permanent=ZERO)
    assert code_of(lambda: plan(found, wanted(begin, erase=erase))) == code


def test_a_disk_formatted_anew_under_our_id_is_seen() -> None:
    other = wanted(volume=bytes(32))
    assert code_of(lambda: plan(Observed(disk=disk(KEPT), permanent=ZERO), other)) == "LUKS_VOLUME_FOREIGN"


@pytest.mark.parametrize(
    ("facts", "began"),
    [
        pytest.param(disk(), False, id="wiped"),
        pytest.param(disk(FRESH), False, id="its header from before its first use"),
        pytest.param(disk(without_token(FRESH)), True, id="as if a format had been cut"),
    ],
)
def test_a_disk_that_was_in_use_is_not_made_anew(facts: DiskFacts, began: bool) -> None:
    """Who can write the disk cannot have the node throw its data away, as long as it remembers its volume."""
    known = wanted(FRESH, volume=verify_header(read_header(FRESH), STATE_DISK).volume)
    assert code_of(lambda: plan(Observed(disk=facts, began=began), known)) == "STATE_DISK_ROLLED_BACK"


def test_a_disk_in_use_is_never_formatted_whatever_is_allowed() -> None:
    found = Observed(disk=disk(KEPT), began=True)
    assert code_of(lambda: plan(found, wanted(erase="virtio-state"))) == "DISK_KEY_WRONG"


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(disk(signatures=EXT4), id="a file system"),
        pytest.param(disk(vector("default")), id="LUKS"),
        pytest.param(disk(FRESH), id="another state disk"),
    ],
)
def test_its_admin_can_let_a_disk_go_by_its_name_alone(facts: DiskFacts) -> None:
    named = wanted(erase="virtio-state", target=Target.FORMATTED)
    assert steps(Observed(disk=facts), named) == [Step.REMEMBER, Step.ERASE, *FORMAT[1:]]
    other = wanted(erase="virtio-stat", target=Target.FORMATTED)
    assert code_of(lambda: plan(Observed(disk=facts), other)) == "STATE_DISK_OPTION: as the disk to erase"


def test_a_disk_is_closed_whatever_it_holds() -> None:
    closed = wanted(target=Target.CLOSED)
    assert steps(Observed(disk=disk(KEPT, mapped=True), mounted=True), closed) == [Step.CLOSE]
    assert steps(Observed(disk=disk(KEPT)), closed) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(Observed(disk=disk()), [], id="nothing is on it"),
        pytest.param(Observed(disk=disk(KEPT)), [Step.REMEMBER, Step.DISCARD], id="closed"),
        pytest.param(
            Observed(disk=disk(KEPT, mapped=True), mounted=True),
            [Step.CLOSE, Step.REMEMBER, Step.DISCARD],
            id="in use, by a key that nobody gave",
        ),
        pytest.param(Observed(disk=disk(FRESH)), [Step.REMEMBER, Step.DISCARD], id="never used"),
        pytest.param(
            Observed(disk=disk(blank=False), began=True), [Step.REMEMBER, Step.DISCARD], id="overwritten by half"
        ),
    ],
)
def test_our_disk_is_destroyed_whatever_it_holds(found: Observed, expected: list[Step]) -> None:
    begin = FRESH if found.disk is not None and found.disk.begin == FRESH else KEPT
    assert steps(found, wanted(begin, target=Target.DESTROYED)) == expected


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        pytest.param(disk(FRESH, users=("a mount",)), "STATE_DISK_BUSY", id="somebody uses it"),
        pytest.param(disk(signatures=EXT4), "STATE_DISK_OCCUPIED", id="a file system"),
        pytest.param(disk(vector("default")), "STATE_DISK_OCCUPIED", id="LUKS of others"),
        pytest.param(disk(KEPT), "STATE_DISK_FOREIGN", id="another state disk"),
        pytest.param(disk(blank=False), "STATE_DISK_OCCUPIED", id="unknown bytes, and nothing of ours was begun"),
    ],
)
def test_a_disk_that_is_not_ours_is_not_destroyed(facts: DiskFacts, code: str) -> None:
    other = dataclasses.replace(wanted(target=Target.DESTROYED), uuid="00000000-0000-4000-8000-000000000000")
    assert code_of(lambda: plan(Observed(disk=facts), other)) == code


@pytest.mark.parametrize(
    "device",
    ["/dev/sdb", "/dev/disk/by-path/x", "/dev/disk/by-id/", "/dev/disk/by-id/..", "/dev/disk/by-id/../../sdb", ""],
)
def test_a_disk_is_named_by_its_id(device: str) -> None:
    assert require_by_id(DEVICE) == DEVICE
    assert code_of(lambda: require_by_id(device)) == "STATE_DISK_OPTION: a disk below"


def test_the_label_is_what_the_reader_demands() -> None:
    assert read_header(KEPT).label == STATE_DISK.label
