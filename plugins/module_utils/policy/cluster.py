# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy in force, as one object: which profiles and control planes count, and who never does again.

The site signs it. What a cluster's API says beside it (a profile, an identity of a control plane) counts only if it is
named here with its digest, so that whoever may write objects may refuse machines and cannot admit any but workers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .identity import NodeIdentity, Role
from .manifest import API_VERSION, render_identity, render_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .profile import MeasurementProfile

POLICY_KIND = "AttestationPolicy"
POLICY_NAME = "cluster"
TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"

_KEPT_DIGESTS = 256


@dataclass(frozen=True, slots=True, order=True)
class NamedDigest:
    """An object by its name and the SHA-256 (hex) of what it says."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyException:
    """Break-glass: a profile that counts for a few machines, and only until it ends.

    ``machines`` are endorsement keys (SHA-256, hex); ``expires`` has whole seconds; ``why`` is for people.
    """

    profile: NamedDigest
    machines: tuple[str, ...]
    expires: datetime
    why: str

    def covers(self, ek_sha256: str, *, now: datetime) -> bool:
        """Say whether it counts for this machine at this time."""
        return ek_sha256 in self.machines and now < self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPolicy:
    """What the site says in one generation; nothing in it is believed before its signature was verified.

    ``profiles`` are the active ones, ``control_planes`` the identities that may be one, ``revoked`` every endorsement
    key (SHA-256, hex) that ever was, but for ``reinstated``: those of which the site took a revocation back that was a
    mistake. Equal policies give equal bytes: `plan_policy` sorts what has no order.
    """

    generation: int
    profiles: tuple[NamedDigest, ...]
    control_planes: tuple[NamedDigest, ...]
    revoked: tuple[str, ...] = ()
    exceptions: tuple[PolicyException, ...] = ()
    reinstated: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """Return everything but the generation, as in the manifest; what is seldom there only where there is any."""
        seldom = {"reinstated": list(self.reinstated)} if self.reinstated else {}
        return {
            **seldom,
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
        """Return the bytes that are signed: JSON in ASCII, keys sorted, nothing between them."""
        return canonical({"generation": self.generation, **self.content()})

    @property
    def content_sha256(self) -> str:
        """What tells two policies of one generation apart (hex)."""
        return hashlib.sha256(canonical(self.content())).hexdigest()

    def names_profile(self, profile: MeasurementProfile) -> bool:
        """Say whether this very profile is active."""
        return NamedDigest(profile.name, profile_sha256(profile)) in self.profiles

    def names_control_plane(self, identity: NodeIdentity) -> bool:
        """Say whether this very identity may be a control plane."""
        return NamedDigest(identity.name, identity_sha256(identity)) in self.control_planes

    def excepted(self, profile: MeasurementProfile, ek_sha256: str, *, now: datetime) -> bool:
        """Say whether an exception lets this profile count for this machine now."""
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
    """Return the policy over these objects; of ``identities`` the control planes count, unless they were revoked.

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
    """Return the digest of all that a profile says (hex).

    A ticket asks three times for that of each profile of the cluster: the very same object is digested once.
    """
    known = _digests.get(id(profile))
    if known is None:
        if len(_digests) >= _KEPT_DIGESTS:
            _digests.clear()
        known = _digests[id(profile)] = (profile, _digest(render_profile(profile)))
    return known[1]


_digests: dict[int, tuple[MeasurementProfile, str]] = {}
"""By the profile's `id`; the profile is kept beside it, so that no other object can get that id meanwhile."""


def identity_sha256(identity: NodeIdentity) -> str:
    """Return the digest of what an identity says (hex), without the admission: anybody may revoke, nobody un-revoke."""
    document = render_identity(identity)
    spec = {name: value for name, value in document["spec"].items() if name != "admission"}
    return _digest({**document, "spec": spec})


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
    """Return the digest of kind, name and spec: labels and the like decide nothing."""
    told = {"kind": document["kind"], "name": document["metadata"]["name"], "spec": document["spec"]}
    return hashlib.sha256(canonical(told)).hexdigest()


def _named(one: NamedDigest) -> dict[str, str]:
    return {"name": one.name, "sha256": one.sha256}
