# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate request of a join service."""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import (
    make_join_ca,
    sign_server_certificate,
)
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.keyservice.test_ca import request_for
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = make_join_ca("prod", now=NOW)


def server_request() -> bytes:
    return request_for(ec.generate_private_key(ec.SECP256R1()))


def seeds() -> list[bytes]:
    return [server_request(), request_for(ec.generate_private_key(ec.SECP384R1()))]


def one_input(data: bytes) -> None:
    chain = sign_server_certificate(data, ca=CA, cluster_id=b"c" * 32, now=NOW)
    leaf, _root = x509.load_pem_x509_certificates(chain)
    assert leaf.subject.rfc4514_string() == "CN=attested join service"
