# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate of an endorsement key, as NV memory holds it, and its chain."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import verify_ek_certificate
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import parse_ek_certificate
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.test_ek_certificate import (
    EK,
    ISSUER_DER,
    LEAF,
    NOW,
    ROOT,
)


def seeds() -> list[bytes]:
    return [LEAF, ISSUER_DER]


def one_input(data: bytes) -> None:
    parse_ek_certificate(data)
    verify_ek_certificate(EK, (data, ISSUER_DER), roots=(ROOT,), now=NOW)
