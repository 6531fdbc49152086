# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One push of evidence from end to end in this process: how often one machine may, and for whom nothing is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence, EventLogs
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.attestation_state import EVIDENCE_REFUSED
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.config import KeyServiceConfig
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, PROFILES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import (
    StatusChange,
    StatusWriter,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import (
    Admission,
    EvidenceRefusal,
    Role,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.reattest import Reattested, Reattester

DEFAULTS = KeyServiceConfig(node_name="cp-1", api_server="https://x:6443", api_endpoint="x:6443")


@pytest.fixture
def bed() -> Bed:
    """A worker that has its ticket and is locked."""
    made = Bed()
    made.release()
    made.lock()
    made.gateway.writes = 0
    made.notes.clear()
    return made


@pytest.fixture
def reattester(bed: Bed) -> Reattester:
    return bed.reattester()


def push(bed: Bed, reattester: Reattester, *call: Any, **options: Any) -> Reattested:
    return reattester.reattest(*(call or bed.push()), note=bed.notes.update, **options)


def refused(bed: Bed, reattester: Reattester, *call: Any, **options: Any) -> AttestedError:
    with pytest.raises(AttestedError) as caught:
        push(bed, reattester, *call, **options)
    return caught.value


def retire(bed: Bed) -> None:
    """Remove the profile, and sign the policy without it."""
    bed.gateway.delete(PROFILES, bed.boot.name)
    bed.sign()


def limit(bed: Bed) -> None:
    """Let the limit be that of a key service whose configuration says nothing of it."""
    bed.pushes.configure(rate=DEFAULTS.tickets_per_second, burst=DEFAULTS.ticket_burst)


def test_a_machine_that_pushes_without_end_is_told_when_to_push_again(bed: Bed, reattester: Reattester) -> None:
    limit(bed)
    for _unused in range(20):
        push(bed, reattester)
    error = refused(bed, reattester)
    assert (error.code, error.retry_after_seconds) == ("IDENTITY_RATE", 2.0)
    assert bed.gateway.writes == 20
    bed.clock.sleep(2)
    assert push(bed, reattester).node_name == "w-1"


def test_an_honest_node_is_never_told_to_wait(bed: Bed, reattester: Reattester) -> None:
    """Its timer each hour, the push of `init`, and a person who has it pushed ten times in a row beside it."""
    limit(bed)
    for _hour in range(3):
        for _unused in range(12):
            push(bed, reattester)
        bed.clock.sleep(3600)
    assert bed.gateway.writes == 36


def test_a_machine_that_was_not_admitted_has_the_rate_of_strangers(bed: Bed, reattester: Reattester) -> None:
    bed.gateway.apply(render_identity(replace(bed.identity, admission=Admission.PENDING)))
    bed.watch()
    assert [refused(bed, reattester).code for _unused in range(17)] == [
        *["IDENTITY_PENDING"] * 16,
        "IDENTITY_UNKNOWN_RATE",
    ]


def test_who_has_used_up_its_pushes_still_gets_its_tickets(bed: Bed, reattester: Reattester) -> None:
    """A node that is refused as overdue must be able to ask anew, and tickets must not keep it from pushing."""
    bed.pushes.configure(rate=0.001, burst=1)
    bed.rate.configure(rate=0.001, burst=2)
    push(bed, reattester)
    assert refused(bed, reattester).code == "IDENTITY_RATE"
    bed.tpm.reset()
    assert bed.release().node_name == "w-1"


def test_a_guess_uses_up_nobodys_pushes(bed: Bed, reattester: Reattester) -> None:
    bed.pushes.configure(rate=0.001, burst=1)
    channel, request, binding = bed.push()
    guessed = replace(BoundEvidence.parse(binding), proof=b"?" * 32).to_bytes()
    assert refused(bed, reattester, channel, request, guessed).code == "ACTIVATION_NOT_PROVEN"
    assert push(bed, reattester).node_name == "w-1"


def test_both_keys_of_a_machine_share_its_limit(bed: Bed, reattester: Reattester) -> None:
    second = bed.tpm.another_ek()
    bed.gateway.apply(render_identity(replace(bed.identity, ek_alias=second.public.spki_sha256())))
    bed.pushes.configure(rate=0.001, burst=1)
    push(bed, reattester)
    bed.tpm.ek = second
    assert refused(bed, reattester).code == "IDENTITY_RATE"


def test_nothing_is_written_for_a_caller_who_hung_up(bed: Bed, reattester: Reattester) -> None:
    before = bed.status()
    assert refused(bed, reattester, gone=lambda: True).code == "CALL_GONE"
    assert (bed.gateway.writes, bed.status()) == (0, before)


def test_what_no_other_reading_of_the_policy_changes_is_not_asked_of_the_api(
    bed: Bed, reattester: Reattester, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    bed.watch()
    bed.pushes.configure(rate=0.001, burst=2)
    push(bed, reattester)
    monkeypatch.setattr(bed.live, "snapshot_for", asked.append)
    assert refused(bed, reattester, gone=lambda: True).code == "CALL_GONE"
    assert refused(bed, reattester).code == "IDENTITY_RATE"
    assert asked == []


def served(bed: Bed, **options: Any) -> bytes:
    """Return what the service answers a good push."""
    channel, request, binding = bed.push()
    message = message_class(REQUEST)(correlation_id="c-1")
    message.reattest.request, message.reattest.binding = request, binding
    message.reattest.channel.CopyFrom(channel.to_message())
    return bytes(answer_of(bed.service().answer(message.SerializeToString(), **options)).reattested.response)


def test_the_service_hands_on_that_the_caller_hung_up(bed: Bed) -> None:
    with pytest.raises(AttestedError) as caught:
        served(bed, gone=lambda: True)
    assert (caught.value.code, bed.gateway.writes) == ("CALL_GONE", 0)


def test_a_machine_is_told_when_its_next_evidence_is_due(bed: Bed) -> None:
    answer = message_class("attested.v1.ReattestResponse").FromString(served(bed))
    assert answer.due_unix_seconds == int((bed.clock.now() + timedelta(hours=3)).timestamp())


class Contended:
    """An API whose identity somebody else changes before each of the first ``times`` writes."""

    def __init__(self, bed: Bed, times: int) -> None:
        self.left, self.tries = times, 0
        self._bed, self._document = bed, render_identity(replace(bed.identity, known_by="enroll"))
        bed.gateway.before_write = self

    def __call__(self) -> None:
        self.tries += 1
        if self.left:
            self.left -= 1
            self._bed.gateway.apply(self._document)
        self._bed.gateway.before_write = self


def test_a_change_in_between_is_read_again_up_to_three_times(bed: Bed, reattester: Reattester) -> None:
    api = Contended(bed, times=3)
    assert push(bed, reattester).node_name == "w-1"
    assert (bed.gateway.writes, api.tries) == (1, 4)
    api.left, api.tries = 4, 0
    assert (refused(bed, reattester).code, api.tries) == ("API_CONFLICT", 4)


def test_evidence_that_newer_evidence_has_overtaken_is_no_rollback(bed: Bed, reattester: Reattester) -> None:
    """A node asks for a ticket while its re-attestation is on its way: it is told to bring evidence again."""
    bed.watch()
    slow = bed.push()
    push(bed, reattester)
    assert refused(bed, reattester, *slow).code == "API_CONFLICT"
    assert push(bed, reattester).node_name == "w-1"
    bed.tpm.clock_info = replace(bed.tpm.clock_info, clock=1)
    assert refused(bed, reattester).code == "TPM_ROLLED_BACK"


def test_an_api_that_is_away_is_no_change_in_between(bed: Bed, reattester: Reattester) -> None:
    def away() -> None:
        tries.append("one")
        raise ApiError("connection refused", reason=Reason.API_UNAVAILABLE)

    tries: list[str] = []
    bed.gateway.before_write = away
    assert (refused(bed, reattester).code, tries) == ("API_UNAVAILABLE", ["one"])


def test_the_log_hears_whose_key_it_is_and_whether_it_is_proven(bed: Bed, reattester: Reattester) -> None:
    first, second = bed.tpm.ek, bed.tpm.another_ek()
    known, alias = (key.public.spki_sha256() for key in (first, second))
    channel, request, binding = bed.push()
    guessed = replace(BoundEvidence.parse(binding), proof=b"?" * 32).to_bytes()
    refused(bed, reattester, channel, request, guessed)
    assert bed.notes == {"ek": known}
    push(bed, reattester)
    assert bed.notes == {"ek": known, "proven": "yes", "node": "w-1"}
    bed.gateway.apply(render_identity(replace(bed.identity, ek_alias=alias)))
    bed.tpm.ek = second
    push(bed, reattester)
    assert bed.notes == {"ek": alias, "proven": "yes", "node": "w-1", "identity": bed.identity.name}


def test_a_node_that_stands_better_than_before_is_told_of(bed: Bed) -> None:
    """Who waits for it, as the one who takes a taint off, need not ask again and again."""
    recovered: list[str] = []
    reattester = bed.reattester(recovered=recovered.append)
    push(bed, reattester)
    assert not recovered, "its ticket was good evidence"
    bed.clock.sleep(3 * 3600)
    push(bed, reattester)
    assert len(recovered) == 1, "it was overdue"
    push(bed, reattester)
    assert len(recovered) == 1, "it was good"
    known = bed.live.snapshot_for(bed.identity.ek_sha256).registration_for(bed.identity.ek_sha256)
    StatusWriter(bed.gateway).write(
        known, StatusChange(refusal=EvidenceRefusal(at=bed.clock.now(), code="PCR_MISMATCH"))
    )
    push(bed, reattester)
    assert recovered == [bed.identity.name] * 2, "it had been refused"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda bed: bed.gateway.apply(render_identity(replace(bed.identity, admission=Admission.REVOKED))),
            "IDENTITY_REVOKED",
            id="a revocation",
        ),
        pytest.param(retire, "POLICY_EMPTY", id="a policy that no longer names its profile"),
    ],
)
def test_what_the_watch_has_not_told_yet_refuses(bed: Bed, reattester: Reattester, change: Any, expected: str) -> None:
    bed.watch()
    push(bed, reattester)
    call, before = bed.push(), bed.status()
    change(bed)
    assert refused(bed, reattester, *call).code == expected
    assert bed.status() == before


