# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release this is, for ``--version`` and the health of a service."""

from __future__ import annotations

from importlib import metadata

_DISTRIBUTION = "attested-kubernetes"


def release() -> str:
    """Return the version of the installed wheel, or ``source tree`` where it is run from a checkout."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "source tree"
