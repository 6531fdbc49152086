# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taints of a site on a Node of a real API server: they come, change and go, and the node itself cannot help it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.kubectl import Kubectl
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.node_taints import apply_taints
from ansible_collections.attested.kubernetes.tests.support.rotation import Pinned, kubectl
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
    from ansible_collections.attested.kubernetes.plugins.module_utils.result import Result
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

GPU = {"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}
BY_HAND = {"key": "by-hand", "effect": "PreferNoSchedule"}
NUMBERS = count()


class Disturbed(Pinned):
    """Something happens before the first change."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens: Callable[[], object] | None = happens

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        if "patch" in argv and self.happens:
            happens, self.happens = self.happens, None
            happens()
        return super().run(argv, **options)


class Machine:
    """A Node, and the credential of its kubelet."""

    def __init__(self, bed: ApiBed) -> None:
        self.bed = bed
        self.name = f"tainted-{next(NUMBERS)}"
        names = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{self.name}")]
        bed.ca.issue(self.name, names=names)
        bed.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        bed.kubectl("taint", "node", self.name, "by-hand:PreferNoSchedule")

    @property
    def taints(self) -> list[dict[str, Any]]:
        return sorted(
            (
                one
                for one in self.bed.get("node", self.name)["spec"].get("taints", [])
                if "kubernetes.io" not in one["key"]
            ),
            key=lambda one: str(one["key"]),
        )

    def apply(self, *taints: dict[str, str], check_mode: bool = False, runner: Pinned | None = None) -> Result:
        kubectl(self.bed)
        asked = Kubectl(runner or Pinned(), kubeconfig=self.bed.directory / "admin.conf")
        return apply_taints(asked, {"name": self.name, "taints": list(taints)}, check_mode=check_mode)


@pytest.fixture
def machine(api: ApiBed) -> Iterator[Machine]:
    made = Machine(api)
    yield made
    api.kubectl("delete", "node", made.name)


def test_they_come_change_and_go_and_others_stay(machine: Machine) -> None:
    steps = [
        (GPU,),
        ({**GPU, "value": "two"},),
        ({**GPU, "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}),
        (),
    ]
    for taints in steps:
        results = [machine.apply(*taints, check_mode=check) for check in (True, False, False)]
        assert [one.changed for one in results] == [True, True, False]
        assert machine.taints == sorted([*taints, BY_HAND], key=lambda one: str(one["key"]))
    labels = machine.bed.get("node", machine.name)["metadata"].get("labels", {})
    assert not any(name.startswith("taint.") for name in labels)


def test_one_that_somebody_sets_meanwhile_stays(machine: Machine) -> None:
    other = ("taint", "node", machine.name, "meanwhile:NoSchedule")
    machine.apply(GPU, runner=Disturbed(lambda: machine.bed.kubectl(*other)))
    assert {one["key"] for one in machine.taints} == {"by-hand", "example.com/gpu", "meanwhile"}


def test_the_node_itself_can_remove_neither_the_taint_nor_its_note(machine: Machine) -> None:
    machine.apply(GPU)
    label = next(
        name for name in machine.bed.get("node", machine.name)["metadata"]["labels"] if name.startswith("taint.")
    )
    for words in (
        ("taint", "node", machine.name, "example.com/gpu-"),
        ("label", "node", machine.name, f"{label}-"),
        ("label", "node", machine.name, "taint.node-restriction.kubernetes.io/other="),
        ("delete", "node", machine.name),
    ):
        said = machine.bed.kubectl(*words, user=machine.name, check=False)
        assert "orbidden" in said, said
    assert machine.taints == [BY_HAND, GPU]
    machine.bed.kubectl("annotate", "node", machine.name, "a=b", user=machine.name)  # what a node may write is no help


def test_a_node_that_is_not_there_is_said_to_be_absent(machine: Machine) -> None:
    with pytest.raises(KubeadmError, match="expected the Node elsewhere") as caught:
        apply_taints(kubectl(machine.bed), {"name": "elsewhere", "taints": []}, check_mode=False)
    assert caught.value.code == "KUBECTL_FAILED"
