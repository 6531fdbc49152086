# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the steps that bring a disk from its observed state to the wanted state, or refuse. Pure.

    blank ── format ──> formatted ── exchange of keys, file system, record ──> initialised ── open ──> in use
    in use, under one version of the master secret ── the same exchange of keys, record ──> in use, under another one

A disk is formatted only if it is blank, if an earlier format was interrupted, or if the admin named it. The LUKS2 token
holds "initialised". Until it is set, no data of the node was written, so all earlier steps may be repeated. After that
the disk is never formatted again, whatever its content.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..errors import AttestedError, DiskError
from ..reasons import Reason
from .luks_check import STATE_DISK, VerifiedHeader, verify_header
from .luks_header import AREA_BYTES, read_header

if TYPE_CHECKING:
    from .luks_header import Header


# The observed content of a disk; nothing here reads a device.

LUKS_SIGNATURE = "crypto_LUKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature, as of a file system or partition table: type and byte offset, from wipefs."""

    type: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The observed facts of a disk.

    ``begin`` is a copy of the first `AREA_BYTES`, from which the header is parsed. ``device`` is the by-id path,
    ``node`` the device that it names now. ``blank``: the first 16 MiB and the last MiB are zeros. ``mapped``: the state
    disk's mapping exists. ``users`` are the mappings or other users of a disk that is not mapped so.
    """

    device: str
    node: str
    size_bytes: int
    sector_bytes: int
    signatures: tuple[Signature, ...]
    blank: bool
    begin: bytes
    users: tuple[str, ...] = ()
    mapped: bool = False

    @property
    def empty(self) -> bool:
        """Whether the disk has no signature and no byte other than zero in the checked areas."""
        return self.blank and not self.signatures

    def contents(self) -> str:
        """Return the content in words, for the admin who decides whether it may be erased."""
        if not self.signatures:
            return "nothing" if self.blank else "data of no known kind"
        return ", ".join(f"{one.type} at {one.offset}" for one in self.signatures)

    def header(self) -> Header | None:
        """Parse the header in ``begin``, or return None if there is no LUKS; raises as `read_header` does."""
        if not self.has_luks:
            return None
        return read_header(self.begin[:AREA_BYTES])

    @property
    def has_luks(self) -> bool:
        """Whether one of the two header copies has a LUKS2 magic, or wipefs reports LUKS."""
        magics = (self.begin[:6], self.begin[AREA_BYTES // 2 : AREA_BYTES // 2 + 6])
        named = any(one.type == LUKS_SIGNATURE for one in self.signatures)
        return named or magics[0] == b"LUKS\xba\xbe" or magics[1] == b"SKUL\xba\xbe"


BY_ID = "/dev/disk/by-id/"
_EXCHANGES = (frozenset({0}), frozenset({1}), frozenset({0, 1}))


class Target(Enum):
    """The wanted state of a disk."""

    CLOSED = "closed"
    DESTROYED = "destroyed"
    FORMATTED = "formatted"
    OPENED = "opened"
    REKEYED = "rekeyed"


class Step(Enum):
    """One change of a disk. After a cut between two steps, the next plan continues."""

    CLOSE = "close"
    REMEMBER = "record the begin of the format in the journal"
    ERASE = "erase the signatures"
    FORMAT = "format and wipe"
    NOTE = "write the token: formatted"
    FORGET = "remove the journal of the format"
    ADD_BESIDE = "add the permanent key in slot 1"
    DROP_FIRST = "remove the first or former key from slot 0"
    ADD_PERMANENT = "add the permanent key in slot 0"
    DROP_BESIDE = "remove the permanent key from slot 1"
    OPEN = "open"
    MAKE_FILESYSTEM = "make a file system"
    MOUNT = "mount"
    BEGIN_RECORD = "begin the record of unlocks"
    INITIALISE = "write the token: in use"
    CHECK = "compare its record with the counter"
    ADVANCE = "count this unlock"
    BIND = "bind-mount its directories"
    LOOSEN = "remove the header from its record"
    PROVE = "try the new key on the header"
    RECORD = "record the new header and the name of its key"
    DISCARD = "overwrite header and key slots"


_FORMAT = (Step.REMEMBER, Step.FORMAT, Step.NOTE, Step.FORGET)
_EXCHANGE = (Step.ADD_BESIDE, Step.DROP_FIRST, Step.ADD_PERMANENT, Step.DROP_BESIDE)
_FIRST_USE = (Step.OPEN, Step.MAKE_FILESYSTEM, Step.MOUNT, Step.BEGIN_RECORD, Step.INITIALISE, Step.ADVANCE, Step.BIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wanted state of a disk, from the admin and the ticket.

    ``uuid`` is the assigned id. ``erase`` is the last part of the device's by-id path if the admin allows to erase its
    content, else "". ``volume`` (32 bytes) is the volume of the last unlock, None if there was none. ``key_name`` names
    the version of the master secret from which the permanent key is derived, "" if unknown.
    """

    device: str
    uuid: str
    target: Target
    minimum_bytes: int
    erase: str = ""
    volume: bytes | None = None
    key_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The observed state of the disk and of the machine.

    ``began``: the journal on the machine's own disk holds an unfinished format of this device with this id.
    ``first``, ``permanent``, ``former``: the slots that open with the random first key of this boot, with the permanent
    key, and with keys of other versions of the master secret.
    ``named``: the record names the permanent key for the current header.
    ``mounted``: the volume is mounted. ``counted``: the unlock of this boot is counted. ``bound``: all directories are
    bind-mounted.
    ``hidden``: directories that are not empty and that the volume would cover.
    """

    disk: DiskFacts | None
    began: bool = False
    first: frozenset[int] = frozenset()
    permanent: frozenset[int] = frozenset()
    former: frozenset[int] = frozenset()
    named: bool = False
    mounted: bool = False
    counted: bool = False
    bound: bool = False
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps in order, and the verified header if the disk is a formatted state disk."""

    steps: tuple[Step, ...]
    header: VerifiedHeader | None = None

    def __bool__(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.steps)


