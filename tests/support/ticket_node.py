# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with its ticket in a separate process, so that a test can search its memory.

Usage: python -m ...ticket_node, a JSON object on standard input; prints the reason code of its refused disk ("" for
none), and runs until its standard input ends. ``opens_itself``: it also opens the ticket, which it must not.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from datetime import datetime
from typing import Any

from ansible_collections.attested.kubernetes.plugins.module_utils.disk.state_disk import run
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import (
    ClosedTicket,
    Expected,
    read_ticket,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import OneTimeKey


def ticket_of(settings: dict[str, Any]) -> ClosedTicket:
    """Return the ticket in the answer in ``settings``."""
    given = {name: b64decode(text) for name, text in settings["bytes"].items()}
    return read_ticket(
        given["answer"],
        expected=Expected(
            cluster_id=given["cluster_id"],
            node_name=settings["node_name"],
            disk_id="",
            binding=given["binding"],
            kubelet_key=SecretBytes(given["kubelet_key"]),
        ),
        pins=JoinCaPins.from_pem(given["join_ca"]),
        secret=given["secret"],
        one_time_key=OneTimeKey.restore(given["one_time_key"]),
        now=datetime.fromisoformat(settings["now"]),
    )


def main() -> None:
    """Have the disk opened with the ticket, and continue to run."""
    settings = json.loads(sys.stdin.readline())
    ticket = ticket_of(settings)
    kept = ticket.opened() if settings["opens_itself"] else None
    try:
        run(settings["disk"], False, sealed=ticket.sealed)
        code = ""
    except AttestedError as error:
        code = error.code
    sys.stdout.write(f"{code}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del kept


if __name__ == "__main__":
    main()
