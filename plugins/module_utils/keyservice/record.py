# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record outside etcd: what this control plane has seen of the policy, on its own disk and in its TPM.

One file holds the value of a TPM counter that rises with each change. The file has a MAC with a key that is derived
from the master secret. A change has four steps::

    stage (counter + 1, fsync) ──▶ increment ──▶ publish (rename, fsync) ──▶ used

If the process is killed between them, `recover` completes the change. A staged file with the current or the next value
of the counter is always the latest, because a change is staged only after the last one was published. Any other file is
from the past.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from ..core.documents import load_json
from ..core.files import read_bytes, remove
from ..errors import PolicyError, SystemFault
from ..policy.cluster import POLICY_KIND, POLICY_NAME
from ..policy.manifest import API_VERSION
from ..policy.record import Seen, adopt, follow, missing_revocations, rolled_back
from ..policy.signature import verify_policy
from ..reasons import Reason
from ..tpm.client import open_tpm
from ..tpm.storage import NvCounter
from ..transport.binding import label, length_prefixed
from .live_policy import Judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..policy.cluster import ClusterPolicy
    from ..tpm.client import Tpm
    from .master import SecretBytes


_VERSION = 1
_ALGORITHM = "HMAC-SHA256"
_USE = "policy-record"
_LIMIT = 1 << 20
LOCK_DIRECTORY = "/run/attested"


class Counter(Protocol):
    """A number that only rises, whatever happens to the disk."""

    def read(self) -> int | None:
        """Return the value, or None if the counter was never defined."""

    def define(self) -> int:
        """Define the counter if it does not exist, and return its value."""

    def increment(self) -> int:
        """Add one and return the new value."""


