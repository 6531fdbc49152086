# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking Kubernetes off a machine."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.reset import Reset


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.fixture
def used(machine, programs, tmp_path):
    """A machine as a worker leaves it."""
    put(tmp_path, "etc/kubernetes/kubelet.conf", "etc/kubernetes/pki/ca.crt", "etc/cni/net.d/10-pods.conflist")
    put(tmp_path, "var/lib/cni/networks/pods/10.244.1.2", "var/lib/kubelet/config.yaml")
    programs.links.add("cni0")
    programs.tables.update(
        {("ip", "kube-proxy"), ("ip6", "kube-proxy"), ("ip", "flannel-ipv4"), ("ip6", "flannel-ipv6")}
    )
    programs.active = True
    return machine


def test_a_fresh_machine_has_nothing_to_reset(machine):
    assert not Reset(machine).plan()


def test_everything_goes_and_a_second_run_finds_nothing(used, programs, tmp_path):
    reset = Reset(used)
    reset.apply(reset.plan())
    assert not reset.plan()
    assert ("kubeadm", "reset", "--force", "--cri-socket", "unix:///run/containerd/containerd.sock") in programs.calls
    assert (programs.active, programs.links, programs.tables) == (False, set(), set())
    assert (tmp_path / "var/lib/kubelet").is_dir()


def test_the_plan_names_what_is_there(used):
    found = Reset(used).plan()
    assert [str(path) for path in found.paths] == ["etc/kubernetes", "etc/cni/net.d", "var/lib/cni", "var/lib/kubelet"]
    assert (found.kubeadm, found.links) == (True, ("cni0",))


def test_a_failed_kubeadm_reset_is_told(used, programs):
    programs.answers[("kubeadm", "reset")] = (1, b"device busy\n")
    reset = Reset(used)
    with pytest.raises(KubeadmError) as caught:
        reset.apply(reset.plan())
    assert caught.value.code == "RESET_INCOMPLETE"
    assert "device busy" in caught.value.message


def test_what_cannot_be_removed_is_named(used, programs):
    programs.answers[("ip", "link", "delete")] = (1, b"")
    reset = Reset(used)
    with pytest.raises(KubeadmError) as caught:
        reset.apply(reset.plan())
    assert caught.value.code == "RESET_INCOMPLETE"
    assert "cni0" in caught.value.message


def test_a_container_that_comes_up_late_is_ended_by_another_round(used, programs, monkeypatch):
    """kube-proxy, asked for by a kubelet that is stopped: it writes its tables again until kubeadm ends it."""
    run, resets = programs.run, []

    def late(argv, **known):
        done = run(argv, **known)
        resets.extend([argv] if tuple(argv[:2]) == ("kubeadm", "reset") else [])
        if tuple(argv[:3]) == ("nft", "delete", "table") and len(resets) == 1:
            programs.tables.add(("ip", "kube-proxy"))
        return done

    monkeypatch.setattr(programs, "run", late)
    reset = Reset(used)
    reset.apply(reset.plan())
    assert (len(resets), programs.tables) == (2, set())


def test_a_member_that_stayed_in_etcd_is_told(machine, programs):
    """kubeadm ends well there; who does not hear of it loses quorum with the next machine."""
    (machine.paths.kubernetes / "manifests").mkdir(parents=True)
    programs.answers[("kubeadm", "reset")] = (0, b"W [reset] please manually remove this etcd member using etcdctl\n")
    reset = Reset(machine)
    (warning,) = reset.apply(reset.plan())
    assert "etcdctl" in warning
