# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let `pip install -e .` find the checkout under its collection name.

An editable install is one line that names a directory for `sys.path`. This hook makes that directory: `.dev`,
with `ansible_collections/attested/kubernetes` in it as a link back to the checkout. A committed link would be
packed into the collection's tarball, so it is made here and ignored by git.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EditableLink(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Make the link for editable builds; do nothing for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run before the build; ``version`` is "standard" or "editable"."""
        if version != "editable":
            return
        link = Path(self.root, ".dev", "ansible_collections", "attested", "kubernetes")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to("../../..")
