# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk in use goes over to another key: killed or cut before any step it opens, and the next run goes on."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Step, Target
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.disk.test_apply import PERMANENT, Bed, Cut

OLD, NEW, OTHER = PERMANENT, DiskKey(b"n" * 32), DiskKey(b"x" * 32)
FIRST_NAME, NAME = "1-" + "ab" * 8, "2-" + "cd" * 8
REKEY = [
    Step.LOOSEN,
    Step.ADD_BESIDE,
    Step.PROVE,
    Step.DROP_FIRST,
    Step.ADD_PERMANENT,
    Step.DROP_BESIDE,
    Step.RECORD,
]
BEFORE_USE = 13
"""Steps of a first use until the disk is marked as in use."""
ROTATED = {"key": NEW, "former": (OLD,), "name": NAME}
BEFORE = {"key": OLD, "former": (NEW,), "name": FIRST_NAME}
TICKETS = [pytest.param(ROTATED, id="the new one leads"), pytest.param(BEFORE, id="the old one leads")]


@pytest.fixture
def used(tmp_path):
    """A disk in use and open, with data on it."""
    bed = Bed(tmp_path)
    bed.run(name=FIRST_NAME)
    (bed.device.filesystem / "data").write_text("etcd was here")
    return bed


def rekey(bed, **options):
    return bed.run(Target.REKEYED, **{**ROTATED, **options})


def require_rekeyed(bed):
    """One slot, under the new key alone, recorded with its name; and a further run has nothing to do."""
    assert bed.device.slots == {0: NEW.reveal()}
    record = bed.record()
    header = bed.disk(key=NEW).volume().sha256.hex()
    assert (record.generation, record.header, record.key) == (bed.counter.value, header, NAME)
    assert (bed.device.filesystem / "data").read_text() == "etcd was here"
    assert rekey(bed) == []


def test_a_disk_in_use_goes_over_to_the_new_key(used):
    assert used.record().key == FIRST_NAME
    assert rekey(used) == REKEY
    require_rekeyed(used)
    used.device.reboot()
    assert code_of(lambda: used.run(key=OLD)) == "DISK_KEY_WRONG"
    used.run(key=NEW, name=NAME)
    require_rekeyed(used)


@pytest.mark.parametrize("ticket", TICKETS)
@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("cut_at", range(len(REKEY)))
def test_a_cut_before_any_step_leaves_a_disk_that_opens_and_is_gone_on_with(used, cut_at, reboots, ticket):
    with pytest.raises(Cut):
        rekey(used, cut_at=cut_at)
    if reboots:
        used.device.reboot()
        assert used.run(**ticket)[0] is Step.OPEN
    assert (used.device.filesystem / "data").exists()
    rekey(used)
    require_rekeyed(used)


@pytest.mark.parametrize("second", range(5))
@pytest.mark.parametrize("first", range(1, len(REKEY)))
def test_a_second_cut_is_gone_on_with_as_well(used, first, second):
    with pytest.raises(Cut):
        rekey(used, cut_at=first)
    try:
        rekey(used, cut_at=second)
    except Cut:
        used.device.reboot()
        used.run(**ROTATED)
    rekey(used)
    require_rekeyed(used)


@pytest.mark.parametrize("step", ["counter.increment", "device.add_key", "device.drop_key"])
def test_a_cut_within_a_step_is_gone_on_with(used, step):
    part, name = step.split(".")
    done = getattr(getattr(used, part), name)

    def cut(*args, **words):
        done(*args, **words)
        raise Cut

    setattr(getattr(used, part), name, cut)
    with pytest.raises(Cut):
        rekey(used)
    delattr(getattr(used, part), name)
    used.device.reboot()
    used.run(**ROTATED)
    rekey(used)
    require_rekeyed(used)


def test_an_unlock_in_the_middle_of_an_exchange_names_nothing(used):
    with pytest.raises(Cut):
        rekey(used, cut_at=REKEY.index(Step.DROP_BESIDE))
    used.device.reboot()
    used.run(**ROTATED)
    assert used.record().key == ""
    assert used.run(**ROTATED) == []


def test_an_unlock_by_the_former_key_keeps_its_name(used):
    used.device.reboot()
    used.run(**ROTATED)
    assert used.record().key == FIRST_NAME
    assert rekey(used) == REKEY
    require_rekeyed(used)


