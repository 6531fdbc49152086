# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy as watches have brought it here, and the two questions that make a decision from it as good as a read.

A decision from memory may be old. So it is not believed until it is known to hold *now*:

1. `confirm`: the signed policy and the profile that allowed the machine are still what they were (one read each of one
   object by etcd's quorum, shared by all who asked before it began).
2. The identity's status is written by compare-and-set on the revision that was judged: a revocation in between is a
   conflict.
3. `settle`: the watch has delivered that very write. Changes of one kind come in their order, so everything that
   happened to any identity before has been seen here as well, and is looked at once more.

Whatever is wrong with the near view only sends the caller to `LivePolicy`, which reads everything anew: a view of
memory neither admits nor refuses by itself.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ApiError
from ..policy.cluster import POLICY_NAME
from ..reasons import Reason
from .kube_api import IDENTITIES, POLICIES, PROFILES
from .live_policy import DISK_FIELD, KEY_FIELDS, LivePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Answer: TypeAlias = Mapping[str, Any] | None
    from ..core.host import Clock
    from .kube_api import Gateway
    from .live_policy import Guard, Registration, Snapshot


# One read answers everybody who asked before it began.
#
# A read that has begun may have been answered already when somebody asks, so he is not served by it: he waits for the
# next one, with all others who came meanwhile. What is returned is therefore never older than the question.


class _Queue:
    """What is going on about one key: whether a read runs, and who waits for the next."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.waiting: Future[Answer] | None = None


class SharedReads:
    """Reads objects by key; may be used by several threads."""

    def __init__(self, read: Callable[[str], Answer]) -> None:
        """Read with ``read``."""
        self._read = read
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}

    def read(self, key: str) -> Answer:
        """Return what a read that began after this call has found; raises what it raised."""
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            future, leads = queue.waiting, queue.waiting is None
            if future is None:
                future = queue.waiting = Future()
        if leads:
            try:
                self._lead(key, queue, future)
            finally:
                if not future.done():
                    self._abandon(key, queue, future)
        return future.result()

    def _lead(self, key: str, queue: _Queue, future: Future[Answer]) -> None:
        with queue.turn:
            with self._lock:
                queue.waiting = None  # from here on the read may begin, so who comes later waits for the next
            try:
                future.set_result(self._read(key))
            except Exception as error:  # noqa: BLE001 - it belongs to everybody who waits
                future.set_exception(error)

    def _abandon(self, key: str, queue: _Queue, future: Future[Answer]) -> None:
        """Let nobody wait for a reader that something else than its read has ended, now or later."""
        with self._lock:
            if queue.waiting is future:
                queue.waiting = None
        future.set_exception(
            ApiError(f"expected a read of {key}, the one that led it broke off", reason=Reason.API_UNAVAILABLE)
        )


INDEXED = (*KEY_FIELDS, "spec.nodeName", "spec.admission", DISK_FIELD)
FOLLOW_SECONDS = 240
REMEMBERED = 1 << 15
"""Parsed objects: more than the largest cluster has, and a bound on what deleted ones hold."""
SETTLE_SECONDS = 2.0


class ObjectCache:
    """The objects of one kind in memory, kept by a watch; written by one thread, read by many."""

    def __init__(self, gateway: Gateway, plural: str) -> None:
        """Follow ``plural``; nothing is known before `follow` runs."""
        self._gateway = gateway
        self._plural = plural
        self._changed = threading.Condition()
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._index: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._revision = 0
        self._following = False
        self._observers: list[Callable[[Mapping[str, Any]], None]] = []

    def observed_by(self, observer: Callable[[Mapping[str, Any]], None]) -> None:
        """Let ``observer`` hear each object that is read or changes, in the thread of `follow`; call it before that."""
        self._observers.append(observer)

    def __len__(self) -> int:
        """Count the objects."""
        return len(self._objects)

    def follow(self) -> None:
        """Read everything, then take each change as it comes, until the watch breaks; raises `ApiError`."""
        items, revision = self._gateway.listing(self._plural)
        self._begin(items, revision)
        try:
            while True:
                for event in self._gateway.changes(self._plural, revision=str(self._revision), seconds=FOLLOW_SECONDS):
                    self._take(event)
        finally:
            self.distrust()

    def distrust(self) -> None:
        """Answer no more until everything was read again."""
        with self._changed:
            self._following = False
            self._changed.notify_all()

    def objects(self, where: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
        """Return the objects that match; raises API_UNAVAILABLE while nothing is followed."""
        with self._changed:
            if not self._following:
                raise ApiError(f"expected a watch of {self._plural}, there is none", reason=Reason.API_UNAVAILABLE)
            if not where:
                return tuple(self._objects.values())
            names = set.intersection(*(self._index.get(item, set()) for item in where.items()))
            return tuple(self._objects[name] for name in sorted(names))

    def wait_for(self, revision: int, *, seconds: float) -> None:
        """Wait until the watch has come to ``revision``; raises API_UNAVAILABLE where it does not in time."""
        with self._changed:
            come = self._changed.wait_for(lambda: self._revision >= revision or not self._following, seconds)
            if come and self._following:
                return
        self.distrust()
        raise ApiError(
            f"expected the watch of {self._plural} at revision {revision} within {seconds:g} s",
            reason=Reason.API_UNAVAILABLE,
        )

    def _begin(self, items: tuple[Mapping[str, Any], ...], revision: str) -> None:
        with self._changed:
            self._objects.clear()
            self._index.clear()
            for document in items:
                self._add(document)
            self._revision = int(revision)
            self._following = True
        for document in items:
            self._tell(document)

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "ERROR":
            raise ApiError(f"the watch of {self._plural} was ended by the API", reason=Reason.API_UNAVAILABLE)
        document = event["object"]
        with self._changed:
            if event["type"] != "BOOKMARK":
                self._remove(document["metadata"]["name"])
                if event["type"] != "DELETED":
                    self._add(document)
            self._revision = int(document["metadata"]["resourceVersion"])
            self._changed.notify_all()
        if event["type"] != "BOOKMARK":
            self._tell(document)

    def _tell(self, document: Mapping[str, Any]) -> None:
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


class NearReader:
    """Reads kinds that are followed from memory, and all others from the API."""

    def __init__(self, gateway: Gateway, caches: Mapping[str, ObjectCache]) -> None:
        """Read from ``caches`` (by plural), then from ``gateway``."""
        self._gateway = gateway
        self._caches = caches

    def objects(self, plural: str, *, where: Mapping[str, str] | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return objects of a kind as last heard."""
        cache = self._caches.get(plural)
        return self._gateway.objects(plural, where=where) if cache is None else cache.objects(where or {})


class NearPolicy:
    """What `LivePolicy` answers, from memory, with what makes a decision from it hold now."""

    def __init__(
        self,
        gateway: Gateway,
        guard: Guard,
        *,
        clock: Clock,
        lock_register: int = 15,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Follow all that decides through ``gateway``; each cache's `follow` needs a thread of its own."""
        self.caches = {plural: ObjectCache(gateway, plural) for plural in (IDENTITIES, POLICIES, PROFILES)}
        reader = NearReader(gateway, self.caches)
        self._policy = LivePolicy(reader, guard, clock=clock, lock_register=lock_register, remembers=REMEMBERED)
        self._guard = guard
        self._settle_seconds = settle_seconds
        self._profile = SharedReads(lambda name: gateway.object(PROFILES, name))
        self._signed = SharedReads(lambda name: gateway.object(POLICIES, name))

    def snapshot_for(self, ek_sha256: str) -> Snapshot:
        """Return all that decides about one machine, as last heard; raises API_UNAVAILABLE, MANIFEST_INVALID."""
        return self._policy.snapshot_for(ek_sha256)

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote, as last heard."""
        return self._policy.selection()

    def registrations(self, node_name: str = "") -> tuple[Registration, ...]:
        """Return the identities as last heard that can be read; raises API_UNAVAILABLE. No decision rests on it."""
        return self._policy.registrations(node_name)

    def unreadable(self) -> tuple[str, ...]:
        """Return what of the profiles and identities, as last heard, cannot be understood; raises API_UNAVAILABLE."""
        return self._policy.unreadable()

    def confirm(self, snapshot: Snapshot, profile: str) -> None:
        """Return if the policy and ``profile`` are now what they were in ``snapshot``; else raises API_CONFLICT.

        Also what the guard raises.
        """
        if self._guard.judge(self._signed.read(POLICY_NAME)).policy != snapshot.policy:
            raise ApiError("the signed policy has changed meanwhile", reason=Reason.API_CONFLICT)
        document = self._profile.read(profile)
        was = [one for one in snapshot.profiles() if one.name == profile]
        if document is None or self._policy.parse_profile(document) not in was:
            raise ApiError(f"the profile {profile} has changed meanwhile", reason=Reason.API_CONFLICT)

    def settle(self, ek_sha256: str, revision: str) -> None:
        """Return once all that happened before ``revision`` is known, if the identity still stands after it.

        Raises what `Snapshot.identity_for` and `Snapshot.inherited_disk` raise, and API_UNAVAILABLE when the watch does
        not come that far.
        """
        self.caches[IDENTITIES].wait_for(int(revision), seconds=self._settle_seconds)
        snapshot = self.snapshot_for(ek_sha256)
        snapshot.inherited_disk(snapshot.identity_for(ek_sha256))


def _indexed(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    parts = {name: found for name in ("spec", "status") if isinstance(found := document.get(name), dict)}
    # an object of no meaning is nobody's, and hides no other
    said = ((path, parts.get(part, {}).get(name)) for path in INDEXED for part, _dot, name in [path.partition(".")])
    return tuple((path, str(value)) for path, value in said if value)
