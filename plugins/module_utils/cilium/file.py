# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of values in the admin's site: checked as a whole, then written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SiteError
from ..reasons import Reason
from ..result import Diff, Result
from ..system import read_bytes, write_atomic
from .contradictions import require_agreement
from .facts import parse_cluster
from .schema import flatten, nest
from .values import HEADER, complete, render

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODE = 0o644


def run_values(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Write the values that follow from the options; raises CILIUM_* before anything was written."""
    cluster, path = parse_cluster(params), Path(params["path"])
    leaves = complete(cluster, flatten(params["values"]))
    flatten(nest(leaves))  # what follows from the variables is held to the same schema
    require_agreement(cluster, leaves)
    before, after = _found(path), render(leaves)
    if before != after and not check_mode:
        write_atomic(path, after.encode(), mode=_MODE)
    return Result(
        changed=before != after,
        values={"path": str(path), "values": nest(leaves)},
        diff=Diff(before=before, after=after, header=str(path)),
    )


def _found(path: Path) -> str:
    """Return what stands there; raises CILIUM_FILE_FOREIGN for a file that somebody wrote himself."""
    if not path.exists():
        return ""
    text = read_bytes(path).decode(errors="replace")
    if not text.startswith(HEADER):
        raise SiteError(
            f"expected {path} to be absent or of this collection, found another's", reason=Reason.CILIUM_FILE_FOREIGN
        )
    return text
