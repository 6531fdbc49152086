# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real kubeadm with a directory as its root, and the files of a control plane that it creates."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import SystemRunner
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import CONTROL_PLANE_FILES
from ansible_collections.attested.kubernetes.tests.support.api_bed import KUBERNETES_VERSION, binaries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.core.command import CommandResult

NODE = "cp-1"
_PHASE_SECONDS = 600.0  # kubeadm generates keys, and the test machine may be busy
_CONFIG = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 10.0.0.11, bindPort: 6443}}
nodeRegistration: {{name: {NODE}, criSocket: "unix:///run/containerd/containerd.sock"}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v{KUBERNETES_VERSION}
controlPlaneEndpoint: api.invalid:6443
apiServer: {{certSANs: [127.0.0.1]}}
"""


class RootedKubeadm:
    """Runs kubeadm below a root directory, as root there; the production `Runner`'s protocol."""

    def __init__(self, root: Path) -> None:
        """Set the directory; ``calls`` has the arguments of each call after ``kubeadm``."""
        self._root = root
        self.calls: list[tuple[str, ...]] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout_seconds: float = 60,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Run ``argv``, which must be kubeadm."""
        program, *words = argv
        assert program == "kubeadm"
        self.calls.append(tuple(words))
        as_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
        rooted = [*as_root, str(binaries() / "kubeadm"), f"--rootfs={self._root}", *words]
        return SystemRunner().run(rooted, stdin=stdin, timeout_seconds=timeout_seconds, env=env, check=check)


def why_no_kubeadm() -> str | None:
    """Return why the real kubeadm cannot run here, or None."""
    return None if (binaries() / "kubeadm").is_file() else f"no kubeadm in {binaries()}: build the bundle first"


def make_control_plane(root: Path, *, shared: Path | None = None) -> None:
    """Create certificates, kubeconfigs and manifests below ``root``; remove super-admin.conf, as after init.

    With ``shared``, the root of another control plane, use its CAs and service account key.
    """
    for name in ("etc/kubernetes/pki/etcd", "tmp", "run/attested"):
        (root / name).mkdir(parents=True)
    if shared is not None:
        for name in CONTROL_PLANE_FILES:
            shutil.copy(shared / "etc/kubernetes" / name, root / "etc/kubernetes" / name)
    (root / "tmp/config.yaml").write_text(_CONFIG, encoding="utf-8")
    kubeadm = RootedKubeadm(root)
    for phase in (("certs", "all"), ("kubeconfig", "all"), ("etcd", "local"), ("control-plane", "all")):
        kubeadm.run(["kubeadm", "init", "phase", *phase, "--config=/tmp/config.yaml"], timeout_seconds=_PHASE_SECONDS)
    (root / "etc/kubernetes/super-admin.conf").unlink()
    (root / "run/attested/locked").touch()
