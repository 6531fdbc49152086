# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the steps: a kill between any two of them, with or without a reboot, ends in the same disk."""

from __future__ import annotations

import base64
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import Hooks, StateDisk
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.generation import parse_record
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.paths import StatePaths
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Signature, Step, Target, Wanted
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import DiskKey
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.luks import with_json
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.unit.fakes.disk import DEVICE, UUID, FakeCounter, FakeDevice

PERMANENT = DiskKey(b"p" * 32)
STEPS = 15


class Cut(BaseException):
    """The power is gone."""


class Disk(FakeDevice):
    """Each format makes another volume, and ``swaps`` makes one as well: the id, the slots and the token stay."""

    swaps = 0

    def begin(self):
        if self.slots is None:
            return super().begin()
        salt = base64.b64encode(bytes([self.wipes + self.swaps]) * 32).decode()
        return with_json(super().begin(), lambda members: members["digests"]["0"].update(salt=salt))


class Bed:
    """One machine with one disk."""

    def __init__(self, folder):
        mounts = folder / "mounts"
        mounts.write_text(f"none {folder}/run tmpfs rw 0 0\n")
        self.paths = StatePaths(
            memory=folder / "run" / "attested" / "memory",
            journal=folder / "lib" / "attested" / "journal.json",
            mount_point=folder / "point",
            directories=(folder / "kubelet", folder / "etcd"),
            mounts=mounts,
        )
        self.device, self.counter = Disk(self.paths, folder), FakeCounter()

    def disk(self, target=Target.OPENED, *, key=PERMANENT, former=(), name="", erase="", hooks=None):
        wanted = Wanted(device=DEVICE, uuid=UUID, target=target, minimum_bytes=1, key_name=name, erase=erase)
        parts = {"paths": self.paths, "counter": self.counter, "hooks": hooks}
        return StateDisk(self.device, wanted, key=key, former=former, **parts)

    def run(self, target=Target.OPENED, *, cut_at=None, **keys):
        """Do all that is to be done, or only the first ``cut_at`` steps; return the steps that were begun."""
        begun = []

        def before(step):
            if len(begun) == cut_at:
                raise Cut
            begun.append(step)

        disk = self.disk(target, hooks=Hooks(before=before), **keys)
        disk.apply(disk.plan())
        return begun

    def record(self):
        return parse_record(self.paths.record.read_bytes())


@pytest.fixture
def bed(tmp_path):
    return Bed(tmp_path)


def require_in_use(bed):
    """The disk is what it must be in the end, and a further run does nothing."""
    device = bed.device
    assert device.slots == {0: PERMANENT.reveal()}
    assert (device.token, device.mapped, device.targets) == (True, True, set(bed.paths.directories))
    record, header = bed.record(), bed.disk().volume().sha256.hex()
    assert (record.generation, record.header) == (bed.counter.value, header)
    assert not bed.paths.journal.exists()
    assert [path.name for path in bed.paths.memory.iterdir()] == ["counted"]
    assert not bed.disk().plan()


def test_a_look_and_a_refusal_leave_no_copy_of_the_header(bed):
    bed.run()
    bed.device.reboot()
    bed.disk().plan()
    assert not bed.paths.header.exists()
    with pytest.raises(AttestedError):
        bed.disk(key=DiskKey(b"w" * 32)).plan()
    assert not bed.paths.header.exists()


def test_a_blank_disk_is_taken_into_use(bed):
    assert len(bed.run()) == STEPS
    require_in_use(bed)


def test_a_plan_is_carried_out_where_no_step_is_watched(bed):
    disk = bed.disk()
    disk.apply(disk.plan())
    require_in_use(bed)


@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("cut_at", range(STEPS))
def test_a_cut_before_any_step_is_continued(bed, cut_at, reboots):
    with pytest.raises(Cut):
        bed.run(cut_at=cut_at)
    used = bed.device.token
    if used:
        (bed.device.filesystem / "data").touch()
    if reboots:
        bed.device.reboot()
    bed.run()
    require_in_use(bed)
    assert not used or (bed.device.filesystem / "data").exists()


@pytest.mark.parametrize("second", range(0, STEPS, 3))
@pytest.mark.parametrize("first", range(1, STEPS, 2))
def test_two_cuts_are_continued_as_well(bed, first, second):
    with pytest.raises(Cut):
        bed.run(cut_at=first)
    bed.device.reboot()
    try:
        bed.run(cut_at=second)
    except Cut:
        bed.device.reboot()
    bed.run()
    require_in_use(bed)


