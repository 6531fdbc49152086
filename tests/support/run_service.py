# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start one of our services in this process, as another user: ``run_service.py join|key USER CONFIG [PACE]``.

The modules are imported before privileges are dropped, so that an interpreter in root's home works too.
The key service polls more often than in production, so that no test waits half a minute; not with the pace ``real``.
"""

from __future__ import annotations

# asyncio imports it late, after privileges are dropped
import encodings.idna  # noqa: F401  # pylint: disable=unused-import
import importlib
import os
import pwd
import sys
from functools import partialmethod
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import release
from ansible_collections.attested.kubernetes.tests.mutation.targets import MUTANT


def main() -> int:
    """Run the service."""
    kind, user, config, *pace = sys.argv[1:]
    if MUTANT in os.environ:
        importlib.import_module("ansible_collections.attested.kubernetes.tests.mutation.imported")
    if kind == "join":
        from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_service import main as serve  # noqa: PLC0415 - one of the two only: its memory is measured
    else:
        from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.service import main as serve  # noqa: PLC0415 - one of the two only: its memory is measured

        if pace != ["real"]:
            hasten()
    release()  # reading the version imports more of the standard library
    entry = pwd.getpwnam(user)
    if os.getuid() != entry.pw_uid:
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    return serve(["--config", config])


def hasten() -> None:
    """Poll all Nodes each second, and the policy every five seconds."""
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.node_conditions import StandingWatcher  # noqa: PLC0415 - as above
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.policy_watch import PolicyWatch  # noqa: PLC0415 - as above

    watchers: dict[Any, dict[str, float]] = {StandingWatcher: {"pause_seconds": 1.0}, PolicyWatch: {"seconds": 5}}
    for watcher, sooner in watchers.items():
        watcher.run_once = partialmethod(watcher.run_once, **sooner)


if __name__ == "__main__":
    sys.exit(main())
