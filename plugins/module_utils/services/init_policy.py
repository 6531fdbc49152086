# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy that comes with an init request: packed by the admin's side, verified by the machine (docs/adr/0041)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.documents import load_json
from ..errors import PolicyError
from ..policy.cluster import POLICY_KIND, POLICY_NAME
from ..policy.manifest import API_VERSION, Manifests, parse_objects, render_document, render_identity, render_profile
from ..policy.signature import verify_policy
from ..reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..policy.identity import NodeIdentity
    from ..policy.profile import MeasurementProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtPolicy:
    """A policy of the site with a verified signature, and the profiles and identities that come with it."""

    generation: int
    spec: Mapping[str, Any]
    manifests: Manifests

    @classmethod
    def verified(cls, policy: bytes, objects: bytes, *, public_key: bytes, cluster_id: bytes) -> BroughtPolicy:
        """Return the verified content of the two policy fields of a request.

        1. Both are JSON, the policy an object and the objects a list. MANIFEST_INVALID
        2. The site's key (PEM) signed exactly this policy, for this cluster: `verify_policy`, which the key service
           calls as well. MANIFEST_INVALID, POLICY_KEY_UNUSABLE, POLICY_SIGNATURE
        3. The objects are profiles and identities without unknown fields. MANIFEST_INVALID

        The key service checks later that the policy is not older than a known one. Whether a profile is in the policy
        is checked where a machine is judged by it.
        """
        document, items = _loaded(policy, dict), _loaded(objects, list)  # 1
        found = verify_policy(document, public_key=public_key, cluster_id=cluster_id)  # 2
        places = ((f"policy_objects[{number}]", one) for number, one in enumerate(items))
        return cls(generation=found.generation, spec=document["spec"], manifests=parse_objects(places))  # 3

    def document(self) -> str:
        """Return the signed policy as YAML, with verified content only."""
        return render_document(_policy_manifest(self.spec))

    def objects(self) -> str:
        """Return all objects as one YAML stream to apply, the policy last, with parsed content only."""
        manifests = [*map(render_profile, self.manifests.profiles), *map(render_identity, self.manifests.identities)]
        return "".join(map(render_document, manifests)) + self.document()


def pack_policy(
    document: Mapping[str, Any], *, profiles: Iterable[MeasurementProfile], identities: Iterable[NodeIdentity]
) -> tuple[bytes, bytes]:
    """Return the two fields of a request for a signed policy: the policy, and the objects that are applied with it."""
    objects = [*map(render_profile, profiles), *map(render_identity, identities)]
    return _dumped(_policy_manifest(document["spec"])), _dumped(objects)


def _policy_manifest(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": POLICY_KIND, "metadata": {"name": POLICY_NAME}, "spec": dict(spec)}


def _dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _loaded(data: bytes, kind: type) -> Any:
    try:
        found = load_json(data)
    except ValueError as error:
        raise _no_policy("JSON, got none") from error
    if not isinstance(found, kind):
        raise _no_policy(f"a {kind.__name__} in JSON, got another value")
    return found


def _no_policy(expected_and_got: str) -> PolicyError:
    return PolicyError(f"expected the policy of the request as {expected_and_got}", reason=Reason.MANIFEST_INVALID)
