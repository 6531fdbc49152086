# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubeconfig that a machine gives after its init: the first byte says whether the rest is it or its certificate."""

from __future__ import annotations

import tempfile
from pathlib import Path
from ssl import DER_cert_to_PEM_cert, PEM_cert_to_DER_cert

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.admin_access import accept_access
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.tests.support.cluster_ca import ClusterCa, dump, request_of, text

REQUEST, NOW = request_of(), SystemClock().now()
CA = ClusterCa(Path(tempfile.mkdtemp()))
BODY = CA.body(REQUEST)
WHOLE, CERTIFICATE = b"k", b"c"


def seeds() -> list[bytes]:
    accept_access(CA.kubeconfig(REQUEST), request=REQUEST, now=NOW)
    return [WHOLE + CA.kubeconfig(REQUEST), CERTIFICATE + PEM_cert_to_DER_cert(CA.issue(REQUEST).decode())]


def one_input(data: bytes) -> None:
    if data.startswith(CERTIFICATE):
        BODY["users"][0]["user"]["client-certificate-data"] = text(DER_cert_to_PEM_cert(data[1:]).encode())
        accept_access(dump(BODY), request=REQUEST, now=NOW)
    else:
        accept_access(data[1:], request=REQUEST, now=NOW)
