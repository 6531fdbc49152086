# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The renewal of one control plane: what fails or is killed at any moment loses nothing."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import (
    ControlPlaneRenewal,
    read_leaves,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import authorities_of
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.kubeadm.certificates.conftest import (
    DAY,
    NOW,
    YEAR,
)

BY_NAME = {one.name: one for one in CERTIFICATES}
KEPT = "etc/kubernetes/attested-renewal"


@pytest.fixture
def renewal(control_plane, around):
    return ControlPlaneRenewal(control_plane, pods=around, members=around, turns=around)


def code_of(act):
    with pytest.raises(KubeadmError) as caught:
        act()
    return caught.value.code, caught.value.message


def due(pki, *names):
    for name in names:
        pki.make(BY_NAME[name], begins=NOW - 330 * DAY, ends=NOW + 35 * DAY)


def test_only_what_is_due_is_renewed_and_only_its_component_started(pki, renewal, around, kubeadm):
    due(pki, "scheduler.conf", "etcd-healthcheck-client")
    steps = renewal.apply(renewal.plan())
    assert kubeadm.renewed == ["etcd-healthcheck-client", "scheduler.conf"]
    assert [step.name for step in steps] == ["files", "kube-scheduler"]
    assert around.told == ["turn", "kube-scheduler", "free"]
    assert not (pki.root / KEPT).exists()
    assert not renewal.plan()
    assert renewal.apply(renewal.plan()) == ()


def test_what_nobody_has_to_be_started_for_takes_no_turn(pki, renewal, around, kubeadm):
    due(pki, "admin.conf")
    renewal.apply(renewal.plan())
    assert (kubeadm.renewed, around.told) == (["admin.conf"], [])


def test_each_step_is_told_as_it_begins(pki, control_plane, around):
    due(pki, "etcd-peer")
    told = []
    renewal = ControlPlaneRenewal(control_plane, pods=around, members=around, turns=around, say=told.append)
    renewal.apply(renewal.plan())
    assert told == ["Renew the certificates of etcd and restart it (etcd-peer)"]


def test_a_machine_that_is_not_locked_renews_nothing(pki, renewal, kubeadm):
    (pki.root / "run/attested/locked").unlink()
    code, _message = code_of(lambda: renewal.apply(renewal.plan(at_once=True)))
    assert (code, kubeadm.renewed) == ("NODELOCK_NOT_HELD", [])


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        pytest.param({"name": "another"}, "expected the subject CN=apiserver", id="for another subject"),
        pytest.param({"name": "another"}, "alternative names", id="for other names"),
        pytest.param({"key_of_another": True}, "its own key", id="with another one's key"),
        pytest.param({"ends": NOW - DAY}, "valid now", id="ended already"),
        pytest.param({"begins": NOW + DAY, "ends": NOW + YEAR}, "valid now", id="not begun yet"),
    ],
)
def test_what_kubeadm_leaves_is_checked_before_anything_is_started(pki, renewal, around, kubeadm, spoil, wrong):
    due(pki, "apiserver")
    kubeadm.does["apiserver"] = lambda: pki.make(BY_NAME["apiserver"], **spoil)
    before = pki.contents()
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert code == "CONTROL_PLANE_RENEWAL_FAILED"
    assert wrong in message
    assert pki.contents() == before
    assert around.told == ["turn", "free"]


def test_a_certificate_of_another_ca_is_refused(pki, renewal, kubeadm):
    due(pki, "apiserver")

    def by_another():
        pki.make_authority(BY_NAME["apiserver"].authority, keep_key=False)
        pki.make(BY_NAME["apiserver"])
        ca, key = renewal_ca
        (pki.root / BY_NAME["apiserver"].authority).write_bytes(ca)
        (pki.root / BY_NAME["apiserver"].authority.with_suffix(".key")).write_bytes(key)

    renewal_ca = tuple((pki.root / f"etc/kubernetes/pki/ca.{end}").read_bytes() for end in ("crt", "key"))
    kubeadm.does["apiserver"] = by_another
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, "signed by its CA" in message) == ("CONTROL_PLANE_RENEWAL_FAILED", True)


