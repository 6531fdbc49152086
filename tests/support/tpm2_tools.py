# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Independent tools for a second opinion; a test without them is skipped with the reason."""

from __future__ import annotations

import shutil

import pytest


def require_tool(name: str, package: str = "tpm2-tools", *, beside: tuple[str, ...] = ()) -> str:
    """Return the path of the program ``name``, also in the directories ``beside`` the usual ones."""
    found = shutil.which(name) or next((hit for folder in beside if (hit := shutil.which(name, path=folder))), None)
    if found is None:
        pytest.skip(f"no independent opinion here: {name} not installed (package {package})")
    return found