def test_a_disk_that_was_formatted_before_its_key_came_is_not_wiped_again(bed):
    bed.run(Target.FORMATTED, key=None)
    assert bed.paths.first_key.stat().st_mode & 0o777 == 0o600
    assert bed.run(Target.FORMATTED, key=None) == []
    bed.run()
    require_in_use(bed)
    assert bed.device.wipes == 1


JOURNAL = f'{{\n  "version": 1,\n  "formatting": "{DEVICE}",\n  "uuid": "{UUID}"\n}}\n'


def test_what_is_written_before_a_wipe_is_the_same_in_every_release(bed):
    """It is compared as a whole: a wipe that an earlier release began would not be gone on with."""
    with pytest.raises(Cut):
        bed.run(cut_at=2)
    assert bed.paths.journal.read_text() == JOURNAL


def test_the_progress_of_a_wipe_is_told_while_it_goes_on(bed, monkeypatch):
    seen = []
    wipe = bed.device.format

    def watched(**given):
        wipe(**given)
        seen.append(bed.paths.progress.read_text())

    monkeypatch.setattr(bed.device, "format", watched)
    bed.run(Target.FORMATTED, key=None)
    assert (seen, bed.paths.progress.exists()) == (['{"done_bytes": 1, "size_bytes": 2}\n'], False)


def test_nobody_else_looks_into_the_memory(bed):
    before = os.umask(0o022)
    try:
        bed.run()
    finally:
        os.umask(before)
    folders = (bed.paths.memory, bed.paths.journal.parent)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o755]


def test_a_volume_is_looked_at_before_it_is_believed(bed, monkeypatch):
    """The first mount of a boot is one of a volume that nobody has compared with the counter yet."""
    bed.run()
    bed.device.reboot()
    checked = []
    mount = bed.device.mount
    monkeypatch.setattr(bed.device, "mount", lambda **given: checked.append(given["checked"]) or mount(**given))
    assert bed.run() == [Step.OPEN, Step.CHECK, Step.MOUNT, Step.ADVANCE, Step.BIND]
    assert checked == [False, True]


