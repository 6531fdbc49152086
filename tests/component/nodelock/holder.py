# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of its own that takes the lock; the tests race it and kill it.

Arguments: TCTI, directory, cluster id (hex), step before which to stop and wait for SIGKILL ("-" for none).
Prints "won" or "lost"; before a step to stop at it prints "stopped".
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import (
    Hooks,
    NodeLock,
    NodeLockPaths,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.client import open_tpm


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(tcti: str, directory: str, cluster_id: str, step: str) -> None:
    def before(name: str) -> None:
        if name == step:
            say("stopped")
            signal.pause()

    where = Path(directory)
    paths = NodeLockPaths(directory=where, firmware_log=where / "none", userspace_log=where / "none")
    with open_tpm(tcti, lock_directory=where, timeout_seconds=60) as tpm:
        found = NodeLock(tpm, paths=paths, hooks=Hooks(before=before)).acquire(bytes.fromhex(cluster_id))
    say("won" if found.won else "lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
