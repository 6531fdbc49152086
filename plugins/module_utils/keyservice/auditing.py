# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sync the audit log in the background, sign and publish its head, and record the heads of other control planes.

A signed head is written into the status of this control plane's own identity. Every other key service watches
identities and writes the head into its own log, so a forged log would need a change of all logs. A head that cannot be
published is kept until it can, or until the next head replaces it.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import AttestedError, Refusal, SystemFault
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..evidence.evidence import Evidence
from ..evidence.registry import verify_evidence
from ..evidence.tpm2 import issue
from ..reasons import Reason
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key
from .audit_log import GENESIS, NAMES_ITS_LOG, Head, digest_of, is_sequence, parse_record
from .kube_api import IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..core.host import Clock
    from ..evidence.tpm2 import VerifiedQuote
    from ..tpm.client import Tpm
    from .audit_log import AuditTrail
    from .cached_policy import ObjectCache
    from .kube_api import Gateway


# Verify an audit log. These steps find edits, gaps, another order, and a cut end or beginning.
#
# 1. Every line is a record (AUDIT_MALFORMED).
# 2. Its number follows the one before: a higher number is a gap (AUDIT_GAP), a lower one a reordering
# (AUDIT_REORDERED).
# 3. It holds the digest of the record before it (AUDIT_EDITED).
# 4. Every signed head is the digest of the record that it names, under one key (AUDIT_HEAD_WRONG).
# 5. Every head that is known from other sources is reached (AUDIT_TRUNCATED) and matches (AUDIT_EDITED).
# 6. The log begins with record 1, or with the record that a rotation under a signed head names (AUDIT_TRUNCATED).
#
# The log of refusals is read after the log of grants, which holds its heads: what they cover is signed with them.
#
# The caller must provide the heads of step 5, and must check that the key of step 4 is the control plane's. Not found:
# a
# change after the last head that was signed or copied, by a user who can write the log.

# The head of the log under the TPM's attestation key.
#
# The key is restricted: it signs only data that the TPM itself has made. So the head is the qualifying data of a quote,
# and the quote also holds the TPM's clock and its reset and restart counters.


class HeadSigner:
    """Signs heads with one TPM, which it opens for each head, because other processes use it too."""

    def __init__(self, open_one: Callable[[], AbstractContextManager[Tpm]]) -> None:
        """Use ``open_one`` to open the TPM."""
        self._open_one = open_one

    @classmethod
    def at(cls, tcti: str, *, lock_directory: str | Path = "/run/attested") -> HeadSigner:
        """Return the signer of the TPM at ``tcti``, used under the lock file in ``lock_directory``."""
        return cls(lambda: open_tpm(tcti, lock_directory=lock_directory))

    def sign(self, head: Head) -> str:
        """Return evidence over ``head``, as base64; raises `TpmError`."""
        with self._open_one() as tpm:
            evidence = issue(tpm, load_attestation_key(tpm), qualifying_data=head.digest(), pcrs=(DEFAULT_REGISTER,))
        return base64.b64encode(evidence.to_bytes()).decode("ascii")


def verify_head(head: Head, evidence: str) -> VerifiedQuote:
    """Return the quote over ``head``; raises AUDIT_HEAD_WRONG.

    The caller must check that the quote's key is the key of that control plane.
    """
    try:
        return verify_evidence(Evidence.parse(base64.b64decode(evidence, validate=True)), qualifying_data=head.digest())
    except (binascii.Error, ValueError, Refusal) as error:
        raise Refusal(
            f"expected a TPM's quote over the head at record {head.sequence}, got: {error}",
            reason=Reason.AUDIT_HEAD_WRONG,
        ) from error


