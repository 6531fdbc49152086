# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Endorsement certificates in the NV memory of real TPMs: the maker's own, chains over several indices, none at all."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_certificate import (
    CertifiedKey,
    verify_ek_certificate,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.ek_profile import load_ek_store
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.keys import load_endorsement_key
from ansible_collections.attested.kubernetes.tests.support.ek import der
from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm, SwtpmFactory

NV_CHAIN = 0x01C00100


def define(swtpm: Swtpm, index: int, content: bytes, folder: Path) -> None:
    """Write an NV index with tpm2-tools, as a maker would."""
    if shutil.which("tpm2_nvdefine") is None:
        pytest.skip("tpm2-tools are not installed")
    (folder / "content").write_bytes(content)
    tcti = ["-T", swtpm.tcti]
    attributes = "ownerread|ownerwrite|authread|authwrite"
    for command in (
        ["tpm2_nvdefine", f"{index:#x}", "-C", "o", "-s", str(len(content)), "-a", attributes],
        ["tpm2_nvwrite", f"{index:#x}", "-C", "o", "-i", str(folder / "content")],
    ):
        done = subprocess.run([*command, *tcti], capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr


def verified(swtpm: Swtpm, opened: Opened, *, roots: list[Path]) -> CertifiedKey | None:
    store = load_ek_store(roots)
    with opened(swtpm) as tpm:
        ek = load_endorsement_key(tpm)
    return verify_ek_certificate(
        ek.public, ek.certificates, roots=store.roots, intermediates=store.intermediates, now=datetime.now(UTC)
    )


def test_the_certificate_that_swtpm_made(
    swtpms: Callable[..., Swtpm], opened: Opened, manufactured: SwtpmFactory, tmp_path: Path
) -> None:
    """The store is a directory: the root is trusted, the issuer only fills the gap."""
    machine, store = swtpms("a"), tmp_path / "store"
    store.mkdir()
    shutil.copy(manufactured.authority.root, store / "root.pem")
    with pytest.raises(Refusal) as caught:
        verified(machine, opened, roots=[store])
    assert caught.value.code == "EK_CERTIFICATE_UNTRUSTED"
    shutil.copy(manufactured.authority.issuer, store / "issuer.crt")
    found = verified(machine, opened, roots=[store])
    assert found is not None
    assert (found.tpm.manufacturer, found.tpm.model) == ("IBM", "swtpm")


@pytest.mark.parametrize("cut", [0, 1, 200])
def test_a_chain_in_nv_memory_over_two_indices(
    swtpms: Callable[..., Swtpm], opened: Opened, manufactured: SwtpmFactory, tmp_path: Path, cut: int
) -> None:
    """Issuers lie back to back and may be split anywhere; the store then needs the root alone."""
    machine = swtpms("a")
    issuer = der(x509.load_pem_x509_certificate(manufactured.authority.issuer.read_bytes()))
    other = der(x509.load_pem_x509_certificate(manufactured.authority.root.read_bytes()))
    chain = other + issuer
    border = len(other) + cut
    for number, part in enumerate((chain[:border], chain[border:] + bytes(40))):
        define(machine, NV_CHAIN + number, part, tmp_path)
    found = verified(machine, opened, roots=[manufactured.authority.root])
    assert found is not None
    assert found.label.startswith("IBM swtpm, root CN=swtpm-localca-rootca")


def test_a_damaged_chain_in_nv_memory(
    swtpms: Callable[..., Swtpm], opened: Opened, manufactured: SwtpmFactory, tmp_path: Path
) -> None:
    machine = swtpms("a")
    issuer = bytearray(der(x509.load_pem_x509_certificate(manufactured.authority.issuer.read_bytes())))
    issuer[60] ^= 0xFF
    define(machine, NV_CHAIN, bytes(issuer), tmp_path)
    with pytest.raises(Refusal) as caught:
        verified(machine, opened, roots=[manufactured.authority.root])
    assert caught.value.code in {"EK_CERTIFICATE_MALFORMED", "EK_CERTIFICATE_UNTRUSTED"}


def test_a_tpm_without_certificate(swtpms: Callable[..., Swtpm], opened: Opened, manufactured: SwtpmFactory) -> None:
    """As most firmware TPMs are: with roots it is refused by name, without roots its key is enough to enroll it."""
    machine = swtpms("plain", certified=False)
    with pytest.raises(Refusal) as caught:
        verified(machine, opened, roots=[manufactured.authority.root])
    assert caught.value.code == "EK_CERTIFICATE_MISSING"
    assert verified(machine, opened, roots=[]) is None
