# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill a running playbook with all of its processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.support.road import Road


def cut_run(road: Road, playbook: str, *words: str, after: str, changes: int = 1) -> str:
    """Kill a playbook when a task whose name ends with ``after`` has changed this many hosts; return its output.

    All tasks with that name count. Hosts are processed in turn: hosts after the last counted one have not started, or
    have just started. Fails if the run ends before.
    """
    process = road.start(playbook, "--forks=1", *words)
    said, left, is_it = "", changes, False
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if line.startswith("TASK ["):
            is_it = line.partition("]")[0].endswith(after)
        left -= is_it and line.startswith("changed: [")
        if not left:
            _kill(process)
            return said
    raise AssertionError(f"{playbook} ended before {changes} changes of {after!r}:\n{said[-6000:]}")


def phases_left(road: Road, playbook: str, *words: str) -> list[str]:
    """Return the remaining phases of a rotation by its playbook in check mode."""
    said = road.play(playbook, *words, "--check").output
    return re.findall(r"^\s+\"  ([a-z]+): ", said, re.MULTILINE)


def _kill(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL to the command and to its descendants."""
    process.send_signal(signal.SIGSTOP)  # prevents new processes meanwhile
    for pid in (*_descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _descendants(pid: int) -> list[int]:
    listed = subprocess.run(("ps", "-eo", "pid=,ppid="), capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found, known = [], {pid}
    while more := {child for child, parent in parents.items() if parent in known} - known:
        found += sorted(more)
        known |= more
    return found