_SHOWN = 10
_REMEMBERED = 10_000
"""A head is signed soon after the record that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """A verified log: its name, first and last record, signed heads, records after the last head, the AK's name.

    ``first`` is above 1 if older files were rotated out. ``events`` counts records by event and outcome; a record of
    counted refusals adds its count. ``refusals``: the heads of the log of refusals that this log holds.
    """

    log: str
    first: int
    last: Head
    heads: int
    unsigned: int
    ak_name: str
    events: dict[str, int]
    refusals: tuple[Head, ...] = ()


@dataclass(slots=True)
class _Reading:
    """The state while the lines are read."""

    known: dict[int, Head]
    judge: Callable[[Head, str], VerifiedQuote]
    problems: list[AttestedError] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    log: str = ""
    first: int = 0
    last: int = 0
    previous: bytes = GENESIS
    heads: int = 0
    signed: int = 0
    ak_name: str = ""
    refusals: list[Head] = field(default_factory=list)
    rotations: list[tuple[int, int]] = field(default_factory=list)

    def find(self, reason: Reason, message: str) -> None:
        self.problems.append(SystemFault(message, reason=reason))


def verify_audit(
    lines: Iterable[bytes],
    *,
    known: Iterable[Head] = (),
    ak_name: str = "",
    judge: Callable[[Head, str], VerifiedQuote] = verify_head,
    signed: int = 0,
) -> AuditReport:
    """Return the content of the log; raises the reason of the first finding, with all findings in its message.

    ``known``: heads from other sources. ``ak_name`` (hex): the key that must have signed, if it is known. ``signed``:
    the last record of this log that is signed by the heads in another log.
    """
    reading = _Reading(known={one.sequence: one for one in known}, judge=judge, ak_name=ak_name, signed=signed)
    for line in lines:
        try:
            _take(reading, line, parse_record(line))
        except AttestedError as error:  # 1, and the errors of a head's quote
            reading.problems.append(error)
    if not reading.last:
        reading.find(Reason.AUDIT_MALFORMED, "expected an audit log, found no record")
    _check_known(reading)
    _check_beginning(reading)
    _fail(reading.problems)
    return AuditReport(
        log=reading.log,
        first=reading.first,
        last=Head(reading.log, reading.last, reading.previous),
        heads=reading.heads,
        unsigned=reading.last - reading.signed,
        ak_name=reading.ak_name,
        events=dict(reading.events),
        refusals=tuple(reading.refusals),
    )


def verify_refusals(lines: Iterable[bytes], given: AuditReport) -> AuditReport | None:
    """Return the content of the log of refusals that belongs to the verified log ``given``, or None if it is empty.

    Raises as `verify_audit`, and AUDIT_TRUNCATED if it is empty but ``given`` holds heads of it.
    """
    last = max((one.sequence for one in given.refusals), default=0)
    found = iter(lines)
    first = next(found, None)
    if first is not None:
        return verify_audit(chain((first,), found), known=given.refusals, signed=last)
    if last:
        raise SystemFault(
            f"expected at least {last} records of refusals, as the other log knows, found none",
            reason=Reason.AUDIT_TRUNCATED,
        )
    return None


def heads_of(node: str, lines: Iterable[bytes]) -> Iterator[Head]:
    """Yield the heads of ``node`` in another control plane's log; skips lines that are no record."""
    for line in lines:
        try:
            record = parse_record(line)
            if record.get("event") == "head_of" and record.get("node") == node:
                yield _head(record)
        except AttestedError:
            continue


def _take(reading: _Reading, line: bytes, record: dict[str, Any]) -> None:
    number = record["sequence"]
    if not reading.first:
        reading.first = number
        if number == 1 and record["previous"] != GENESIS.hex():  # above 1 it is step 6
            reading.find(Reason.AUDIT_EDITED, "expected record 1 to follow nothing, it follows another")
    elif number != reading.last + 1:  # 2
        later = number > reading.last
        reading.find(
            Reason.AUDIT_GAP if later else Reason.AUDIT_REORDERED,
            f"expected record {reading.last + 1}, got {number}",
        )
    elif record["previous"] != reading.previous.hex():  # 3
        reading.find(Reason.AUDIT_EDITED, f"expected record {number} to follow the one before it, it follows another")
    reading.last, reading.previous = number, digest_of(line)
    reading.digests[number] = reading.previous
    if number - _REMEMBERED not in reading.known:
        reading.digests.pop(number - _REMEMBERED, None)
    _take_event(reading, number, record)


def _take_event(reading: _Reading, number: int, record: dict[str, Any]) -> None:
    event = record.get("event")
    if event == "counted" and is_sequence(record.get("count")):
        reading.events[f"{record.get('of')} refused, counted"] += record["count"]
    else:
        reading.events[" ".join(str(record[name]) for name in ("event", "outcome") if name in record)] += 1
    if event in NAMES_ITS_LOG:
        reading.log = reading.log or str(record.get("log", ""))
    if event == "head":
        _take_head(reading, _head(record), str(record.get("evidence")))
    elif event == "refusals":
        reading.refusals.append(_head(record))
    elif event == "rotated":
        reading.rotations.append((number, _first_that_stays(record)))


def _take_head(reading: _Reading, head: Head, evidence: str) -> None:
    quote = reading.judge(head, evidence)  # 4
    found = reading.digests.get(head.sequence)
    if found is not None and found != head.sha256:
        reading.find(Reason.AUDIT_HEAD_WRONG, f"expected record {head.sequence} as it was signed, it was changed since")
    name = quote.ak_name.hex()
    if reading.ak_name and name != reading.ak_name:
        reading.find(
            Reason.AUDIT_HEAD_WRONG, f"expected the head {head.sequence} under key {reading.ak_name}, got {name}"
        )
    reading.ak_name = reading.ak_name or name
    reading.heads += 1
    reading.signed = head.sequence


def _check_known(reading: _Reading) -> None:  # 5
    for number, head in reading.known.items():
        found = reading.digests.get(number)
        if number > reading.last:
            reading.find(
                Reason.AUDIT_TRUNCATED, f"expected at least {number} records, as others know, got {reading.last}"
            )
        elif found is not None and found != head.sha256:
            reading.find(Reason.AUDIT_EDITED, f"expected record {number} as others know it, got another")


