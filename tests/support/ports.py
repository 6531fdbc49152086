# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports for servers that a test starts: below those that the kernel gives to clients, and no two processes' the same.

A port that the kernel chose and that was closed again may be a client's before the server has it: a member of etcd that
asks one which has not started yet can even be connected to itself, from the very port that is asked.
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
    """Return a port of no address of this host at which anybody listens; the port after it is the caller's, too."""
    return _block().next()


class Block:
    """Ports that are this process's while it lives: the name of an abstract socket says so to all others."""

    def __init__(self) -> None:
        self._claim = socket.socket(socket.AF_UNIX)
        self._ports = itertools.cycle(self._claimed())

    def next(self) -> int:
        """Return one that is free now, in turn, so that none comes again soon."""
        return next(port for port in self._ports if _is_free(port) and _is_free(port + 1))

    def close(self) -> None:
        """Let others have them."""
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
