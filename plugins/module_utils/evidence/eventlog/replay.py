# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replay logs to register values: the values that the TPM must hold if only the logged events were extended.

Registers begin at zero, PCR 17 to 22 at all ones, PCR 0 at the locality of TPM2_Startup (TPM 2.0 Library, part 1, 11.6;
PC Client Platform Firmware Profile 1.05, 3.3.2).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ...errors import Refusal
from ...reasons import Reason
from ...tpm.constants import ALG_SHA1, ALG_SHA256, ALG_SHA384, ALG_SHA512
from .tcg import FirmwareEvent, FirmwareLog, UserspaceRecord, malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_HASHES = {ALG_SHA1: hashlib.sha1, ALG_SHA256: hashlib.sha256, ALG_SHA384: hashlib.sha384, ALG_SHA512: hashlib.sha512}
_ALL_ONES = range(17, 23)
_PHASES_REGISTER = 11
_UNLOGGED_PHASES = (
    ("sysinit",),
    ("sysinit", "ready"),
    ("enter-initrd", "leave-initrd", "sysinit"),
    ("enter-initrd", "leave-initrd", "sysinit", "ready"),
)


def extend(value: bytes, digest: bytes, *, bank: int = ALG_SHA256) -> bytes:
    """Return the register's value after TPM2_PCR_Extend of ``digest``."""
    return _HASHES[bank](value + digest).digest()


def initial_value(pcr: int, *, startup_locality: int = 0, bank: int = ALG_SHA256) -> bytes:
    """Return the value of register ``pcr`` after TPM2_Startup."""
    size = _HASHES[bank]().digest_size
    if pcr in _ALL_ONES:
        return b"\xff" * size
    return (startup_locality if pcr == 0 else 0).to_bytes(size, "big")


def replay(firmware: FirmwareLog, userspace: Sequence[UserspaceRecord], *, bank: int = ALG_SHA256) -> dict[int, bytes]:
    """Return the value of every register that the logs extend, without the registers that have no event."""
    values: dict[int, bytes] = {}
    events: list[FirmwareEvent | UserspaceRecord] = [*firmware.events, *userspace]
    for event in events:
        before = values.get(event.pcr)
        if before is None:
            before = initial_value(event.pcr, startup_locality=firmware.startup_locality, bank=bank)
        values[event.pcr] = extend(before, _digest(event, bank), bank=bank)
    return values


def verify_replay(
    quoted: Mapping[int, bytes],
    firmware: FirmwareLog,
    userspace: Sequence[UserspaceRecord],
    *,
    except_for: Iterable[int] = (),
) -> None:
    """Compare the replayed values with the quoted values of the SHA-256 bank.

    Every quoted register that a log extends must follow from the logs exactly. Registers without a log and those of
    ``except_for`` (the node lock's, which `read_lock` checks) are not compared. Raises `Refusal` EVENT_LOG_MISMATCH,
    which names every wrong register.
    """
    replayed = replay(firmware, userspace)
    checked = sorted(set(replayed) & set(quoted) - set(except_for))
    wrong = [pcr for pcr in checked if quoted[pcr] not in _candidates(pcr, replayed[pcr], userspace)]
    if wrong:
        listed = "; ".join(f"PCR {pcr}: logs give {replayed[pcr].hex()}, quoted {quoted[pcr].hex()}" for pcr in wrong)
        raise Refusal(
            f"expected event logs that lead to the quoted registers, got {listed}", reason=Reason.EVENT_LOG_MISMATCH
        )


def _candidates(pcr: int, value: bytes, userspace: Sequence[UserspaceRecord]) -> tuple[bytes, ...]:
    """Return the values that the logs explain; without a log of systemd (before 255) also those after its phases."""
    if pcr != _PHASES_REGISTER or userspace:
        return (value,)
    return (value, *(_after_phases(value, phases) for phases in _UNLOGGED_PHASES))


def _after_phases(value: bytes, phases: tuple[str, ...]) -> bytes:
    for phase in phases:
        value = extend(value, hashlib.sha256(phase.encode()).digest())
    return value


def _digest(event: FirmwareEvent | UserspaceRecord, bank: int) -> bytes:
    digest = event.digests.get(bank)
    if digest is None:
        raise malformed("event log", f"a {_HASHES[bank]().name} digest for PCR {event.pcr}", "none")
    return digest
