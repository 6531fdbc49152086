# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write public files of a site if they differ, and show the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import read_bytes, write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.result import Diff, Result

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = 4 << 20


def write_site_file(path: Path, wanted: bytes, *, check_mode: bool, **values: str) -> Result:
    """Write a public file of the site if its content differs; the result has both texts as its diff."""
    before = read_bytes(path, limit=_LIMIT) if path.exists() else b""
    changed = before != wanted
    if changed and not check_mode:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomic(path, wanted, mode=0o644)
    diff = Diff(before=before.decode("utf-8", "replace"), after=wanted.decode(), header=str(path))
    return Result(changed=changed, values={"path": str(path), **values}, diff=diff)
