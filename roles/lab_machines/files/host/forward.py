# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach the machines of the lab from the host by loopback addresses, without a link or route on the host.

A socket belongs to the network namespace it was made in: the program opens its listening sockets, then enters the
namespace of the lab, and everything that it opens from then on is there. It reads the machines of the lab directory
at its start, so another machine means another start; ``ensure`` does that, and only then.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from common import Lab, LabError, program, runs, write
from machines import Machine, all_machines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLONE_NEWNET = 0x40000000
CONNECT_SECONDS = 5.0
START_SECONDS = 5.0
CHUNK = 1 << 16

# ssh, Kubernetes API, init, join, verification, recovery
PORTS = (22, 6443, 9000, 9090, 9091, 9999)

Listener = tuple[socket.socket, str, int]


def listen(machines: list[Machine]) -> list[Listener]:
    """Open every listening socket in the host's namespace; each with the address that it leads to."""
    result = []
    for machine in machines:
        for port in PORTS:
            try:
                listener = socket.create_server((machine.forward, port), backlog=128)
            except OSError as error:
                raise LabError(f"expected {machine.forward}:{port} to be free, got: {error.strerror}") from error
            result.append((listener, machine.address, port))
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


def description(lab: Lab) -> str:
    """Return a digest of what a forwarder started now would do."""
    targets = sorted((machine.forward, machine.address) for machine in all_machines(lab))
    return hashlib.sha256(json.dumps([targets, PORTS]).encode()).hexdigest()


def run_forwarder(lab: Lab) -> None:
    """Be the forwarder: listen, enter the namespace, give up root, serve."""
    listeners = listen(all_machines(lab))
    enter(lab.namespace)
    write(lab.forwarder_pid, f"{os.getpid()}\n")
    write(lab.root / "forwarder.digest", description(lab))
    nobody = 65534
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)
    asyncio.run(serve(listeners))


def ensure(lab: Lab) -> bool:
    """Start the forwarder unless one runs for exactly these machines; True if it was started."""
    digest = lab.root / "forwarder.digest"
    running = runs(lab.forwarder_pid, lab.root)
    if running and digest.exists() and digest.read_text() == description(lab):
        return False
    if running:
        os.kill(running, signal.SIGTERM)
        wait_until(lambda: not runs(lab.forwarder_pid, lab.root), "the old forwarder to end")
    lab.forwarder_pid.unlink(missing_ok=True)
    argv = [sys.executable, __file__, "run", "--name", lab.name, "--lab", str(lab.root), "--cache", str(lab.cache)]
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
