# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-api-endpoint`: forwards a loopback port of a worker to a control plane (ADR 0034).

It runs as a dynamic user without capabilities and secrets: it forwards TLS connections without decrypting them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import read_bytes
from ..core.host import Random, SystemRandom, release, shuffled
from ..core.logs import open_log
from ..core.runtime import Notifier, Reloader, load_config, wait_for_stop
from ..errors import AttestedError, SiteError
from ..reasons import Reason
from .endpoint_addresses import LIST, MAX_ADDRESSES, MAX_LIST_BYTES, Choice, literal, parse_address, parse_list
from .endpoint_proxy import Dialler, Limits, Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.logs import Log

CONFIG = "/etc/attested/api-endpoint.yml"
DEFAULT_PORT = 6444


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpointConfig:
    """The configuration file, written by the role `api_endpoint`.

    ``control_planes``: host:port of the control planes that the site configures.
    ``endpoint``: host:port of a load balancer or name for control planes, used after all others; empty for none.
    ``list_file``: the control planes that the cluster named last.
    """

    control_planes: tuple[str, ...] = ()
    endpoint: str = ""
    listen_port: int = DEFAULT_PORT
    list_file: Path = Path(LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The control planes to dial: addresses in order, and names that resolve to further addresses."""

    addresses: tuple[str, ...]
    names: tuple[str, ...]


def load_known(config: ApiEndpointConfig, learned: Sequence[str], *, random: Random) -> Known:
    """Return the control planes to dial.

    The addresses of the cluster come first, then those of the site, both shuffled. Names come last. Raises
    ENDPOINT_INVALID, and CONFIG_INVALID if the site configures no control plane or too many.
    """
    entries = [*config.control_planes, *([config.endpoint] if config.endpoint else [])]
    hosts = {entry: parse_address(entry)[0] for entry in entries}
    if not 1 <= len(entries) <= MAX_ADDRESSES:
        raise SiteError(
            f"expected 1 to {MAX_ADDRESSES} control planes, got {len(entries)}", reason=Reason.CONFIG_INVALID
        )
    addresses = [entry for entry in entries if literal(hosts[entry]) is not None]
    return Known(
        addresses=tuple(dict.fromkeys((*shuffled(random, learned), *shuffled(random, addresses)))),
        names=tuple(dict.fromkeys(entry for entry in entries if literal(hosts[entry]) is None)),
    )


class Lists:
    """Reads the configuration and the list of control planes, and detects changes of the list."""

    def __init__(self, path: str | Path, *, log: Log, random: Random) -> None:
        """Read the configuration at ``path``; `load` reads the list that it names."""
        self._path = path
        self._log = log
        self._random = random
        self._seen: tuple[int, int] | None = None
        self.config = load_config(ApiEndpointConfig, path)
        self._learned: tuple[str, ...] = ()

    def load(self) -> Known:
        """Read both files again; a malformed list is logged and the last good list stays.

        Raises as `load_known`.
        """
        config = load_config(ApiEndpointConfig, self._path)
        self._seen = _stamp(config.list_file)
        if self._seen is not None:
            try:
                self._learned = parse_list(read_bytes(config.list_file, limit=MAX_LIST_BYTES))
            except AttestedError as error:
                self._log.event("list_refused", reason=error.code, detail=error.message)
        known = load_known(config, self._learned, random=self._random)
        self.config = config
        return known

    def has_changed(self) -> bool:
        """Return whether the list has changed since it was read."""
        return _stamp(self.config.list_file) != self._seen


class Service:
    """One run of the program: choice, dialler, proxy, and the status for systemd."""

    def __init__(self, lists: Lists, *, log: Log, limits: Limits, notifier: Notifier) -> None:
        """Wire the collaborators; nothing listens yet. Raises ENDPOINT_INVALID, CONFIG_INVALID."""
        self._lists = lists
        self._notifier = notifier
        self._choice = Choice()
        self._dialler = Dialler(self._choice, log=log, limits=limits)
        self._reloader = Reloader(lists.load, self._use, log=log)
        self.proxy = Proxy(
            self._choice, self._dialler, log=log, limits=limits, look=self._look, chosen=lambda _one: self._notify()
        )
        self._use(lists.load())

    def start(self) -> int:
        """Listen, handle SIGHUP as reload, and return the port; raises PORT_UNAVAILABLE."""
        port = self.proxy.start(self._lists.config.listen_port)
        self._reloader.listen()
        self._notifier.ready(self.sentence())
        return port

    def sentence(self) -> str:
        """Return the status text that `attested status` shows."""
        latest = self._choice.latest
        known = ", ".join([*sorted(self._choice.addresses), *self._dialler.names])
        return f"{f'{latest} answered last' if latest else 'none has answered yet'}; known: {known}"

    def reload(self) -> None:
        """Read the configuration and the list again; open streams stay."""
        self._reloader.reload()

    def _use(self, known: Known) -> None:
        self._choice.replace(known.addresses)
        self._dialler.names = known.names
        self._notify()

    def _look(self) -> None:
        if self._lists.has_changed():
            self.reload()

    def _notify(self) -> None:
        self._notifier.status(self.sentence())


async def serve(path: str | Path, *, log: Log, limits: Limits | None = None, listening: Callable[[int], None]) -> None:
    """Serve until SIGTERM; calls ``listening`` with the port.

    Raises an `AttestedError` if it cannot serve.
    """
    service = Service(
        Lists(path, log=log, random=SystemRandom()), log=log, limits=limits or Limits(), notifier=Notifier()
    )
    try:
        listening(service.start())
        log.event("stopping", signal=await wait_for_stop())
    finally:
        await service.proxy.stop()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0 after SIGTERM, or 1 with the error on standard error if it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="attested-api-endpoint", description="Forward a loopback port to a control plane that answers."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("--config", default=CONFIG, metavar="FILE", help="the configuration (default: %(default)s)")
    options = parser.parse_args(argv)
    log = open_log()
    try:
        asyncio.run(serve(options.config, log=log, listening=lambda port: log.event("listening", port=port)))
    except AttestedError as error:
        sys.stderr.write(f"attested-api-endpoint: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
