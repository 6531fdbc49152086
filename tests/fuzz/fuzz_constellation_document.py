# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constellation's attestation document (JSON)."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import ConstellationDocument
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.constellation import (
    test_documents,
)


def seeds() -> list[bytes]:
    return [test_documents.GOOD]


def one_input(data: bytes) -> None:
    ConstellationDocument.parse(data)
