# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel's collateral for TDX, and a good quote verified by it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tdx import load_tdx_collateral
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.tdx import test_quotes

MAX_BYTES = 1 << 14


def seeds() -> list[bytes]:
    return [test_quotes.COLLATERAL.text.encode()]


def one_input(data: bytes) -> None:
    test_quotes.verified(collateral=load_tdx_collateral(collateral=data, root=test_quotes.COLLATERAL.root))
