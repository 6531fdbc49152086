# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-api-endpoint`: a loopback port of a worker that leads to whichever control plane answers (ADR 0034).

A user of its own for the time it runs, no capabilities, no secrets: it passes TLS on and sees none of it.
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

    ``control_planes``: host:port of those that the site knows. ``endpoint``: host:port behind which there are control
    planes too, asked when none of the others answers; empty for none. ``list_file``: those that the cluster named last.
    """

    control_planes: tuple[str, ...] = ()
    endpoint: str = ""
    listen_port: int = DEFAULT_PORT
    list_file: Path = Path(LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Whom there is to dial: addresses in the order of the first tries, and names that stand for further ones."""

    addresses: tuple[str, ...]
    names: tuple[str, ...]


def load_known(config: ApiEndpointConfig, learned: Sequence[str], *, random: Random) -> Known:
    """Return whom to dial: those that the cluster named, then the site's, each part shuffled, then names.

    Raises ENDPOINT_INVALID, and CONFIG_INVALID where there is nobody or too many.
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
    """Reads configuration and list, and says when the list is another one than was read."""

    def __init__(self, path: str | Path, *, log: Log, random: Random) -> None:
        """Read the configuration at ``path``, and the list that it names."""
        self._path = path
        self._log = log
        self._random = random
        self._seen: tuple[int, int] | None = None
        self.config = load_config(ApiEndpointConfig, path)
        self._learned: tuple[str, ...] = ()

    def load(self) -> Known:
        """Read both anew; a list that is malformed leaves the last good one. Raises what `load_known` does."""
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
        """Whether the list's file is another one than was read."""
        return _stamp(self.config.list_file) != self._seen


class Service:
    """One run of the program: choice, dialler, proxy, and what systemd is told."""

    def __init__(self, lists: Lists, *, log: Log, limits: Limits, notifier: Notifier) -> None:
        """Wire the collaborators; nothing listens yet. Raises ENDPOINT_INVALID, CONFIG_INVALID."""
        self._lists = lists
        self._notifier = notifier
        self._choice = Choice()
        self._dialler = Dialler(self._choice, log=log, limits=limits)
        self._reloader = Reloader(lists.load, self._take, log=log)
        self.proxy = Proxy(
            self._choice, self._dialler, log=log, limits=limits, look=self._look, chosen=lambda _one: self._tell()
        )
        self._take(lists.load())

    def start(self) -> int:
        """Listen, and read anew on SIGHUP; return the port; raises PORT_UNAVAILABLE."""
        port = self.proxy.start(self._lists.config.listen_port)
        self._reloader.listen()
        self._notifier.ready(self.sentence())
        return port

    def sentence(self) -> str:
        """Return what `attested status` shows."""
        latest = self._choice.latest
        known = ", ".join([*sorted(self._choice.addresses), *self._dialler.names])
        return f"{f'{latest} answered last' if latest else 'none has answered yet'}; known: {known}"

    def reload(self) -> None:
        """Read configuration and list anew; open streams stay."""
        self._reloader.reload()

    def _take(self, known: Known) -> None:
        self._choice.replace(known.addresses)
        self._dialler.names = known.names
        self._tell()

    def _look(self) -> None:
        if self._lists.has_changed():
            self.reload()

    def _tell(self) -> None:
        self._notifier.status(self.sentence())


async def serve(path: str | Path, *, log: Log, limits: Limits | None = None, listening: Callable[[int], None]) -> None:
    """Serve until SIGTERM; ``listening`` hears the port. Raises what keeps it from serving."""
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
    """Run the program; return 0 after SIGTERM, 1 with the error on standard error where it cannot serve."""
    parser = argparse.ArgumentParser(
        prog="attested-api-endpoint", description="Lead a loopback port to whichever control plane answers."
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
