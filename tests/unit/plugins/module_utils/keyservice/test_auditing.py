# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to the audit log beside the decisions, and that every decision is in it before it is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import (
    RECORDED_AT_ONCE,
    REFUSALS,
    AuditPlace,
    AuditTrail,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import RETRY_TICKS, HeadKeeper
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import ObjectCache
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import RefusalReporter
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.rpc import KeyService
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import Head
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import Attempt


def identity(seed: str, node_name: str) -> dict[str, Any]:
    ek = (seed * 64)[:64]
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": node_name, "role": "control-plane", "admission": "Approved"},
    }


class Signer:
    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    def sign(self, head: Head) -> str:
        self.asked += 1
        if self.away:
            raise TpmError("no TPM", reason=Reason.TPM_UNREACHABLE)
        return f"over {head.sequence}"


class Bed:
    """The keeper of cp-1 over an API in memory with another control plane."""

    def __init__(self, directory: Path) -> None:
        self.gateway = FakeGateway(identity("d1", "cp-1"), identity("d2", "cp-2"))
        self.place = AuditPlace(directory=directory)
        self.log = AuditTrail(self.place, node="cp-1", clock=SystemClock(), random=SystemRandom())
        self.identities = ObjectCache(self.gateway, IDENTITIES)
        self.signer = Signer()
        self.refresh()
        self.keeper = HeadKeeper(
            self.log,
            node="cp-1",
            signer=self.signer,
            gateway=self.gateway,
            identities=self.identities,
            clock=SystemClock(),
        )

    def refresh(self) -> None:
        self.identities._begin(*self.gateway.listing(IDENTITIES))

    def records(self, stem: str = "audit") -> list[dict[str, Any]]:
        files = replace(self.place, stem=stem).existing()
        return [json.loads(line) for path in files for line in path.read_bytes().splitlines()]

    def fill(self) -> None:
        for _unused in range(100):
            self.log.append("release")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_a_head_is_signed_each_hundred_records_and_told_to_the_others(bed: Bed) -> None:
    bed.keeper.tick()
    assert bed.signer.asked == 0
    bed.fill()
    assert bed.log.unsigned() == 101
    bed.keeper.tick()
    bed.keeper.tick()
    assert bed.signer.asked == 1
    assert bed.log.unsigned() == 1
    record = bed.records()[-1]
    assert (record["event"], record["head"], record["evidence"]) == ("head", 102, "over 102")
    told = bed.gateway.status(identity("d1", "")["metadata"]["name"])["auditHead"]
    assert (told["sequence"], told["sha256"], told["evidence"]) == (102, record["sha256"], "over 102")
    assert bed.gateway.status(identity("d2", "")["metadata"]["name"]) == {}


def test_a_tpm_that_is_away_is_asked_again_later(bed: Bed) -> None:
    bed.fill()
    bed.signer.away = True
    with pytest.raises(AttestedError):
        bed.keeper.tick()
    bed.signer.away = False
    bed.keeper.tick()
    assert bed.signer.asked == 1
    for _unused in range(RETRY_TICKS):
        bed.keeper.tick()
    assert bed.signer.asked == 2
    assert [record["event"] for record in bed.records()].count("head") == 1


def told_by(bed: Bed) -> int | None:
    """Return the sequence of the head that the identity of cp-1 shows."""
    found: int | None = bed.gateway.status(identity("d1", "")["metadata"]["name"]).get("auditHead", {}).get("sequence")
    return found


def test_a_head_that_could_not_be_told_is_told_later(bed: Bed) -> None:
    """It is signed once; the API is asked again after a pause, and the log is kept meanwhile as ever."""
    bed.fill()
    bed.gateway.down = True
    with pytest.raises(AttestedError):
        bed.keeper.tick()
    for _unused in range(RETRY_TICKS - 1):
        bed.keeper.tick()
    bed.gateway.down = False
    assert told_by(bed) is None
    bed.keeper.tick()
    assert (told_by(bed), bed.signer.asked) == (102, 1)
    writes = bed.gateway.writes
    for _unused in range(RETRY_TICKS + 1):
        bed.keeper.tick()
    assert bed.gateway.writes == writes


def test_a_head_is_told_again_where_the_identity_has_changed_meanwhile(bed: Bed) -> None:
    bed.fill()
    bed.gateway.apply(identity("d1", "cp-1"))
    with pytest.raises(AttestedError) as caught:
        bed.keeper.tick()
    assert caught.value.code == "API_CONFLICT"
    bed.refresh()
    for _unused in range(RETRY_TICKS):
        bed.keeper.tick()
    assert told_by(bed) == 102


def test_a_head_waits_for_the_identity_that_shows_it(bed: Bed) -> None:
    """The first control plane has none before the site's policy was applied."""
    name = identity("d1", "")["metadata"]["name"]
    bed.gateway.delete(IDENTITIES, name)
    bed.refresh()
    bed.fill()
    bed.keeper.tick()
    bed.gateway.apply(identity("d1", "cp-1"))
    bed.refresh()
    for _unused in range(RETRY_TICKS):
        bed.keeper.tick()
    assert told_by(bed) == 102