class DiskState(Enum):
    """The state of a disk in relation to this node."""

    BLANK = "blank"
    UNFINISHED = "left by an interrupted format"
    ERASABLE = "foreign, and the admin allows to erase it"
    FRESH = "formatted, and never used"
    KEPT = "in use by this node"


def require_by_id(device: str) -> str:
    """Return ``device`` if it is a path below /dev/disk/by-id; raises STATE_DISK_OPTION otherwise."""
    name = device.removeprefix(BY_ID)
    if not device.startswith(BY_ID) or not name or "/" in name or name in {".", ".."}:
        raise DiskError(f"expected a disk below {BY_ID}, got {device!r}", reason=Reason.STATE_DISK_OPTION)
    return device


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """Return the steps from ``observed`` to ``wanted``; raises the code of the first check that fails.

    1. The disk exists (STATE_DISK_MISSING) and has no other user (STATE_DISK_BUSY).
    2. Any disk may be closed. Only a state disk of this node may be destroyed (STATE_DISK_FOREIGN,
       STATE_DISK_OCCUPIED, LUKS_…).
    3. The disk is large enough (STATE_DISK_TOO_SMALL), and its volume would cover no data (STATE_DISK_HIDES_DATA).
    4. It is a state disk of this node, or may become one: `state_of` (STATE_DISK_FOREIGN, STATE_DISK_OCCUPIED, LUKS_…).
    5. A disk in use opens with the permanent or a former key (DISK_KEY_WRONG), and so does each of its slots
       (LUKS_KEYSLOTS). It must be open to get another key (STATE_DISK_CLOSED).
    """
    disk = _required(observed, wanted)  # 1
    if wanted.target is Target.CLOSED:  # 2
        return Plan(steps=(Step.CLOSE,) if disk.mapped or observed.mounted else ())
    if wanted.target is Target.DESTROYED:
        return Plan(steps=_destroyed(observed, disk, wanted))
    if disk.size_bytes < wanted.minimum_bytes:  # 3
        raise DiskError(
            f"expected at least {wanted.minimum_bytes} bytes, {disk.device} has {disk.size_bytes}",
            reason=Reason.STATE_DISK_TOO_SMALL,
        )
    if observed.hidden and wanted.target is Target.OPENED:
        raise DiskError(
            f"expected nothing in {', '.join(observed.hidden)} before the volume takes its place",
            reason=Reason.STATE_DISK_HIDES_DATA,
        )
    state, header = state_of(disk, wanted, began=observed.began)  # 4
    if wanted.target is Target.REKEYED:
        return Plan(steps=_rekeyed(observed, disk, header), header=header)  # 5
    if header is None:
        erase = state is DiskState.ERASABLE
        return Plan(steps=_anew(wanted.target, mapped=disk.mapped, erase=erase))
    if state is DiskState.KEPT:
        return Plan(steps=_kept(observed, disk, header, wanted), header=header)  # 5
    return Plan(steps=_fresh(observed, disk, header=header, target=wanted.target), header=header)


