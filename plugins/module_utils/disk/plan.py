# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps bring a disk from what was found to what is wanted, or why none may be taken. Pure.

    blank ── format ──> formatted ── exchange of keys, file system, record ──> initialised ── open ──> in use
    in use, under one version of the master secret ── the same exchange of keys, record ──> in use, under another one

Only a disk that is blank, or that an interrupted format of ours left behind, or that its admin named, is formatted.
What says "initialised" is our token: up to it nothing of the node was ever written, so that everything before it may be
repeated; from it on nothing is made anew, whatever the disk looks like.
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


# What lies on a disk, as it was found; nothing here reads a device.

LUKS_SIGNATURE = "crypto_LUKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature of a file system, a partition table or the like: its type and byte offset, as wipefs names them."""

    type: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """A disk as found; ``begin`` is the copied first `AREA_BYTES`, from which alone the header is read.

    ``device`` is the by-id path, ``node`` the device that it names now. ``blank``: the first 16 MiB and the last MiB
    are zeros. ``users`` name what holds the disk (mount points, mappings), our own mapping excepted; ``mapped`` says
    whether that one is there.
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
        """Whether nothing is known to be on it: neither a signature nor a byte that is not zero."""
        return self.blank and not self.signatures

    def contents(self) -> str:
        """Say in words what is on it, for the person who is asked whether that may go."""
        if not self.signatures:
            return "nothing" if self.blank else "data of no known kind"
        return ", ".join(f"{one.type} at {one.offset}" for one in self.signatures)

    def header(self) -> Header | None:
        """Return the header in the copied begin, None where there is no LUKS at all; raises what the reader refuses."""
        if not self.has_luks:
            return None
        return read_header(self.begin[:AREA_BYTES])

    @property
    def has_luks(self) -> bool:
        """Whether one of the two copies of a header, or wipefs, says that there is LUKS of some kind."""
        magics = (self.begin[:6], self.begin[AREA_BYTES // 2 : AREA_BYTES // 2 + 6])
        named = any(one.type == LUKS_SIGNATURE for one in self.signatures)
        return named or magics[0] == b"LUKS\xba\xbe" or magics[1] == b"SKUL\xba\xbe"


BY_ID = "/dev/disk/by-id/"
_EXCHANGES = (frozenset({0}), frozenset({1}), frozenset({0, 1}))


class Target(Enum):
    """What a disk is wanted to be."""

    CLOSED = "closed"
    DESTROYED = "destroyed"
    FORMATTED = "formatted"
    OPENED = "opened"
    REKEYED = "rekeyed"


class Step(Enum):
    """One thing that is done to a disk; a cut between any two of them is continued by the next plan."""

    CLOSE = "close"
    REMEMBER = "remember that it is being formatted"
    ERASE = "erase the signatures on it"
    FORMAT = "format and wipe"
    NOTE = "note that it is formatted"
    FORGET = "forget that it was being formatted"
    ADD_BESIDE = "add the permanent key beside the first one"
    DROP_FIRST = "remove the first key"
    ADD_PERMANENT = "add the permanent key in its place"
    DROP_BESIDE = "remove the permanent key's second slot"
    OPEN = "open"
    MAKE_FILESYSTEM = "make a file system"
    MOUNT = "mount"
    BEGIN_RECORD = "begin the record of unlocks"
    INITIALISE = "note that it is in use"
    CHECK = "hold its record against the counter"
    ADVANCE = "count this unlock"
    BIND = "put it in the place of the directories"
    LOOSEN = "let its record go without a header"
    PROVE = "open the header by the new key"
    RECORD = "record the new header and what it is under"
    DISCARD = "overwrite header and key slots"


_FORMAT = (Step.REMEMBER, Step.FORMAT, Step.NOTE, Step.FORGET)
_EXCHANGE = (Step.ADD_BESIDE, Step.DROP_FIRST, Step.ADD_PERMANENT, Step.DROP_BESIDE)
_FIRST_USE = (Step.OPEN, Step.MAKE_FILESYSTEM, Step.MOUNT, Step.BEGIN_RECORD, Step.INITIALISE, Step.ADVANCE, Step.BIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an admin and a ticket say of a disk.

    ``uuid`` is the assigned id. ``erase`` is the last part of the device's by-id path where its admin allows what is on
    it to go, else "". ``volume`` (32 bytes) is that which was in use the last time, None where none was. ``key_name``
    names the version of the master secret that the permanent key follows from, "" where nobody said.
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
    """What was found: the disk, and beside it.

    ``began``: the journal outside the disk says that a format of this device with this id began and did not end.
    ``first`` and ``permanent`` are the slots that the random first key of this boot, and the permanent key, open;
    ``former`` those that keys of other versions of the master secret open. ``named``: the record says that this very
    header is under the permanent key.
    ``mounted``, ``counted`` (this boot's unlock) and ``bound`` are about the volume. ``hidden`` are directories that
    hold something and would be covered by it.
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
    """The steps in order, and the judged header of the disk where it carries one of ours."""

    steps: tuple[Step, ...]
    header: VerifiedHeader | None = None

    def __bool__(self) -> bool:
        """Say whether there is anything to do."""
        return bool(self.steps)


class DiskState(Enum):
    """What a disk is to us."""

    BLANK = "blank"
    UNFINISHED = "left behind by an interrupted format of ours"
    ERASABLE = "another's, and its admin lets it go"
    FRESH = "formatted, and never used"
    KEPT = "in use by this node"


def require_by_id(device: str) -> str:
    """Return ``device`` if it names a disk by its id and not by the order in which disks were found, else raise."""
    name = device.removeprefix(BY_ID)
    if not device.startswith(BY_ID) or not name or "/" in name or name in {".", ".."}:
        raise DiskError(f"expected a disk below {BY_ID}, got {device!r}", reason=Reason.STATE_DISK_OPTION)
    return device


def plan(observed: Observed, wanted: Wanted) -> Plan:
    """Return the steps from ``observed`` to ``wanted``, or raise the code of what forbids them.

    1. The disk is there (STATE_DISK_MISSING) and nobody else uses it (STATE_DISK_BUSY).
    2. To be closed it only has to be open, to be destroyed ours (STATE_DISK_FOREIGN, STATE_DISK_OCCUPIED, LUKS_…).
    3. It is large enough (STATE_DISK_TOO_SMALL), and nothing would be covered by it (STATE_DISK_HIDES_DATA).
    4. It is ours, or may be ours: `state_of` (STATE_DISK_FOREIGN, STATE_DISK_OCCUPIED, LUKS_…).
    5. A disk in use opens with the permanent key or a former one (DISK_KEY_WRONG), and every slot of it does
       (LUKS_KEYSLOTS). To get another key it has to be open (STATE_DISK_CLOSED).
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
    """Return what the disk is to us, with its judged header where it is formatted or in use.

    A disk whose volume was in use (``wanted.volume``) is none of 1 and 2, and not fresh: STATE_DISK_ROLLED_BACK.

    1. Empty: nothing is lost. 2. Left by an interrupted format of ours: the journal says so, and nothing but our own
    LUKS is on it. 3. With the assigned id: judged field by field, and never erased. 4. Anything else is another's:
    refused, unless its admin named it.
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
    """Return what takes our disk's keys away, and with them all that is on it; another's is refused.

    Its header need not be good: that the admin wants it gone is enough. A cut in the middle looks like a format of ours
    that was interrupted, which the next run, or the next join, goes on from.
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
    """Return a header that is ours in every field, in use or in an exchange of its keys; raises LUKS_…."""
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
        f"expected {disk.device} empty or ours, found {disk.contents()}", reason=Reason.STATE_DISK_OCCUPIED
    )


def _anew(target: Target, *, mapped: bool, erase: bool = False) -> tuple[Step, ...]:
    steps: tuple[Step, ...] = (Step.CLOSE,) if mapped else ()
    steps += (Step.REMEMBER, Step.ERASE, *_FORMAT[1:]) if erase else _FORMAT
    return steps if target is Target.FORMATTED else (*steps, *_EXCHANGE, *_FIRST_USE)


def _fresh(observed: Observed, disk: DiskFacts, *, header: VerifiedHeader, target: Target) -> tuple[Step, ...]:
    """Return what is left for a disk that nothing was written to: a cut in the exchange is continued or begun anew."""
    forget = (Step.FORGET,) if observed.began else ()
    if target is Target.FORMATTED and 0 in observed.first | observed.permanent and header.slots == (0,):
        return forget
    exchange = exchange_of(frozenset(header.slots), first=observed.first, permanent=observed.permanent)
    if exchange is None or target is Target.FORMATTED:
        return _anew(target, mapped=disk.mapped)
    close = (Step.CLOSE,) if disk.mapped or observed.mounted else ()
    return (*close, *forget, *exchange, *_FIRST_USE)


def exchange_of(slots: frozenset[int], *, first: frozenset[int], permanent: frozenset[int]) -> tuple[Step, ...] | None:
    """Return the rest of the exchange of the first key, None where no key of ours is left and nothing can go on.

    At every moment a slot opens with a key that somebody has; the permanent one ends in slot 0, where it is looked for.
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
    """Return what is left of an exchange of keys of a disk in use; at every moment a ticket's keys open it.

    The header changes with each step, so the record goes without one until the last; a cut in between leaves a disk
    that opens, and whose exchange the next run goes on with. The former key's slot goes only after a fresh copy of the
    header was opened by the new one.
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
    """Raise unless we open the disk, and each of its slots: one that nobody of ours opens is somebody else's."""
    ours = observed.permanent | observed.former
    if not ours:
        raise DiskError(f"expected the key to open {disk.device} ({header.uuid})", reason=Reason.DISK_KEY_WRONG)
    if not set(header.slots) <= ours:
        raise DiskError(f"expected to open every slot of {header.slots}, got {ours}", reason=Reason.LUKS_KEYSLOTS)
