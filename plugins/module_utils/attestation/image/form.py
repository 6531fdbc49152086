# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``next_boot_info``: read what lies ready to be booted on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...result import Result
from .installed import find_next_boots

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Return what lies below ``params["root"]``; values: ``next_boots``."""
    return Result(values={"next_boots": [one.to_mapping() for one in find_next_boots(params["root"])]})
