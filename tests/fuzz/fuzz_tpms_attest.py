# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TPMS_ATTEST, as a TPM signs it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Attest
from ansible_collections.attested.kubernetes.tests.support.tpm import vector


def seeds() -> list[bytes]:
    return [vector(f"quote-{key}.tpms_attest") for key in ("ak-ecc", "ak-rsa")]


def one_input(data: bytes) -> None:
    assert Attest.parse(data).marshal() == data
