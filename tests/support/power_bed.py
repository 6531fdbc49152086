# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state disk during a format, an unlock or a rekey until a power cut, and the next boot.

Usage: python tests/support/power_bed.py COURSE STEP|END|after    (in a kernel of `uml.py`, which `power_cuts.py` ends)

Before STEP it creates the file `cut` and waits for its end. `/run/out` has the data that outlive a power cut: the disk,
the TPM's counter (here a file), the journal of a format, and the data for the check of the second boot.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.apply import Hooks
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Target
from ansible_collections.attested.kubernetes.tests.support import disk_bed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.attested.kubernetes.plugins.module_utils.disk.plan import Step

OUT = Path("/run/out")
CUT, DIGEST = OUT / "cut", OUT / "digest"
END = "END"


def _in_use() -> None:
    """Bring a disk into use and leave it open, with synced data."""
    disk = disk_bed.state_disk()
    disk.apply(disk.plan())
    DIGEST.write_text(disk_bed.write_data(), encoding="ascii")


def _booted_again() -> None:
    _in_use()
    disk_bed.linux_device().close()
    shutil.rmtree(disk_bed.PATHS.memory)


def _to_be_rekeyed() -> None:
    _in_use()
    disk_bed.give_second_key()
    disk_bed.copy_header(disk_bed.HEADER_BEFORE)


COURSES: dict[str, tuple[Callable[[], None], Target]] = {
    "format": (lambda: None, Target.OPENED),
    "unlock": (_booted_again, Target.OPENED),
    "rekey": (_to_be_rekeyed, Target.REKEYED),
}
"""The preparation and the target of the disk, by course."""


def go_until(course: str, step: str) -> None:
    """Run the course, and wait for the power cut before ``step``, or after the last one."""

    def before(one: Step) -> None:
        if one.name == step:
            _wait_for_the_cut()

    prepare, target = COURSES[course]
    prepare()
    disk = disk_bed.state_disk(target, hooks=Hooks(before=before))
    disk.apply(disk.plan())
    if step == END:
        _wait_for_the_cut()


def _wait_for_the_cut() -> None:
    CUT.touch()
    time.sleep(600)


def after(course: str) -> dict[str, Any]:
    """Boot again: open the disk with either key, continue, and return its state."""
    seen = _rekeyed() if course == "rekey" else disk_bed.finished()
    if DIGEST.exists():
        seen["data"] = disk_bed.data_digest() == DIGEST.read_text(encoding="ascii")
    return seen


def _rekeyed() -> dict[str, Any]:
    disk_bed.give_second_key()
    for target in (Target.OPENED, Target.REKEYED):
        disk = disk_bed.state_disk(target)
        disk.apply(disk.plan())
    return disk_bed.rekeyed()


def main() -> None:
    """Run one course, or the boot after it."""
    disk_bed.FileCounter.path = OUT / "counter"
    disk_bed.HEADER_BEFORE = OUT / "header.before"
    disk_bed.set_up()
    course, step = sys.argv[1:]
    if step == "after":
        (OUT / "after.json").write_text(json.dumps(after(course)), encoding="utf-8")
    else:
        go_until(course, step)


if __name__ == "__main__":
    main()
