# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DER elements of attributes in certificates."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.der import elements, integer


def seeds() -> list[bytes]:
    return [bytes.fromhex("300602010102020080"), bytes.fromhex("020101")]


def one_input(data: bytes) -> None:
    for element in elements(data):
        integer(element)
