# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove Kubernetes from a machine: ``kubeadm reset``, and everything that it leaves behind."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from .gateway import last_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .operation import Machine

_RESET_TIMEOUT_SECONDS = 120
_CALL_SECONDS = 20
_MORE_ROUNDS = 2
_PAUSE_SECONDS = 2.0

# kubeadm reset leaves the Pod network: the old address of the bridge would conflict with the next podCIDR.
LEFT_DIRECTORIES = tuple(
    PurePosixPath(name)
    for name in (
        "etc/kubernetes",
        "etc/cni/net.d",
        "var/lib/cni",
        "var/lib/etcd",
        "var/lib/kubelet",
        "var/lib/attested/kubeadm",
        "var/log/kubernetes",
    )
)
_MEMBER_STAYED = b"manually remove this etcd member"
"""kubeadm prints this as a warning and exits with 0."""
_STILL_MEMBER = (
    "etcd still counts this machine as a member: remove the member with etcdctl on another control plane, "
    "or the quorum includes it."
)
LEFT_LINKS = ("cni0",)
LEFT_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"), ("ip", "flannel-ipv4"), ("ip6", "flannel-ipv6"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """The files, directories, network links and nftables tables to remove.

    ``kubeadm`` is whether kubeadm was used on the machine.
    """

    kubeadm: bool
    paths: tuple[PurePosixPath, ...]
    links: tuple[str, ...]
    tables: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        """Return whether anything of Kubernetes is left."""
        return bool(self.kubeadm or self.paths or self.links or self.tables)


class Reset:
    """Removes from a machine what init or join of Kubernetes made."""

    def __init__(self, machine: Machine, *, cri_socket: str = "unix:///run/containerd/containerd.sock") -> None:
        """Store the machine and the socket of its container runtime."""
        self._machine = machine
        self._cri_socket = cri_socket

    def plan(self) -> ResetPlan:
        """Return what is left of Kubernetes on the machine."""
        root = self._machine.paths.root
        left = tuple(path for path in LEFT_DIRECTORIES if _is_filled(root / path))
        return ResetPlan(
            kubeadm=(root / "etc/kubernetes/kubelet.conf").exists() or (root / "etc/kubernetes/manifests").exists(),
            paths=left,
            links=tuple(name for name in LEFT_LINKS if self._succeeds("ip", "link", "show", "dev", name)),
            tables=tuple(table for table in LEFT_TABLES if self._succeeds("nft", "list", "table", *table)),
        )

    def apply(self, todo: ResetPlan) -> tuple[str, ...]:
        """Remove everything in ``todo`` and return warnings for the admin.

        Raises RESET_INCOMPLETE with what is left. A container that the kubelet requested last may start after kubeadm
        has stopped the others, and write its nftables tables again. So kubeadm is run again if anything is left, which
        stops that container too.
        """
        warnings, left = self._remove(todo), self.plan()
        for _again in range(_MORE_ROUNDS):
            if left:
                self._machine.clock.sleep(_PAUSE_SECONDS)
                self._remove(replace(left, kubeadm=True))
                left = self.plan()
        if left:
            raise KubeadmError(f"expected nothing of Kubernetes, found {_names(left)}", reason=Reason.RESET_INCOMPLETE)
        return warnings

    def _remove(self, todo: ResetPlan) -> tuple[str, ...]:
        warnings = self._kubeadm_reset() if todo.kubeadm else ()
        self._machine.kubelet.stop()
        for path in todo.paths:
            self._empty(path)
        for name in todo.links:
            self._succeeds("ip", "link", "delete", "dev", name)
        for table in todo.tables:
            self._succeeds("nft", "delete", "table", *table)
        return warnings

    def _kubeadm_reset(self) -> tuple[str, ...]:
        result = self._machine.runner.run(
            ["kubeadm", "reset", "--force", "--cri-socket", self._cri_socket],
            timeout_seconds=_RESET_TIMEOUT_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise KubeadmError(f"kubeadm reset: {last_lines(result)}", reason=Reason.RESET_INCOMPLETE)
        return (_STILL_MEMBER,) if _MEMBER_STAYED in result.stdout + result.stderr else ()

    def _empty(self, path: PurePosixPath) -> None:
        try:
            _empty(self._machine.paths.root / path)
        except OSError as error:
            raise KubeadmError(f"cannot remove /{path}: {error.strerror}", reason=Reason.RESET_INCOMPLETE) from error

    def _succeeds(self, *words: str) -> bool:
        return self._machine.runner.run(words, timeout_seconds=_CALL_SECONDS, check=False).returncode == 0


def _is_filled(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()


def _empty(path: Path) -> None:
    """Remove a file, or the content of a directory; the directory stays, because it may be a mount point."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for child in path.iterdir():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink(missing_ok=True)


def _names(left: ResetPlan) -> str:
    found: Sequence[object] = [*left.paths, *left.links, *(" ".join(table) for table in left.tables)]
    return ", ".join(str(one) for one in found) or "kubeadm's files"
