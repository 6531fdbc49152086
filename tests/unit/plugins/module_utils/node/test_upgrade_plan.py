# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node comes to another release: which command of kubeadm runs, and what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.upgrade_plan import (
    Observed,
    plan_step,
    plan_upgrade,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

OLD, NEW, NEWEST = "1.35.4", "1.36.3", "1.37.2"


def observed(version=OLD, cluster=OLD, **others) -> Observed:
    return Observed(version=version, cluster_version=cluster, programs=("/usr/local/bin/kubelet",), **others)


@pytest.mark.parametrize(
    ("found", "control_plane", "command"),
    [
        pytest.param(observed(), True, "apply", id="the first control plane"),
        pytest.param(observed(cluster=NEW), True, "node", id="a further control plane"),
        pytest.param(observed(cluster=""), False, "node", id="a worker"),
        pytest.param(observed("1.33.9", ""), False, "node", id="a worker three minors behind"),
        pytest.param(observed(NEW, NEW), True, "", id="nothing for kubeadm"),
        pytest.param(observed(NEW, NEW, pods=("etcd",)), True, "node", id="another image of the same version"),
        pytest.param(observed(cluster=NEW, begun=True, command="apply"), True, "apply", id="cut off while it applied"),
        pytest.param(observed(cluster=NEW, begun=True, configured=NEW), True, "", id="kubeadm is done"),
        pytest.param(observed(cluster="", begun=True, configured="1.36.2"), False, "node", id="done for another one"),
    ],
)
def test_which_command_of_kubeadm_runs(found, control_plane, command):
    assert plan_upgrade(found, NEW, control_plane=control_plane).command == command


@pytest.mark.parametrize(
    ("found", "control_plane", "reason"),
    [
        pytest.param(observed("1.37.0", "1.37.0"), True, Reason.RELEASE_DOWNGRADE, id="an older minor"),
        pytest.param(observed("1.36.4", ""), False, Reason.RELEASE_DOWNGRADE, id="an older patch"),
        pytest.param(observed(OLD, "1.36.4"), True, Reason.RELEASE_DOWNGRADE, id="older than the cluster"),
        pytest.param(observed("1.34.9", "1.34.9"), True, Reason.RELEASE_SKEW, id="two minors in one step"),
    ],
)
def test_what_is_refused(found, control_plane, reason):
    with pytest.raises(ComponentError) as caught:
        plan_upgrade(found, NEW, control_plane=control_plane)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("found", "command"),
    [
        pytest.param(observed(api_version=OLD), "apply", id="the first control plane"),
        pytest.param(observed(cluster=NEW, api_version=OLD), "node", id="a further control plane"),
        pytest.param(observed(cluster=NEW, api_version=NEW), "", id="done"),
        pytest.param(observed(cluster=OLD, api_version=NEW), "apply", id="cut off before the cluster knew"),
        pytest.param(
            observed(cluster=NEW, api_version=NEW, begun=True, target=NEW, command="node"), "node", id="cut off in it"
        ),
        pytest.param(
            observed(cluster=NEW, api_version=NEW, begun=True, target=NEW, command="apply"), "apply", id="in the first"
        ),
        pytest.param(
            observed(cluster=NEW, api_version=NEW, begun=True, target=NEW, configured=NEW), "node", id="at its end"
        ),
        pytest.param(observed(cluster=NEWEST, api_version=NEW), "", id="the cluster is past it"),
        pytest.param(observed(cluster=NEW, api_version=NEWEST), "", id="the API server is past it"),
        pytest.param(
            observed(cluster=NEW, api_version=NEW, begun=True, target=NEWEST, command="apply", pods=("etcd",)),
            "",
            id="etcd is past it",
        ),
        pytest.param(observed("1.36.1", "1.36.1", api_version="1.36.1"), "", id="an older patch is good enough"),
        pytest.param(observed(cluster="1.36.4", api_version=OLD), "", id="another one has a newer patch"),
        pytest.param(observed(cluster=OLD, api_version="1.36.4"), "", id="it has a newer patch itself"),
        pytest.param(
            observed(cluster=OLD, api_version=OLD, begun=True, target=NEWEST), "", id="a later one was begun before"
        ),
    ],
)
def test_what_a_step_does(found, command):
    plan = plan_step(found, NEW)
    assert (plan.command, plan.is_empty, plan.drains) == (command, not command, False)


def test_a_step_of_two_minors_is_refused():
    with pytest.raises(ComponentError) as caught:
        plan_step(observed("1.34.1", "1.35.4", api_version="1.34.1"), NEW)
    assert caught.value.reason is Reason.RELEASE_SKEW


def test_a_control_plane_that_missed_the_release_in_between_does_not_go_on():
    with pytest.raises(ComponentError) as caught:
        plan_upgrade(observed(OLD, NEW, api_version=OLD), NEWEST, control_plane=True)
    assert caught.value.reason is Reason.RELEASE_SKEW


KUBELET, KUBECTL = "/usr/local/bin/kubelet", "/usr/local/bin/kubectl"


@pytest.mark.parametrize(
    ("change", "drains", "kubelet", "note"),
    [
        pytest.param({}, False, False, False, id="nothing"),
        pytest.param({"version": OLD}, True, False, False, id="another version"),
        pytest.param({"programs": (KUBECTL, KUBELET)}, True, True, False, id="another kubelet of the same version"),
        pytest.param({"programs": (KUBECTL,)}, False, False, False, id="another kubectl"),
        pytest.param({"begun": True}, False, True, False, id="an upgrade that was begun"),
        pytest.param({"noted": False}, False, False, True, id="a release of the same programs"),
    ],
)
def test_what_else_is_to_do(change, drains, kubelet, note):
    found = Observed(**({"version": NEW, "cluster_version": NEW, "programs": ()} | change))
    plan = plan_upgrade(found, NEW, control_plane=True)
    assert (plan.drains, plan.kubelet, plan.note) == (drains, kubelet, note)
    assert plan.is_empty is (not change)


def test_what_a_plan_says():
    plan = plan_upgrade(observed(), NEW, control_plane=True)
    assert plan.lines() == (
        f"kubeadm upgrade apply v{NEW}",
        f"install {KUBELET}",
        f"restart the kubelet: {OLD} -> {NEW}",
    )
    assert plan_upgrade(observed(cluster=NEW), NEW, control_plane=True).lines()[0] == "kubeadm upgrade node"
    assert plan_upgrade(Observed(version=NEW, cluster_version=NEW, programs=()), NEW, control_plane=True).lines() == ()


def test_a_worker_does_not_stand_between_two_minors():
    """Its kubelet may be three minor versions older, and kubeadm has nothing on it to upgrade step by step."""
    assert plan_upgrade(observed(cluster=""), NEWEST, control_plane=False).command == "node"


def test_a_command_that_was_cut_off_is_run_again_where_all_else_is_done():
    found = observed(NEW, NEW, api_version=NEW, begun=True, command="node", configured="")
    assert plan_upgrade(found, NEW, control_plane=True).command == "node"


def test_a_kubelet_behind_its_api_server_does_not_hold_the_control_plane_back():
    plan = plan_upgrade(observed(OLD, NEW, api_version=NEW), NEWEST, control_plane=True)
    assert (plan.command, plan.before, plan.api_before) == ("apply", OLD, NEW)


def test_what_is_taken_as_done_is_never_older_than_what_is_there():
    found = [observed(cluster=OLD, api_version=api).after(NEW).apis for api in (OLD, NEWEST)]
    assert found == [(NEW, NEW), (NEWEST, NEWEST)]
