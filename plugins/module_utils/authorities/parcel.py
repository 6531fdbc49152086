# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Successors as bytes, which go from one control plane to another inside of a sealed box and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..system import load_json
from .halves import Successor, unusable

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_successors(successors: Mapping[str, Successor]) -> bytes:
    """Return successors by authority as bytes; only ever to be sealed."""
    halves = {name: [one.public.decode("ascii"), one.private.decode("ascii")] for name, one in successors.items()}
    return json.dumps(halves).encode("ascii")


def parse_successors(data: bytes) -> dict[str, Successor]:
    """Return successors by authority as `render_successors` wrote them; raises AUTHORITY_UNUSABLE.

    Whether the halves of each are those of one key is for whoever takes them (`AuthorityFiles.stage`).
    """
    try:
        return {
            str(name): Successor(public=public.encode("ascii"), private=private.encode("ascii"))
            for name, (public, private) in load_json(data).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise unusable("expected successors by authority, got something else") from None  # the cause may hold a key
