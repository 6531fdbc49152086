# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy from a cache that watches update, and the two checks that make a decision from it as good as a read.

The cache may be old. So a decision from it counts only after it is known to be true *now*:

1. `confirm`: the signed policy is unchanged, by one read of its revision by etcd's quorum, shared by all callers that
   asked before it began. It names the digest of each profile, so the one that allowed the machine still counts.
2. The identity's status is written by compare-and-set on the cached revision: a revocation in between is a conflict.
3. `settle`: the watch has delivered that write. Changes of one kind arrive in order, so all earlier changes of any
   identity are in the cache too, and the identity is checked again.

If the cache cannot decide, the caller uses `LivePolicy`, which reads everything from the API. The cache alone neither
admits nor refuses a machine.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core.rate import TokenBuckets
from ..errors import ApiError, PolicyError
from ..policy.cluster import POLICY_NAME
from ..policy.identity import Admission, TpmRecord
from ..reasons import Reason
from .kube_api import IDENTITIES, POLICIES, PROFILES
from .live_policy import DISK_FIELD, KEY_FIELDS, LivePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.host import Clock
    from .kube_api import Gateway
    from .live_policy import Guard, Registration, Snapshot


T = TypeVar("T")

# One read serves all callers that asked before it began.
#
# The answer to a running read may be older than a new call, so a new call waits for the next read, together with all
# calls that arrive meanwhile. The result is therefore never older than the call.


class SharedReads(Generic[T]):
    """Reads one value; may be used by several threads."""

    def __init__(self, read: Callable[[], T]) -> None:
        """Use ``read``; one thread at a time calls it."""
        self._read = read
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: Future[T] | None = None

    def read(self) -> T:
        """Return the result of a read that begins after this call; raises as that read does."""
        with self._lock:
            future, reads = self._waiting, self._waiting is None
            if future is None:
                future = self._waiting = Future()
        if reads:
            try:
                self._read_for_all(future)
            finally:
                if not future.done():
                    self._abandon(future)
        return future.result()

    def _read_for_all(self, future: Future[T]) -> None:
        with self._turn:
            with self._lock:
                self._waiting = None  # the read may begin now, so later calls wait for the next read
            try:
                future.set_result(self._read())
            except Exception as error:  # noqa: BLE001 - raised in every waiting call
                future.set_exception(error)

    def _abandon(self, future: Future[T]) -> None:
        """Fail all waiting calls if the reading thread was stopped by something other than its read."""
        with self._lock:
            if self._waiting is future:
                self._waiting = None
        future.set_exception(ApiError("expected a read, its thread was stopped", reason=Reason.API_UNAVAILABLE))


INDEXED = (*KEY_FIELDS, "spec.nodeName", "spec.admission", DISK_FIELD)
FOLLOW_SECONDS = 240
MAX_PARSED = 1 << 15
"""Maximum of parsed objects in memory: more than the largest cluster has; it bounds those of deleted objects."""
SETTLE_SECONDS = 2.0
_NEVER = TpmRecord(clock=0, reset_count=0, restart_count=0)


