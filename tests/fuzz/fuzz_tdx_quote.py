# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A TDX quote and its verification up to the library's."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.tdx import test_quotes


def seeds() -> list[bytes]:
    return [test_quotes.GOOD.quote]


def one_input(data: bytes) -> None:
    test_quotes.verified(replace(test_quotes.GOOD, quote=data))
