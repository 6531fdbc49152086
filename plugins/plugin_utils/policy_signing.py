# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared code of the actions that sign the site's policy: draft, plan, signature, and the mark in cluster.yml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.identities import (
    enrolled_identities,
    load_profiles,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import (
    plan_next,
    read_exceptions,
    reinstated_keys,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import PolicyMark, Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes, write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.signature import sign_policy
from ansible_collections.attested.kubernetes.plugins.plugin_utils.site_action import SiteAction
from ansible_collections.attested.kubernetes.plugins.plugin_utils.vault import AnsibleVault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.policy_plan import Observed, PolicyPlan
    from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import ClusterFile
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.cluster import (
        ClusterPolicy,
        PolicyException,
    )
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import NodeIdentity
    from ansible_collections.attested.kubernetes.plugins.module_utils.policy.profile import MeasurementProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The content of a site's next policy; ``excepted`` are the profiles that ``exceptions`` name.

    ``reinstate`` are the keys whose revocation is taken back.
    """

    site: Site
    public: ClusterFile
    profiles: tuple[MeasurementProfile, ...]
    identities: tuple[NodeIdentity, ...]
    exceptions: tuple[PolicyException, ...]
    excepted: tuple[MeasurementProfile, ...]
    now: datetime
    reinstate: frozenset[str]

    @property
    def applied(self) -> tuple[MeasurementProfile, ...]:
        """The profiles that are applied with the policy."""
        return (*self.profiles, *self.excepted)

    def planned(self, observed: Observed) -> PolicyPlan:
        """Return the plan for the next policy after the observed state of the cluster; raises nothing."""
        return plan_next(
            profiles=self.profiles,
            identities=self.identities,
            exceptions=self.exceptions,
            excepted=self.excepted,
            mark=self.public.policy,
            observed=observed,
            now=self.now,
            reinstate=self.reinstate,
        )

    def signed(self, policy: ClusterPolicy) -> dict[str, Any]:
        """Return the signed manifest; the key is decrypted only in memory. Raises SITE_VAULT."""
        key = AnsibleVault().decrypt(read_bytes(self.site.policy_key))
        return sign_policy(policy, private_key=key, cluster_id=self.public.cluster_id)

    def remember(self, policy: ClusterPolicy) -> None:
        """Record the signed policy in cluster.yml."""
        mark = PolicyMark(
            generation=policy.generation, content_sha256=policy.content_sha256, revoked=tuple(policy.revoked)
        )
        write_atomic(self.site.cluster_file, site_directory.render(replace(self.public, policy=mark)), mode=0o644)


class SigningAction(SiteAction):
    """An action that signs the site's policy."""

    def draft(self, params: Mapping[str, Any]) -> Draft:
        """Read the site; raises POLICY_EMPTY, PROFILE_UNKNOWN, MANIFEST_INVALID, SITE_POLICY_EXCEPTION."""
        site = Site.at(params["site"])
        identities = enrolled_identities(self.nodes())
        directory = site.policy_directory(params["policy_directory"])
        active = load_profiles(directory, params["profiles"])
        names = sorted({str(one.get("profile", "")) for one in params["exceptions"]} - {one.name for one in active})
        others = load_profiles(directory, names) if names else ()
        return Draft(
            site=site,
            public=site_directory.parse(read_bytes(site.cluster_file)),
            profiles=active,
            identities=identities,
            exceptions=read_exceptions(
                params["exceptions"],
                profiles={one.name: one for one in (*active, *others)},
                keys={one.node_name: one.keys for one in identities},
            ),
            excepted=others,
            now=SystemClock().now(),
            reinstate=reinstated_keys(params.get("reinstate", ()), identities),
        )
