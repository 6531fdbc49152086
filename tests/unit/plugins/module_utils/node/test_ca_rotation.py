# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node decides in a rotation of authorities: whether a phase is left, and what its kubelet takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.node import ca_rotation as module
from ansible_collections.attested.kubernetes.plugins.module_utils.rotation.authorities import (
    AUTHORITIES,
    CERTIFYING,
    AuthorityPhase,
    PlaneAuthorities,
)

MAKE, SHARE, TRUST, ISSUE, RETIRE, FORGET = AuthorityPhase
NOW = datetime(2026, 11, 22, tzinfo=UTC)
NAMES = tuple(one.name for one in AUTHORITIES)
OLD, NEW = ({name: f"{age}-{name}" for name in NAMES} for age in ("old", "new"))
BOTH = {name: (NEW[name], OLD[name]) for name in NAMES}

BEFORE = PlaneAuthorities(
    name="cp-1",
    signers=OLD,
    trusted={name: (key,) for name, key in OLD.items()},
    issued={one.name: frozenset({OLD[one.name]}) for one in CERTIFYING},
    staged={},
    taken=True,
    since=NOW,
)
AFTER = {
    MAKE: replace(BEFORE, staged=NEW, taken=False),
    SHARE: replace(BEFORE, staged=NEW, taken=False),
    TRUST: replace(BEFORE, staged=NEW, trusted=BOTH),
    ISSUE: replace(
        BEFORE,
        staged=NEW,
        signers=NEW,
        trusted=BOTH,
        issued={one.name: frozenset({NEW[one.name]}) for one in CERTIFYING},
    ),
    RETIRE: replace(BEFORE, staged=NEW, signers=NEW, trusted={name: (key,) for name, key in NEW.items()}),
    FORGET: BEFORE,
}


@pytest.mark.parametrize("phase", AuthorityPhase)
def test_a_phase_that_is_done_is_not_left(phase):
    before = replace(BEFORE, staged=NEW) if phase is FORGET else BEFORE
    bundles = AFTER[phase].trusted
    assert module.has_effect(before, phase, bundles) or phase is FORGET
    assert not module.has_effect(AFTER[phase], phase, bundles)


@pytest.mark.parametrize("phase", [TRUST, ISSUE, RETIRE])
def test_files_that_nothing_runs_with_yet_are_left(phase):
    assert module.has_effect(replace(AFTER[phase], taken=False), phase, AFTER[phase].trusted)


class Machine:
    """A machine whose kubelet is only told."""

    def __init__(self, paths):
        self.paths = paths
        self.told = []
        self.kubelet = self
        self.runner = self

    def restart(self):
        self.told.append("kubelet")

    def run(self, argv, **_options):
        self.told.append(argv[-1])


@pytest.mark.parametrize("plane", [False, True], ids=["a worker", "a control plane"])
def test_a_control_plane_takes_the_cas_of_no_ticket(tmp_path, monkeypatch, plane):
    """They are in its files, and what its components run with would look different."""
    machine, taken = Machine(module.KubernetesPaths(root=tmp_path)), []
    monkeypatch.setattr(module, "remove_serving_certificate", lambda *_arguments: False)
    monkeypatch.setattr(
        module,
        "trust_as_kubelet",
        lambda _paths, authorities, *, restart: taken.append(authorities) or restart() or True,
    )
    if plane:
        machine.paths.ca.parent.mkdir(parents=True)
        machine.paths.ca.with_suffix(".key").write_bytes(b"key")
    module.trust_updater(machine)(b"both")
    assert (taken, machine.told) == ([] if plane else [b"both"], ["kubelet"])


def test_a_kubelet_with_another_certificate_is_started_anew_though_it_believes_whom_it_did(tmp_path, monkeypatch):
    machine = Machine(module.KubernetesPaths(root=tmp_path))
    monkeypatch.setattr(module, "remove_serving_certificate", lambda *_arguments: True)
    monkeypatch.setattr(module, "trust_as_kubelet", lambda *_arguments, **_options: False)
    module.trust_updater(machine)(b"both")
    assert machine.told == ["kubelet"]


def test_kubelet_and_key_service_are_started_anew():
    machine = Machine(None)
    module.OwnServices(machine).restart()
    assert machine.told == ["kubelet", "attested-key-service.service"]
