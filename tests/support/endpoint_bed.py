# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control planes as TLS servers with one CA, and the real proxy program in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.tests.support.api_bed import Authority
from ansible_collections.attested.kubernetes.tests.support.ports import free_port
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PROGRAM = "ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.endpoint_service"
NAME = "api.prod.example"
CHUNK = 1 << 16


class Credentials:
    """The cluster's CA, a server key pair for the endpoint name only, and the TLS contexts of both ends."""

    def __init__(self, directory: Path) -> None:
        """Write the files to ``directory``."""
        self.ca = Authority.make(directory)
        self.ca.issue("server", names=[(NameOID.COMMON_NAME, "kube-apiserver")], server=True, dns=(NAME,))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(directory / "server.crt", directory / "server.key")
        self.client = ssl.create_default_context(cafile=str(directory / "ca.crt"))


class ControlPlane:
    """A server on loopback that can be killed and restarted at the same port."""

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        """Serve with ``handler``, with TLS if there is a context."""
        self.port = port
        self.taken = 0
        self._handler = handler
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        """The address of the server."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the previous port if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """Accept no more connections and break existing ones, like a machine without power."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        self._writers.add(writer)
        try:
            await self._handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def says(word: bytes) -> Handler:
    """Return a handler that answers each line with ``word`` and the line."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(word + b" " + line)
            await writer.drain()

    return handle


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo the data."""
    while piece := await reader.read(CHUNK):
        writer.write(piece)
        await writer.drain()


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address at which the kernel drops further connection requests, like a dead machine."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _queued in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"


class Program:
    """The proxy in a separate process."""

    def __init__(self, directory: Path, **config: Any) -> None:
        """Write its configuration and list below ``directory``."""
        self.list = directory / "control-planes.json"
        self._config = directory / "api-endpoint.yml"
        self._config_values = {"listen_port": free_port(), "list_file": str(self.list), **config}
        self.port: int = self._config_values["listen_port"]
        self.log = directory / "log"
        self.configure()
        with self.log.open("ab") as log:
            argv = [sys.executable, "-m", PROGRAM, f"--config={self._config}"]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def configure(self, **changes: Any) -> None:
        """Write the configuration with ``changes``; the program reads it at a reload."""
        self._config_values |= changes
        self._config.write_text(yaml.safe_dump(self._config_values), encoding="utf-8")

    def told(self, event: str) -> int:
        """Return the number of its log lines with ``event``."""
        return self.log.read_text(encoding="utf-8").count(f'"event": "{event}"')

    async def wait_for(self, event: str, *, times: int = 1) -> None:
        """Wait until it has logged ``event`` this many times."""
        async with asyncio.timeout(120):
            while self.told(event) < times:
                assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
                await asyncio.sleep(0.02)

    def stop(self) -> int:
        """End it like systemd; return its exit code."""
        self.process.terminate()
        return self.process.wait(60)


@contextlib.asynccontextmanager
async def program(directory: Path, control_planes: Sequence[str], **config: Any) -> AsyncIterator[Program]:
    """Run the proxy for ``control_planes`` until the block ends."""
    made = Program(directory, control_planes=list(control_planes), **config)
    try:
        await made.wait_for("listening")
        yield made
    finally:
        assert made.stop() == 0, made.log.read_text(encoding="utf-8")
