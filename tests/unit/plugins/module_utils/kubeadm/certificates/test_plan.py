# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which certificates are due: pure, from what they and their CAs say of themselves."""

from __future__ import annotations

import datetime as dt
from pathlib import PurePosixPath as Posix

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_renewal import (
    first_to_end,
    plan,
    renews,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import (
    CERTIFICATES,
    NO_COMPONENT,
    ORDER,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.leaf_certificate import Leaf
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
BY_NAME = {one.name: one for one in CERTIFICATES}


def leaf(name="apiserver", *, left=200 * DAY, life=365 * DAY, ca_left=3000 * DAY, ca_begins=NOW - 600 * DAY):
    return Leaf(
        certificate=BY_NAME[name],
        serial="1",
        begins=NOW + left - life,
        ends=NOW + left,
        authority_begins=ca_begins,
        authority_ends=NOW + ca_left,
    )


@pytest.mark.parametrize(
    ("one", "is_due"),
    [
        pytest.param(leaf(left=61 * DAY), False, id="more than 60 days left"),
        pytest.param(leaf(left=60 * DAY), True, id="60 days left"),
        pytest.param(leaf(left=-3 * DAY), True, id="it has ended"),
        pytest.param(leaf(left=31 * DAY, life=90 * DAY), False, id="a short one with more than a third left"),
        pytest.param(leaf(left=30 * DAY, life=90 * DAY), True, id="a short one with a third left"),
        pytest.param(leaf(left=40 * DAY, ca_left=50 * DAY), True, id="its CA ends soon, but later"),
        pytest.param(leaf(left=300 * DAY, ca_left=50 * DAY), False, id="its CA ends first: nothing would last longer"),
        pytest.param(leaf(left=50 * DAY, ca_left=50 * DAY), False, id="its CA ends with it"),
    ],
)
def test_a_certificate_is_due(one, is_due):
    assert plan([one], now=NOW).due == ((one,) if is_due else ())


@pytest.mark.parametrize(
    ("left", "is_told"),
    [
        pytest.param(61 * DAY, False, id="time left"),
        pytest.param(60 * DAY, True, id="60 days left"),
        pytest.param(-DAY, True, id="it has ended"),
    ],
)
def test_a_ca_that_ends_soon_is_told(left, is_told):
    todo = plan([leaf(left=300 * DAY, ca_left=left)], now=NOW)
    assert todo.ending == ((("ca.crt", NOW + left),) if is_told else ())
    if not is_told:
        todo.require_lasting()
        return
    with pytest.raises(KubeadmError, match=r"ca\.crt until 20") as caught:
        todo.require_lasting()
    assert caught.value.reason is Reason.CONTROL_PLANE_CA_ENDS


def test_each_ca_is_told_once():
    leaves = [leaf(name, ca_left=DAY) for name in ("apiserver", "admin.conf", "etcd-peer")]
    assert [name for name, _ends in plan(leaves, now=NOW).ending] == ["ca.crt", "etcd/ca.crt"]


@pytest.mark.parametrize(
    "early",
    [
        pytest.param(leaf("etcd-peer", left=366 * DAY), id="a certificate that begins tomorrow"),
        pytest.param(leaf("etcd-peer", ca_begins=NOW + DAY), id="a CA that begins tomorrow"),
    ],
)
def test_with_a_clock_before_a_certificate_nothing_is_renewed(early):
    with pytest.raises(KubeadmError, match=r"got etcd-peer from 2026-11-22T12:00:00Z on") as caught:
        plan([leaf(left=DAY), early], now=NOW, at_once=True)
    assert caught.value.reason is Reason.CONTROL_PLANE_CERTIFICATE_EARLY


def test_at_once_is_everything_also_under_a_ca_that_ends():
    leaves = [leaf(name, ca_left=DAY) for name in BY_NAME]
    assert plan(leaves, now=NOW, at_once=True).due == tuple(leaves)


def test_a_component_whose_renewal_was_cut_off_is_renewed_again():
    leaves = [leaf(name) for name in BY_NAME]
    todo = plan(leaves, now=NOW, unfinished=("etcd",))
    assert [one.certificate.name for one in todo.due] == ["etcd-peer", "etcd-server"]
    assert todo.components == ("etcd",)


def test_components_come_in_order_whatever_the_files_do():
    leaves = [leaf(name, left=DAY) for name in ("scheduler.conf", "apiserver", "etcd-server", "admin.conf")]
    assert plan(leaves, now=NOW).components == (NO_COMPONENT, "etcd", "kube-apiserver", "kube-scheduler")
    assert bool(plan(leaves, now=NOW))
    assert not plan([leaf()], now=NOW)


def test_the_first_to_end_is_the_one_of_use_for_the_shortest_time():
    short = leaf("front-proxy-client", left=300 * DAY, ca_left=5 * DAY)
    assert first_to_end([leaf(left=6 * DAY), short, leaf()]) is short
    assert renews(short) == NOW + 5 * DAY - 60 * DAY


def test_the_table_covers_every_component_and_never_the_kubeconfig_of_masters():
    assert {one.component for one in CERTIFICATES} == set(ORDER)
    assert "super-admin.conf" not in BY_NAME
    assert BY_NAME["etcd-peer"].files == (
        Posix("etc/kubernetes/pki/etcd/peer.crt"),
        Posix("etc/kubernetes/pki/etcd/peer.key"),
    )
    assert BY_NAME["admin.conf"].files == (Posix("etc/kubernetes/admin.conf"),)