def test_a_kubeadm_that_renews_nothing_and_ends_well_is_noticed(pki, renewal, kubeadm):
    """It does so for a file that is missing (measured with 1.35.4)."""
    due(pki, "apiserver")
    kubeadm.does["apiserver"] = lambda: None
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, "found the same" in message) == ("CONTROL_PLANE_RENEWAL_FAILED", True)


def test_kubeadms_own_words_come_back_and_the_files_before_too(pki, renewal, around, kubeadm):
    due(pki, "apiserver", "front-proxy-client")
    kubeadm.codes["front-proxy-client"] = 1
    before = pki.contents()
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert code == "CONTROL_PLANE_RENEWAL_FAILED"
    assert message == "kubeadm certs renew front-proxy-client ended with 1: no such key"
    assert kubeadm.renewed == ["apiserver", "front-proxy-client"]
    assert pki.contents() == before
    assert around.told == ["turn", "free"]


def test_half_a_file_of_kubeadm_is_undone(pki, renewal, kubeadm):
    due(pki, "scheduler.conf")
    path = pki.root / "etc/kubernetes/scheduler.conf"
    kubeadm.does["scheduler.conf"] = lambda: path.write_bytes(b"{}")
    before = pki.contents()
    code, _message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, pki.contents()) == ("CONTROL_PLANE_RENEWAL_FAILED", before)


def test_a_component_that_was_not_well_before_is_not_touched(pki, renewal, around, kubeadm):
    due(pki, "etcd-peer", "apiserver")
    around.ill = {"kube-apiserver"}
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, kubeadm.renewed) == ("CONTROL_PLANE_COMPONENT_UNHEALTHY", ["etcd-peer"])
    assert message == "expected kube-apiserver to be healthy within 60 s before its certificates are renewed, it is not"
    assert around.told == ["turn", "members?", "etcd", "turn", "free"]


def test_a_component_that_is_well_again_soon_is_waited_for(pki, renewal, around, kubeadm):
    """An API server reports itself as unhealthy for some seconds after the restart of its etcd."""
    due(pki, "etcd-peer", "apiserver")
    around.slow = {"kube-apiserver": 5}
    renewal.apply(renewal.plan())
    assert kubeadm.renewed == ["etcd-peer", "apiserver"]
    assert around.slow["kube-apiserver"] == -1


def test_a_member_of_etcd_that_is_not_well_keeps_etcd_running(pki, renewal, around, kubeadm):
    due(pki, "etcd-peer")

    def refuse():
        raise KubeadmError("cp-2 is a learner", reason=Reason.ETCD_MEMBER_UNHEALTHY)

    around.require_healthy = refuse
    code, _message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, kubeadm.renewed, around.told) == ("ETCD_MEMBER_UNHEALTHY", [], ["turn", "free"])


def test_another_ones_turn_is_respected(pki, renewal, around, kubeadm):
    due(pki, "scheduler.conf")
    around.refusals = [Refusal("busy", reason=Reason.CONTROL_PLANE_JOIN_BUSY)]
    with pytest.raises(Refusal, match="busy"):
        renewal.apply(renewal.plan())
    assert kubeadm.renewed == []


def test_a_component_that_does_not_come_up_runs_with_the_files_before(pki, renewal, around):
    due(pki, "scheduler.conf", "controller-manager.conf")
    around.sick = {"kube-controller-manager": 1}
    before = pki.contents()
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert code == "CONTROL_PLANE_RENEWAL_UNDONE"
    assert message == "kube-controller-manager is not well; it runs with the old files"
    assert pki.contents() == before
    assert around.told == ["turn", "kube-controller-manager", "kube-controller-manager", "free"]


