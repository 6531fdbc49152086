# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a support bundle may hold, gathered on each machine and put together on the admin's. Private to the collection.

Only what `catalogue` lists is read at all, and of documents only the fields that it names; what remains is redacted.
"""

from __future__ import annotations

from .assemble import Entry, Part, render_bundle
from .catalogue import LEFT_OUT, node_sources, site_sources
from .collect import Collector
from .form import run_material
from .hider import Hider, secrets_of_machine
from .material import LeftOut, Material, Piece, parse_material, render_material

__all__ = [
    "LEFT_OUT",
    "Collector",
    "Entry",
    "Hider",
    "LeftOut",
    "Material",
    "Part",
    "Piece",
    "node_sources",
    "parse_material",
    "render_bundle",
    "render_material",
    "run_material",
    "secrets_of_machine",
    "site_sources",
]
