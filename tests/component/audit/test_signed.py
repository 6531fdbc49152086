# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The head of an audit log under a real TPM's attestation key, and the command that reads it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli.command import main
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import AuditLog, AuditPlace, Head
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import HeadSigner, verify_head

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm


@pytest.fixture
def signer(swtpm: Swtpm, opened: Opened) -> HeadSigner:
    return HeadSigner(lambda: opened(swtpm))


def test_a_real_tpm_signs_a_head_and_no_other(signer: HeadSigner) -> None:
    head = Head("log", 100, b"h" * 32)
    evidence = signer.sign(head)
    assert verify_head(head, evidence).ak_name
    for other in (Head("log", 101, b"h" * 32), Head("log", 100, b"i" * 32), Head("other", 100, b"h" * 32)):
        with pytest.raises(AttestedError) as caught:
            verify_head(other, evidence)
        assert caught.value.code == "AUDIT_HEAD_WRONG"


def test_what_is_signed_is_a_quote(signer: HeadSigner) -> None:
    head = Head("log", 100, b"h" * 32)
    evidence = Evidence.parse(base64.b64decode(signer.sign(head)))
    assert evidence.quote.startswith(b"\xffTCG\x80\x18")  # TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE


def test_the_command_says_what_holds_and_what_does_not(
    signer: HeadSigner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(AuditPlace(directory=tmp_path), node="cp-1", clock=SystemClock(), random=SystemRandom())
    for number in range(120):
        log.decided("release", {"node": f"w-{number}"})
        head = log.due()
        if head is not None:
            log.signed(head, signer.sign(head))
    log.close()
    words = ["audit", "verify", "--directory", str(tmp_path)]
    assert main(words) == 0
    assert "release given: 120" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["last"], report["signed_heads"], report["not_signed_yet"]) == (122, 1, 22)
    assert main([*words, "--head", f"122:{report['sha256']}"]) == 0
    assert main([*words, "--head", f"123:{report['sha256']}"]) == 1
    assert "AUDIT_TRUNCATED" in capsys.readouterr().err
    (path,) = AuditPlace(directory=tmp_path).existing()
    path.write_bytes(path.read_bytes().replace(b'"w-40"', b'"w-41"'))
    assert main(words) == 1
    assert "AUDIT_EDITED" in capsys.readouterr().err
