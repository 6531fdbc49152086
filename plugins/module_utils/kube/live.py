# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force as the live API says it: one snapshot a decision, read linearizably (design 5).

`LivePolicy` implements `policy.PolicyInForce`. A read that fails raises, so the decision is no; an object that cannot
be understood fails the whole reading, because the one that it hides may be a revocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ApiError
from ..policy import API_VERSION, IDENTITY_KIND, PROFILE_KIND, SitePolicy, parse_objects, register_selection
from ..reasons import Reason
from .gateway import IDENTITIES, PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..policy import Manifests, MeasurementProfile, NodeIdentity
    from .gateway import Gateway, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """An identity as it stood in one read, with what a compare-and-set on it needs.

    ``revision`` is the object's resourceVersion; ``issued`` and ``superseded`` count its tickets.
    """

    identity: NodeIdentity
    revision: str
    issued: int = 0
    superseded: int = 0


class Snapshot(SitePolicy):
    """The policy as of one read; also a `PolicyInForce`."""

    def __init__(
        self, profiles: Iterable[MeasurementProfile], registrations: Iterable[Registration], *, lock_register: int
    ) -> None:
        """Keep what was read."""
        self.registrations = tuple(registrations)
        identities = [one.identity for one in self.registrations]
        super().__init__(profiles=profiles, identities=identities, lock_register=lock_register)

    def registration_for(self, ek_sha256: str) -> Registration:
        """Return the registration of an approved identity; raises as `PolicyInForce.identity_for` does."""
        identity = self.identity_for(ek_sha256)
        return next(one for one in self.registrations if one.identity is identity)


class LivePolicy:
    """The policy in force, asked of the API each time."""

    def __init__(self, gateway: Reader, *, lock_register: int = 15) -> None:
        """Ask through ``gateway``; ``lock_register`` is quoted beside the profiles' registers."""
        self._gateway = gateway
        self._lock_register = lock_register
        self._parsed: dict[str, tuple[str, Manifests]] = {}

    def snapshot(self) -> Snapshot:
        """Return identities and profiles as they are now; raises API_UNAVAILABLE, MANIFEST_INVALID."""
        return self._snapshot(self._gateway.objects(IDENTITIES))

    def snapshot_for(self, ek_sha256: str) -> Snapshot:
        """Return all that decides about one machine as it is now: what shares its key, or its node's name.

        Two small reads instead of one that grows with the cluster; raises as `snapshot`.
        """
        found = {}
        for one in self._gateway.objects(IDENTITIES, where={"spec.ekSha256": ek_sha256}):
            found[one["metadata"]["name"]] = one
        for name in {one["spec"]["nodeName"] for one in found.values()}:
            for one in self._gateway.objects(IDENTITIES, where={"spec.nodeName": name}):
                found[one["metadata"]["name"]] = one
        return self._snapshot(tuple(found.values()))

    def _snapshot(self, objects: tuple[Mapping[str, Any], ...]) -> Snapshot:
        identities = [self._parse(document, IDENTITY_KIND).identities[0] for document in objects]
        registrations = [_registration(one, raw) for one, raw in zip(identities, objects, strict=True)]
        return Snapshot(self.profiles(), registrations, lock_register=self._lock_register)

    def holders_of(self, node_name: str) -> tuple[str, ...]:
        """Return the identities that are, or were, this node, as of now."""
        found = self._gateway.objects(IDENTITIES, where={"spec.nodeName": node_name})
        return tuple(sorted(one["metadata"]["name"] for one in found))

    def identity_for(self, ek_sha256: str) -> NodeIdentity:
        """Return the approved identity of an endorsement key, as of now."""
        return self.snapshot_for(ek_sha256).identity_for(ek_sha256)

    def profiles(self) -> tuple[MeasurementProfile, ...]:
        """Return every profile, as of now."""
        return tuple(self.parse_profile(document) for document in self._gateway.objects(PROFILES))

    def parse_profile(self, document: Mapping[str, Any]) -> MeasurementProfile:
        """Return the profile that an object says; raises MANIFEST_INVALID."""
        return self._parse(document, PROFILE_KIND).profiles[0]

    def selection(self) -> tuple[int, ...]:
        """Return the registers to quote, as of now."""
        return register_selection(self.profiles(), lock_register=self._lock_register)

    def _parse(self, document: Mapping[str, Any], kind: str) -> Manifests:
        """Return what an object says; each of its revisions is read once."""
        name, revision = _place(document, kind), document["metadata"].get("resourceVersion", "")
        known = self._parsed.get(name)
        if known is not None and revision and known[0] == revision:
            return known[1]
        parsed = parse_objects([(name, {**document, "apiVersion": API_VERSION, "kind": kind})])
        self._parsed[name] = (revision, parsed)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """What the key service writes after a release; empty values are not written.

    ``clock`` in milliseconds of TPMS_CLOCK_INFO; counters are those of the quote that was verified.
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
    issued: int = 0
    superseded: int = 0
    key_sha256: str = ""
    expires: datetime | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the merge patch of ``status``."""
        document: dict[str, Any] = {
            name: value
            for name, value in (("phase", self.phase), ("diskId", self.disk_id), ("akName", self.ak_name))
            if value
        }
        if self.attested_at is not None:
            document["lastAttestation"] = {
                "time": _timestamp(self.attested_at),
                "profile": self.profile,
                "posture": self.posture,
            }
            document["tpm"] = {
                "clock": self.clock,
                "resetCount": self.reset_count,
                "restartCount": self.restart_count,
            }
        if self.expires is not None:
            document["tickets"] = {
                "issued": self.issued,
                "superseded": self.superseded,
                "keySha256": self.key_sha256,
                "expires": _timestamp(self.expires),
            }
        return document


class StatusWriter:
    """The one writer of identities' status."""

    def __init__(self, gateway: Gateway) -> None:
        """Write through ``gateway``."""
        self._gateway = gateway

    def write(self, registration: Registration, change: StatusChange) -> str:
        """Write ``change`` if the object is still as it was read, and return its new revision; else API_CONFLICT."""
        return self._gateway.patch_status(
            IDENTITIES, registration.identity.name, status=change.to_document(), revision=registration.revision
        )


def _place(document: Mapping[str, Any], kind: str) -> str:
    """Return kind and name; the API leaves the kind of an object in a list to the list."""
    return f"{kind} {document['metadata'].get('name', '?')}"


def _registration(identity: NodeIdentity, raw: Mapping[str, Any]) -> Registration:
    tickets = raw.get("status", {}).get("tickets", {})
    revision = raw["metadata"].get("resourceVersion", "")
    if not revision:
        raise ApiError(f"expected a resourceVersion of {identity.name}, got none", reason=Reason.API_UNAVAILABLE)
    return Registration(
        identity=identity,
        revision=revision,
        issued=int(tickets.get("issued", 0)),
        superseded=int(tickets.get("superseded", 0)),
    )


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
