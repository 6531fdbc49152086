# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has been done already, kept beside the node's other state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import KubeadmError
from ..reasons import Reason
from ..system import make_directory, read_bytes, remove, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 1
_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Operation ("init" or "join"), SHA-256 of the configuration it ran with, and the phases that ended well."""

    operation: str
    config_sha256: str
    done: tuple[str, ...] = ()

    def with_done(self, name: str) -> Progress:
        """Return the progress after phase ``name``."""
        done = self.done if name in self.done else (*self.done, name)
        return Progress(operation=self.operation, config_sha256=self.config_sha256, done=done)


class Journal:
    """The file of the progress; written by rename, so a kill leaves the old or the new one."""

    def __init__(self, directory: Path) -> None:
        """Keep where the file lies."""
        self._path = directory / "progress.json"

    def load(self) -> Progress | None:
        """Return the progress, None on a machine where nothing began; raises KUBEADM_JOURNAL_MALFORMED."""
        if not self._path.exists():
            return None
        try:
            body = json.loads(read_bytes(self._path, limit=_LIMIT))
            if body["version"] != _VERSION:
                raise _malformed(f"expected version {_VERSION}, found {body['version']!r}")
            return Progress(
                operation=str(body["operation"]),
                config_sha256=str(body["config_sha256"]),
                done=tuple(str(name) for name in body["done"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _malformed(f"expected the progress of kubeadm in {self._path}") from error

    def save(self, progress: Progress) -> None:
        """Write the progress."""
        make_directory(self._path.parent, mode=0o700)
        body = {
            "version": _VERSION,
            "operation": progress.operation,
            "config_sha256": progress.config_sha256,
            "done": list(progress.done),
        }
        write_atomic(self._path, json.dumps(body, indent=2).encode() + b"\n")

    def forget(self) -> bool:
        """Remove the file; return whether it was there."""
        return remove(self._path)


def _malformed(message: str) -> KubeadmError:
    return KubeadmError(message, reason=Reason.KUBEADM_JOURNAL_MALFORMED)