def test_journal_and_record_outlive_a_power_cut(bed, monkeypatch):
    """The folder of each is synced, so that its name is on the disk before the next step begins."""
    synced = []
    sync = os.fsync

    def noted(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    bed.run()
    folders = [one for one in synced if one.is_dir()]
    assert folders == [bed.paths.journal.parent, *[bed.paths.record.parent.resolve()] * (len(folders) - 1)]
    assert len(folders) == 3


def test_no_file_stays_open(bed, tmp_path):
    bed.run()
    opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    assert [name for name in opened if name.startswith(str(tmp_path))] == []


def test_the_first_key_is_another_one_each_time(bed):
    bed.run(Target.FORMATTED, key=None)
    first = bed.device.slots[0]
    bed.device.reboot()
    assert bed.run(Target.FORMATTED, key=None)
    assert bed.device.slots[0] != first


def test_a_disk_that_is_formatted_again_may_be_another_volume(bed):
    """The first key is lost with the memory, so no key opens the volume that the plan has found."""
    bed.run(Target.FORMATTED, key=None)
    bed.device.reboot()
    bed.run()
    require_in_use(bed)
    assert bed.device.wipes == 2


def test_without_its_key_a_blank_disk_is_formatted_and_not_taken_into_use(bed):
    assert code_of(lambda: bed.run(key=None)) == "STATE_DISK_KEY"
    assert (bed.device.token, bed.device.mapped) == (False, False)
    bed.run()
    require_in_use(bed)
    assert bed.device.wipes == 1


def test_what_is_on_a_disk_goes_before_the_format_where_the_admin_names_it(bed, monkeypatch):
    left = [Signature(type="ext4", offset=0)]
    facts = bed.device.facts

    def found(uuid):
        return replace(facts(uuid), signatures=tuple(left), blank=False) if left else facts(uuid)

    monkeypatch.setattr(bed.device, "facts", found)
    monkeypatch.setattr(bed.device, "erase", left.clear)
    assert code_of(bed.run) == "STATE_DISK_OCCUPIED"
    assert bed.run(erase=Path(DEVICE).name)[:3] == [Step.REMEMBER, Step.ERASE, Step.FORMAT]
    assert left == []
    require_in_use(bed)


@pytest.mark.parametrize("target", Target)
def test_a_disk_that_is_not_there_is_missing(bed, monkeypatch, target):
    monkeypatch.setattr(bed.device, "facts", lambda _uuid: None)
    assert code_of(lambda: bed.run(target)) == "STATE_DISK_MISSING"


def swapped_at(bed, step):
    """Return what does the plan while the volume becomes another one before ``step``."""

    def swap(at):
        if at is step:
            bed.device.swaps += 1

    disk = bed.disk(hooks=Hooks(before=swap))
    todo = disk.plan()
    assert step in todo.steps
    return lambda: disk.apply(todo)


def test_another_volume_than_the_planned_one_is_not_opened(bed):
    bed.run()
    bed.device.reboot()
    assert code_of(swapped_at(bed, Step.OPEN)) == "LUKS_VOLUME_FOREIGN"
    assert not bed.device.mapped


def test_another_volume_than_the_formatted_one_is_not_opened(bed):
    assert code_of(swapped_at(bed, Step.ADD_BESIDE)) == "LUKS_VOLUME_FOREIGN"
    assert not bed.device.mapped


@pytest.fixture
def used(bed):
    """A disk in use, after a reboot."""
    bed.run()
    bed.device.reboot()
    return bed


def test_an_unlock_is_checked_and_counted_once_a_boot(used):
    before = used.counter.value
    assert used.run() == [Step.OPEN, Step.CHECK, Step.MOUNT, Step.ADVANCE, Step.BIND]
    assert used.counter.value == before + 1
    assert used.run() == []
    require_in_use(used)


@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("cut_at", range(5))
def test_a_cut_unlock_is_continued(used, cut_at, reboots):
    with pytest.raises(Cut):
        used.run(cut_at=cut_at)
    if reboots:
        used.device.reboot()
    used.run()
    require_in_use(used)


def test_a_cut_between_record_and_counter_is_no_rollback(used):
    before = used.counter.value
    used.counter.increment = _cut
    with pytest.raises(Cut):
        used.run()
    del used.counter.increment
    used.device.reboot()
    assert used.counter.value == before
    used.run()
    require_in_use(used)


def _cut():
    raise Cut


def test_a_disk_that_was_put_back_is_refused_and_closed_again(used):
    snapshot = used.device.filesystem.with_name("snapshot")
    shutil.copytree(used.device.filesystem, snapshot)
    used.run()
    used.device.reboot()
    shutil.rmtree(used.device.filesystem)
    shutil.copytree(snapshot, used.device.filesystem)
    assert code_of(used.run) == "STATE_DISK_ROLLED_BACK"
    assert (used.device.mapped, used.device.mounted()) == (False, False)


def test_a_header_that_was_put_back_is_refused(used):
    used.device.sequence += 1
    assert code_of(used.run) == "STATE_DISK_HEADER_CHANGED"
    assert not used.device.mapped


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(None, "STATE_DISK_RECORD", id="gone"),
        pytest.param(b"{}", "STATE_DISK_RECORD", id="empty"),
        pytest.param(b" " * 5000, "STATE_DISK_RECORD", id="too long"),
    ],
)
def test_a_volume_without_its_record_is_refused(used, content, code):
    path = used.device.filesystem / "record.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert code_of(used.run) == code


def test_another_tpm_is_noticed(used):
    used.counter.value = None
    assert code_of(used.run) == "STATE_DISK_COUNTER_LOST"
    assert used.counter.value is None


class NoTpm:
    """A counter whose TPM does not answer from the given question on."""

    def __init__(self, counter, *, silent):
        self._counter = counter
        self._silent = silent

    def _ask(self, name):
        if name in self._silent:
            raise TpmError("expected a TPM, got no answer", reason=Reason.TPM_UNREACHABLE)
        return getattr(self._counter, name)()

    def define(self):
        return self._ask("define")

    def read(self):
        return self._ask("read")

    def increment(self):
        return self._ask("increment")


ALL = ("define", "read", "increment")


@pytest.mark.parametrize("silent", [ALL, ("increment",)], ids=["before it is asked", "before it has counted"])
def test_without_its_tpm_a_disk_is_given_to_nobody_and_goes_on_when_the_tpm_is_back(used, silent):
    real, used.counter = used.counter, NoTpm(used.counter, silent=silent)
    before = real.value
    assert code_of(used.run) == "TPM_UNREACHABLE"
    assert (real.value, used.device.targets, used.paths.counted.exists()) == (before, set(), False)
    used.counter = real
    used.run()
    require_in_use(used)


def test_a_blank_disk_without_a_tpm_is_not_taken_into_use_and_is_wiped_once(bed):
    real, bed.counter = bed.counter, NoTpm(bed.counter, silent=ALL)
    assert code_of(bed.run) == "TPM_UNREACHABLE"
    assert (bed.device.token, bed.device.targets) == (False, set())
    bed.counter = real
    bed.run()
    require_in_use(bed)
    assert bed.device.wipes == 1


