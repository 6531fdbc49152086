# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's part of a rotation of the master secret: one write at its begin, one at its end, and nothing else."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.recovery_kit import gather
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.secrets import apply_in_site, is_own
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.values import ClusterFacts, plan_values
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of


class Vault:
    """Turns bytes round, so that clear text in a file would show."""

    def encrypt(self, data):
        return b"vault:" + data[::-1]

    def decrypt(self, data):
        assert data.startswith(b"vault:")
        return data.removeprefix(b"vault:")[::-1]


VAULT = Vault()


@pytest.fixture
def site(tmp_path):
    (tmp_path / "hosts.yml").write_text("nodes: {}\n")
    (tmp_path / ".secrets").mkdir()
    made = Site.at(tmp_path)
    secrets.apply(made, secrets.plan(made), name="prod", vault=VAULT, clock=SystemClock(), random=SystemRandom())
    return made


def ring(site):
    return secrets.load(site, VAULT).ring


def said(names, disk=None, node="cp-1", *, taken=True):
    return {"node": node, "plane": {"names": list(names), "taken": taken}, "disk": disk}


def plan(site, one, old=""):
    facts = ClusterFacts(
        nodes=frozenset({"cp-1"}),
        control_planes=frozenset({"cp-1"}),
        now=SystemClock().now(),
        stored={},
        versions=ring(site).names,
    )
    return plan_values("master_secret", [one], facts, old=old)


def test_a_new_version_is_made_beside_the_old_one_and_the_cluster_stays(site):
    before = secrets.load(site, VAULT)
    old = before.ring.lead.name
    todo = plan(site, said(before.ring.names), old=old)
    assert todo["phases"][0] == "make"
    assert apply_in_site(site, VAULT, todo, random=SystemRandom())
    after = secrets.load(site, VAULT)
    assert after.ring.lead == before.ring.lead
    assert [one.number for one in after.ring.versions] == [1, 2]
    assert (after.ring.carried, after.cluster_id) == (before.ring.carried, before.cluster_id)
    assert (after.join_ca_key, after.policy_key) == (before.join_ca_key, before.policy_key)
    assert plan(site, said(before.ring.names), old=old)["phases"][0] == "share"


def test_a_phase_of_the_cluster_changes_nothing_in_the_site(site):
    content = site.master_secret.read_bytes()
    for phases in (["share", "forget"], []):
        todo = {"phases": phases, "successor": ring(site).lead.name}
        assert not is_own(todo)
        assert not apply_in_site(site, VAULT, todo, random=SystemRandom())
    assert site.master_secret.read_bytes() == content


def test_the_old_version_is_forgotten_when_nobody_has_it(site):
    old = ring(site).lead.name
    apply_in_site(site, VAULT, plan(site, said(ring(site).names), old=old), random=SystemRandom())
    new = ring(site).newest.name
    todo = plan(site, said([new], new), old=old)
    assert todo["phases"] == ["forget"]
    apply_in_site(site, VAULT, todo, random=SystemRandom())
    assert ring(site).names == (new,)
    assert plan(site, said([new], new), old=old)["phases"] == []


def test_a_kit_of_a_rotated_site_brings_all_versions_back(site):
    apply_in_site(site, VAULT, plan(site, said(ring(site).names), old=ring(site).lead.name), random=SystemRandom())
    assert gather(site, VAULT, now=SystemClock().now()).ring == ring(site)


def test_a_site_that_is_older_than_its_cluster_is_refused(site):
    assert code_of(lambda: plan(site, said(["2-" + "ab" * 8]))) == "MASTER_SECRETS_DIFFER"
