# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signature of the policy in force: Ed25519 by the site's policy key, for one cluster only."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .._deps.crypto import ed25519, exceptions, serialization
from ..errors import PolicyError
from ..key_kinds import KeyUse, is_accepted
from ..reasons import Reason
from ..transport.binding import label, length_prefixed
from .cluster import POLICY_KIND, POLICY_NAME, TIMESTAMP, ClusterPolicy, NamedDigest, PolicyException, render_policy
from .fields import Fields, listed
from .manifest import API_VERSION, MAX_LABEL, OBJECT_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_GENERATION = 1 << 53
MAX_PROFILES = 256
MAX_CONTROL_PLANES = 64
MAX_REVOKED = 8192
MAX_EXCEPTIONS = 64
MAX_MACHINES = 256

_USE = "attestation-policy"
_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_NO_TIME = datetime.min.replace(tzinfo=UTC)


def sign_policy(policy: ClusterPolicy, *, private_key: bytes, cluster_id: bytes) -> dict[str, Any]:
    """Return the signed manifest of ``policy``; ``private_key`` is Ed25519 in PEM (PKCS 8).

    Ed25519 is deterministic: the same policy gives the same manifest each time.
    """
    key = serialization.load_pem_private_key(private_key, password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise PolicyError("expected an Ed25519 policy key, got another kind", reason=Reason.POLICY_KEY_UNUSABLE)
    signature = key.sign(_signed_bytes(policy, cluster_id))
    return render_policy(policy, signature=base64.b64encode(signature).decode("ascii"))


def verify_policy(document: Mapping[str, Any], *, public_key: bytes, cluster_id: bytes) -> ClusterPolicy:
    """Return the policy of ``document`` (a manifest, or an object of the API) after its signature was verified.

    1. It is an ``AttestationPolicy/cluster`` without unknown fields. MANIFEST_INVALID
    2. The site's key (PEM) signed exactly this content for this cluster. POLICY_KEY_UNUSABLE, POLICY_SIGNATURE

    The caller must compare the policy with those it saw before: an old policy has a good signature too.
    """
    policy, signature = _parse(document)  # 1
    key = _public(public_key)
    try:
        key.verify(signature, _signed_bytes(policy, cluster_id))  # 2
    except exceptions.InvalidSignature as error:
        raise PolicyError(
            f"expected the site's signature on generation {policy.generation} of the policy, got another",
            reason=Reason.POLICY_SIGNATURE,
        ) from error
    return policy


def _public(pem: bytes) -> ed25519.Ed25519PublicKey:
    try:
        key: Any = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise PolicyError("expected a policy key in PEM, got none", reason=Reason.POLICY_KEY_UNUSABLE) from error
    if not is_accepted(KeyUse.POLICY, key):
        raise PolicyError("expected an Ed25519 policy key, got another kind", reason=Reason.POLICY_KEY_UNUSABLE)
    public: ed25519.Ed25519PublicKey = key
    return public


def _signed_bytes(policy: ClusterPolicy, cluster_id: bytes) -> bytes:
    return length_prefixed(label(_USE), cluster_id, policy.to_bytes())


def _parse(document: Mapping[str, Any]) -> tuple[ClusterPolicy, bytes]:
    problems: list[str] = []
    fields = Fields(dict(document), place=POLICY_KIND, problems=problems)
    for name, wanted in (("apiVersion", API_VERSION), ("kind", POLICY_KIND)):
        got = fields.take(name, default=wanted)  # objects of a list of the API have neither field
        if got != wanted:
            fields.note(f"{name}: expected {wanted}, got {got!r:.80}")
    if fields.mapping("metadata").take("name") != POLICY_NAME:
        fields.note(f"metadata.name: expected {POLICY_NAME}")
    fields.take("status")
    parsed = _spec(fields.mapping("spec"))
    fields.finish()
    if problems:
        raise PolicyError(f"expected a valid policy, got {listed(problems)}", reason=Reason.MANIFEST_INVALID)
    return parsed


def _spec(spec: Fields) -> tuple[ClusterPolicy, bytes]:
    policy = ClusterPolicy(
        generation=spec.number("generation", below=MAX_GENERATION),
        profiles=tuple(_named(one) for one in spec.sequence("profiles", limit=MAX_PROFILES)),
        control_planes=tuple(_named(one) for one in spec.sequence("controlPlanes", limit=MAX_CONTROL_PLANES)),
        revoked=spec.digests("revoked", limit=MAX_REVOKED),
        exceptions=tuple(_exception(one) for one in spec.sequence("exceptions", limit=MAX_EXCEPTIONS)),
        reinstated=spec.digests("reinstated", limit=MAX_REVOKED) if spec.has("reinstated") else (),
    )
    if not frozenset(policy.revoked).isdisjoint(policy.reinstated):
        spec.note("reinstated: expected keys that are not revoked as well")
    signature = spec.matching("signature", _SIGNATURE, "an Ed25519 signature in base64")
    spec.finish()
    return policy, base64.b64decode(signature)


def _named(fields: Fields) -> NamedDigest:
    return NamedDigest(fields.matching("name", OBJECT_NAME, "a DNS name in lower case"), fields.sha256("sha256").hex())


def _exception(fields: Fields) -> PolicyException:
    profile = fields.mapping("profile")
    named = _named(profile)
    profile.finish()
    return PolicyException(
        profile=named,
        machines=fields.digests("machines", limit=MAX_MACHINES),
        expires=_moment(fields, "expires"),
        why=fields.text("why", limit=MAX_LABEL),
    )


def _moment(fields: Fields, name: str) -> datetime:
    text = fields.matching(name, _TIME, "a time like 2026-11-21T12:00:00Z")
    try:
        return datetime.strptime(text, TIMESTAMP).replace(tzinfo=UTC) if text else _NO_TIME
    except ValueError:
        fields.note(f"{name}: expected a day and time that exist, got {text!r}")
        return _NO_TIME
