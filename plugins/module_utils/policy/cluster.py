# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force, as one object: which profiles and control planes count, and which keys are revoked for good.

The site signs it. A profile or a control plane's identity in the cluster's API counts only if the policy names it with
its digest. So a user with write access to the objects can refuse machines, and can admit none but workers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .identity import NodeIdentity, Role
from .manifest import API_VERSION, REVOKED_LABEL, render_identity, render_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .profile import MeasurementProfile

POLICY_KIND = "AttestationPolicy"
POLICY_NAME = "cluster"
TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"

_KEPT_DIGESTS = 256


@dataclass(frozen=True, slots=True, order=True)
class NamedDigest:
    """The name of an object and the SHA-256 (hex) of its content."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    """Break-glass: a profile that counts for a few machines until a time.

    ``machines`` are endorsement keys (SHA-256, hex); ``expires`` has whole seconds; ``why`` is for display.
    """

    profile: NamedDigest
    machines: tuple[str, ...]
    expires: datetime
    why: str

    def covers(self, ek_sha256: str, *, now: datetime) -> bool:
        """Return whether the exception counts for this machine at this time."""
        return ek_sha256 in self.machines and now < self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPolicy:
    """One generation of the site's policy; it must not be trusted before its signature was verified.

    ``profiles`` are active, ``control_planes`` are the identities that may be control planes. ``revoked`` are all
    endorsement keys (SHA-256, hex) that were ever revoked, except the ``reinstated`` ones, whose revocation was a
    mistake. Equal policies give equal bytes: `plan_policy` sorts what has no order.
    """

    generation: int
    profiles: tuple[NamedDigest, ...]
    control_planes: tuple[NamedDigest, ...]
    revoked: tuple[str, ...] = ()
    exceptions: tuple[PolicyException, ...] = ()
    reinstated: tuple[str, ...] = ()
    content_sha256: str = field(init=False, repr=False, compare=False)
    """The digest (hex) that distinguishes two policies of one generation."""
    _named: frozenset[tuple[str, str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the digest and the set of profiles once: each ticket needs them several times."""
        object.__setattr__(self, "content_sha256", hashlib.sha256(canonical(self.content())).hexdigest())
        object.__setattr__(self, "_named", frozenset((one.name, one.sha256) for one in self.profiles))

    def content(self) -> dict[str, Any]:
        """Return all fields of the manifest except the generation; ``reinstated`` only if it is not empty."""
        reinstated = {"reinstated": list(self.reinstated)} if self.reinstated else {}
        return {
            **reinstated,
            "profiles": [_named(one) for one in self.profiles],
            "controlPlanes": [_named(one) for one in self.control_planes],
            "revoked": list(self.revoked),
            "exceptions": [
                {
                    "profile": _named(one.profile),
                    "machines": list(one.machines),
                    "expires": one.expires.astimezone(UTC).strftime(TIMESTAMP),
                    "why": one.why,
                }
                for one in self.exceptions
            ],
        }

    def to_bytes(self) -> bytes:
        """Return the bytes that are signed: JSON in ASCII, keys sorted, no white space."""
        return canonical({"generation": self.generation, **self.content()})

    def names_profile(self, profile: MeasurementProfile) -> bool:
        """Return whether exactly this profile is active."""
        return (profile.name, profile_sha256(profile)) in self._named

    def names_control_plane(self, identity: NodeIdentity) -> bool:
        """Return whether exactly this identity may be a control plane."""
        return NamedDigest(identity.name, identity_sha256(identity)) in self.control_planes

    def excepted(self, profile: MeasurementProfile, ek_sha256: str, *, now: datetime) -> bool:
        """Return whether an exception lets this profile count for this machine now."""
        named = NamedDigest(profile.name, profile_sha256(profile))
        return any(one.profile == named and one.covers(ek_sha256, now=now) for one in self.exceptions)


def plan_policy(
    *,
    generation: int,
    profiles: Iterable[MeasurementProfile],
    identities: Iterable[NodeIdentity],
    revoked: Iterable[str],
    exceptions: Iterable[PolicyException] = (),
    reinstated: Iterable[str] = (),
) -> ClusterPolicy:
    """Return the policy over these objects; it names the control planes of ``identities`` that are not revoked.

    A key that is both ``revoked`` and ``reinstated`` is revoked.
    """
    out = frozenset(revoked)
    return ClusterPolicy(
        generation=generation,
        profiles=tuple(sorted(NamedDigest(one.name, profile_sha256(one)) for one in profiles)),
        control_planes=tuple(
            sorted(
                NamedDigest(one.name, identity_sha256(one))
                for one in identities
                if one.role is Role.CONTROL_PLANE and out.isdisjoint(one.keys)
            )
        ),
        revoked=tuple(sorted(out)),
        exceptions=tuple(sorted(exceptions, key=lambda one: (one.profile, one.expires, one.machines))),
        reinstated=tuple(sorted(frozenset(reinstated) - out)),
    )


def profile_sha256(profile: MeasurementProfile) -> str:
    """Return the digest of a profile's content (hex).

    One ticket needs the digest of each profile three times, so it is cached for each object.
    """
    known = _digests.get(id(profile))
    if known is None:
        if len(_digests) >= _KEPT_DIGESTS:
            _digests.clear()
        known = _digests[id(profile)] = (profile, _digest(render_profile(profile)))
    return known[1]


_digests: dict[int, tuple[MeasurementProfile, str]] = {}
"""The cache by the profile's `id`; it holds the profile too, so that no other object can get the same id."""


def identity_sha256(identity: NodeIdentity) -> str:
    """Return the digest of an identity's content (hex) without the admission, which a revocation may change."""
    document = render_identity(identity)
    spec = {name: value for name, value in document["spec"].items() if name != "admission"}
    return _digest({**document, "spec": spec})


def applied_sha256(document: Mapping[str, Any]) -> str:
    """Return the digest (hex) of what a site applies to an identity: its spec, and the label of a revoked one."""
    labels = document.get("metadata", {}).get("labels") or {}
    content = {"revoked": labels.get(REVOKED_LABEL, ""), "spec": document["spec"]}
    return hashlib.sha256(canonical(content)).hexdigest()


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the one JSON text of a document of plain values."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def render_policy(policy: ClusterPolicy, *, signature: str) -> dict[str, Any]:
    """Return the manifest of a signed policy; ``signature`` is base64."""
    return {
        "apiVersion": API_VERSION,
        "kind": POLICY_KIND,
        "metadata": {"name": POLICY_NAME},
        "spec": {"generation": policy.generation, **policy.content(), "signature": signature},
    }


def _digest(document: Mapping[str, Any]) -> str:
    """Return the digest of kind, name and spec; other metadata, such as labels, is not part of it."""
    content = {"kind": document["kind"], "name": document["metadata"]["name"], "spec": document["spec"]}
    return hashlib.sha256(canonical(content)).hexdigest()


def _named(one: NamedDigest) -> dict[str, str]:
    return {"name": one.name, "sha256": one.sha256}
