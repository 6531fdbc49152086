# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cut the power of a control plane during an idle stream; run by `unshare --map-root-user --net`.

In its own network namespace all packets from and to it are dropped. Prints the result of the stream and the next
server, one word per line.
"""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress

from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_addresses import Choice
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service import Dialler, Limits, Proxy
from ansible_collections.attested.kubernetes.tests.support.endpoint_bed import ControlPlane, says

LIMITS = Limits(connect_seconds=5.0, dead_seconds=2)


class Silent:
    """Receive events of the proxy and discard them."""

    def event(self, name: str, /, **fields: str | float | bool | None) -> None:
        """Discard an event."""


def cut(port: int) -> None:
    """Drop all packets from and to ``port``."""
    rules = f"""
    table inet power {{
      chain in {{
        type filter hook input priority 0;
        tcp dport {port} drop
        tcp sport {port} drop
      }}
    }}
    """
    subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)


async def ask(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> str:
    """Return the name of the answering server."""
    stream[1].write(b"who\n")
    return (await stream[0].readline()).decode().partition(" ")[0]


async def main() -> None:
    """Cut the power of the control plane in use."""
    first, second = ControlPlane(says(b"first")), ControlPlane(says(b"second"))
    await first.start()
    await second.start()
    choice = Choice((first.address, second.address))
    proxy = Proxy(choice, Dialler(choice, log=Silent(), limits=LIMITS), log=Silent(), limits=LIMITS)
    port = proxy.start(0)
    stream = await asyncio.open_connection("127.0.0.1", port)
    print(await ask(stream))
    cut(first.port)
    try:
        await stream[0].read()
        print("ended")
    except ConnectionResetError:
        print("broken")
    print(await ask(await asyncio.open_connection("127.0.0.1", port)))
    with suppress(asyncio.CancelledError):
        await proxy.stop()


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(main())