def state_of(disk: DiskFacts, wanted: Wanted, *, began: bool) -> tuple[DiskState, VerifiedHeader | None]:
    """Return the state of the disk, with its verified header if it is formatted or in use.

    If the volume was in use before (``wanted.volume``), a disk that is empty, unfinished or fresh is refused:
    STATE_DISK_ROLLED_BACK.

    1. Empty: no data can be lost. 2. Left by an interrupted format: the journal holds it, and the disk has no other
    content than that format. 3. With the assigned id: every field is verified, and the disk is never erased.
    4. Every other disk is foreign and refused, unless the admin named it.
    """
    if disk.empty:  # 1
        _require_never_used(wanted, "nothing at all")
        return DiskState.BLANK, None
    header, problem = _header(disk)
    if began and _is_ours_unfinished(disk, header, wanted.uuid):  # 2
        _require_never_used(wanted, "an interrupted format")
        return DiskState.UNFINISHED, None
    if header is not None and header.uuid == wanted.uuid:  # 3
        verified = verified_header(header, wanted)
        if not verified.initialised:
            _require_never_used(wanted, "a header from before its first use")
        return (DiskState.KEPT if verified.initialised else DiskState.FRESH), verified
    if wanted.erase:  # 4
        _require_named(wanted)
        return DiskState.ERASABLE, None
    raise _foreign(disk, header, problem, wanted)


def _destroyed(observed: Observed, disk: DiskFacts, wanted: Wanted) -> tuple[Step, ...]:
    """Return the steps that destroy the keys of this node's disk, and so all its data; a foreign disk is refused.

    The header needs only the assigned id; it is not verified. After a cut the disk looks like an interrupted format,
    from which the next run or the next join continues.
    """
    if disk.empty:
        return ()
    header, problem = _header(disk)
    ours = header is not None and header.uuid == wanted.uuid
    if not ours and not (observed.began and _is_ours_unfinished(disk, header, wanted.uuid)):
        raise _foreign(disk, header, problem, wanted)
    close = (Step.CLOSE,) if disk.mapped or observed.mounted else ()
    return (*close, Step.REMEMBER, Step.DISCARD)


def _required(observed: Observed, wanted: Wanted) -> DiskFacts:
    if observed.disk is None:
        raise DiskError(f"expected a disk at {wanted.device}, found none", reason=Reason.STATE_DISK_MISSING)
    if observed.disk.users:
        raise DiskError(
            f"expected {wanted.device} unused, it is used by {', '.join(observed.disk.users)}",
            reason=Reason.STATE_DISK_BUSY,
        )
    return observed.disk


def _header(disk: DiskFacts) -> tuple[Header | None, AttestedError | None]:
    try:
        return disk.header(), None
    except AttestedError as error:
        return None, error


def _carries_our_label(header: Header) -> bool:
    return header.label == STATE_DISK.label


def _is_ours_unfinished(disk: DiskFacts, header: Header | None, uuid: str) -> bool:
    if any(one.type != LUKS_SIGNATURE for one in disk.signatures):
        return False
    if header is None:
        return True
    return header.uuid == uuid and _carries_our_label(header) and not header.metadata.tokens


def verified_header(header: Header, wanted: Wanted) -> VerifiedHeader:
    """Verify the header of a state disk, also during an exchange of its keys; raises LUKS_…."""
    slots = frozenset(header.metadata.keyslots)
    return verify_header(
        header,
        STATE_DISK,
        uuid=wanted.uuid,
        volume=wanted.volume,
        slots=slots if slots in _EXCHANGES else _EXCHANGES[0],
    )


def _require_never_used(wanted: Wanted, found: str) -> None:
    if wanted.volume is not None:
        raise DiskError(
            f"expected the volume {wanted.volume.hex()[:16]} in use, {wanted.device} has {found}",
            reason=Reason.STATE_DISK_ROLLED_BACK,
        )


def _require_named(wanted: Wanted) -> None:
    name = wanted.device.removeprefix(BY_ID)
    if wanted.erase != name:
        raise DiskError(
            f"expected {name!r} as the disk to erase, got {wanted.erase!r}", reason=Reason.STATE_DISK_OPTION
        )


