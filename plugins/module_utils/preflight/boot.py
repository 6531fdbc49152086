# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of this boot and the registers that they should lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..attestation.eventlog import (
    DEFAULT_REGISTER,
    boot_facts,
    parse_firmware_log,
    parse_records,
    read_lock,
    verify_replay,
)
from ..errors import AttestedError
from ..reasons import Reason
from ..system import read_bytes
from .facts import BootView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..attestation.eventlog import FirmwareLog, UserspaceRecord

_LIMIT = 4 << 20
_UNREPLAYED = (DEFAULT_REGISTER, 10)  # the node lock's, which is read on its own, and IMA's, which has a log of its own


def read_boot_view(registers: Mapping[int, bytes], *, firmware: Path, userspace: Path, nodelock: Path) -> BootView:
    """Return what the logs say of ``registers`` (SHA-256 bank, 32 bytes each); it raises nothing of a log."""
    try:
        log = parse_firmware_log(read_bytes(firmware, limit=_LIMIT))
    except AttestedError as error:
        return BootView(firmware_problem=error.message)
    if not log.events:
        return BootView(firmware_problem=f"expected events in {firmware}, it is empty")
    try:
        records = _records(userspace)
        return _held(registers, log, records, _records(nodelock), has_userspace=userspace.exists())
    except AttestedError as error:
        if error.reason is Reason.DEPENDENCY_MISSING:
            return BootView(unseen=f"the logs were not held against the registers: {error.message}")
        return BootView(replay_problem=error.message, userspace_log=userspace.exists())


def _held(
    registers: Mapping[int, bytes],
    log: FirmwareLog,
    records: tuple[UserspaceRecord, ...],
    nodelock: tuple[UserspaceRecord, ...],
    *,
    has_userspace: bool,
) -> BootView:
    verify_replay(registers, log, records, except_for=_UNREPLAYED)
    lock = DEFAULT_REGISTER
    value = registers.get(lock)
    reading = read_lock(value, register=lock, firmware=log, userspace=records, nodelock=nodelock) if value else None
    return BootView(
        userspace_log=has_userspace,
        secure_boot=boot_facts(log, quoted=registers).secure_boot,
        lock=reading.state.value if reading else "",
        lock_why=reading.why if reading else "",
    )


def _records(path: Path) -> tuple[UserspaceRecord, ...]:
    return parse_records(read_bytes(path), path.name) if path.exists() else ()