def test_a_watch_that_does_not_come_to_the_write_is_not_trusted(bed: Bed, reattester: Reattester) -> None:
    """The push is judged again by what the API says."""
    bed.follow(*bed.cached.caches)
    bed.cached._settle_seconds = 0.01
    assert push(bed, reattester).node_name == "w-1"
    assert bed.gateway.writes == 2
    assert push(bed, reattester).node_name == "w-1"
    assert bed.gateway.writes == 3


def test_a_machine_that_is_known_no_more_is_refused(bed: Bed, reattester: Reattester) -> None:
    bed.gateway.delete(IDENTITIES, bed.identity.name)
    assert refused(bed, reattester).code == "IDENTITY_UNKNOWN"


def test_a_control_plane_needs_no_ticket_before_it_pushes_nor_after_a_reboot() -> None:
    bed = Bed(Role.CONTROL_PLANE)
    bed.lock()
    assert push(bed, bed.reattester()).node_name == "w-1"
    bed.tpm.reset()
    bed.lock()
    assert push(bed, bed.reattester()).node_name == "w-1"


def test_the_values_on_record_are_those_of_the_profile_beside_them(bed: Bed, reattester: Reattester) -> None:
    """A push may be judged by another profile than the ticket before it, of other registers."""
    first = bed.status()["lastAttestation"]
    profile = learned(bed.boot)
    pcr, allowed = max(profile.registers.items())
    assert len(first["registers"]) > 1
    bed.gateway.apply(render_profile(replace(profile, name="a-newer-one", registers={pcr: allowed})))
    bed.sign()
    push(bed, reattester)
    last = bed.status()["lastAttestation"]
    values = [{"pcr": pcr, "sha256": bed.boot.pcrs[pcr].hex()}]
    assert (last["profile"], last["registers"]) == ("a-newer-one", values)


