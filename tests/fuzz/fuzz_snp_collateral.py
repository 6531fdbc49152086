# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's files for SEV-SNP: ASK and ARK in DER, so that mutations get past PEM, and the revocation list."""

from __future__ import annotations

import base64

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.sev_snp import load_snp_collateral
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence.sev_snp import test_reports
from cryptography.hazmat.primitives.serialization import Encoding

CUT = b"\n--\n"
PEM = b"-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n"


def seeds() -> list[bytes]:
    known = test_reports.COLLATERAL
    return [CUT.join(one.public_bytes(Encoding.DER) for one in (known.ask, known.ark, known.crl))]


def one_input(data: bytes) -> None:
    *chain, crl = data.split(CUT)
    pem = b"".join(PEM % base64.encodebytes(one) for one in chain)
    test_reports.verified(collateral=load_snp_collateral(chain=pem, crl=crl))
