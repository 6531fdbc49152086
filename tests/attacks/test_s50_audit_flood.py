# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S50: a stranger fills the audit log until what was given is rotated out, or somebody cuts its beginning off."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.cli.command import main
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import (
    AuditLog,
    AuditPlace,
    AuditTrail,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

THREAT = Threat(
    id="S50",
    title="Audit log flooded, or its beginning cut off",
    case="refusals of strangers, each recorded, rotated the history out; a log without its beginning held",
    bed="bytes",
    stops=(
        ("keyservice/audit_log.py", ""),
        ("keyservice/auditing.py", "AUDIT_TRUNCATED"),
    ),
)

CALLS = 1500
A_FEW_RECORDS = 8 << 10


def message(bed: Bed) -> bytes:
    """Return a good call of Release, as the join service sends it."""
    channel, request, binding = bed.exchange()
    sent = message_class(REQUEST)(correlation_id="c-1")
    sent.release.request, sent.release.binding = request, binding
    for name in ("exporter", "spki_sha256", "peer_nonce", "evidence"):
        setattr(sent.release.channel, name, getattr(channel, name))
    return bytes(sent.SerializeToString())


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def flood(bed: Bed, sent: Callable[[int], bytes], code: str, *, calls: int = CALLS) -> tuple[int, int]:
    """Let a stranger ask, and return by how many bytes all of the log grew, and the files of what was given."""
    directory = bed.directory / "audit"
    service = bed.service()
    assert answer_of(service.answer(message(bed))).ticket.ticket
    given = list(directory.glob("audit-*"))
    before, history = size_of(directory), sum(path.stat().st_size for path in given)
    messages = [sent(number) for number in range(calls)]
    begun = time.monotonic()
    for one in messages:
        assert code_of(lambda one=one: answer_of(service.answer(one))) == code
    seconds = time.monotonic() - begun
    grown = size_of(directory) - before
    print(f"\n{code}: {calls / seconds:.0f} calls a second, {grown / seconds / 1000:.1f} kB a second")
    return grown, sum(path.stat().st_size for path in given) - history


def test_a_stranger_at_full_rate() -> None:
    """Nothing that it sends is proven: it is counted, and what was given is not written after."""
    bed = Bed()
    used = message(bed)
    assert answer_of(bed.service().answer(used)).ticket.ticket
    grown, history = flood(bed, lambda _number: used, "CHALLENGE_UNKNOWN")
    assert grown < A_FEW_RECORDS
    assert history == 0


def test_messages_that_are_none_of_the_calls() -> None:
    unknown = bytes(message_class(REQUEST)(correlation_id="c-1").SerializeToString())
    grown, history = flood(Bed(), lambda _number: unknown, "MESSAGE_MALFORMED")
    assert grown < A_FEW_RECORDS
    assert history == 0


def test_a_node_that_is_refused_at_full_rate() -> None:
    """It proves its key, so it is recorded, as often as a person would want to read it; and apart."""
    bed = Bed()

    def refused(_number: int) -> bytes:
        good, bed.csr = bed.csr, b"no request"
        try:
            return message(bed)
        finally:
            bed.csr = good

    grown, history = flood(bed, refused, "CSR_MALFORMED", calls=300)
    assert grown < 40 << 10
    assert history == 0


def test_strangers_that_prove_keys_of_their_own() -> None:
    """Anybody can make such keys, so all of them share one limit."""
    bed = Bed()
    own = bed.tpm
    strangers = [SoftTpm(bed.boot.pcrs) for _unused in range(4)]

    def refused(number: int) -> bytes:
        bed.tpm = strangers[number % len(strangers)]
        try:
            return message(bed)
        finally:
            bed.tpm = own

    grown, history = flood(bed, refused, "IDENTITY_NODE_TAKEN", calls=300)
    assert grown < 40 << 10
    assert history == 0


# ---- the beginning


def verified(directory: Path) -> int:
    """Run `attested audit verify` as root of the control plane does."""
    return main(["audit", "verify", "--directory", str(directory)])


def sign(log: Any, tpm: SoftTpm) -> None:
    head = log.due()
    if head is not None:
        evidence = issue(tpm, tpm.ak, qualifying_data=head.digest(), pcrs=(15,))
        log.signed(head, base64.b64encode(evidence.to_bytes()).decode())


def written(log: Any) -> None:
    """Let a control plane give much out, and its TPM sign it."""
    tpm = SoftTpm()
    for number in range(300):
        log.decided("release", {"node": f"w-{number}"})
        sign(log, tpm)
    for _unused in range(100):
        log.append("release")
    sign(log, tpm)


def test_a_beginning_that_somebody_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The chain, the numbers and the heads of what is left hold; what is missing is the first record."""
    place = AuditPlace(directory=tmp_path, file_bytes=16_000)
    written(AuditLog(place, node="cp-1", clock=SystemClock(), random=SystemRandom()))
    assert verified(tmp_path) == 0
    place.existing()[0].unlink()
    assert verified(tmp_path) == 1
    assert "AUDIT_TRUNCATED" in capsys.readouterr().err


def test_a_rotation_is_no_cover_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the oldest files went as they should, a signed record says with which one the log begins, and no later."""
    place = AuditPlace(directory=tmp_path, file_bytes=16_000, files=4)
    written(AuditTrail(place, node="cp-1", clock=SystemClock(), random=SystemRandom()))
    files = place.existing()
    assert files[0] != place.file_from(1)
    assert verified(tmp_path) == 0
    assert "rotated out, as is signed" in capsys.readouterr().out
    files[0].unlink()
    assert verified(tmp_path) == 1
    assert "AUDIT_TRUNCATED" in capsys.readouterr().err


def test_the_log_of_refusals_without_its_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = AuditPlace(directory=tmp_path)
    log = AuditTrail(place, node="cp-1", clock=SystemClock(), random=SystemRandom())
    for _unused in range(5):
        log.decided("release", {}, refusal={"reason": "PCR_MISMATCH", "detail": ""}, source="w-1")
    written(log)
    assert verified(tmp_path) == 0
    path = tmp_path / "refused-000000000001.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    assert verified(tmp_path) == 1
    assert "AUDIT_TRUNCATED" in capsys.readouterr().err
