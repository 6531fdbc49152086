# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a report about a fleet: a page for people, JSON for programs, or both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.core.files import write_atomic
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import SiteError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SUFFIXES = (".html", ".json")


def report_paths(wanted: str | None) -> tuple[Path, ...]:
    """Return the files of a report: one for NAME.html or NAME.json, both for NAME; raises OPTION_INVALID."""
    if not wanted:
        return ()
    path = Path(wanted)
    if path.is_dir() or not path.name:
        raise SiteError(
            f"expected the name of a file for the report, got the directory {wanted}", reason=Reason.OPTION_INVALID
        )
    if path.suffix in _SUFFIXES:
        return (path,)
    return tuple(path.with_name(path.name + suffix) for suffix in _SUFFIXES)


def write_report(paths: Iterable[Path], *, html: Callable[[], bytes], json: Callable[[], bytes]) -> None:
    """Write each file of `report_paths`; raises FILE_UNUSABLE."""
    for path in paths:
        write_atomic(path, html() if path.suffix == ".html" else json(), mode=0o644)