def test_the_old_slot_stays_where_the_new_key_does_not_open(used):
    added = used.device.add_key
    used.device.add_key = lambda *, slot, known, new: added(slot=slot, known=known, new=OTHER if slot else new)
    assert code_of(lambda: rekey(used)) == "DISK_KEY_WRONG"
    assert used.device.slots[0] == OLD.reveal()


def test_a_header_that_changed_since_the_unlock_is_not_blessed_by_an_exchange(used):
    used.device.sequence += 1
    assert code_of(lambda: rekey(used)) == "STATE_DISK_HEADER_CHANGED"
    assert used.device.slots == {0: OLD.reveal()}


def test_the_header_of_before_is_refused_after_the_exchange(used):
    before = (dict(used.device.slots), used.device.sequence)
    rekey(used)
    used.device.reboot()
    used.device.slots, used.device.sequence = before
    assert code_of(lambda: used.run(**ROTATED)) == "STATE_DISK_HEADER_CHANGED"


def test_what_was_put_back_to_the_middle_of_an_exchange_is_refused(used):
    with pytest.raises(Cut):
        rekey(used, cut_at=1)
    loosened = used.paths.record.read_bytes()
    rekey(used)
    used.device.reboot()
    (used.device.filesystem / "record.json").write_bytes(loosened)
    assert code_of(lambda: used.run(**ROTATED)) == "STATE_DISK_ROLLED_BACK"


def test_a_slot_of_somebody_else_is_refused(used):
    used.device.slots[1] = OTHER.reveal()
    assert code_of(lambda: rekey(used)) == "LUKS_KEYSLOTS"
    used.device.reboot()
    assert code_of(lambda: used.run(**ROTATED)) == "LUKS_KEYSLOTS"


def test_a_closed_disk_and_one_of_nobody_are_not_rekeyed(used, tmp_path):
    used.device.reboot()
    assert code_of(lambda: rekey(used)) == "STATE_DISK_CLOSED"
    (tmp_path / "other").mkdir()
    assert code_of(lambda: rekey(Bed(tmp_path / "other"))) == "STATE_DISK_CLOSED"


def test_what_lies_where_a_closed_disk_belongs_is_not_read_as_its_record(used):
    used.device.reboot()
    used.paths.mount_point.mkdir()
    used.paths.record.write_bytes(b"{}")
    assert code_of(lambda: rekey(used)) == "STATE_DISK_CLOSED"


def test_an_open_disk_whose_header_is_gone_is_not_rekeyed(used):
    used.device.erase()
    assert code_of(lambda: rekey(used)) == "STATE_DISK_CLOSED"
    assert used.device.slots is None


def test_a_record_that_was_lost_in_use_is_written_again(used):
    used.paths.record.unlink()
    assert rekey(used, key=OLD, former=(), name=FIRST_NAME) == [Step.RECORD]
    assert used.record().key == FIRST_NAME
    assert rekey(used, key=OLD, former=(), name=FIRST_NAME) == []


def test_keys_that_open_nothing_change_nothing(used):
    assert code_of(lambda: rekey(used, key=OTHER, former=(NEW,))) == "DISK_KEY_WRONG"
    assert used.device.slots == {0: OLD.reveal()}


def test_a_disk_that_was_never_named_is_named(tmp_path):
    bed = Bed(tmp_path)
    bed.run()
    assert bed.record().key == ""
    assert rekey(bed, key=OLD, former=(), name=FIRST_NAME) == [Step.RECORD]
    assert bed.record().key == FIRST_NAME
    bed.device.reboot()
    bed.run()
    assert bed.record().key == FIRST_NAME


@pytest.mark.parametrize("cut_at", range(BEFORE_USE))
def test_a_first_use_that_was_cut_goes_on_under_the_next_key(tmp_path, cut_at):
    """The first key was on tmpfs: after a reboot a disk that was never in use is formatted again, for the new key."""
    bed = Bed(tmp_path)
    with pytest.raises(Cut):
        bed.run(cut_at=cut_at)
    bed.device.reboot()
    bed.run(**ROTATED)
    assert bed.device.slots == {0: NEW.reveal()}
    assert bed.record().generation == bed.counter.value