def test_a_wrong_key_is_answered_as_wrong_before_anything_happens(used):
    before = used.device.sequence
    assert code_of(lambda: used.run(key=DiskKey(b"x" * 32))) == "DISK_KEY_WRONG"
    assert (used.device.sequence, used.device.mapped) == (before, False)


@pytest.mark.parametrize("name", ["etcd", "point"], ids=["a directory", "the mount point"])
def test_a_directory_that_holds_something_is_not_covered(bed, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "member").touch()
    assert code_of(bed.run) == "STATE_DISK_HIDES_DATA"
    assert bed.device.slots is None


def test_an_empty_directory_is_covered(bed, tmp_path):
    (tmp_path / "etcd").mkdir()
    bed.run()
    require_in_use(bed)


def test_a_mount_point_that_holds_something_is_not_covered_by_an_open_disk_either(used, tmp_path):
    with pytest.raises(Cut):
        used.run(cut_at=1)
    (tmp_path / "point").mkdir()
    (tmp_path / "point" / "member").touch()
    assert code_of(used.run) == "STATE_DISK_HIDES_DATA"


def test_the_volume_of_another_disk_in_its_place_is_neither_closed_nor_covered(used):
    used.run()
    used.device.mapped = False
    assert used.run(Target.CLOSED, key=None) == []
    assert used.device.mounted()
    assert code_of(used.run) == "STATE_DISK_HIDES_DATA"


def test_only_directories_that_are_not_in_place_are_bound(used, monkeypatch):
    used.run()
    missing = used.paths.directories[1]
    used.device.targets.remove(missing)
    bound = []
    bind = used.device.bind
    monkeypatch.setattr(used.device, "bind", lambda target: bound.append(target) or bind(target))
    assert used.run() == [Step.BIND]
    assert bound == [missing]
    require_in_use(used)


def test_nothing_is_done_where_the_memory_is_a_disk(bed):
    bed.paths.mounts.write_text("none / ext4 rw 0 0\n")
    assert code_of(bed.run) == "NOT_TMPFS"
    assert (list(bed.paths.memory.iterdir()), bed.paths.journal.exists(), bed.device.slots) == ([], False, None)


def test_a_plan_alone_changes_nothing(bed):
    assert bed.disk().plan()
    assert (bed.device.slots, bed.counter.value, bed.paths.journal.exists()) == (None, None, False)


def test_a_destroyed_disk_is_made_anew_and_a_cut_in_between_is_gone_on_with(used):
    used.run()
    with pytest.raises(Cut):
        used.run(Target.DESTROYED, key=None, cut_at=2)
    assert used.device.slots
    assert used.run(Target.DESTROYED, key=None) == [Step.REMEMBER, Step.DISCARD]
    assert (used.device.slots, used.device.mapped) == (None, False)
    assert used.run(Target.DESTROYED, key=None) == []
    used.run()
    require_in_use(used)
    assert used.device.wipes == 2


def test_a_closed_disk_is_opened_and_counted_again(used):
    used.run()
    assert used.run(Target.CLOSED, key=None) == [Step.CLOSE]
    assert (used.device.mapped, used.device.targets) == (False, set())
    used.run()
    require_in_use(used)


@pytest.mark.parametrize(
    ("target", "steps"),
    [
        pytest.param(Target.CLOSED, [Step.CLOSE], id="closed"),
        pytest.param(Target.DESTROYED, [Step.CLOSE, Step.REMEMBER, Step.DISCARD], id="destroyed"),
    ],
)
def test_a_disk_with_a_broken_record_can_still_be_put_away(used, target, steps):
    used.run()
    used.paths.record.write_bytes(b"{}")
    assert used.run(target, key=None) == steps
    assert not used.device.mapped


def test_a_closed_disk_does_not_count_as_unlocked(used):
    used.run()
    assert used.paths.counted.exists()
    used.run(Target.CLOSED, key=None)
    assert not used.paths.counted.exists()


@pytest.mark.parametrize(
    ("blank", "target"),
    [
        pytest.param(False, Target.DESTROYED, id="destroyed"),
        pytest.param(True, Target.FORMATTED, id="formatted"),
    ],
)
def test_a_disk_that_its_admin_closed_does_not_count_as_unlocked_afterwards(used, blank, target):
    used.run()
    used.device.close()
    if blank:
        used.device.discard()
    used.run(target, key=None)
    assert not used.paths.counted.exists()


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_an_unlock_after_its_admin_closed_a_disk_is_counted_even_if_it_is_cut(used, cut_at):
    used.run()
    used.device.close()
    before = used.counter.value
    with pytest.raises(Cut):
        used.run(cut_at=cut_at)
    used.run()
    assert used.counter.value == before + 1
    require_in_use(used)
