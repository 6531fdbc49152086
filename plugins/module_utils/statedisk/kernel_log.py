# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log and the numbers of its mappings, as they are now."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import SystemFault
from ..reasons import Reason
from .damage import Damage, damage_in
from .paths import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

KERNEL_LOG = Path("/dev/kmsg")
BLOCK_DEVICES = Path("/sys/class/block")

_RECORD_BYTES = 1 << 14  # the kernel gives a record whole or not at all; its longest has 8 KiB
_MAPPINGS = frozenset({NAME, f"{NAME}_dif"})


class KernelLog(Protocol):
    """What the kernel still has of its log."""

    def records(self) -> Iterator[bytes]:
        """Yield each record, the oldest first; raises FILE_UNUSABLE."""


class KmsgLog:
    """The log by /dev/kmsg: one record a read (the kernel's Documentation/ABI/testing/dev-kmsg)."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        """Keep the path."""
        self._path = path

    def records(self) -> Iterator[bytes]:
        """Yield what is there, and wait for nothing; raises FILE_UNUSABLE."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with closing(os.fdopen(descriptor, "rb", buffering=0)) as log:
                yield from _records(log.fileno())
        except OSError as error:
            raise SystemFault(f"cannot read {self._path}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _records(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it was written over before it was read: the next read is of the oldest that is left
            continue
        if not record:
            return
        yield record


def mapped_devices(block: Path = BLOCK_DEVICES) -> frozenset[str]:
    """Return the kernel's names (``dm-0``) of the state disk's mapping and the one below; raises FILE_UNUSABLE."""
    try:
        return frozenset(path.name for path in block.glob("dm-*") if _mapping(path) in _MAPPINGS)
    except OSError as error:
        raise SystemFault(f"cannot list {block}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error


def _mapping(path: Path) -> str:
    try:
        return (path / "dm/name").read_text(encoding="utf-8").strip()
    except FileNotFoundError:  # taken away meanwhile
        return ""


def damage_now(log: KernelLog, block: Path = BLOCK_DEVICES) -> Damage:
    """Return what the kernel's log says of the state disk as it is mapped now; raises FILE_UNUSABLE."""
    return damage_in(log.records(), mapped_devices(block))
