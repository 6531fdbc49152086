# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which phases are to do, for every way in which a machine can be found."""

from __future__ import annotations

from pathlib import PurePosixPath as Posix

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Observed, Progress, plan
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import (
    INIT_PHASES,
    JOIN_PHASES,
    MEMBER_PHASES,
    STARTS_KUBELET,
)

ALL = tuple(phase.name for phase in INIT_PHASES)
FILES = frozenset(path for phase in INIT_PHASES for path in phase.witnesses)
CA = Posix("etc/kubernetes/pki/ca.crt")
SUPER = Posix("etc/kubernetes/super-admin.conf")


def observed(*, done=(), files=FILES, active=True, sha="a"):
    progress = Progress(operation="init", config_sha256=sha, done=tuple(done)) if done is not None else None
    return Observed(progress=progress, files=files, kubelet_active=active)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(observed(done=None, files=frozenset()), ALL, id="a fresh machine does everything"),
        pytest.param(observed(done=ALL), (), id="a finished machine does nothing"),
        pytest.param(observed(done=ALL[:1], files=frozenset()), ALL[1:], id="after the check the rest follows"),
        pytest.param(observed(done=ALL[:7]), ALL[7:], id="a run killed while waiting goes on there"),
        pytest.param(observed(done=ALL, files=FILES - {CA}), ALL[1:], id="a lost CA repeats from the certificates on"),
        pytest.param(observed(done=ALL[:-1], files=FILES | {SUPER}), ALL[-1:], id="super-admin.conf still goes"),
        pytest.param(observed(done=ALL, files=FILES | {SUPER}), ALL[-1:], id="super-admin.conf that came back goes"),
        pytest.param(observed(done=ALL[:5], sha="b"), ALL[1:], id="another configuration repeats an unfinished init"),
        pytest.param(observed(done=None), ALL, id="files of somebody else prove nothing"),
    ],
)
def test_phases_to_do(machine, expected):
    assert tuple(phase.name for phase in plan(INIT_PHASES, machine, config_sha256="a").phases) == expected


def test_a_finished_machine_only_starts_its_kubelet():
    found = plan(INIT_PHASES, observed(done=ALL, active=False), config_sha256="a")
    assert (found.phases, found.start_kubelet, bool(found)) == ((), True, True)


@pytest.mark.parametrize("table", [INIT_PHASES, JOIN_PHASES, MEMBER_PHASES], ids=["init", "join", "member"])
@pytest.mark.parametrize("active", [True, False])
def test_what_comes_behind_the_start_of_the_kubelet_finds_it_running(table, active):
    names = [phase.name for phase in table]
    at = names.index(STARTS_KUBELET)
    files = frozenset(path for phase in table for path in phase.witnesses)
    for number in range(1, len(names) + 1):
        found = plan(table, observed(done=names[:number], files=files, active=active), config_sha256="a")
        assert found.start_kubelet == (not active and number > at)
        assert [phase.name for phase in found.phases] == names[number:]


def test_a_start_of_the_kubelet_that_is_repeated_is_not_brought_forward():
    found = plan(INIT_PHASES, observed(done=ALL, files=FILES - {CA}, active=False), config_sha256="a")
    assert (found.phases[0].name, found.start_kubelet) == ("certs", False)


def test_another_configuration_of_a_finished_cluster_is_told_and_not_applied():
    found = plan(INIT_PHASES, observed(done=ALL, sha="b"), config_sha256="a")
    assert (found.drifted, bool(found)) == (True, False)


def test_no_phase_makes_a_token():
    words = {word for phase in (*INIT_PHASES, *JOIN_PHASES) for word in phase.command}
    assert words.isdisjoint({"bootstrap-token", "upload-certs", "show-join-command"})


def test_credential_is_in_place_before_the_kubelet_starts():
    assert ALL.index("kubeconfig") < ALL.index("kubelet-credential") < ALL.index("kubelet-start")
