# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force, read from the API: one linearizable snapshot for each decision.

A read that fails raises, so the machine is refused. An object that cannot be parsed admits no machine and hides no
other object:

- A profile that cannot be parsed is left out, and the other profiles decide.
- An identity that cannot be parsed refuses the machines that share a key or the node name with it, and no others. It
  may be a revocation, or the current identity of that node. If its admission is Revoked, it counts as revoked, even if
  the rest cannot be parsed.
- The signed policy is one object under one signature, so it counts as a whole or refuses all machines.

`LivePolicy.unreadable` returns these objects. Objects of the API count only if the site's signed policy names them and
this control plane's own record of the policy allows it (`Guard`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ApiError, PolicyError
from ..policy.cluster import POLICY_NAME
from ..policy.identity import Admission
from ..policy.in_force import CountingProfiles, SignedPolicy
from ..policy.manifest import API_VERSION, IDENTITY_KIND, PROFILE_KIND, parse_objects
from ..policy.record import require_revocations
from ..policy.standing import shown_time
from ..reasons import Reason
from .kube_api import IDENTITIES, POLICIES, PROFILES, revision_of

KEY_FIELDS = ("spec.ekSha256", "spec.ekAliasSha256")
"""The fields of an identity that hold its endorsement keys; the API selects by either."""
DISK_FIELD = "status.diskId"
"""The field of an identity that holds the disk id which the key service assigned."""

