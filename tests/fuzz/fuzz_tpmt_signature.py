# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TPMT_SIGNATURE."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Signature
from ansible_collections.attested.kubernetes.tests.support.tpm import vector


def seeds() -> list[bytes]:
    return [vector(f"quote-{key}.tpmt_signature") for key in ("ak-ecc", "ak-rsa")]


def one_input(data: bytes) -> None:
    signature = Signature.parse(data)
    assert signature.marshal() == data
    signature.raw()
