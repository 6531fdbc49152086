# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Life under systemd: what is said, to whom, and how a service is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.runtime import Notifier, wait_for_stop
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import Health

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Systemd:
    """The receiving end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.bind(address)
        self.channel.settimeout(2)

    def heard(self) -> list[str]:
        return self.channel.recv(4096).decode().splitlines()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """Listen like systemd."""
    listening = Systemd(str(tmp_path / "notify"))
    yield listening
    listening.channel.close()


@pytest.fixture
def notifier(systemd: Systemd) -> Notifier:
    """Talk to it."""
    return Notifier({"NOTIFY_SOCKET": systemd.channel.getsockname()})


def test_what_systemd_hears(systemd: Systemd, notifier: Notifier) -> None:
    """Each message by itself; a status stays one line."""
    notifier.ready("serving\nREADY=0")
    notifier.watchdog()
    notifier.stopping()
    assert [systemd.heard() for _unused in range(3)] == [
        ["READY=1", "STATUS=serving READY=0"],
        ["WATCHDOG=1"],
        ["STOPPING=1"],
    ]


def test_an_abstract_address_works() -> None:
    """As systemd gives it to units with private file systems."""
    name = f"attested-test-{os.getpid()}"
    listening = Systemd(f"\0{name}")
    Notifier({"NOTIFY_SOCKET": f"@{name}"}).watchdog()
    assert listening.heard() == ["WATCHDOG=1"]
    listening.channel.close()


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_nobody_listening_is_no_error(environ: dict[str, str]) -> None:
    """A service runs without systemd as well."""
    assert Notifier(environ).ready("serving") is None


async def test_health_follows_its_parts(systemd: Systemd, notifier: Notifier) -> None:
    """Ready once, when every part works for the first time; later only the sentence changes."""
    health = Health(notifier, version="1.2.3", parts=("relay", "keys"))
    answers = [await health.handle(b"", None)]  # type: ignore[arg-type]
    health.working("relay")
    health.working("keys")
    answers.append(await health.handle(b"", None))  # type: ignore[arg-type]
    health.troubled("keys", "locked")
    health.troubled("keys", "locked")
    answers.append(await health.handle(b"", None))  # type: ignore[arg-type]
    health.working("keys")
    assert answers == [b"\x08\x02", b"\x08\x01", b"\x08\x02"]
    assert [systemd.heard() for _unused in range(4)] == [
        ["STATUS=1.2.3, keys: starting"],
        ["READY=1", "STATUS=1.2.3, serving"],
        ["STATUS=1.2.3, keys: locked"],
        ["STATUS=1.2.3, serving"],
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stop_signals_are_waited_for(number: signal.Signals) -> None:
    """Either ends the wait, once."""
    waiting = asyncio.create_task(wait_for_stop())
    await asyncio.sleep(0)
    os.kill(os.getpid(), number)
    assert number.name == await asyncio.wait_for(waiting, 5)
