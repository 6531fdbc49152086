# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who an init request is from: certificate and signature, as the machine judges them."""

from __future__ import annotations

from datetime import UTC, datetime

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import (
    make_admin_key,
    prove_admin,
    verify_admin,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.pins import JoinCaPins

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = make_join_ca("prod", now=NOW)
ADMIN = make_admin_key(ca=CA, cluster_id=b"c" * 32, now=NOW)
KNOWN = {"binding": b"b" * 32, "request": b"request"}
GOOD = prove_admin(ADMIN, **KNOWN)
SERIAL = verify_admin(GOOD, pins=JoinCaPins.from_pem(CA.certificate), cluster_id=b"c" * 32, now=NOW, **KNOWN)


def seeds() -> list[bytes]:
    return [GOOD]


def one_input(data: bytes) -> None:
    # protobuf and ECDSA have many spellings of one proof; none of them is another admin's
    pins = JoinCaPins.from_pem(CA.certificate)
    assert verify_admin(data, pins=pins, cluster_id=b"c" * 32, now=NOW, **KNOWN) == SERIAL
