# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a snapshot of etcd is not proven, and what its programs are told; the real ones are in tests/api_bed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, EtcdError, SystemFault
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm import etcd_tools
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_tools import EtcdTools
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLUSTER = b"/registry/namespaces/kube-system"
POLICY = b"/registry/attested-kubernetes.dev/attestationpolicies/cluster"


class Programs:
    """etcdutl and etcdctl: ``status`` is what the snapshot says of itself; ``fails`` is a program that does."""

    def __init__(self, status: bytes = b'{"revision": 40}', fails: str = "", reason: Reason = Reason.COMMAND_FAILED):
        self.status, self.fails, self.reason = status, fails, reason
        self.calls: list[tuple[str, ...]] = []
        self.running = 0

    def run(self, argv: Sequence[str], **_options: object) -> CommandResult:
        self.calls.append(tuple(argv))
        if self.fails and self.fails in argv:
            raise SystemFault("it ended with 1: snapshot file integrity check failed", reason=self.reason)
        return CommandResult(argv=tuple(argv), returncode=0, stdout=self.status, stderr=b"")

    @contextlib.contextmanager
    def started(self, argv: Sequence[str]) -> Iterator[None]:
        self.calls.append(tuple(argv))
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


class Gateway:
    """An etcd with these keys at this revision; None does not answer."""

    def __init__(self, revision: int | None = 40, keys: dict[bytes, bytes] | None = None, *, healthy: bool = True):
        self.at, self.healthy = revision, healthy
        self.keys = {CLUSTER: b"k8s", POLICY: b'{"spec": {"generation": 3}}'} if keys is None else keys

    def is_healthy(self) -> bool:
        return self.healthy

    def revision(self) -> int:
        if self.at is None:
            raise EtcdError("no answer", reason=Reason.ETCD_UNREACHABLE)
        return self.at

    def pages(self, first: bytes, _end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter([(first, self.keys[first])] if first in self.keys else [])


def tools(monkeypatch: pytest.MonkeyPatch, programs: Programs, gateway: Gateway) -> EtcdTools:
    monkeypatch.setattr(etcd_tools, "EtcdGateway", lambda *_unused: gateway)
    return EtcdTools(
        runner=programs, starter=programs, clock=FakeClock(), certificates=Path("/pki"), endpoint="https://etcd"
    )


def test_an_etcd_from_the_snapshot_says_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs()
    found = tools(monkeypatch, programs, Gateway()).prove(Path("s.db"), Path("scratch"), least=40)
    assert (found.revision, found.policy_generation) == (40, 3)
    assert programs.running == 0
    server = programs.calls[-1]
    assert "--client-cert-auth" in server
    listening = [word.partition("=")[2] for word in server if word.startswith("--listen")]
    assert all(url.startswith("https://127.0.0.1:") for url in listening)


def test_a_cluster_without_a_policy_has_generation_0(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tools(monkeypatch, Programs(), Gateway(keys={CLUSTER: b"k8s"})).prove(Path("s"), Path("d"), least=1)
    assert found.policy_generation == 0


@pytest.mark.parametrize(
    ("programs", "gateway", "words"),
    [
        pytest.param(Programs(json.dumps({"revision": 39}).encode()), Gateway(), "revision 40", id="an old snapshot"),
        pytest.param(Programs(b"no JSON"), Gateway(), "status", id="a status that is none"),
        pytest.param(Programs(b'{"hash": 1}'), Gateway(), "status", id="a status without revision"),
        pytest.param(Programs(fails="status"), Gateway(), "integrity check failed", id="a snapshot without a status"),
        pytest.param(Programs(fails="restore"), Gateway(), "integrity check failed", id="another digest"),
        pytest.param(Programs(), Gateway(None), "got None", id="an etcd that does not answer"),
        pytest.param(Programs(), Gateway(39), "got 39", id="an etcd at an earlier revision"),
        pytest.param(Programs(), Gateway(keys={}), "kube-system", id="no Kubernetes in it"),
        pytest.param(
            Programs(), Gateway(keys={CLUSTER: b"", POLICY: b"{}"}), "generation", id="a policy without generation"
        ),
        pytest.param(Programs(), Gateway(keys={CLUSTER: b"", POLICY: b"k8s\0"}), "generation", id="no policy"),
    ],
)  # fmt: skip
def test_what_is_not_proven_is_refused(
    programs: Programs, gateway: Gateway, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AttestedError, match=words) as caught:
        tools(monkeypatch, programs, gateway).prove(Path("s.db"), Path("scratch"), least=40)
    assert caught.value.code == "BACKUP_UNPROVEN"
    assert programs.running == 0


def test_a_program_that_is_not_there_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs(fails="status", reason=Reason.COMMAND_MISSING)
    with pytest.raises(SystemFault) as caught:
        tools(monkeypatch, programs, Gateway()).prove(Path("s.db"), Path("scratch"), least=40)
    assert caught.value.reason is Reason.COMMAND_MISSING


def test_a_member_without_a_quorum_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Programs()
    with pytest.raises(EtcdError) as caught:
        tools(monkeypatch, programs, Gateway(healthy=False)).save(Path("s.db"))
    assert caught.value.reason is Reason.ETCD_MEMBER_UNHEALTHY
    assert programs.calls == []