def _foreign(disk: DiskFacts, header: Header | None, problem: AttestedError | None, wanted: Wanted) -> AttestedError:
    if problem is not None:
        return problem
    if header is not None and _carries_our_label(header):
        return DiskError(
            f"expected the state disk {wanted.uuid}, {disk.device} is {header.uuid}", reason=Reason.STATE_DISK_FOREIGN
        )
    return DiskError(
        f"expected {disk.device} empty or a state disk, found {disk.contents()}", reason=Reason.STATE_DISK_OCCUPIED
    )


def _anew(target: Target, *, mapped: bool, erase: bool = False) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = (Step.CLOSE,) if mapped else ()
    steps += (Step.REMEMBER, Step.ERASE, *_FORMAT[1:]) if erase else _FORMAT
    return steps if target is Target.FORMATTED else (*steps, *_EXCHANGE, *_FIRST_USE)


def _fresh(observed: Observed, disk: DiskFacts, *, header: VerifiedHeader, target: Target) -> tuple[Step, ...]:
    """Return the steps of a formatted disk without data: continue its exchange of keys, or format it again."""
    forget = (Step.FORGET,) if observed.began else ()
    if target is Target.FORMATTED and 0 in observed.first | observed.permanent and header.slots == (0,):
        return forget
    exchange = exchange_of(frozenset(header.slots), first=observed.first, permanent=observed.permanent)
    if exchange is None or target is Target.FORMATTED:
        return _anew(target, mapped=disk.mapped)
    close = (Step.CLOSE,) if disk.mapped or observed.mounted else ()
    return (*close, *forget, *exchange, *_FIRST_USE)


def exchange_of(slots: frozenset[int], *, first: frozenset[int], permanent: frozenset[int]) -> tuple[Step, ...] | None:
    """Return the remaining steps to replace the first (or former) key.

    The result is None if no known key opens a needed slot. At every moment one slot opens with a known key. The
    permanent key ends in slot 0.
    """
    if slots == {0}:
        return () if 0 in permanent else _EXCHANGE if 0 in first else None
    if 1 not in permanent:
        return None
    if slots == {1}:
        return _EXCHANGE[2:]
    return _EXCHANGE[3:] if 0 in permanent else _EXCHANGE[1:]


def _kept(observed: Observed, disk: DiskFacts, header: VerifiedHeader, wanted: Wanted) -> tuple[Step, ...]:
    if wanted.target is Target.FORMATTED:
        return ()
    _require_own_slots(observed, disk, header)
    steps: tuple[Step, ...] = () if disk.mapped else (Step.OPEN,)
    if not (disk.mapped and observed.mounted and observed.counted):
        steps += (Step.CHECK, Step.MOUNT, Step.ADVANCE)
    return steps if observed.bound and not steps else (*steps, Step.BIND)


def _rekeyed(observed: Observed, disk: DiskFacts, header: VerifiedHeader | None) -> tuple[Step, ...]:
    """Return the remaining steps of a key exchange of a disk in use; at every moment the keys of a ticket open it.

    Each step changes the header, so the record holds no header until the last step. After a cut the disk opens, and the
    next run continues the exchange. The slot of the former key is removed only after the new key has opened a fresh
    copy of the header.
    """
    if header is None or not header.initialised or not (disk.mapped and observed.mounted and observed.counted):
        raise DiskError(f"expected {disk.device} in use and open", reason=Reason.STATE_DISK_CLOSED)
    _require_own_slots(observed, disk, header)
    exchange = exchange_of(frozenset(header.slots), first=observed.former, permanent=observed.permanent)
    if exchange is None:
        raise DiskError(f"expected a slot that can be exchanged, got {header.slots}", reason=Reason.LUKS_KEYSLOTS)
    if not exchange:
        return () if observed.named else (Step.RECORD,)
    proven = [step for one in exchange for step in ((Step.PROVE, one) if one is Step.DROP_FIRST else (one,))]
    return (Step.LOOSEN, *proven, Step.RECORD)


def _require_own_slots(observed: Observed, disk: DiskFacts, header: VerifiedHeader) -> None:
    """Raise DISK_KEY_WRONG or LUKS_KEYSLOTS unless known keys open all slots: an unknown key may be an attacker's."""
    ours = observed.permanent | observed.former
    if not ours:
        raise DiskError(f"expected the key to open {disk.device} ({header.uuid})", reason=Reason.DISK_KEY_WRONG)
    if not set(header.slots) <= ours:
        raise DiskError(f"expected to open every slot of {header.slots}, got {ours}", reason=Reason.LUKS_KEYSLOTS)