def test_a_newer_head_takes_the_place_of_one_that_could_not_be_told(bed: Bed) -> None:
    bed.fill()
    bed.gateway.down = True
    with pytest.raises(AttestedError):
        bed.keeper.tick()
    bed.gateway.down = False
    bed.fill()
    bed.keeper.tick()
    assert (told_by(bed), bed.signer.asked) == (203, 2)


def test_the_heads_of_others_are_noted_once(bed: Bed) -> None:
    name = identity("d2", "")["metadata"]["name"]
    for sequence in (100, 100, 200):
        found = bed.gateway.object(IDENTITIES, name)
        assert found is not None
        status = {"auditHead": {"log": "l", "sequence": sequence, "sha256": "ab" * 32}}
        bed.gateway.patch_status(IDENTITIES, name, status=status, revision=found["metadata"]["resourceVersion"])
        bed.refresh()
        bed.keeper.note_others()
    noted = [record for record in bed.records() if record["event"] == "head_of"]
    assert [(one["node"], one["head"]) for one in noted] == [("cp-2", 100), ("cp-2", 200)]


class Stub:
    """A releaser that refuses, or breaks."""

    def __init__(self, error: Exception, **proved: str) -> None:
        self.error = error
        self.proved = proved

    def challenge(self, request: bytes, *, source: str) -> bytes:
        del request, source
        raise self.error

    def release(self, *_call: Any, note: Any, gone: Any) -> Any:
        del gone
        note(**self.proved)
        raise self.error


class Deaf:
    """Is told of refusals, and says nothing."""

    def note(self, attempt: Attempt) -> None:
        del attempt


def service_over(releaser: Any, bed: Bed) -> KeyService:
    """Return calls that record in the log of ``bed``, and need of the rest only what a refused challenge needs."""
    unused: Any = None
    return KeyService(
        releaser,
        bundle=unused,
        clock=SystemClock(),
        log=open_log(),
        reporter=RefusalReporter(Deaf()),
        audit=bed.log,
        reattester=unused,
        metrics=None,
    )


def challenge() -> bytes:
    message = message_class(REQUEST)(correlation_id="c-1")
    message.challenge.request = b"x"
    return bytes(message.SerializeToString())


def release() -> bytes:
    message = message_class(REQUEST)(correlation_id="c-1")
    message.release.request = b"x"
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(AttestedError("no", reason=Reason.AK_ATTRIBUTES), "AK_ATTRIBUTES", id="a refusal"),
        pytest.param(ZeroDivisionError("secret story"), "INTERNAL", id="an error of ours"),
    ],
)
def test_a_refusal_is_recorded_before_it_is_answered(bed: Bed, error: Exception, reason: str) -> None:
    """Of a machine that proved its key; beside what was given."""
    service = service_over(Stub(error, proven="yes", node="w-1"), bed)
    with pytest.raises(AttestedError) as caught:
        answer_of(service.answer(release()))
    assert caught.value.code == reason
    record = bed.records(REFUSALS)[-1]
    assert (record["event"], record["outcome"], record["reason"]) == ("release", "refused", reason)
    assert (record["correlation_id"], "secret" in json.dumps(record)) == ("c-1", False)
    assert [one["event"] for one in bed.records()] == ["begun"]


@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        pytest.param({}, [""], id="nobody proved anything"),
        pytest.param({"node": "w-1"}, [""], id="a key that is a node's, and nobody proved it"),
        pytest.param({"proven": "yes", "node": "w-1"}, ["w-1"], id="a node"),
        pytest.param({"proven": "yes"}, ["machines that no node is"], id="a machine with a key of its own making"),
    ],
)
def test_a_flood_is_counted(bed: Bed, fields: dict[str, str], sources: list[str]) -> None:
    """Who proved nothing is never recorded by itself; of anybody else so many are, and then he is counted too."""
    service = service_over(Stub(AttestedError("no", reason=Reason.CHALLENGE_UNKNOWN), **fields), bed)
    for _unused in range(200):
        with pytest.raises(AttestedError):
            answer_of(service.answer(release()))
    bed.log.write_counts()
    told = bed.records(REFUSALS)
    by_itself = [one for one in told if one["event"] == "release"]
    counted = [one for one in told if one["event"] == "counted"]
    assert len(by_itself) == (RECORDED_AT_ONCE if sources != [""] else 0)
    assert [(one["of"], one["reason"]) for one in counted] == [("release", "CHALLENGE_UNKNOWN")]
    assert [one.get("source", "") for one in counted] == sources
    assert len(by_itself) + counted[0]["count"] == 200
    assert [one["event"] for one in bed.records()] == ["begun"]


def test_a_refused_challenge_is_counted(bed: Bed) -> None:
    service = service_over(Stub(AttestedError("no", reason=Reason.AK_ATTRIBUTES)), bed)
    with pytest.raises(AttestedError):
        answer_of(service.answer(challenge()))
    bed.log.write_counts()
    (_begun, record) = bed.records(REFUSALS)
    assert (record["of"], record["reason"], record["count"]) == ("challenge", "AK_ATTRIBUTES", 1)


def test_what_cannot_be_recorded_is_not_given(bed: Bed) -> None:
    service = service_over(None, bed)
    service._answers = {"release": lambda _asked, _response: None}
    bed.log._given._file = -1
    with pytest.raises(AttestedError) as caught:
        answer_of(service.answer(release()))
    assert caught.value.code == "AUDIT_UNWRITABLE"
