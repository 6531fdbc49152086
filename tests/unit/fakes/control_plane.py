# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A control plane's static pods, its kubectl and its turn, without a kubelet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Machine
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.static_pods import StaticPods, stamped
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.spec import KubernetesPaths


class Programs:
    """A kubectl that knows the ConfigMap of kubeadm."""

    def __init__(self) -> None:
        configuration = {"kind": "ClusterConfiguration", "apiServer": {"extraArgs": []}}
        self.config: dict[str, Any] = {"data": {"ClusterConfiguration": json.dumps(configuration)}}

    def run(self, argv: list[str], *, stdin: bytes | None = None, **_more: object) -> CommandResult:
        if "replace" in argv:
            self.config = json.loads(stdin or b"")
        return CommandResult(argv=tuple(argv), returncode=0, stdout=json.dumps(self.config).encode(), stderr=b"")

    def told(self) -> dict[str, str]:
        server = json.loads(self.config["data"]["ClusterConfiguration"])["apiServer"]
        return {one["name"]: one["value"] for one in server["extraArgs"]}


class Pods(StaticPods):
    """Static pods that come up at once, or do not."""

    def __init__(self, paths: KubernetesPaths) -> None:
        super().__init__(Machine(runner=Programs(), clock=FakeClock(), paths=paths), node="cp-1", reader=self)  # type: ignore[arg-type]
        self.manifest = paths.kubernetes / "manifests/kube-apiserver.yaml"
        self.restarts: list[str] = []
        self.is_ill = False

    def restart(self, component: str, arguments: Any = None, *, without: Collection[str] = ()) -> None:
        self.restarts.append(component)
        place = self.manifest.with_name(f"{component}.yaml")
        place.write_bytes(stamped(place.read_bytes(), "now", arguments, without=without))
        if self.is_ill:
            raise KubeadmError("not well", reason=Reason.CONTROL_PLANE_COMPONENT_UNHEALTHY)


class Turns:
    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> None:
        self.taken += 1

    def free(self) -> None:
        self.taken -= 1
