# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe a disk and run the steps of a plan.

If a run is killed between two steps, the next run continues.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..core.files import read_bytes, remove, require_tmpfs, write_atomic
from ..core.host import SystemRandom
from ..errors import AttestedError, DiskError
from ..reasons import Reason
from .gateway import KEY_BYTES
from .generation import Record, parse_record, render_record, verify_record
from .luks_check import STATE_DISK, VerifiedHeader, verify_header
from .plan import Observed, Step, Target, plan, verified_header
from .process import read_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..keyservice.master import DiskKey
    from .gateway import Device
    from .generation import Counter
    from .paths import StatePaths
    from .plan import Plan, Wanted


def _nothing(step: Step) -> None:
    del step


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that are called with each step before it runs (tests stop the process there)."""

    before: Callable[[Step], None] = field(default=_nothing)


class StateDisk:
    """One state disk of this machine: plans the steps to the wanted state and runs them."""

    def __init__(
        self,
        device: Device,
        wanted: Wanted,
        *,
        paths: StatePaths,
        counter: Counter,
        key: DiskKey | None = None,
        former: Sequence[DiskKey] = (),
        hooks: Hooks | None = None,
    ) -> None:
        """Store the collaborators.

        Without the permanent ``key``, a disk can only be formatted, closed or destroyed. ``former`` are older keys that
        may still open a disk in use.
        """
        self._device = device
        self._wanted = wanted
        self._paths = paths
        self._counter = counter
        self._key = key
        self._former = tuple(former)
        self._by_former: dict[int, DiskKey] = {}
        self._current = frozenset({0})
        self._hooks = hooks or Hooks()
        self._volume = wanted.volume
        self._digest: str  # SHA-256 (hex) of the header that was verified last
        self._name_before = ""

    def plan(self) -> Plan:
        """Return the plan. It changes only files on tmpfs; raises as the function `plan` does."""
        self._prepare_memory()
        with self._without_copy():
            found = plan(self._observe(), self._wanted)
        if found.header is not None:
            self._keep(found.header)
            if found.header.initialised:
                self._current = frozenset(found.header.slots)
        return found

    def apply(self, todo: Plan) -> None:
        """Run the steps of a plan that this object made."""
        with self._without_copy():
            for step in todo.steps:
                self._hooks.before(step)
                self._ACTIONS[step](self)

    def volume(self) -> VerifiedHeader:
        """Return the current header, verified; raises LUKS_…."""
        with self._without_copy():
            return self._verify(slots=self._current)

    @contextmanager
    def _without_copy(self) -> Iterator[None]:
        """Remove the copy of the header at the end, also after an error; each use makes a fresh copy."""
        try:
            yield
        finally:
            remove(self._paths.header)

    def _prepare_memory(self) -> None:
        self._paths.memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_tmpfs(self._paths.memory, mounts=self._paths.mounts)

    def _observe(self) -> Observed:
        disk = self._device.facts(self._wanted.uuid)
        if disk is None:
            return Observed(disk=None)
        header = self._copied()
        slots = header.slots if header else ()
        first, paths = self._first_key(), self._paths
        mounted = disk.mapped and self._device.mounted()
        permanent, former = self._opened_by(self._key, slots), self._opened_by_former(slots)
        self._by_former = former
        unbound = [target for target in paths.directories if not self._device.bound(target)]
        point = () if mounted else (paths.mount_point,)
        return Observed(
            disk=disk,
            began=self._began(),
            first=self._opened_by(first, slots),
            permanent=permanent,
            former=frozenset(former),
            named=mounted and self._wanted.target is Target.REKEYED and self._is_named(header),
            mounted=mounted,
            counted=_content(paths.counted) == self._wanted.uuid.encode(),
            bound=not unbound,
            hidden=tuple(str(target) for target in (*unbound, *point) if _holds_something(target)),
        )

    def _copied(self) -> VerifiedHeader | None:
        """Return the verified header of a fresh copy, or None if the verification fails.

        cryptsetup gets the key only for a verified header. The plan reports the reason of a failure.
        """
        try:
            return verified_header(self._device.copy_header(), self._wanted)
        except AttestedError:
            return None

    def _opened_by(self, key: DiskKey | None, slots: tuple[int, ...]) -> frozenset[int]:
        if key is None:
            return frozenset()
        return frozenset(slot for slot in slots if self._device.opens(slot, key))

    def _opened_by_former(self, slots: tuple[int, ...]) -> dict[int, DiskKey]:
        return {slot: key for key in reversed(self._former) for slot in self._opened_by(key, slots)}

    def _is_named(self, header: VerifiedHeader | None) -> bool:
        """Return whether the record in the volume names the wanted key for the current header."""
        record = self._record_now()
        if record is None or header is None:
            return False
        return (record.key, record.header) == (self._wanted.key_name, header.sha256.hex())

    def _record_now(self) -> Record | None:
        content = _content(self._paths.record)
        return None if content is None else parse_record(content)

    def _first_key(self) -> DiskKey | None:
        if not self._paths.first_key.exists():
            return None
        return read_key(self._paths.first_key, mounts=self._paths.mounts)

    def _began(self) -> bool:
        return _content(self._paths.journal) == self._journal()

    def _journal(self) -> bytes:
        members = {"version": 1, "formatting": self._wanted.device, "uuid": self._wanted.uuid}
        return json.dumps(members, indent=2).encode() + b"\n"

    def _verify(self, *, slots: frozenset[int]) -> VerifiedHeader:
        """Verify a fresh copy of the header; it must belong to the volume that was verified before, if any."""
        header = self._device.copy_header()
        verified = verify_header(header, STATE_DISK, uuid=self._wanted.uuid, volume=self._volume, slots=slots)
        self._keep(verified)
        return verified

    def _keep(self, header: VerifiedHeader) -> None:
        self._volume, self._digest = header.volume, header.sha256.hex()

    def _permanent(self) -> DiskKey:
        if self._key is None:
            raise DiskError("expected the disk's key, got none", reason=Reason.STATE_DISK_KEY)
        return self._key

    def _first(self) -> DiskKey:
        return read_key(self._paths.first_key, mounts=self._paths.mounts)

    def _close(self) -> None:
        self._device.close()
        remove(self._paths.counted)

    def _remember(self) -> None:
        self._paths.journal.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write_synced(self._paths.journal, self._journal())

    def _erase(self) -> None:
        self._device.erase()

    def _discard(self) -> None:
        remove(self._paths.counted)
        self._device.discard()

    def _format(self) -> None:
        self._volume, self._by_former = self._wanted.volume, {}  # The values of the old volume are void.
        remove(self._paths.counted)
        write_atomic(self._paths.first_key, SystemRandom().token(KEY_BYTES))
        self._device.format(uuid=self._wanted.uuid, key=self._first(), progress=self._show)
        remove(self._paths.progress)

    def _show(self, done: int, size: int) -> None:
        write_atomic(self._paths.progress, json.dumps({"done_bytes": done, "size_bytes": size}).encode() + b"\n")

    def _note(self) -> None:
        self._device.write_token(initialised=False)
        self._verify(slots=frozenset({0}))

    def _forget(self) -> None:
        remove(self._paths.journal)

    def _add_beside(self) -> None:
        self._device.add_key(slot=1, known=self._by_former.get(0) or self._first(), new=self._permanent())

    def _drop_first(self) -> None:
        self._device.drop_key(slot=0, known=self._permanent())

    def _add_permanent(self) -> None:
        self._device.add_key(slot=0, known=self._permanent(), new=self._permanent())

    def _drop_beside(self) -> None:
        self._device.drop_key(slot=1, known=self._permanent())

    def _open(self) -> None:
        remove(self._paths.counted)
        self._verify(slots=self._current)
        slot = next(iter(self._current))  # Any slot will do: the plan has checked that each slot opens.
        self._device.open(self._by_former.get(slot) or self._permanent(), slot=slot)
        remove(self._paths.first_key)

    def _make_filesystem(self) -> None:
        self._device.make_filesystem()

    def _mount(self) -> None:
        self._device.mount(checked=True)

    def _begin_record(self) -> None:
        generation = self._counter.define() + 1
        _write_synced(self._paths.record, render_record(Record(generation=generation, header="")))
        self._counter.increment()

    def _initialise(self) -> None:
        self._device.write_token(initialised=True)
        self._verify(slots=frozenset({0}))

    def _check(self) -> None:
        """Verify the record before the volume is used; close the volume if that fails."""
        try:
            self._device.mount(checked=False)
            record = verify_record(self._record_now(), counter=self._counter.read(), header=self._digest)
            self._name_before = record.key
        except AttestedError:
            with suppress(AttestedError):
                self._device.close()
            raise

    def _advance(self) -> None:
        """Count this unlock: the record first, then the counter. After a power cut the record is at most one ahead."""
        self._count(key=self._name_now())

    def _count(self, *, key: str) -> None:
        generation = self._counter.define() + 1
        _write_synced(self._paths.record, render_record(Record(generation=generation, header=self._digest, key=key)))
        self._counter.increment()
        write_atomic(self._paths.counted, self._wanted.uuid.encode())

    def _name_now(self) -> str:
        """Return the name of the disk's key: the wanted name if that key opens the only slot, else the recorded one."""
        if self._current == {0} and self._wanted.key_name and 0 not in self._by_former:
            return self._wanted.key_name
        return self._name_before

    def _loosen(self) -> None:
        """Remove the header from the record during the key exchange, after a check that the record matches the header.

        The generation stays. A disk that is later rolled back to this state is still behind the counter.
        """
        record = verify_record(self._record_now(), counter=self._counter.read(), header=self._digest)
        _write_synced(self._paths.record, render_record(Record(generation=record.generation, header="")))

    def _prove(self) -> None:
        self._verify(slots=frozenset({0, 1}))
        if not self._device.opens(1, self._permanent()):
            raise DiskError("expected the new key to open its slot 1, it does not", reason=Reason.DISK_KEY_WRONG)

    def _record_header(self) -> None:
        """Record the header, whose only slot the permanent key opens, as a counted change."""
        self._current = frozenset({0})
        self._verify(slots=self._current)
        self._count(key=self._wanted.key_name)

    def _bind(self) -> None:
        for target in self._paths.directories:
            if not self._device.bound(target):
                self._device.bind(target)

    _ACTIONS: ClassVar[Mapping[Step, Callable[[StateDisk], None]]] = {
        Step.ADD_BESIDE: _add_beside,
        Step.ADD_PERMANENT: _add_permanent,
        Step.ADVANCE: _advance,
        Step.BEGIN_RECORD: _begin_record,
        Step.BIND: _bind,
        Step.CHECK: _check,
        Step.CLOSE: _close,
        Step.DISCARD: _discard,
        Step.DROP_BESIDE: _drop_beside,
        Step.DROP_FIRST: _drop_first,
        Step.ERASE: _erase,
        Step.FORGET: _forget,
        Step.FORMAT: _format,
        Step.INITIALISE: _initialise,
        Step.LOOSEN: _loosen,
        Step.MAKE_FILESYSTEM: _make_filesystem,
        Step.MOUNT: _mount,
        Step.NOTE: _note,
        Step.OPEN: _open,
        Step.PROVE: _prove,
        Step.RECORD: _record_header,
        Step.REMEMBER: _remember,
    }


def _content(path: Path) -> bytes | None:
    return read_bytes(path) if path.exists() else None


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is not None


def _write_synced(path: Path, data: bytes) -> None:
    """Write a file and sync its directory, so that the file survives a power cut."""
    write_atomic(path, data)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
