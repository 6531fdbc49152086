# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An audit log, its lines behind each other, and the heads that another log holds of it."""

from __future__ import annotations

import base64

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import Head, digest_of, render
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import (
    heads_of,
    verify_audit,
    verify_refusals,
)
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

TPM = SoftTpm()
BEGUN = render({"event": "begun", "log": "l", "node": "cp-1"}, sequence=1, previous=bytes(32))
GIVEN = render({"event": "release", "outcome": "given", "node": "w-1"}, sequence=2, previous=digest_of(BEGUN))


def _signed() -> bytes:
    head = Head("l", 2, digest_of(GIVEN))
    quote = issue(TPM, TPM.ak, qualifying_data=head.digest(), pcrs=(15,))
    evidence = base64.b64encode(quote.to_bytes()).decode()
    told = {"event": "head", "log": "l", "head": 2, "sha256": head.sha256.hex(), "evidence": evidence}
    return render(told, sequence=3, previous=head.sha256)


SIGNED = _signed()
OTHERS = {"event": "head_of", "node": "cp-1", "log": "l", "head": 2, "sha256": digest_of(GIVEN).hex()}
NOTED = render(OTHERS, sequence=4, previous=digest_of(SIGNED))


ROTATED = render({"event": "rotated", "first": 1, "sha256": "00" * 32}, sequence=5, previous=digest_of(NOTED))
OF_MANY = {"event": "counted", "of": "release", "outcome": "refused", "reason": "PCR_MISMATCH", "count": 7}
COUNTED = render(OF_MANY, sequence=6, previous=digest_of(ROTATED))
OF_REFUSALS = {"event": "refusals", "log": "r", "head": 2, "sha256": digest_of(GIVEN).hex()}
BESIDE = render(OF_REFUSALS, sequence=7, previous=digest_of(COUNTED))


def seeds() -> list[bytes]:
    log = [BEGUN, GIVEN, SIGNED, NOTED, ROTATED, COUNTED, BESIDE]
    return [b"\n".join(log[:count]) for count in (2, 3, 4, 5, 6, 7)]


def one_input(data: bytes) -> None:
    lines = data.split(b"\n")
    report = verify_audit(lines, known=heads_of("cp-1", lines))
    assert report.last.sequence == report.first + len(lines) - 1
    verify_refusals(lines, report)