class TpmCounter:
    """The counter in this machine's TPM; each call opens the TPM, because other processes use it too."""

    def __init__(self, tcti: str, *, lock_directory: str | Path = LOCK_DIRECTORY) -> None:
        """Use the TPM at ``tcti``, under the lock file in ``lock_directory``."""
        self._tcti = tcti
        self._lock_directory = lock_directory

    def read(self) -> int | None:
        """Return the value, or None if it was never defined; raises TPM_UNREACHABLE, TPM_BUSY, TPM_NV_FOREIGN."""
        with self._open() as tpm:
            return NvCounter(tpm).read()

    def define(self) -> int:
        """Define the counter if it does not exist, and return its value."""
        with self._open() as tpm:
            return NvCounter(tpm).define()

    def increment(self) -> int:
        """Add one and return the new value."""
        with self._open() as tpm:
            return NvCounter(tpm).increment()

    def _open(self) -> AbstractContextManager[Tpm]:
        return open_tpm(self._tcti, lock_directory=self._lock_directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record: what was seen when the counter had this value."""

    seen: Seen
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """Creates and checks the MAC, which is bound to one node and one cluster.

    ``former``: keys that are also accepted while the master secret is rotated (`PolicyRecord.renew`).
    """

    key: SecretBytes
    cluster_id: bytes
    node_name: str
    former: tuple[SecretBytes, ...] = ()

    def render(self, entry: Entry) -> bytes:
        """Return the file of ``entry``."""
        document = {
            "version": _VERSION,
            "algorithm": _ALGORITHM,
            "node": self.node_name,
            "generation": entry.seen.generation,
            "content_sha256": entry.seen.content_sha256,
            "revoked": sorted(entry.seen.revoked),
            "reinstated": sorted(entry.seen.reinstated),
            "counter": entry.counter,
        }
        mac = self._mac(document, self.key)
        return json.dumps({**document, "mac": mac}, indent=1, sort_keys=True).encode("ascii") + b"\n"

    def only(self) -> RecordKey:
        """Return a copy without former keys."""
        return replace(self, former=())

    def parse(self, data: bytes) -> Entry | None:
        """Return the entry of a file, or None if it is malformed or was not made with these keys."""
        try:
            document = load_json(data)
            mac = str(document.pop("mac")).encode()
            if not any(hmac.compare_digest(mac, self._mac(document, key).encode()) for key in (self.key, *self.former)):
                return None
            if (document["version"], document["algorithm"], document["node"]) != (_VERSION, _ALGORITHM, self.node_name):
                return None
            seen = Seen(
                generation=int(document["generation"]),
                content_sha256=str(document["content_sha256"]),
                revoked=frozenset(map(str, document["revoked"])),
                reinstated=frozenset(map(str, document.get("reinstated", ()))),  # absent in earlier releases
            )
            return Entry(seen=seen, counter=int(document["counter"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _mac(self, document: dict[str, Any], key: SecretBytes) -> str:
        text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
        return hmac.digest(key.reveal(), length_prefixed(label(_USE), self.cluster_id, text), "sha256").hex()


class RecordFiles:
    """The published file, and the staged file during a change."""

    def __init__(self, directory: Path) -> None:
        """Use ``directory``, which only root can read."""
        self._directory = directory
        self.published = directory / "policy-record.json"
        self.staged = directory / "policy-record.next"

    def stage(self, data: bytes) -> None:
        """Write the staged file, and fsync it and its directory."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.staged, flags, 0o600), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            self._sync()
        except OSError as error:
            raise _unusable(self.staged, error) from error

    def publish(self) -> None:
        """Replace the published file with the staged one."""
        try:
            self.staged.replace(self.published)
            self._sync()
        except OSError as error:
            raise _unusable(self.published, error) from error

    def discard(self) -> None:
        """Remove the staged file."""
        remove(self.staged)

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Recovery(Enum):
    """What `PolicyRecord.load` does with the files that it finds."""

    ABSENT = "nothing was ever recorded"
    USE = "the published file is the latest"
    PUBLISH = "the staged file is the latest: publish it"
    INCREMENT = "the staged file is the next one: increment, then publish it"
    ROLLED_BACK = "neither file is of the counter's value"


def recover(*, published: Entry | None, staged: Entry | None, counter: int | None) -> Recovery:
    """Decide from the two files (None: absent, torn or of another key) and the counter (None: never defined).

    Killed while staging: the published file is current, and the staged one torn. After staging: the staged file has the
    next value. After the increment: the staged file has the current value. After publishing: only the published file
    exists.
    """
    if counter is None:
        return Recovery.ABSENT if published is None and staged is None else Recovery.ROLLED_BACK
    if staged is not None and staged.counter == counter:
        return Recovery.PUBLISH
    if published is not None and published.counter == counter:
        return Recovery.INCREMENT if staged is not None and staged.counter == counter + 1 else Recovery.USE
    return Recovery.ROLLED_BACK


class PolicyRecord:
    """The record of one control plane; one process owns it, its threads may share it."""

    def __init__(self, files: RecordFiles, counter: Counter, key: RecordKey) -> None:
        """Store the parts; `load` reads them."""
        self._files = files
        self._counter = counter
        self._key = key
        self._lock = threading.RLock()
        self._entry: Entry | None = None
        self._followed: tuple[Entry, ClusterPolicy] | None = None
        self._fault = _not_adopted()

    def load(self) -> None:
        """Find the latest record, and complete an interrupted change.

        A record from the past is stored as the fault that `current` raises. Raises TPM_UNREACHABLE, FILE_UNUSABLE.
        """
        with self._lock:
            published, staged = self._read(self._files.published), self._read(self._files.staged)
            counter = self._counter.read()
            found = recover(published=published, staged=staged, counter=counter)
            if found is Recovery.ABSENT:
                self._entry, self._fault = None, _not_adopted()
            elif found is Recovery.ROLLED_BACK:
                self._entry, self._fault = None, _foreign_counter(published, counter)
            else:
                latest = published if found is Recovery.USE else staged
                self._finish(found, latest)
                self._entry = latest

    def renew(self) -> bool:
        """Write the record again with the current key if a former one made it; return whether it was written.

        Without a usable record nothing is written. The write is a change with the four steps.
        """
        with self._lock:
            path = self._files.published
            if self._entry is None or self._key.only().parse(read_bytes(path, limit=_LIMIT)) is not None:
                return False
            self._write(self._entry.seen, self._entry.counter)
            return True

    def current(self) -> Entry:
        """Return the latest record; raises POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK."""
        if self._entry is None:
            raise PolicyError(self._fault.message, reason=self._fault.reason)
        return self._entry

    def require_intact(self) -> Entry:
        """Load the file and the counter again, and return the latest record.

        Raises as `load` and `current`; after a broken record all machines are refused.
        """
        with self._lock:
            self.load()
            return self.current()

    def state(self) -> Seen | None:
        """Return the content of the record, or None if the record cannot be used."""
        return self._entry.seen if self._entry is not None else None

    def all_revoked(self) -> frozenset[str]:
        """Return the revocations of all files, also of an unusable record, so that the site can sign them all."""
        with self._lock:
            files = [self._read(self._files.published), self._read(self._files.staged)]
            known = [one.seen.revoked for one in (self._entry, *files) if one is not None]
        return frozenset[str]().union(*known)

    def follow(self, policy: ClusterPolicy) -> Seen:
        """Record this verified policy if it is new, and return the content of the record.

        Raises as `current` and `policy.record.follow`, and TPM_…, FILE_UNUSABLE if it cannot be recorded.
        """
        entry = self.current()
        if self._followed is not None and self._followed[0] is entry and self._followed[1] is policy:
            return entry.seen  # the same policy and record were compared before; this saves the digest
        seen = follow(entry.seen, policy)
        if seen != entry.seen:
            return self._advance(lambda old: follow(old, policy))
        self._followed = (entry, policy)
        return entry.seen

    def note_revoked(self, revoked: Iterable[str]) -> Seen:
        """Record these revocations if they are new, and return the content of the record."""
        entry, new = self.current(), frozenset(revoked)
        return entry.seen if new <= entry.seen.revoked else self._advance(lambda old: old.with_revoked(new))

    def adopt(self, policy: ClusterPolicy) -> Seen:
        """Begin the record again with a verified policy from the site; a usable record follows the policy instead.

        Readable files of earlier records still count: the policy must not be older, and must sign their revocations.
        """
        with self._lock:
            if self._entry is not None:
                return self.follow(policy)
            left = (self._read(self._files.published), self._read(self._files.staged))
            seen = adopt([one.seen for one in left if one is not None], policy)
            self._write(seen, self._counter.define())
            return seen

    def _advance(self, change: Callable[[Seen], Seen]) -> Seen:
        with self._lock:
            entry = self.current()
            seen = change(entry.seen)
            if seen == entry.seen:
                return seen
            if self._counter.read() != entry.counter:  # an interrupted change, or another process incremented it
                self.load()
                seen = change(self.current().seen)
            self._write(seen, self.current().counter)
            return seen

    def _write(self, seen: Seen, counter: int) -> None:
        entry = Entry(seen=seen, counter=counter + 1)
        self._files.stage(self._key.render(entry))
        self._count_to(entry)
        self._files.publish()
        self._entry = entry

    def _count_to(self, entry: Entry) -> None:
        value = self._counter.increment()
        if value != entry.counter:
            self._entry, self._fault = None, _foreign_counter(entry, value)
            raise PolicyError(self._fault.message, reason=self._fault.reason)

    def _finish(self, found: Recovery, latest: Entry | None) -> None:
        if found is Recovery.USE or latest is None:
            self._files.discard()
            return
        if found is Recovery.INCREMENT:
            self._count_to(latest)
        self._files.publish()

    def _read(self, path: Path) -> Entry | None:
        return self._key.parse(read_bytes(path, limit=_LIMIT)) if path.exists() else None


def _not_adopted() -> PolicyError:
    return PolicyError(
        "expected a record of the policy on this control plane, found none", reason=Reason.POLICY_NOT_ADOPTED
    )


def _foreign_counter(entry: Entry | None, counter: int | None) -> PolicyError:
    recorded = f"at counter {entry.counter}" if entry else "that this control plane has made"
    return rolled_back(f"a record of the policy {recorded}, the TPM counts {'nothing' if counter is None else counter}")


def _unusable(path: Path, error: OSError) -> SystemFault:
    return SystemFault(f"cannot write {path}: {error.strerror}", reason=Reason.FILE_UNUSABLE)


# Compare the policy object of the API with the record of what this control plane has seen.


class PolicyAuthority:
    """Decides whether an object is the policy in force: signed by the site, and not older than the record.

    It holds a public key, the cluster id and the record, and so no secret.
    """

    def __init__(self, record: PolicyRecord, *, public_key: bytes, cluster_id: bytes) -> None:
        """Compare with ``record``; ``public_key`` (PEM) is the site's policy key."""
        self._record = record
        self._public_key = public_key
        self._cluster_id = cluster_id
        self._lock = threading.Lock()
        self._known: tuple[object, ClusterPolicy] | None = None

    def judge(self, document: Mapping[str, Any] | None) -> Judged:
        """Return the policy of the API's object, and the revocations that must be found in other objects.

        1. There is a record. POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK
        2. There is a policy. POLICY_ABSENT
        3. The site signed it. MANIFEST_INVALID, POLICY_SIGNATURE, POLICY_KEY_UNUSABLE
        4. It is not older than the record; anything new is recorded first. POLICY_ROLLED_BACK, TPM_…

        The caller must look for `Judged.missing` in the identities.
        """
        self._record.current()  # 1
        if document is None:  # 2
            raise PolicyError("expected AttestationPolicy/cluster in the API, found none", reason=Reason.POLICY_ABSENT)
        policy = self._verified(document)  # 3
        return _judged(policy, self._record.follow(policy))  # 4

    def vouched(self, document: Mapping[str, Any] | None) -> bytes:
        """Return the API's object as JSON, in the form that begins the record of a further control plane.

        1. This record is intact: its file and its counter agree now. POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK, TPM_…
        2. The object is the policy in force. Raises as `judge`.
        3. It signs every revocation that was seen, so the new record lacks none. REVOCATION_UNSIGNED
        """
        self._record.require_intact()  # 1
        judged = self.judge(document)  # 2
        if judged.missing:  # 3
            raise PolicyError(
                f"expected every revocation in the signed policy, {', '.join(sorted(judged.missing))} is not",
                reason=Reason.REVOCATION_UNSIGNED,
            )
        spec = (document or {})["spec"]  # `judge` has checked that it exists
        policy = {"apiVersion": API_VERSION, "kind": POLICY_KIND, "metadata": {"name": POLICY_NAME}, "spec": spec}
        return json.dumps(policy, sort_keys=True).encode()

    def note_revoked(self, revoked: Iterable[str]) -> None:
        """Record that these endorsement keys were revoked; raises as the record does."""
        self._record.note_revoked(revoked)

    def adopt(self, document: Mapping[str, Any]) -> Seen:
        """Begin the record again with a policy from the site; raises as `judge`."""
        return self._record.adopt(self._verified(document))

    def seen(self) -> Seen:
        """Return the content of the record; raises POLICY_NOT_ADOPTED, POLICY_ROLLED_BACK."""
        return self._record.current().seen

    def _verified(self, document: Mapping[str, Any]) -> ClusterPolicy:
        """Return the verified policy; an unchanged spec is verified once."""
        spec = document.get("spec")
        with self._lock:
            if self._known is not None and self._known[0] == spec:
                return self._known[1]
        policy = verify_policy(document, public_key=self._public_key, cluster_id=self._cluster_id)
        with self._lock:
            self._known = (spec, policy)
        return policy


def _judged(policy: ClusterPolicy, seen: Seen) -> Judged:
    return Judged(policy=policy, revoked=seen.revoked, missing=missing_revocations(seen, policy))
