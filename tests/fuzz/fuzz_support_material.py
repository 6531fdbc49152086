# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine gathered for a support bundle."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.node.support_bundle import (
    LeftOut,
    Material,
    Piece,
    parse_material,
    render_material,
)


def seeds() -> list[bytes]:
    pieces = (Piece(name="a/b", origin="o", content="c"),)
    return [render_material(Material(pieces=pieces, left_out=(LeftOut(what="x", why="y"),)))]


def one_input(data: bytes) -> None:
    parse_material(data)
