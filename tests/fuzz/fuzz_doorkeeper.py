# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence in a peer's certificate, which a stranger may send."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import (
    issue_handshake_evidence,
    verify_handshake_evidence,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

SPKI, NONCE = b"k" * 32, b"n" * 32


def seeds() -> list[bytes]:
    tpm = SoftTpm()
    return [issue_handshake_evidence(tpm, tpm.ak, spki_sha256=SPKI, nonce=NONCE, pcrs=(15,))]


def one_input(data: bytes) -> None:
    verify_handshake_evidence(data, spki_sha256=SPKI, nonce=NONCE)
