# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach the machines of the lab from the host by loopback addresses, without a link or route on the host.

A socket belongs to the network namespace it was made in: the program opens its listening sockets, then enters the
namespace of the lab, and everything that it opens from then on is there. It listens for every machine that there
can be, so that one more machine does not interrupt the connections of the others.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from common import Lab, LabError, program, runs, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLONE_NEWNET = 0x40000000
CONNECT_SECONDS = 5.0
START_SECONDS = 20.0
CHUNK = 1 << 16

# ssh, Kubernetes API, init, join, verification, recovery
PORTS = (22, 6443, 9000, 9090, 9091, 9999)

# last byte of both addresses: control planes, workers, guests, virtual machines as workers and as a control plane
NUMBERS = (*range(11, 14), *range(21, 30), *range(31, 50), *range(51, 54), 61)
SUBNET = "10.89.7"

Listener = tuple[socket.socket, str, int]


def listen(loopback: str) -> list[Listener]:
    """Open every listening socket in the host's namespace; each with the address that it leads to."""
    result = []
    for number, port in product(NUMBERS, PORTS):
        try:
            listener = socket.create_server((f"{loopback}.{number}", port), backlog=128)
        except OSError as error:
            raise LabError(f"expected {loopback}.{number}:{port} to be free, got: {error.strerror}") from error
        result.append((listener, f"{SUBNET}.{number}", port))
    return result


def enter(namespace: Path) -> None:
    """Move this process into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise LabError(f"expected to enter {namespace}, got: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, then close that direction."""
    while data := await source.read(CHUNK):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, address: str, port: int) -> None:
    """Serve one connection; where nothing answers, the caller sees it closed."""
    try:
        far_reader, far_writer = await asyncio.wait_for(asyncio.open_connection(address, port), CONNECT_SECONDS)
    except (OSError, TimeoutError):
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as directions:
            directions.create_task(copy(reader, far_writer))
            directions.create_task(copy(far_reader, writer))
    except* OSError:
        pass  # a reset of either end ends both
    finally:
        for end in (writer, far_writer):
            end.close()


async def serve(listeners: list[Listener]) -> None:
    """Serve until the process is told to end."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    for listener, address, port in listeners:
        await asyncio.start_server(partial(relay, address=address, port=port), sock=listener)
    await stop.wait()


def run_forwarder(lab: Lab) -> None:
    """Be the forwarder: listen, enter the namespace, give up root, serve."""
    listeners = listen(lab.loopback)
    enter(lab.namespace)
    write(lab.forwarder_pid, f"{os.getpid()}\n")
    nobody = 65534
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)
    asyncio.run(serve(listeners))


def ensure(lab: Lab) -> bool:
    """Start the forwarder unless it runs; True if it was started."""
    if runs(lab.forwarder_pid, lab.root):
        return False
    lab.forwarder_pid.unlink(missing_ok=True)
    options = ["--name", lab.name, "--loopback", lab.loopback, "--lab", str(lab.root), "--cache", str(lab.cache)]
    argv = [sys.executable, "-B", __file__, "run", *options]
    with (lab.root / "forwarder.log").open("wb") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    wait_until(lambda: runs(lab.forwarder_pid, lab.root) or child.poll() is not None, "the forwarder to listen")
    if child.poll() is not None:
        raise LabError((lab.root / "forwarder.log").read_text().strip())
    return True


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition of the lab's own processes."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"expected {what} within {START_SECONDS:.0f} s, got nothing")
        time.sleep(0.02)


def work(lab: Lab, command: str) -> bool:
    """Be the forwarder, or see to it that one runs."""
    if command == "ensure":
        return ensure(lab)
    run_forwarder(lab)
    return False


if __name__ == "__main__":
    program(work, ("ensure", "run"))
