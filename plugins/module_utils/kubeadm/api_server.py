# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server of this control plane: its arguments, and the encryption file that it uses.

The API server reads the encryption file again once a minute. A metric holds the hash of the file in use.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from ..core.files import read_bytes, write_atomic
from ..errors import KubeadmError
from ..reasons import Reason
from .render import ENCRYPTION_ARGUMENT, encryption_path
from .spec import API_PORT

if TYPE_CHECKING:
    from pathlib import Path

    from ..core.host import Clock
    from .kubectl import Kubectl
    from .spec import KubernetesPaths

TAKEN_SECONDS = 240
"""Two reload intervals of a minute, and the time that an API server needs to start."""

_LOOK_SECONDS = 2
_LIMIT = 1 << 16
_MODE = 0o600
_COMMAND = re.compile(r"^( *)- kube-apiserver$", re.MULTILINE)
_ADDRESS = re.compile(r"^ *- --advertise-address=([0-9a-f.:]+)$", re.MULTILINE)
_PORT = re.compile(r"^ *- --secure-port=([0-9]{1,5})$", re.MULTILINE)
_USED = re.compile(
    r'^apiserver_encryption_config_controller_last_config_info\{[^}\n]*\bhash="sha256:([0-9a-f]{64})"[^}\n]*\} 1$',
    re.MULTILINE,
)


class ApiServer:
    """The API server of this machine (a static pod), reached at its own address."""

    def __init__(self, paths: KubernetesPaths, kubectl: Kubectl, *, clock: Clock) -> None:
        """Store the paths, the client and the clock."""
        self._paths = paths
        self._kubectl = kubectl
        self._clock = clock

    @property
    def names_encryption_file(self) -> bool:
        """Whether the manifest names an encryption file."""
        return f"--{ENCRYPTION_ARGUMENT}=" in self._manifest()

    def uses(self, content: bytes) -> bool:
        """Return whether the API server uses an encryption file with ``content``; raises KUBECTL_FAILED."""
        return hashlib.sha256(content).hexdigest() in used_files(self.metrics())

    def metrics(self) -> str:
        """Return the metrics as text; raises KUBECTL_FAILED, CONTROL_PLANE_MANIFEST_MALFORMED."""
        return self._kubectl.raw("/metrics", server=self._url())

    def name_encryption_file(self) -> bool:
        """Add the encryption file to the manifest, which restarts the API server.

        Returns whether it was missing. Raises CONTROL_PLANE_MANIFEST_MALFORMED if the manifest is not kubeadm's, or
        does not mount the file's directory.
        """
        if self.names_encryption_file:
            return False
        manifest = with_encryption_file(self._manifest(), self._paths)
        return write_atomic(self._manifest_path, manifest.encode(), mode=_MODE)

    def wait(self, content: bytes) -> None:
        """Wait until the API server uses ``content``; raises ENCRYPTION_NOT_TAKEN.

        Failed requests are retried.
        """
        deadline = self._clock.monotonic() + TAKEN_SECONDS
        last = "it uses another file"
        while self._clock.monotonic() < deadline:
            try:
                if self.uses(content):
                    return
            except KubeadmError as error:
                last = error.message
            self._clock.sleep(_LOOK_SECONDS)
        raise KubeadmError(
            f"expected the API server at {self._url()} to use {encryption_path(self._paths)} within {TAKEN_SECONDS} s: "
            f"{last}",
            reason=Reason.ENCRYPTION_NOT_TAKEN,
        )

    @property
    def _manifest_path(self) -> Path:
        return self._paths.kubernetes / "manifests/kube-apiserver.yaml"

    def _manifest(self) -> str:
        return read_bytes(self._manifest_path, limit=_LIMIT).decode("utf-8", "replace")

    def _url(self) -> str:
        """Return the URL of this API server. The name of the cluster's endpoint can resolve to another API server."""
        manifest = self._manifest()
        address, port = _ADDRESS.search(manifest), _PORT.search(manifest)
        if address is None:
            raise KubeadmError(
                f"encryption at rest: expected --advertise-address in {self._manifest_path}, found none",
                reason=Reason.CONTROL_PLANE_MANIFEST_MALFORMED,
            )
        host = f"[{address[1]}]" if ":" in address[1] else address[1]
        return f"https://{host}:{port[1] if port else API_PORT}"


def used_files(metrics: str) -> frozenset[str]:
    """Return the SHA-256 of the encryption file in use from an API server's metrics.

    The result is empty if the API server uses no file.
    """
    return frozenset(_USED.findall(metrics))


def with_encryption_file(manifest: str, paths: KubernetesPaths) -> str:
    """Return ``manifest`` with the arguments that name the encryption file. Pure.

    Raises CONTROL_PLANE_MANIFEST_MALFORMED.
    """
    place = encryption_path(paths)
    found = _COMMAND.findall(manifest)
    if len(found) != 1 or f"mountPath: {place.parent}\n" not in manifest:
        raise KubeadmError(
            f"encryption at rest: expected a manifest of kubeadm that mounts {place.parent}, found something else",
            reason=Reason.CONTROL_PLANE_MANIFEST_MALFORMED,
        )
    named = (f"--{ENCRYPTION_ARGUMENT}={place}", f"--{ENCRYPTION_ARGUMENT}-automatic-reload=true")
    lines = "".join(f"\n{found[0]}- {argument}" for argument in named)
    return _COMMAND.sub(lambda match: match[0] + lines, manifest)
