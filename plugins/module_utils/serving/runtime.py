# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Life of a service under systemd: ready, status, watchdog, stop (sd_notify(3), without a library)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Tells systemd how the service is; silent where nobody listens."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Take the address from ``NOTIFY_SOCKET``."""
        address = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def ready(self, status: str) -> None:
        """Say that the service serves, with one sentence for ``systemctl status``."""
        self._send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, status: str) -> None:
        """Change the sentence."""
        self._send(f"STATUS={_one_line(status)}")

    def watchdog(self) -> None:
        """Say that the service is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the service drains."""
        self._send("STOPPING=1")

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        # the service is worth more than the message about it
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(0)
            channel.sendto("\n".join(assignments).encode("utf-8", "replace"), self._address)


async def wait_for_stop() -> str:
    """Wait for SIGTERM or SIGINT and return its name."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[str] = loop.create_future()

    def arrive(name: str) -> None:
        if not arrived.done():
            arrived.set_result(name)

    wanted = (signal.SIGTERM, signal.SIGINT)
    for number in wanted:
        loop.add_signal_handler(number, arrive, number.name)
    try:
        return await arrived
    finally:
        for number in wanted:
            loop.remove_signal_handler(number)


def _one_line(text: str) -> str:
    return " ".join(text.split())
