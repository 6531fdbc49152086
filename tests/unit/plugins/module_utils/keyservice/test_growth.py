# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a ticket, a Node that joins and a re-attestation ask of the API: as much with 1,000 identities as with 10."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import StatusWriter
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.node_conditions import StandingWatcher
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import NodeWatcher
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.standing import shown_time
from ansible_collections.attested.kubernetes.tests.support.release_bed import NOW, Bed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIZES = (10, 1000)


def other(number: int) -> dict[str, Any]:
    """Return the identity of a machine that is a node already."""
    ek = f"{number:064x}"
    return {
        "metadata": {"name": f"ek-{ek[-20:]}", "resourceVersion": "7"},
        "spec": {"ekSha256": ek, "nodeName": f"other-{number}", "role": "worker", "admission": "Approved"},
        "status": {"phase": "Joined", "lastAttestation": {"time": shown_time(NOW), "profile": "deb13-base"}},
    }


class Counting:
    """An API in memory that counts its calls and the objects that it returned; Nodes are those of `nodes`."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.calls: list[str] = []
        self.returned = 0
        self.names = [bed.identity.node_name]

    def __getattr__(self, name: str) -> Any:
        return self._counted(name, getattr(self.bed.gateway, name))

    def _counted(self, name: str, call: Callable[..., Any]) -> Any:
        def counted(*words: Any, **options: Any) -> Any:
            found = call(*words, **options)
            self.calls.append(name)
            self.returned += len(found) if isinstance(found, tuple) else 1
            return found

        return counted

    def nodes(self) -> tuple[Mapping[str, Any], ...]:
        return self._counted("nodes", lambda: tuple(map(self._node, self.names)))()  # type: ignore[no-any-return]

    def node(self, name: str) -> Mapping[str, Any] | None:
        return self._counted("node", lambda: self._node(name))()  # type: ignore[no-any-return]

    def set_condition(self, name: str, condition: Mapping[str, Any]) -> None:
        self._counted("set_condition", lambda *_told: None)(name, condition)

    def set_labels(self, name: str, labels: Mapping[str, str | None]) -> None:
        self._counted("set_labels", lambda *_told: None)(name, labels)

    def _node(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "uid": "u", "resourceVersion": "7", "creationTimestamp": shown_time(NOW)}
        return {"metadata": metadata, "spec": {}, "status": {}}


class Cluster:
    """A key service with a machine that asks, among ``size`` identities that the watch has told of."""

    def __init__(self, size: int) -> None:
        self.bed = Bed()
        for number in range(1, size):
            document = other(number)
            self.bed.gateway._objects[IDENTITIES][document["metadata"]["name"]] = document
        self.bed.watch()
        self.api = Counting(self.bed)
        self.bed.live._gateway = self.api
        self.bed.cached._policy._gateway._gateway = self.api
        shared = self.bed.cached._signed
        shared._read = self.api._counted("revision", shared._read)
        self.writer = StatusWriter(self.api)  # type: ignore[arg-type]
        self.bed.releaser._writer = self.writer
        self.standings = StandingWatcher(
            self.api,  # type: ignore[arg-type]
            self.bed.live,
            cached=self.bed.cached,
            clock=self.bed.clock,
            overdue_after=timedelta(hours=3),
            grace=timedelta(0),
            marked=lambda _name, _standing: None,
        )

    def ticket(self) -> None:
        self.bed.release()

    def node_joins(self) -> None:
        watcher = NodeWatcher(
            self.api,  # type: ignore[arg-type]
            self.bed.live,
            self.writer,
            cached=self.bed.cached,
            own_name="cp-1",
            joined=lambda _name: None,
        )
        watcher.settle(frozenset({self.bed.identity.node_name}))

    def node_is_marked(self) -> None:
        self.standings.look_at([self.bed.identity.name])

    def pushes(self) -> None:
        reattester = self.bed.reattester()
        reattester._writer = self.writer
        reattester.reattest(*self.bed.push(), note=self.bed.notes.update)

    def counted(self, step: Callable[[Cluster], None]) -> tuple[list[str], int]:
        self.api.calls.clear()
        self.api.returned = 0
        step(self)
        return sorted(self.api.calls), self.api.returned


STEPS = {
    Cluster.ticket: (["patch_status", "revision"], 2),
    Cluster.node_joins: (["patch_status"], 1),
    Cluster.pushes: (["patch_status", "revision"], 2),
    Cluster.node_is_marked: (["node", "objects", "set_condition", "set_labels"], 4),
}
"""In the order of a machine's life: the calls of each step, and how many objects they return."""


@pytest.mark.parametrize("size", SIZES)
def test_what_a_machine_asks_of_the_api_does_not_grow_with_the_cluster(size: int) -> None:
    cluster = Cluster(size)
    found = {}
    for step in STEPS:
        if step is Cluster.pushes:
            cluster.bed.lock()
        found[step] = cluster.counted(step)
    assert found == STEPS
    assert cluster.bed.status()["phase"] == "Joined"
