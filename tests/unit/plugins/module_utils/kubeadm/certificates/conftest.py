# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: a control plane's files in a directory, with certificates that are made here, and a kubeadm that renews."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.certificate_table import CERTIFICATES
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import NOW, clock, locked, machine, programs
from ansible_collections.attested.kubernetes.tests.unit.fakes.pki import DAY, YEAR, Pki

__all__ = ["DAY", "NOW", "YEAR", "clock", "locked", "machine", "programs"]


class Renewer:
    """kubeadm certs renew of a `Pki`; ``does`` replaces what it does for a name, ``codes`` how it ends."""

    def __init__(self, pki):
        self.pki = pki
        self.renewed = []
        self.does = {}
        self.codes = {}

    def run(self, argv, *, stdin=None, timeout_seconds=60, env=None, check=True):
        del stdin, timeout_seconds, env, check
        assert argv[:3] == ["kubeadm", "certs", "renew"]
        name = argv[3]
        self.renewed.append(name)
        one = next(one for one in CERTIFICATES if one.name == name)
        act = self.does.get(name, lambda: self.pki.make(one, begins=NOW - DAY, ends=NOW + YEAR))
        act()
        return CommandResult(argv=tuple(argv), returncode=self.codes.get(name, 0), stdout=b"", stderr=b"no such key")


class Around:
    """Pods, members and turns; ``sick`` counts how often a component does not come up, ``ill`` ones never were well.

    ``slow`` counts how often one is looked at before it is well.
    """

    def __init__(self):
        self.told = []
        self.sick = {}
        self.ill = set()
        self.slow = {}
        self.before_restart = lambda _component: None
        self.refusals = []

    def is_healthy(self, component):
        self.slow[component] = self.slow.get(component, 0) - 1
        return component not in self.ill and self.slow[component] < 0

    def restart(self, component):
        self.told.append(component)
        self.before_restart(component)
        if self.sick.get(component, 0):
            self.sick[component] -= 1
            raise KubeadmError(f"{component} is not well", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY)

    def require_healthy(self):
        self.told.append("members?")

    def take(self):
        self.told.append("turn")
        for refusal in self.refusals:
            raise refusal

    def free(self):
        self.told.append("free")


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)


@pytest.fixture
def around():
    return Around()


@pytest.fixture
def kubeadm(pki):
    return Renewer(pki)


@pytest.fixture
def control_plane(locked, kubeadm):
    """A machine with the files of a control plane and a kubeadm that renews them."""
    return Machine(runner=kubeadm, clock=locked.clock, paths=locked.paths)
