# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tpm2-tools as the independent opinion on everything that our client says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

_YEAR = timedelta(days=365)


def _certificate(tpm2b_public: bytes) -> bytes:
    """A certificate for the key in ``tpm2b_public``, signed by nobody in particular."""
    issuer = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(start).not_valid_after(start + _YEAR)
    signed = builder.public_key(Public.parse(tpm2b_public[2:]).key()).sign(issuer, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.DER)


def write_certificate(
    tool: Callable[..., str],
    swtpm: Swtpm,
    index: int,
    data: bytes,
    *,
    folder: Path,
    attributes: str = "ownerwrite|ownerread|authread|no_da",
) -> None:
    """Define the NV index as a manufacturer does, and write ``data`` into it."""
    (folder / "nv").write_bytes(data)
    tool(swtpm, "nvdefine", f"{index:#x}", "-C", "o", "-s", str(len(data)), "-a", attributes)
    tool(swtpm, "nvwrite", f"{index:#x}", "-C", "o", "-i", "nv")


@pytest.fixture
def use_ecc_ek(tool: Callable[..., str], tmp_path: Path) -> Callable[[Swtpm], None]:
    """Make a TPM one that is certified for ECC P-256 (template L-2) only, by a certificate that anybody can write."""

    def change(swtpm: Swtpm) -> None:
        tool(swtpm, "createek", "-c", "ecc.ctx", "-G", "ecc", "-u", "ecc.pub")
        tool(swtpm, "flushcontext", "-t")
        certificate = _certificate((tmp_path / "ecc.pub").read_bytes())
        write_certificate(tool, swtpm, 0x01C0000A, certificate, folder=tmp_path)

    return change


@pytest.fixture
def put_certificate(tool: Callable[..., str], tmp_path: Path) -> Callable[[Swtpm, int, bytes], None]:
    """Write bytes of the test's choice to where a certificate would be."""

    def put(swtpm: Swtpm, index: int, data: bytes, **options: str) -> None:
        write_certificate(tool, swtpm, index, data, folder=tmp_path, **options)

    return put
