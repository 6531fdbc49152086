# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Set identities to `Joined` when their Node appears; write the status of profiles and the release, and ConfigMaps.

Only the node's own user (NodeRestriction) or an admin can create a Node of this name. So a Node counts for an identity
that was admitted, or that is this control plane itself, which proved itself by opening its sealed bundle.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ApiError, KeyServiceError
from ..policy.identity import Admission
from ..reasons import Reason
from .cached_policy import ObjectCache
from .kube_api import IDENTITIES, POLICIES, PROFILES, RELEASES
from .live_policy import StatusChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..core.host import Clock
    from .kube_api import ConfigMaps, Gateway, Reader
    from .live_policy import LivePolicy, Registration, RegistrationReader, StatusWriter


ADMITTED = "Admitted"
JOINED = "Joined"
WATCH_SECONDS = 240
SOON_SECONDS = 5
_FEW = 16
"""Up to this number of Nodes are read one by one; for more, one list of all identities costs less."""


def newly_joined(
    registrations: Iterable[Registration], nodes: frozenset[str], *, own_name: str
) -> tuple[Registration, ...]:
    """Return the registrations that become `Joined` if these Nodes exist; ``own_name`` is this control plane."""
    return tuple(
        one
        for one in registrations
        if one.identity.node_name in nodes
        and one.identity.admission is Admission.APPROVED
        and one.identity.status.phase != JOINED
        and (one.identity.status.phase == ADMITTED or one.identity.node_name == own_name)
    )


class NodeWatcher:
    """Sets the phase of identities whose Node exists."""

    def __init__(
        self,
        gateway: Gateway,
        policy: LivePolicy,
        writer: StatusWriter,
        *,
        cached: RegistrationReader,
        own_name: str,
        joined: Callable[[str], None],
        own_disk: Callable[[], str] = str,
    ) -> None:
        """Call ``joined`` with each node name that became `Joined`.

        The identities of ``cached`` are used first; ``policy`` is read for Nodes that are not joined there.
        ``own_disk`` returns the disk id of the control plane ``own_name`` if it is the founder, else "": all other
        disk ids are assigned with a ticket.
        """
        self._gateway = gateway
        self._policy = policy
        self._cached = cached
        self._writer = writer
        self._own_name = own_name
        self._joined = joined
        self._own_disk = own_disk
        self._own_joined = False

    def run_once(self, seconds: int = WATCH_SECONDS) -> None:
        """Check every Node that exists or appears within ``seconds``; raises `ApiError`.

        The Node of this control plane exists before its identity, which the site's policy creates later without an
        event of the Node. So all Nodes are checked again soon until this control plane is `Joined`.
        """
        for names in self._gateway.node_arrivals(seconds if self._own_joined else min(seconds, SOON_SECONDS)):
            self.settle(names)

    def settle(self, nodes: frozenset[str]) -> None:
        """Write the phase of each identity whose Node is among ``nodes``; after a conflict it is read again.

        The cached identities suffice, because the write is a compare-and-set. Nodes without a joined identity in the
        cache are read from the API, because the cache may lag behind.
        """
        left = nodes - self._settled_cached(nodes)
        for part in [left] if len(left) > _FEW else [frozenset({name}) for name in sorted(left)]:
            try:
                self._settle(part, self._policy)
            except ApiError as error:
                if error.reason is not Reason.API_CONFLICT:
                    raise
                self._settle(part, self._policy)

    def _settled_cached(self, nodes: frozenset[str]) -> frozenset[str]:
        """Return the Nodes whose cached identities are `Joined`, or were set to `Joined` now."""
        try:
            return self._settle(nodes, self._cached) if nodes else nodes
        except ApiError:  # no running watch, or an identity changed since
            return frozenset()

    def _settle(self, nodes: frozenset[str], source: RegistrationReader) -> frozenset[str]:
        registrations = source.registrations(next(iter(nodes)) if len(nodes) == 1 else "")
        new = newly_joined(registrations, nodes, own_name=self._own_name)
        for registration in new:
            self._writer.write(registration, StatusChange(phase=JOINED, disk_id=self._disk_of(registration)))
            self._joined(registration.identity.node_name)
        joined = [one.identity for one in registrations if one.identity.status.phase == JOINED]
        self._own_joined = self._own_joined or any(one.node_name == self._own_name for one in joined)
        settled = [one for one in joined if one.admission is Admission.APPROVED] + [one.identity for one in new]
        return frozenset(one.node_name for one in settled)

    def _disk_of(self, registration: Registration) -> str:
        """Return the disk id to write together with the phase, so that no ticket sees one without the other."""
        identity = registration.identity
        return "" if identity.node_name != self._own_name or identity.status.disk_id else self._own_disk()


# The status of a profile names the machines that use it: information for an admin who retires it, not for decisions.
#
# A background task writes it from the caches, only if it changed, so no ticket waits for it.