def request_with(logs: EventLogs) -> bytes:
    """Return a `ReattestRequest` with these logs."""
    message = message_class("attested.v1.ReattestRequest")(event_logs=logs.to_bytes())
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("size", "code"),
    [
        pytest.param(1 << 20, "MESSAGE_MALFORMED", id="a mebibyte is looked at"),
        pytest.param((1 << 20) + 1, "MESSAGE_TOO_LARGE", id="one byte more is not"),
    ],
)
def test_a_request_is_bounded(bed: Bed, reattester: Reattester, size: int, code: str) -> None:
    channel, _unused, binding = bed.push()
    assert refused(bed, reattester, channel, b"\xff" * size, binding).code == code


def test_logs_that_somebody_sends_with_a_machines_proof_are_held_against_nobody(
    bed: Bed, reattester: Reattester
) -> None:
    """Who lets a node's verification service open a credential has its proof, and may send what he likes with it."""
    channel, _unused, binding = bed.push()
    request = request_with(EventLogs(command_line=b"x" * 4097))
    error = refused(bed, reattester, replace(channel, exporter=b"x" * 32), request, binding)
    assert (error.code, bed.notes["proven"]) == ("MESSAGE_TOO_LARGE", "yes")
    assert error.reason not in EVIDENCE_REFUSED