_KEY = re.compile(r"[0-9a-f]{64}")

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ..core.host import Clock
    from ..policy.cluster import ClusterPolicy
    from ..policy.identity import EvidenceRefusal, NodeIdentity
    from ..policy.manifest import Manifests
    from ..policy.profile import MeasurementProfile
    from .kube_api import Gateway, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verified policy; ``revoked``: all revoked keys of the record, ``missing``: those that it does not sign.

    ``revision`` is that of the API's object (`revision_of`).
    """

    policy: ClusterPolicy
    revoked: frozenset[str]
    missing: frozenset[str]
    revision: str = ""


class Guard(Protocol):
    """Decides whether an object is the policy in force; `PolicyAuthority` does so with the record outside etcd."""

    def judge(self, document: Mapping[str, Any] | None) -> Judged:
        """Return the policy of ``document``; raises POLICY_…, and then all machines are refused."""

    def note_revoked(self, revoked: Iterable[str]) -> None:
        """Record that these endorsement keys were revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An identity as it was in one read, with its revision for a compare-and-set.

    ``revision`` is the object's resourceVersion; ``issued`` and ``superseded`` count its tickets.
    """

    identity: NodeIdentity
    revision: str
    issued: int = 0
    superseded: int = 0


class Snapshot(SignedPolicy):
    """The policy, profiles and identities for one machine at one read; also a `PolicyInForce`."""

    def __init__(
        self,
        judged: Judged,
        *,
        counting: CountingProfiles,
        registrations: Iterable[Registration],
        ek_sha256: str,
        now: datetime,
    ) -> None:
        """Store what was read."""
        self.registrations = tuple(registrations)
        self.policy_revision = judged.revision
        super().__init__(
            counting=counting,
            revoked=judged.revoked,
            identities=[one.identity for one in self.registrations],
            ek_sha256=ek_sha256,
            now=now,
        )

    def registration_for(self, ek_sha256: str) -> Registration:
        """Return the registration of an approved identity; raises as `PolicyInForce.identity_for` does."""
        identity = self.identity_for(ek_sha256)
        return next(one for one in self.registrations if one.identity is identity)

    def holder_of(self, ek_sha256: str) -> NodeIdentity | None:
        """Return the identity with this key, of any admission; a pending one only if no other has the key."""
        holders = [one.identity for one in self.registrations if ek_sha256 in one.identity.keys]
        return min(holders, key=lambda one: one.admission is Admission.PENDING, default=None)


class RegistrationReader(Protocol):
    """What the watches reported, for uses that decide about no machine. Raises API_UNAVAILABLE without a watch."""

    def registrations(self, node_name: str = "") -> tuple[Registration, ...]:
        """Return the identities that can be read; with ``node_name`` only those that are, or were, this node."""

    def unreadable(self) -> tuple[str, ...]:
        """Return the profiles and identities that cannot be parsed."""


class LivePolicy:
    """The policy in force, read from the API for each call."""

    def __init__(
        self, gateway: Reader, guard: Guard, *, clock: Clock, lock_register: int = 15, parsed_limit: int = 1024
    ) -> None:
        """Read through ``gateway``, and check the policy with ``guard``; ``lock_register`` is always quoted.

        Up to ``parsed_limit`` parsed objects are cached as long as their content does not change.
        """
        self._parsed_limit = parsed_limit
        self._gateway = gateway
        self._guard = guard
        self._clock = clock
        self._lock_register = lock_register
        self._parsed: dict[str, tuple[Mapping[str, Any], Manifests | str]] = {}
        self._known: tuple[tuple[Mapping[str, Any], ...], CountingProfiles] | None = None

    def snapshot(self) -> Snapshot:
        """Return a snapshot of all identities, without exceptions for one machine; raises as `snapshot_for`."""
        judged = self._judged()
        found = self._gateway.objects(IDENTITIES)
        self._note(found, judged)
        return self._snapshot(judged, self._registrations(found), ek_sha256="")

    def snapshot_for(self, ek_sha256: str) -> Snapshot:
        """Return the snapshot for one machine: all identities that share a key, a node name or a disk with it.

        It takes a few small reads instead of one that grows with the cluster. A revocation among them is recorded
        first. Raises API_UNAVAILABLE, MANIFEST_INVALID, and as the guard does.
        """
        judged = self._judged()
        found = self._holders(ek_sha256)
        for other in {key for one in found.values() for key in _keys(one)} - {ek_sha256}:
            found |= self._holders(other)
        for name in {str(_spec(one).get("nodeName", "")) for one in found.values()}:
            found |= self._where("spec.nodeName", name)
        for disk in {_disk(one) for one in found.values()} - {""}:
            found |= self._where(DISK_FIELD, disk)
        self._note(found.values(), judged)
        return self._snapshot(judged, self._registrations(found.values()), ek_sha256=ek_sha256)

    def _snapshot(self, judged: Judged, registrations: Iterable[Registration], *, ek_sha256: str) -> Snapshot:
        return Snapshot(
            judged,
            counting=self._counting(judged.policy),
            registrations=registrations,
            ek_sha256=ek_sha256,
            now=self._clock.now(),
        )

    def holders_of(self, node_name: str) -> tuple[str, ...]:
        """Return the names of the identities that are, or were, this node, as of now."""
        found = self._gateway.objects(IDENTITIES, where={"spec.nodeName": node_name})
        return tuple(sorted(one["metadata"]["name"] for one in found))

    def registration_named(self, node_name: str) -> Registration:
        """Return the approved registration of the machine that is this node, as of now.

        Raises as `snapshot_for` and `SignedPolicy.identity_for`; IDENTITY_UNKNOWN if no machine has this node name.
        """
        found = self._registrations(self._gateway.objects(IDENTITIES, where={"spec.nodeName": node_name}))
        one = min(found, key=lambda known: known.identity.admission is not Admission.APPROVED, default=None)
        if one is None:
            raise PolicyError(
                f"expected an identity for the node {node_name}, found none", reason=Reason.IDENTITY_UNKNOWN
            )
        ek_sha256 = one.identity.ek_sha256
        return self.snapshot_for(ek_sha256).registration_for(ek_sha256)

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key, as of now."""
        return self.snapshot_for(ek_sha256).identity_for(ek_sha256)

    def profiles(self) -> tuple[MeasurementProfile, ...]:
        """Return every profile that the signed policy names, without exceptions for one machine, as of now."""
        return self._counting(self._judged().policy).named

    def registrations_of(self, ek_sha256: str) -> tuple[Registration, ...]:
        """Return the identities of one endorsement key as they are now, of any admission."""
        return self._registrations(self._holders(ek_sha256).values())

    def registrations(self, node_name: str = "") -> tuple[Registration, ...]:
        """Return the readable identities as they are now, of any admission; raises API_UNAVAILABLE.

        With ``node_name`` only those that are, or were, this node: the cost then does not grow with the cluster.
        """
        return self._readable({"spec.nodeName": node_name} if node_name else {})

    def registrations_called(self, name: str) -> tuple[Registration, ...]:
        """Return the identity with the object name ``name`` as it is now, if it exists and can be parsed."""
        return self._readable({"metadata.name": name})

    def _readable(self, where: Mapping[str, str]) -> tuple[Registration, ...]:
        objects = self._gateway.objects(IDENTITIES, where=where)
        return tuple(found for one in objects if (found := self._registration(one)) is not None)

    def unreadable(self) -> tuple[str, ...]:
        """Return the profiles and identities of the API that cannot be parsed: kind, name and cause, sorted."""
        problems = [
            found
            for plural, kind in ((PROFILES, PROFILE_KIND), (IDENTITIES, IDENTITY_KIND))
            for one in self._gateway.objects(plural)
            if isinstance(found := self._reading(one, kind), str)
        ]
        return tuple(sorted(problems))

    def settle_revocations(self) -> ClusterPolicy:
        """Record every revocation in the API's objects, and return the policy in force.

        Raises POLICY_ROLLED_BACK if a revocation that was seen before is missing, and as the guard does.
        """
        self._guard.note_revoked(self._revoked_objects())
        return self._judged().policy

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote as of now: those of every profile in force, and the lock register."""
        return self._counting(self._judged().policy).selection

    def _judged(self) -> Judged:
        documents = [one for one in self._gateway.objects(POLICIES) if one["metadata"]["name"] == POLICY_NAME]
        judged = self._guard.judge(documents[0] if documents else None)
        if judged.missing:
            require_revocations(judged.missing, self._revoked_objects())
        return replace(judged, revision=revision_of(documents[0]) if documents else "")

    def _revoked_objects(self) -> frozenset[str]:
        objects = self._gateway.objects(IDENTITIES, where={"spec.admission": Admission.REVOKED.value})
        return frozenset(key for one in objects for key in _keys(one))

    def _note(self, objects: Iterable[Mapping[str, Any]], judged: Judged) -> None:
        """Record the revocations among the objects, also of objects that cannot be parsed."""
        revoked = [one for one in objects if _spec(one).get("admission") == Admission.REVOKED.value]
        banned = {key for one in revoked for key in _keys(one)}
        if not banned <= judged.revoked:
            self._guard.note_revoked(banned)

    def _holders(self, ek_sha256: str) -> dict[str, Mapping[str, Any]]:
        """Return the objects that have this key, by name."""
        return {name: one for field in KEY_FIELDS for name, one in self._where(field, ek_sha256).items()}

    def _where(self, field: str, value: str) -> dict[str, Mapping[str, Any]]:
        """Return the identities whose ``field`` has this value, by name."""
        return {one["metadata"]["name"]: one for one in self._gateway.objects(IDENTITIES, where={field: value})}

    def _registrations(self, objects: Iterable[Mapping[str, Any]]) -> tuple[Registration, ...]:
        return tuple(_registration(self._parse(raw, IDENTITY_KIND).identities[0], raw) for raw in objects)

    def _registration(self, raw: Mapping[str, Any]) -> Registration | None:
        found = self._reading(raw, IDENTITY_KIND)
        return None if isinstance(found, str) else _registration(found.identities[0], raw)

    def _counting(self, policy: ClusterPolicy) -> CountingProfiles:
        """Return which profiles count; one that cannot be parsed admits no machine.

        The result is kept as long as neither ``policy`` nor a profile changes, since each ticket asks several times.
        """
        documents, known = self._gateway.objects(PROFILES), self._known
        if known is not None and known[0] == documents and known[1].policy == policy:
            return known[1]
        readings = [self._reading(document, PROFILE_KIND) for document in documents]
        profiles = [one.profiles[0] for one in readings if not isinstance(one, str)]
        counting = CountingProfiles(policy, profiles, lock_register=self._lock_register)
        self._known = documents, counting
        return counting

    def _parse(self, document: Mapping[str, Any], kind: str) -> Manifests:
        found = self._reading(document, kind)
        if isinstance(found, str):
            raise PolicyError(found, reason=Reason.MANIFEST_INVALID)
        return found

    def _reading(self, document: Mapping[str, Any], kind: str) -> Manifests | str:
        """Return the parsed object, or the error message; the same content is parsed once.

        The cache compares the content and not the resourceVersion, because an etcd that was restored from a snapshot
        assigns the same version again.
        """
        name = _place(document, kind)
        known = self._parsed.get(name)
        if known is not None and known[0] == document:
            return known[1]
        parsed: Manifests | str
        try:
            parsed = parse_objects([(name, {**document, "apiVersion": API_VERSION, "kind": kind})])
        except PolicyError as error:
            parsed = error.message
        if len(self._parsed) >= self._parsed_limit:
            self._parsed = {}
        self._parsed[name] = (document, parsed)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """The status that the key service writes after a release or a refusal; empty values are not written.

    ``clock`` is in milliseconds of TPMS_CLOCK_INFO; the counters are those of the verified quote. Good evidence
    (``attested_at``) removes the ``refusal`` of earlier evidence.
    """

    phase: str = ""
    disk_id: str = ""
    ak_name: str = ""
    clock: int = 0
    reset_count: int = 0
    restart_count: int = 0
    attested_at: datetime | None = None
    profile: str = ""
    posture: str = ""
    registers: Mapping[int, bytes] | None = None
    issued: int = 0
    superseded: int = 0
    key_sha256: str = ""
    expires: datetime | None = None
    refusal: EvidenceRefusal | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the merge patch of ``status``."""
        document: dict[str, Any] = {
            name: value
            for name, value in (("phase", self.phase), ("diskId", self.disk_id), ("akName", self.ak_name))
            if value
        }
        if self.attested_at is not None:
            document["lastAttestation"] = {
                "time": shown_time(self.attested_at),
                "profile": self.profile,
                "posture": self.posture,
            }
            if self.registers:
                document["lastAttestation"]["registers"] = [
                    {"pcr": pcr, "sha256": value.hex()} for pcr, value in sorted(self.registers.items())
                ]
            document["tpm"] = {
                "clock": self.clock,
                "resetCount": self.reset_count,
                "restartCount": self.restart_count,
            }
            document["lastRefusal"] = None
        if self.refusal is not None:
            document["lastRefusal"] = {"time": shown_time(self.refusal.at), "reason": self.refusal.code}
        if self.expires is not None:
            document["tickets"] = {
                "issued": self.issued,
                "superseded": self.superseded,
                "keySha256": self.key_sha256,
                "expires": shown_time(self.expires),
            }
        return document


