# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a service under systemd: ready, status, watchdog, stop (sd_notify(3), without a library), configuration."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import signal
import socket
import sys
import types
import typing
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import AttestedError, SiteError
from ..reasons import Reason
from .documents import load_document
from .files import read_bytes
from .host import release

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from .logs import Log


class Notifier:
    """Reports the state of the service to systemd; does nothing without a notify socket."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Read the address from ``NOTIFY_SOCKET``."""
        address = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def ready(self, status: str) -> None:
        """Report that the service is ready, with one sentence for ``systemctl status``."""
        self._send("READY=1", f"STATUS={_one_line(status)}")

    def status(self, status: str) -> None:
        """Change the sentence."""
        self._send(f"STATUS={_one_line(status)}")

    def watchdog(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._send("STOPPING=1")

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        # A service that works must not fail because of this message.
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


# The configuration of a service: a YAML file is read into a frozen dataclass, and one error lists all mistakes.

_MAX_CONFIG_BYTES = 1 << 16


def load_config(kind: type[Config], path: str | Path) -> Config:
    """Return the file ``path`` as an instance of the dataclass ``kind``; raises CONFIG_INVALID, FILE_UNUSABLE.

    Fields may be str, int, float, bool, Path, an enumeration of strings, ``tuple[str, ...]``, or one of these ``|
    None``; a field without default is required, an unknown entry is a mistake.
    """
    entries = _mapping(path)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    problems = [f"unknown entry {name!r}" for name in entries if name not in fields]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in entries:
            problems += [f"missing entry {name!r}"] if _is_required(field) else []
            continue
        try:
            values[name] = _converted(entries[name], hints[name])
        except TypeError as error:
            problems.append(f"{name!r}: {error}")
    if problems:
        raise SiteError(f"expected a correct {path}, got {'; '.join(problems)}", reason=Reason.CONFIG_INVALID)
    return kind(**values)


def _mapping(path: str | Path) -> dict[str, Any]:
    try:
        entries = load_document(read_bytes(path, limit=_MAX_CONFIG_BYTES))
    except ValueError as error:
        raise SiteError(f"expected YAML in {path}, got: {error}", reason=Reason.CONFIG_INVALID) from error
    if not isinstance(entries, dict) or not all(isinstance(name, str) for name in entries):
        raise SiteError(f"expected a mapping in {path}, got {type(entries).__name__}", reason=Reason.CONFIG_INVALID)
    return entries


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _converted(value: object, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        some = next(kind for kind in hint.__args__ if kind is not types.NoneType)
        return None if value is None and types.NoneType in hint.__args__ else _converted(value, some)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise TypeError(f"expected a list of strings, got {_shown(value)}")
        return tuple(value)
    if hint is Path:
        return Path(_exactly(value, str))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _chosen(value, hint)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _exactly(value, hint)


def _chosen(value: object, kind: type[Enum]) -> Enum:
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(str(one.value) for one in kind)
        raise TypeError(f"expected one of {words}, got {_shown(value)}") from None


def _exactly(value: object, kind: type[Any]) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {kind.__name__}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}"


# The main function of a service: its options, its configuration, and the error that prevents its start.

Config = TypeVar("Config")


def run_service(
    argv: Sequence[str] | None,
    *,
    name: str,
    description: str,
    kind: type[Config],
    path: str,
    serve: Callable[[Config, str], Coroutine[Any, Any, None]],
) -> int:
    """Read the configuration (a ``kind``, from ``path`` or from --config) and run ``serve`` with it and its path.

    Returns 0 after SIGTERM; returns 1 and writes the error to standard error if the service cannot run.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("--config", default=path, metavar="FILE", help="the configuration (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        asyncio.run(serve(load_config(kind, options.config), options.config))
    except AttestedError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    return 0


# Reload the configuration on SIGHUP while the service runs, completely or not at all.


class Reloader(Generic[Config]):
    """Reloads the configuration and counts its generations; an invalid file leaves the old one in force."""

    def __init__(self, load: Callable[[], Config], apply: Callable[[Config], None], *, log: Log) -> None:
        """Read by ``load`` and apply by ``apply``, which must change everything or raise before any change."""
        self._load = load
        self._apply = apply
        self._log = log
        self.generation = 1

    def reload(self) -> None:
        """Read and apply the configuration again; an error is logged."""
        try:
            self._apply(self._load())
        except AttestedError as error:
            self._log.event("reload_refused", generation=self.generation, reason=error.code, detail=error.message)
            return
        self.generation += 1
        self._log.event("reloaded", generation=self.generation)

    def listen(self) -> None:
        """Reload on each SIGHUP to this process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
