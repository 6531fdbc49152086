# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An SEV-SNP attestation report."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp_report import SnpReport
from ansible_collections.attested.kubernetes.tests.support.house import ROOT


def seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "tests" / "vectors" / "sev-snp").rglob("report.bin"))]


def one_input(data: bytes) -> None:
    SnpReport.parse(data)