MAX_NAMED = 20
ROUND_SECONDS = 10.0
_WRITES_A_ROUND = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageWrite:
    """The new status of the profile ``name``, for a compare-and-set on ``revision``."""

    name: str
    revision: str
    status: Mapping[str, Any]


def plan_usage(
    profiles: Iterable[Mapping[str, Any]], identities: Iterable[Mapping[str, Any]]
) -> tuple[UsageWrite, ...]:
    """Return the writes after which the status of each profile names the machines that use it.

    A machine uses the profile that accepted its last good evidence, as long as its identity is approved. ``nodes``
    names the first `MAX_NAMED` of them, ``inUseBy`` counts all.
    """
    users = _users(identities)
    writes = []
    for one in profiles:
        metadata, nodes = one["metadata"], sorted(users.get(one["metadata"]["name"], ()))
        wanted = {"inUseBy": len(nodes), "nodes": nodes[:MAX_NAMED]}
        status = one.get("status", {})
        if any(status.get(field) != value for field, value in wanted.items()):
            writes.append(UsageWrite(name=metadata["name"], revision=metadata["resourceVersion"], status=wanted))
    return tuple(writes)


def _users(identities: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the nodes by the profile that they use."""
    users: dict[str, list[str]] = {}
    for one in identities:
        profile = one.get("status", {}).get("lastAttestation", {}).get("profile")
        if profile and one["spec"]["admission"] == Admission.APPROVED.value:
            users.setdefault(profile, []).append(one["spec"]["nodeName"])
    return users


class UsageWatcher:
    """The one writer of profiles' status; `run_once` needs a thread of its own."""

    def __init__(self, reader: Reader, gateway: Gateway, *, clock: Clock) -> None:
        """Count the objects of ``reader``, which may be a cache, and write through ``gateway``."""
        self._reader = reader
        self._gateway = gateway
        self._clock = clock

    def run_once(self) -> None:
        """Sleep, then `look`; raises `ApiError`."""
        self._clock.sleep(ROUND_SECONDS)
        self.look()

    def look(self) -> None:
        """Write a bounded number of changes; after a conflict with another control plane the next round compares."""
        planned = plan_usage(self._reader.objects(PROFILES), self._reader.objects(IDENTITIES))
        for write in planned[:_WRITES_A_ROUND]:
            try:
                self._gateway.patch_status(PROFILES, write.name, status=write.status, revision=write.revision)
            except ApiError as error:
                if error.reason is not Reason.API_CONFLICT:
                    raise


# The Kubernetes release of the cluster: the object ClusterRelease/cluster.
#
# The playbooks init and upgrade write its spec, and tickets name its version. Its status counts the nodes that run it.

RELEASE_NAME = "cluster"
_VERSION = re.compile(r"1\.[0-9]{1,3}\.[0-9]{1,3}")


class ClusterRelease:
    """A cache of the object, and the writer of its status; `follow` and `run_once` need a thread each."""

    def __init__(self, gateway: Gateway, *, clock: Clock, versions: Callable[[], Mapping[str, str]]) -> None:
        """Watch the object through ``gateway``; ``versions`` returns the kubelet's version of each node, by name."""
        self._gateway = gateway
        self._clock = clock
        self._versions = versions
        self._cache = ObjectCache(gateway, RELEASES)

    def follow(self) -> None:
        """Update the cache until the watch ends with an error; raises `ApiError`."""
        self._cache.follow()

    def version(self) -> str:
        """Return the version that tickets name, such as 1.35.4.

        Without a running watch the API is read. Raises CLUSTER_RELEASE_ABSENT if the object does not exist or names no
        version, and `ApiError`.
        """
        document = self._document() or {}
        spec = document.get("spec")
        version = spec.get("kubernetesVersion") if isinstance(spec, dict) else None
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            raise KeyServiceError(
                f"expected a version of Kubernetes in ClusterRelease/{RELEASE_NAME}, got {str(version)[:32]!r}",
                reason=Reason.CLUSTER_RELEASE_ABSENT,
            )
        return version

    def run_once(self) -> None:
        """Wait, then write the status if it changed; raises `ApiError`."""
        self._clock.sleep(ROUND_SECONDS)
        self.write_status()

    def write_status(self) -> None:
        """Count the nodes and write the status; after a conflict the next round compares again."""
        document, versions = self._document(), self._versions()
        if document is None or not versions:
            return
        status = count_nodes(versions, self.version())
        if all(document.get("status", {}).get(field) == value for field, value in status.items()):
            return
        try:
            self._gateway.patch_status(
                RELEASES, RELEASE_NAME, status=status, revision=document["metadata"]["resourceVersion"]
            )
        except ApiError as error:
            if error.reason is not Reason.API_CONFLICT:
                raise

    def _document(self) -> Mapping[str, Any] | None:
        try:
            found = self._cache.objects({})
        except ApiError:
            return self._gateway.object(RELEASES, RELEASE_NAME)
        return next((one for one in found if one["metadata"]["name"] == RELEASE_NAME), None)


def count_nodes(versions: Mapping[str, str], wanted: str) -> dict[str, Any]:
    """Return the status: how many nodes there are, how many run ``wanted``, and the first of the others; pure."""
    others = [f"{name} {version or 'unknown'}" for name, version in sorted(versions.items()) if version != wanted]
    return {"nodes": len(versions), "current": len(versions) - len(others), "others": others[:MAX_NAMED]}


# What the admission policies of the API servers know of identities: the data of three ConfigMaps (docs/adr/0093).
#
# An API server that starts finds custom resources up to 30 s later. Until then, a policy whose parameter is one denies
# every request that it matches. It finds ConfigMaps at once.

REVOKED_LIST = "attested-revoked"
REINSTATED_LIST = "attested-reinstated"
ADDRESS_LIST = "attested-addresses"
AT_REVISION = "attested-kubernetes.dev/at-revision"
"""Annotation: the revision of etcd up to which the writer knew the identities, or the policy."""

LIST_SECONDS = 60.0
_GATHER_SECONDS = 0.2


def plan_lists(
    identities: Iterable[Mapping[str, Any]], policies: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Return the data of each ConfigMap by its name.

    - attested-revoked: the node name of each revoked identity, by the identity's name.
    - attested-reinstated: the keys (SHA-256 in hex) that the policy takes back, each with an empty value.
    - attested-addresses: the node of each address and node name of approved identities. The keys of a ConfigMap cannot
      have colons, so ``_`` replaces those of IPv6 addresses.
    """
    lists: dict[str, dict[str, str]] = {REVOKED_LIST: {}, REINSTATED_LIST: {}, ADDRESS_LIST: {}}
    for one in identities:
        spec = one["spec"]
        if spec["admission"] == Admission.REVOKED.value:
            lists[REVOKED_LIST][one["metadata"]["name"]] = spec["nodeName"]
        if spec["admission"] == Admission.APPROVED.value:
            for address in (*spec.get("addresses", ()), spec["nodeName"]):
                lists[ADDRESS_LIST][address.replace(":", "_")] = spec["nodeName"]
    for policy in policies:
        lists[REINSTATED_LIST].update(dict.fromkeys(policy["spec"].get("reinstated", ()), ""))
    return lists


class AdmissionLists:
    """Writes the ConfigMaps; `run_once` needs a thread of its own."""

    def __init__(self, caches: Mapping[str, ObjectCache], writer: ConfigMaps, *, clock: Clock) -> None:
        """Observe identities and policies in ``caches``, which start later, and write through ``writer``."""
        self._identities, self._policies = caches[IDENTITIES], caches[POLICIES]
        self._writer = writer
        self._clock = clock
        self._changed = threading.Event()
        self._specs: dict[str, object] = {}
        for cache in (self._identities, self._policies):
            cache.observed_by(self._observe)

    def _observe(self, document: Mapping[str, Any]) -> None:
        """Wake `run_once` if the spec changed; tickets and evidence change the status only."""
        name, spec = document["metadata"]["name"], document.get("spec")
        if self._specs.get(name) != spec:
            self._specs[name] = spec
            self._changed.set()

    def run_once(self) -> None:
        """Wait for a change, at most for `LIST_SECONDS`, then write what differs; raises `ApiError`.

        After a conflict with another control plane the next run compares.
        """
        self._changed.wait(LIST_SECONDS)
        self._clock.sleep(_GATHER_SECONDS)
        self._changed.clear()
        try:
            self.write()
        except ApiError as error:
            self._changed.set()
            if error.reason is not Reason.API_CONFLICT:
                raise

    def write(self) -> None:
        """Write the ConfigMaps that differ and are not of a later revision; raises `ApiError`.

        A control plane whose watch lags behind thus never takes back what another one has written.
        """
        identities, revision = self._identities.listed()
        policies, policy_revision = self._policies.listed()
        read_at = {REVOKED_LIST: revision, REINSTATED_LIST: policy_revision, ADDRESS_LIST: revision}
        for name, data in plan_lists(identities, policies).items():
            self._write(name, data, read_at[name])

    def _write(self, name: str, data: Mapping[str, str], revision: int) -> None:
        found = self._writer.config_map(name)
        if found is None or _revision_of(found) > revision:
            return
        was, current = found.get("data", {}), found["metadata"]["resourceVersion"]
        changes = {key: data.get(key) for key in was.keys() | data.keys() if was.get(key) != data.get(key)}
        if changes:
            annotations = {AT_REVISION: str(revision)}
            self._writer.merge_config_map(name, changes, annotations=annotations, revision=current)


def _revision_of(document: Mapping[str, Any]) -> int:
    text = document["metadata"].get("annotations", {}).get(AT_REVISION, "")
    return int(text) if text.isdecimal() else 0
