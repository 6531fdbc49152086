# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of the world: installed programs, containerd's images."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ComponentError, SystemFault
from ..reasons import Reason
from .plan import InstalledFile, Observed
from .store import sha256_of, unpack_file, verify_blobs

if TYPE_CHECKING:
    from ..system import Runner
    from .manifest import FileEntry, ImageArchive
    from .plan import Plan, Selection
    from .store import Bundle

_NAMESPACE = "k8s.io"
_SOCKET = "run/containerd/containerd.sock"
_IMPORT_SECONDS = 600
_COLUMNS = 3


class NodeGateway:
    """Reads and changes one node; ``root`` replaces ``/`` in tests."""

    def __init__(self, runner: Runner, *, root: Path = Path("/")) -> None:
        """Keep the runner of `ctr` and the root of the file system."""
        self._runner = runner
        self._root = root

    def observe(self, selection: Selection) -> Observed:
        """Hash the programs of ``selection`` and list containerd's images."""
        files = {e.install_path: found for e in selection.files if (found := self._installed(e)) is not None}
        return Observed(files=files, images=self._images())

    def apply(self, steps: Plan, bundle: Bundle) -> None:
        """Carry out the plan from ``bundle``: first all its files are verified, then each step is whole or not done."""
        verify_blobs(bundle, steps.blobs)
        for step in steps.installs:
            unpack_file(bundle.path(step.entry.blob), step.entry, self._place(step.entry))
        for job in steps.imports:
            self._import_images(job.archive, bundle.path(job.archive.blob))

    def _place(self, entry: FileEntry) -> Path:
        return self._root / entry.install_path.lstrip("/")

    def _installed(self, entry: FileEntry) -> InstalledFile | None:
        place = self._place(entry)
        if place.is_symlink() or not place.is_file():
            return None
        return InstalledFile(sha256_of(place), stat.S_IMODE(place.stat().st_mode))

    def _images(self) -> dict[str, str]:
        if not (self._root / _SOCKET).exists():
            return {}
        listed = self._runner.run(["ctr", "--namespace", _NAMESPACE, "images", "list"])
        return parse_image_list(listed.stdout.decode("utf-8", "replace"))

    def _import_images(self, archive: ImageArchive, path: Path) -> None:
        command = ["ctr", "--namespace", _NAMESPACE, "images", "import", str(path)]
        try:
            self._runner.run(command, timeout_seconds=_IMPORT_SECONDS)
        except SystemFault as error:
            raise ComponentError(
                f"expected containerd to import {path}: {error.message}", reason=Reason.IMAGE_IMPORT_FAILED
            ) from error
        found = self._images()
        if lacking := [i.reference for i in archive.images if found.get(i.reference) != i.digest]:
            raise ComponentError(
                f"expected {', '.join(lacking)} after importing {path}, containerd does not list them",
                reason=Reason.IMAGE_IMPORT_FAILED,
            )


def parse_image_list(text: str) -> dict[str, str]:
    """Return references and digests out of `ctr images list` (columns REF, TYPE, DIGEST ...)."""
    rows = (line.split() for line in text.splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) >= _COLUMNS}
