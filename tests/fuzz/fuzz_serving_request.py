# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet's request for a serving certificate: the PEM in it, and its DER."""

from __future__ import annotations

import base64
import textwrap

from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.serving_approver import (
    check_serving_request,
)
from ansible_collections.attested.kubernetes.tests.support.serving_requests import Wanted, encoded, spec_of

_BEGIN, _END = "-----BEGIN CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST-----"
_PEM, _DER = b"P", b"D"


def seeds() -> list[bytes]:
    pem = Wanted().pem()
    return [_PEM + pem, _DER + base64.b64decode(b"".join(pem.splitlines()[1:-1]))]


def one_input(data: bytes) -> None:
    pem = data[1:]
    if data[:1] == _DER:
        lines = textwrap.wrap(base64.b64encode(pem).decode("ascii"), 64)
        pem = "\n".join([_BEGIN, *lines, _END, ""]).encode("ascii")
    check_serving_request(spec_of(request=encoded(pem)))
