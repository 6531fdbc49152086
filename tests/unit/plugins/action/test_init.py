# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy that the action `init` sends along: signed as the role does, the same each time; nobody is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible.parsing.vault import VaultSecretsContext
from ansible_collections.attested.kubernetes.plugins.action import init as action
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import site_directory
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import BroughtPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_client import Ended
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import Success
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa
from ansible_collections.attested.kubernetes.tests.support.init_site import SECRETS, InitSite
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import InitOrder

BROKEN = TransportError("gone", reason=Reason.PEER_UNREACHABLE)


class Machine:
    """In the place of the network: a machine that does as it is told, and says which policy it has in force."""

    def __init__(self, ca: ClusterCa) -> None:
        self.ca = ca
        self.orders: list[InitOrder] = []
        self.in_force: int | None = None
        self.breaks = False

    def asked(self, _params: Any, wish: Any, _question: Any, _screen: Any) -> Ended:
        """Take the order."""
        self.orders.append(wish.order)
        if self.breaks:
            raise BROKEN
        bundle = wish.bundle
        generation = 0 if not wish.order.policy else brought(wish.order, bundle).generation
        given = Success(
            kubeconfig=self.ca.kubeconfig(wish.order.admin_request),
            cluster_id=bundle.cluster_id,
            policy_generation=generation if self.in_force is None else self.in_force,
        )
        return Ended(success=given, tasks=())


def brought(order: InitOrder, bundle: Any) -> BroughtPolicy:
    """Return the policy of an order as the machine reads it."""
    return BroughtPolicy.verified(
        order.policy, order.policy_objects, public_key=bundle.policy_key, cluster_id=bundle.cluster_id
    )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (tmp_path / "ca").mkdir()
    made = Machine(ClusterCa(tmp_path / "ca"))
    monkeypatch.setattr(action.ActionModule, "_follow", made.asked)
    return made


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InitSite:
    monkeypatch.setattr(VaultSecretsContext, "_current", VaultSecretsContext(SECRETS))
    made = InitSite(tmp_path / "prod")
    made.enroll(SoftTpm(boots.load("deb13-base").pcrs).ek)
    return made


def done(site: InitSite, **changes: Any) -> dict[str, Any]:
    answer = site.act(9000, **changes)
    assert not answer.get("failed"), answer
    return answer


def mark(site: InitSite) -> int:
    return site_directory.parse(site.site.cluster_file.read_bytes()).policy.generation


def test_the_first_policy_goes_along_signed_for_this_cluster(site: InitSite, machine: Machine) -> None:
    answer = done(site)
    found = brought(machine.orders[0], site.bundle)
    assert (found.generation, mark(site)) == (1, 1)
    assert [one.name for one in found.manifests.profiles] == ["machines"]
    assert [(one.node_name, one.ek_sha256) for one in found.manifests.identities] == [("cp-1", site.ek)]
    assert [one["name"] for one in found.spec["controlPlanes"]] == [found.manifests.identities[0].name]
    assert (answer["policy_generation"], answer["policy_missing"]) == (1, False)


def test_another_try_of_the_same_site_sends_the_same_bytes(site: InitSite, machine: Machine) -> None:
    machine.breaks = True
    assert site.act(9000)["reason"] == "PEER_UNREACHABLE"
    machine.breaks = False
    assert done(site)["policy_generation"] == 1
    first, second = machine.orders
    assert (first.policy, first.policy_objects) == (second.policy, second.policy_objects)


def test_what_changed_in_the_site_between_two_tries_is_the_next_generation(site: InitSite, machine: Machine) -> None:
    machine.breaks = True
    site.act(9000)
    machine.breaks = False
    site.write_profile("deb13-cmdline")
    assert done(site)["policy_generation"] == 2
    assert mark(site) == 2


def test_a_machine_that_knows_no_such_field_is_told_apart(site: InitSite, machine: Machine) -> None:
    machine.in_force = 0
    answer = done(site)
    assert (answer["changed"], answer["policy_generation"], answer["policy_missing"]) == (True, 0, True)


def test_whoever_applies_the_policy_over_ssh_sends_none(site: InitSite, machine: Machine) -> None:
    answer = done(site, send_policy=False)
    assert (machine.orders[0].policy, machine.orders[0].policy_objects) == (b"", b"")
    assert (answer["policy_generation"], answer["policy_missing"], mark(site)) == (0, False, 0)


def test_the_second_run_signs_and_sends_nothing(site: InitSite, machine: Machine) -> None:
    done(site)
    before = site.site.cluster_file.read_bytes()
    answer = done(site, wait_seconds=0)
    assert (answer["changed"], len(machine.orders)) == (False, 1)
    assert site.site.cluster_file.read_bytes() == before


def test_a_machine_that_was_reset_makes_its_cluster_again(
    site: InitSite, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the site has a certificate of the cluster before."""
    done(site)
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(action, "waits_for_init", lambda *endpoints, **_named: asked.append(endpoints) or True)
    assert done(site)["changed"]
    assert len(machine.orders) == 2
    ((waiting, server),) = asked
    assert waiting.endswith(":9000")
    assert server == "api.prod.example:6443"


def test_check_mode_looks_at_the_policy_and_signs_nothing(site: InitSite, machine: Machine) -> None:
    assert site.act(9000, check_mode=True)["changed"]
    assert (machine.orders, mark(site)) == ([], 0)
    late = [{"profile": "machines", "nodes": ["cp-1"], "until": "2100-01-01T00:00:00Z", "why": "for ever"}]
    answer = site.act(9000, check_mode=True, exceptions=late)
    assert answer["reason"] == "SITE_POLICY_EXCEPTION"


def test_a_policy_that_no_request_can_hold_is_refused_here(
    site: InitSite, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action, "MAX_POLICY_BYTES", 100)
    answer = site.act(9000)
    assert (answer["reason"], machine.orders, mark(site)) == ("MESSAGE_TOO_LARGE", [], 0)
    assert "-e over_ssh=true" in answer["hint"]