def test_one_that_is_sick_with_both_keeps_the_copies_for_the_next_run(pki, renewal, around, kubeadm):
    due(pki, "scheduler.conf")
    around.sick = {"kube-scheduler": 2}
    code, message = code_of(lambda: renewal.apply(renewal.plan()))
    assert (code, "not healthy with them either" in message) == ("CONTROL_PLANE_RENEWAL_UNDONE", True)
    assert (pki.root / KEPT / "kube-scheduler").is_dir()
    assert renewal.plan().components == ("kube-scheduler",)
    renewal.apply(renewal.plan())
    assert kubeadm.renewed == ["scheduler.conf", "scheduler.conf"]
    assert not (pki.root / KEPT).exists()


class Killed(BaseException):
    """Ends the process as a kill does: nothing catches it."""


@pytest.mark.parametrize("moment", ["kubeadm", "half", "restart"])
def test_a_run_that_was_killed_is_done_again_from_the_files_before(pki, renewal, around, kubeadm, moment):
    due(pki, "etcd-peer", "etcd-server")
    before = pki.contents()

    def kill(*_arguments):
        raise Killed

    def half():
        (pki.root / "etc/kubernetes/pki/etcd/server.key").write_bytes(b"")
        raise Killed

    if moment == "restart":
        around.before_restart = kill
    else:
        kubeadm.does["etcd-server"] = kill if moment == "kubeadm" else half
    with pytest.raises(Killed):
        renewal.apply(renewal.plan())
    copies = pki.root / KEPT / "etcd"
    assert (pki.root / KEPT).stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in copies.rglob("*") if path.is_file()} == {
        "peer.crt": 0o644,
        "peer.key": 0o600,
        "server.crt": 0o644,
        "server.key": 0o600,
    }
    assert {leaf.ends for leaf in read_leaves(renewal._machine.paths) if leaf.certificate.component == "etcd"} == {
        NOW + 35 * DAY
    }
    around.before_restart, kubeadm.does, kubeadm.renewed = lambda _component: None, {}, []
    seen = []
    kubeadm.does["etcd-peer"] = lambda: (seen.append(pki.contents()), pki.make(BY_NAME["etcd-peer"], begins=NOW - DAY))
    renewal.apply(renewal.plan())
    found = {path: data for path, data in seen[0].items() if KEPT not in path}
    assert found == before  # put back before anything was renewed again
    assert kubeadm.renewed == ["etcd-peer", "etcd-server"]
    assert not (pki.root / KEPT).exists()


def test_a_worker_has_no_such_certificates_and_all_are_named(pki, renewal):
    for name in ("pki/apiserver.crt", "scheduler.conf"):
        (pki.root / "etc/kubernetes" / name).unlink()
    (pki.root / "etc/kubernetes/admin.conf").write_text('{"users": [{"user": {"client-certificate": "/a"}}]}')
    (pki.root / "etc/kubernetes/pki/etcd/peer.crt").write_text("no certificate")
    code, message = code_of(renewal.plan)
    assert code == "CONTROL_PLANE_CERTIFICATE_MALFORMED"
    for name in ("apiserver.crt", "scheduler.conf", "/etc/kubernetes/admin.conf", "etcd/peer.crt"):
        assert name in message


def test_a_kubeconfig_believes_every_ca_of_the_cluster_after_its_renewal(control_plane, pki, around):
    """As kubeadm does, the one here names the first CA alone; an API server may still show a certificate of another."""
    ca = pki.root / "etc/kubernetes/pki/ca.crt"
    other = (pki.root / "etc/kubernetes/pki/front-proxy-ca.crt").read_bytes()
    ca.write_bytes(ca.read_bytes() + other)
    renewal = ControlPlaneRenewal(control_plane, pods=around, members=around, turns=around)
    renewal.apply(renewal.plan(at_once=True))
    for name in ("admin.conf", "controller-manager.conf", "scheduler.conf"):
        path = pki.root / "etc/kubernetes" / name
        assert authorities_of(path.read_bytes()) == ca.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
