# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API server of a control plane holds Pods and Services to, made what the site says on one that runs.

A new cluster has it from its first start (`kubeadm/render.py`), a further control plane from its ticket. One that was
made before, or whose site says something else now, is told here and started anew, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.files import make_directory, read_bytes, remove, write_atomic
from ..errors import AttestedError, KubeadmError
from ..kubeadm.certificate_table import API_SERVER
from ..kubeadm.files import has_taken, keep_taken
from ..kubeadm.plane_encryption import tell_joiners
from ..kubeadm.pod_security import PodSecurity
from ..kubeadm.render import admission_file, admission_path, plugin_arguments
from ..kubeadm.spec import KubernetesPaths, require_pod_security
from ..reasons import Reason
from ..result import Diff, Result
from .control_plane_turns import running_plane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..kubeadm.certificate_renewal import Turns
    from ..kubeadm.kubectl import Kubectl
    from ..kubeadm.static_pods import StaticPods

_LIMIT = 1 << 20
_MODE = 0o644


class PlaneAdmission:
    """One control plane: its file, its API server, and what later control planes are told."""

    def __init__(self, paths: KubernetesPaths, pods: StaticPods, kubectl: Kubectl, *, turns: Turns) -> None:
        """Keep them."""
        self._paths = paths
        self._pods = pods
        self._kubectl = kubectl
        self._turns = turns

    def differs(self, wanted: PodSecurity) -> tuple[str, ...]:
        """Return what is to change, a line each; raises ADMISSION_FOREIGN, KUBECTL_FAILED."""
        named = f"Pods are held to {wanted.level}, but for {', '.join(wanted.namespaces)}"
        found = []
        if not self._is_told(wanted):
            found.append(f"API server: {named}; externalIPs of Services are refused")
        if tell_joiners(self._kubectl, self._arguments, check_mode=True):
            found.append(f"later control planes: {admission_path(self._paths)}")
        return tuple(found)

    def place(self, wanted: PodSecurity) -> None:
        """Make it so; raises also CONTROL_PLANE_COMPONENT_UNHEALTHY, after which everything here is as it was.

        What joins later is told first. What was interrupted is done again, since only the end of it is written down.
        """
        self._turns.take()
        try:
            tell_joiners(self._kubectl, self._arguments)
            if not self._is_told(wanted):
                self._start_anew(wanted)
        finally:
            self._turns.free()

    def _start_anew(self, wanted: PodSecurity) -> None:
        place = admission_path(self._paths)
        before = read_bytes(place, limit=_LIMIT) if place.exists() else None
        content = admission_file(wanted)
        make_directory(place.parent, mode=0o755)
        write_atomic(place, content, mode=_MODE)
        try:
            self._pods.rearrange(API_SERVER, self._arguments(self._pods.arguments(API_SERVER)))
        except AttestedError:
            if before is None:
                remove(place)
            else:
                write_atomic(place, before, mode=_MODE)
            raise
        keep_taken(self._paths, content)

    def _is_told(self, wanted: PodSecurity) -> bool:
        present = self._pods.arguments(API_SERVER)
        told = {name: present.get(name) for name in self._arguments(present)} == self._arguments(present)
        return told and has_taken(self._paths, admission_file(wanted))

    def _arguments(self, present: Mapping[str, str]) -> Mapping[str, str]:
        wanted = plugin_arguments(present, self._paths)
        if wanted is None:
            raise KubeadmError(
                f"expected {admission_path(self._paths)} as the API server's admission configuration, got another file",
                reason=Reason.ADMISSION_FOREIGN,
            )
        return wanted


def run_admission_plugins(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Do what the module `admission_plugins` is asked for; raises also OPTION_INVALID."""
    wanted = PodSecurity(level=params["pod_security"], exempt=tuple(params["exempt_namespaces"]))
    require_pod_security(wanted)
    with running_plane(params["node_config"]) as here:
        plane = PlaneAdmission(here.machine.paths, here.pods, here.kubectl, turns=here.turns)
        todo = plane.differs(wanted)
        if todo and not check_mode:
            plane.place(wanted)
    return Result(changed=bool(todo), diff=Diff(before="", after="".join(f"{line}\n" for line in todo)))
