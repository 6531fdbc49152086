# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports for servers of tests: below the kernel's range for clients, and unique among processes.

A free port that the kernel chose may be used by a client before the server starts: a member of etcd that connects to a
member that has not started can even be connected to itself, from the same port.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
from pathlib import Path

_FIRST, _COUNT = 20_000, 400
_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port that is free on all addresses of this host; the caller also owns the next port."""
    return _block().next()


class Block:
    """Ports that this process owns while it lives; the name of an abstract socket reserves them."""

    def __init__(self) -> None:
        self._claim = socket.socket(socket.AF_UNIX)
        self._ports = itertools.cycle(self._claimed())

    def next(self) -> int:
        """Return a free port, in turn, so that none is reused soon."""
        return next(port for port in self._ports if _is_free(port) and _is_free(port + 1))

    def close(self) -> None:
        """Release the ports."""
        self._claim.close()

    def _claimed(self) -> range:
        clients = int(_CLIENTS.read_text(encoding="ascii").split()[0])
        for first in range(_FIRST, clients - _COUNT, _COUNT):
            with contextlib.suppress(OSError):
                self._claim.bind(f"\0attested-test-ports-{first}")
                return range(first, first + _COUNT, 2)
        raise RuntimeError(
            f"expected {_COUNT} ports from {_FIRST} on and below {clients} (see {_CLIENTS}), all are taken"
        )


@functools.cache
def _block() -> Block:
    return Block()


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("", port))
        return True
    return False
