# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subcommand `attested variants`: the kinds of evidence of this release, and how far each was shown to work."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ..attestation import VARIANTS

if TYPE_CHECKING:
    import argparse


def add_variants(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    listed = commands.add_parser("variants", parents=[common], help="kinds of evidence, and what was proven of them")
    listed.set_defaults(run=_variants)


def _variants(options: argparse.Namespace) -> int:
    rows = {
        name: {"issued": row.issue is not None, "admits": row.admission is not None, "standing": row.standing.value}
        for name, row in VARIANTS.items()
    }
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    width = max(map(len, rows))
    for name, row in rows.items():
        admits = "admits machines" if row["admits"] else "admits nobody"
        sys.stdout.write(f"{name:<{width}}  {admits}; {row['standing']}\n")
    return 0
