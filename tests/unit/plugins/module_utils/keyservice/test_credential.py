# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key service's own API credential renews itself at half of its life."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.app import MintedCredential
from ansible_collections.attested.kubernetes.tests.support.release_bed import NOW, StandingClock, make_cluster_ca
from cryptography import x509
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_minted_once_and_again_after_half_of_its_life(tmp_path: Path) -> None:
    clock = StandingClock()
    credential = MintedCredential(make_cluster_ca(), tmp_path, clock=clock)
    first = credential.current()
    shown = first.certificate.read_bytes()
    clock.sleep(12 * 3600 - 1)
    assert credential.current() == first
    assert first.certificate.read_bytes() == shown
    clock.sleep(1)
    second = credential.current()
    assert second.serial != first.serial
    assert second.certificate.read_bytes() != shown
    renewed = x509.load_pem_x509_certificate(second.certificate.read_bytes())
    assert renewed.not_valid_after_utc == NOW + timedelta(hours=36)


def test_its_key_is_roots_alone_and_belongs_to_it(tmp_path: Path) -> None:
    files = MintedCredential(make_cluster_ca(), tmp_path, clock=StandingClock()).current()
    assert files.private_key.stat().st_mode & 0o777 == 0o600
    key = serialization.load_pem_private_key(files.private_key.read_bytes(), password=None)
    assert key.public_key() == x509.load_pem_x509_certificate(files.certificate.read_bytes()).public_key()