class ObjectCache:
    """A cache of the objects of one kind, updated by a watch; written by one thread, read by many."""

    def __init__(self, gateway: Gateway, plural: str) -> None:
        """Cache the kind ``plural``; the cache is empty until `follow` runs."""
        self._gateway = gateway
        self._plural = plural
        self._changed = threading.Condition()
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._index: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._revision = 0
        self._following = False
        self._observers: list[Callable[[Mapping[str, Any]], None]] = []

    def observed_by(self, observer: Callable[[Mapping[str, Any]], None]) -> None:
        """Call ``observer`` with each object that is read or changes, in the thread of `follow`, which starts later."""
        self._observers.append(observer)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    def follow(self) -> None:
        """List all objects, then apply each change until the watch ends with an error; raises `ApiError`."""
        items, revision = self._gateway.listing(self._plural)
        self._begin(items, revision)
        try:
            while True:
                for event in self._gateway.changes(self._plural, revision=str(self._revision), seconds=FOLLOW_SECONDS):
                    self._take(event)
        finally:
            self.invalidate()

    def invalidate(self) -> None:
        """Refuse all calls until everything was read again."""
        with self._changed:
            self._following = False
            self._changed.notify_all()

    def objects(self, where: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
        """Return the objects that match ``where``; raises API_UNAVAILABLE without a running watch."""
        with self._changed:
            self._require_following()
            if not where:
                return tuple(self._objects.values())
            names = set.intersection(*(self._index.get(item, set()) for item in where.items()))
            return tuple(self._objects[name] for name in sorted(names))

    def listed(self) -> tuple[tuple[Mapping[str, Any], ...], int]:
        """Return all objects and the revision that they are of; raises API_UNAVAILABLE without a running watch."""
        with self._changed:
            self._require_following()
            return tuple(self._objects.values()), self._revision

    def wait_for(self, revision: int, *, seconds: float) -> None:
        """Wait until the watch has reached ``revision``; raises API_UNAVAILABLE after ``seconds``."""
        with self._changed:
            reached = self._changed.wait_for(lambda: self._revision >= revision or not self._following, seconds)
            if reached and self._following:
                return
        self.invalidate()
        raise ApiError(
            f"expected the watch of {self._plural} at revision {revision} within {seconds:g} s",
            reason=Reason.API_UNAVAILABLE,
        )

    def _require_following(self) -> None:
        if not self._following:
            raise ApiError(f"expected a watch of {self._plural}, there is none", reason=Reason.API_UNAVAILABLE)

    def _begin(self, items: tuple[Mapping[str, Any], ...], revision: str) -> None:
        with self._changed:
            self._objects.clear()
            self._index.clear()
            for document in items:
                self._add(document)
            self._revision = int(revision)
            self._following = True
        for document in items:
            self._notify(document)

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "ERROR":
            raise ApiError(f"the API stopped the watch of {self._plural}", reason=Reason.API_UNAVAILABLE)
        document = event["object"]
        with self._changed:
            if event["type"] != "BOOKMARK":
                self._remove(document["metadata"]["name"])
                if event["type"] != "DELETED":
                    self._add(document)
            self._revision = int(document["metadata"]["resourceVersion"])
            self._changed.notify_all()
        if event["type"] != "BOOKMARK":
            self._notify(document)

    def _notify(self, document: Mapping[str, Any]) -> None:
        for observer in self._observers:
            observer(document)

    def _add(self, document: Mapping[str, Any]) -> None:
        name = document["metadata"]["name"]
        self._objects[name] = document
        for item in _indexed(document):
            self._index[item].add(name)

    def _remove(self, name: str) -> None:
        known = self._objects.pop(name, None)
        for item in _indexed(known) if known else ():
            self._index[item].discard(name)
            if not self._index[item]:
                del self._index[item]


class CachedReader:
    """Reads the kinds that have a cache from it, and all others from the API."""

    def __init__(self, gateway: Gateway, caches: Mapping[str, ObjectCache]) -> None:
        """Read from ``caches`` (by plural), else from ``gateway``."""
        self._gateway = gateway
        self._caches = caches

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return objects of a kind from its cache, or from the API if it has none."""
        cache = self._caches.get(plural)
        return self._gateway.objects(plural, where=where) if cache is None else cache.objects(where or {})


class CachedPolicy:
    """The reads of `LivePolicy` from a cache, with the checks that a cached decision is true now."""

    def __init__(
        self,
        gateway: Gateway,
        guard: Guard,
        *,
        clock: Clock,
        lock_register: int = 15,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Cache identities, policies and profiles of ``gateway``; each cache's `follow` needs a thread of its own."""
        self.caches = {plural: ObjectCache(gateway, plural) for plural in (IDENTITIES, POLICIES, PROFILES)}
        reader = CachedReader(gateway, self.caches)
        self._policy = LivePolicy(reader, guard, clock=clock, lock_register=lock_register, parsed_limit=MAX_PARSED)
        self._settle_seconds = settle_seconds
        self._signed = SharedReads(lambda: gateway.revision(POLICIES, POLICY_NAME))

    def snapshot_for(self, ek_sha256: str) -> Snapshot:
        """Return the cached snapshot for one machine; raises API_UNAVAILABLE, MANIFEST_INVALID."""
        return self._policy.snapshot_for(ek_sha256)

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote, by the cached profiles."""
        return self._policy.selection()

    def last_tpm(self, ek_sha256: str) -> TpmRecord | None:
        """Return the state of a machine's TPM at its last evidence, all 0 before the first; None if it is not known."""
        with suppress(ApiError, PolicyError):
            found = self._policy.registrations_of(ek_sha256)
            return (found[0].identity.status.tpm or _NEVER) if found else None
        return None

    def registrations(self, node_name: str = "") -> tuple[Registration, ...]:
        """Return the readable cached identities; raises API_UNAVAILABLE. Not for decisions about a machine."""
        return self._policy.registrations(node_name)

    def unreadable(self) -> tuple[str, ...]:
        """Return the cached profiles and identities that cannot be parsed; raises API_UNAVAILABLE."""
        return self._policy.unreadable()

    def confirm(self, snapshot: Snapshot) -> None:
        """Raise API_CONFLICT unless the signed policy is now as in ``snapshot``.

        The policy names the digest of each profile, so the content of a profile in ``snapshot`` is in force now. Only
        the revision of the policy is read: its content grows with the number of profiles.
        """
        if self._signed.read() != snapshot.policy_revision:
            raise ApiError("the signed policy has changed meanwhile", reason=Reason.API_CONFLICT)

    def settle(self, ek_sha256: str, revision: str) -> None:
        """Wait until the cache contains all changes up to ``revision``, then check the identity again.

        Raises what `Snapshot.identity_for` and `Snapshot.inherited_disk` raise, and API_UNAVAILABLE if the watch does
        not reach ``revision`` in time.
        """
        self.caches[IDENTITIES].wait_for(int(revision), seconds=self._settle_seconds)
        snapshot = self.snapshot_for(ek_sha256)
        snapshot.inherited_disk(snapshot.identity_for(ek_sha256))


def _indexed(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    parts = {name: found for name in ("spec", "status") if isinstance(found := document.get(name), dict)}
    # an object without these fields matches no query, and hides no other object
    values = ((path, parts.get(part, {}).get(name)) for path in INDEXED for part, _dot, name in [path.partition(".")])
    return tuple((path, str(value)) for path, value in values if value)


# Limit the API reads for machines that are not enrolled, because a software TPM proves any number of keys.

_EACH_RATE, _EACH_BURST = 2.0, 16
_ALL_RATE, _ALL_BURST = 10.0, 64


class Strangers:
    """Counts the API reads for keys that the cached policy does not know; known keys are never counted."""

    def __init__(self, cached: CachedPolicy, *, clock: Clock) -> None:
        """Look keys up in ``cached``; a machine over the limit is not refused for good and can ask again."""
        self._cached = cached
        self._each = _buckets(_EACH_RATE, _EACH_BURST, "API reads a second for unknown machines of one address", clock)
        self._all = _buckets(_ALL_RATE, _ALL_BURST, "API reads a second for unknown machines", clock)

    def take(self, ek_sha256: str, *, source: str) -> None:
        """Raise IDENTITY_UNKNOWN_RATE unless the API may be read now for this key from ``source``."""
        if not self._is_known(ek_sha256):
            self._each.take(source)
            self._all.take("")

    def _is_known(self, ek_sha256: str) -> bool:
        try:
            holder = self._cached.snapshot_for(ek_sha256).holder_of(ek_sha256)
        except (ApiError, PolicyError):
            return True  # without a watch no key is known, and every machine may ask
        return holder is not None and holder.admission is not Admission.PENDING


def _buckets(rate: float, burst: int, what: str, clock: Clock) -> TokenBuckets:
    return TokenBuckets(rate=rate, burst=burst, clock=clock, reason=Reason.IDENTITY_UNKNOWN_RATE, what=what)
