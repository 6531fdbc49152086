# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/run/attested/claim.json."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, Contender


def seeds() -> list[bytes]:
    return [Claim(Contender.JOIN).to_bytes(), Claim(Contender.INIT, "a" * 64).to_bytes()]


def one_input(data: bytes) -> None:
    claim = Claim.parse(data)
    if Claim.parse(claim.to_bytes()) != claim:
        raise ArithmeticError