def _check_beginning(reading: _Reading) -> None:  # 6
    beginning = max((first for number, first in reading.rotations if number <= reading.signed), default=1)
    if reading.first > beginning:
        reading.find(
            Reason.AUDIT_TRUNCATED,
            f"expected the log to begin with record {beginning}, as is signed, it begins with record {reading.first}"
            if beginning > 1
            else f"expected the log to begin with record 1, it begins with record {reading.first}",
        )


def _first_that_stays(record: dict[str, Any]) -> int:
    first: Any = record.get("first")
    if not is_sequence(first):
        message = f"expected a rotation in record {record['sequence']}, got none"
        raise SystemFault(message, reason=Reason.AUDIT_MALFORMED)
    return int(first)


def _head(record: dict[str, Any]) -> Head:
    try:
        if not is_sequence(record["head"]):
            raise ValueError("no number of a record")
        return Head(str(record["log"]), record["head"], bytes.fromhex(record["sha256"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SystemFault(
            f"expected a head in record {record['sequence']}, got none", reason=Reason.AUDIT_MALFORMED
        ) from error


def _fail(problems: list[AttestedError]) -> None:
    if not problems:
        return
    shown = "; ".join(one.message for one in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise SystemFault(shown + more, reason=problems[0].reason)


TICK_SECONDS = 1.0
LOOK_TICKS = 30
RETRY_TICKS = 60


class Signer(Protocol):
    """Signs a head of the log."""

    def sign(self, head: Head) -> str:
        """Return evidence over ``head``, as base64."""


class HeadKeeper:
    """Syncs and signs one log; `run_once` needs a thread of its own."""

    def __init__(
        self,
        audit: AuditTrail,
        *,
        node: str,
        signer: Signer | None,
        gateway: Gateway,
        identities: ObjectCache,
        clock: Clock,
    ) -> None:
        """Sign with ``signer``, if there is one; publish heads in this node's ``identities`` through ``gateway``."""
        self._audit = audit
        self._node = node
        self._signer = signer
        self._gateway = gateway
        self._identities = identities
        self._clock = clock
        self._noted: dict[str, int] = {}
        self._ticks = 0
        self._sign_at = 0
        self._unpublished: dict[str, Any] | None = None
        self._publish_at = 0

    def run_once(self) -> None:
        """Call `tick` each second for ever; after an error it may be called again."""
        while True:
            self.tick()
            self._clock.sleep(TICK_SECONDS)

    def tick(self) -> None:
        """Sync the log, and sign, publish and record heads that are due."""
        self._ticks += 1
        self._audit.sync()
        if self._ticks >= self._sign_at:
            self._sign()
        if self._ticks % LOOK_TICKS == 0:
            self.note_others()
        if self._unpublished is not None and self._ticks >= self._publish_at:
            self._publish(self._unpublished)

    def note_others(self) -> None:
        """Write the heads of other control planes into this log, each once; raises API_UNAVAILABLE."""
        for document in self._identities.objects({}):
            node, known = document["spec"]["nodeName"], document.get("status", {}).get("auditHead")
            if node == self._node or not known or self._noted.get(node) == known.get("sequence"):
                continue
            self._noted[node] = known.get("sequence")
            self._audit.append(
                "head_of", node=node, log=known.get("log"), head=known.get("sequence"), sha256=known.get("sha256")
            )

    def _sign(self) -> None:
        if self._signer is None:
            return
        head = self._audit.due()
        if head is None:
            return
        self._sign_at = self._ticks + RETRY_TICKS  # do not call an unreachable TPM each second
        evidence = self._signer.sign(head)
        self._audit.signed(head, evidence)
        self._sign_at = 0
        self._unpublished = _head_status(head, evidence, time=self._clock.now().isoformat(timespec="seconds"))
        self._publish_at = self._ticks

    def _publish(self, head: dict[str, Any]) -> None:
        """Write a head into this node's identities; without an identity, or after a failed write, try again later."""
        self._publish_at = self._ticks + RETRY_TICKS  # do not call an unreachable API each second
        own = self._identities.objects({"spec.nodeName": self._node})
        for one in own:
            metadata: Mapping[str, Any] = one["metadata"]
            self._gateway.patch_status(
                IDENTITIES, metadata["name"], status={"auditHead": head}, revision=metadata["resourceVersion"]
            )
        if own:
            self._unpublished = None


def refusal_of(error: AttestedError) -> dict[str, str]:
    """Return the fields ``reason`` and ``detail`` of the record of a refusal."""
    return {"reason": error.code, "detail": error.message}


def _head_status(head: Head, evidence: str, *, time: str) -> dict[str, Any]:
    return {
        "log": head.log,
        "sequence": head.sequence,
        "sha256": head.sha256.hex(),
        "evidence": evidence,
        "time": time.replace("+00:00", "Z"),
    }
