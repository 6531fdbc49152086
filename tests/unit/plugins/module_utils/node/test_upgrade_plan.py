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