class StatusWriter:
    """The one writer of identities' status."""

    def __init__(self, gateway: Gateway) -> None:
        """Write through ``gateway``."""
        self._gateway = gateway

    def write(self, registration: Registration, change: StatusChange) -> str:
        """Write ``change`` and return the new revision; raises API_CONFLICT if the object changed since the read."""
        return self._gateway.patch_status(
            IDENTITIES, registration.identity.name, status=change.to_document(), revision=registration.revision
        )


def _keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    values = (_spec(document).get(field.removeprefix("spec.")) for field in KEY_FIELDS)
    return tuple(one for one in values if isinstance(one, str) and _KEY.fullmatch(one))


def _disk(document: Mapping[str, Any]) -> str:
    status = document.get("status")
    return str(status.get("diskId") or "") if isinstance(status, dict) else ""


def _spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = document.get("spec")
    return found if isinstance(found, dict) else {}


def _place(document: Mapping[str, Any], kind: str) -> str:
    """Return kind and name; objects in a list of the API have no kind of their own."""
    return f"{kind} {document['metadata'].get('name', '?')}"


def _registration(identity: NodeIdentity, raw: Mapping[str, Any]) -> Registration:
    status = raw.get("status")
    tickets = status.get("tickets") if isinstance(status, dict) else None
    counts = tickets if isinstance(tickets, dict) else {}
    revision = raw["metadata"].get("resourceVersion", "")
    if not revision:
        raise ApiError(f"expected a resourceVersion of {identity.name}, got none", reason=Reason.API_UNAVAILABLE)
    return Registration(
        identity=identity,
        revision=revision,
        issued=_count(counts.get("issued")),
        superseded=_count(counts.get("superseded")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
