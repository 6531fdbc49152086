# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports that tests start servers at: nobody else's, and no client's."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from ansible_collections.attested.kubernetes.tests.support.ports import Block, free_port

BLOCK = 400


def test_each_is_another_and_the_one_after_it_is_nobodys() -> None:
    given = [free_port() for _unused in range(20)]
    assert len({*given, *(port + 1 for port in given)}) == 40


def test_none_is_one_that_the_kernel_gives_to_clients() -> None:
    clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert free_port() + 1 < clients


def test_one_that_somebody_listens_at_is_passed_over() -> None:
    with contextlib.closing(Block()) as block:
        first = block.next()
        with socket.create_server(("127.0.0.1", first + 2)), socket.create_server(("127.0.0.1", first + 5)):
            assert block.next() == first + 6


def test_two_processes_never_have_the_same() -> None:
    with contextlib.closing(Block()) as block, contextlib.closing(Block()) as other:
        assert block.next() // BLOCK != other.next() // BLOCK
