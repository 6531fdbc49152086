# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One release from end to end in this process: order, conflicts, and that nothing is given out before it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import BoundEvidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.registry import issue_handshake_evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    IDENTITIES,
    POLICIES,
    PROFILES,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.service import main
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support.exchange import identity_of
from ansible_collections.attested.kubernetes.tests.support.policy_site import PolicySite
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import Channel
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_attempts import Attempt
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.rpc import KeyService


@pytest.fixture
def bed() -> Bed:
    return Bed()


def refused(bed: Bed, *call: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        bed.release(*call)
    return caught.value.code


def test_a_release_writes_before_it_gives(bed: Bed) -> None:
    released = bed.release()
    assert (released.node_name, released.profile, released.repeated) == ("w-1", "deb13-base", False)
    assert bed.status()["phase"] == "Admitted"
    assert bed.notes == {"ek": bed.identity.ek_sha256, "proven": "yes", "node": "w-1"}


def test_a_guessed_proof_leaves_a_machine_a_stranger(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    guessed = replace(BoundEvidence.parse(binding), proof=b"?" * 32).to_bytes()
    assert refused(bed, channel, request, guessed) == "ACTIVATION_NOT_PROVEN"
    assert "proven" not in bed.notes


def asked_of_the_service(bed: Bed, channel: Channel, request: bytes, binding: bytes) -> tuple[str, list[Attempt]]:
    """Return the code that the service answers a Release with, and what it told of it."""
    message = message_class(REQUEST)(correlation_id="c-1")
    message.release.request, message.release.binding = request, binding
    for name in ("exporter", "spki_sha256", "peer_nonce", "evidence"):
        setattr(message.release.channel, name, getattr(channel, name))
    with pytest.raises(AttestedError) as caught:
        answer_of(bed.service().answer(message.SerializeToString()))
    return caught.value.code, bed.attempts.noted


def test_a_refused_machine_is_told_by_its_key_and_its_node(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    document = render_identity(bed.identity)
    document["spec"]["admission"] = "Refused"
    bed.gateway.apply(document)
    code, noted = asked_of_the_service(bed, channel, request, binding)
    (one,) = noted
    assert code == one.reason == "IDENTITY_REFUSED"
    assert (one.ek_sha256, one.node_name, one.correlation_id) == (bed.identity.ek_sha256, "w-1", "c-1")


def test_a_refused_stranger_is_told_without_what_it_claims(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    guessed = replace(BoundEvidence.parse(binding), proof=b"?" * 32).to_bytes()
    code, noted = asked_of_the_service(bed, channel, request, guessed)
    assert code == "ACTIVATION_NOT_PROVEN"
    assert [(one.machine, one.node_name) for one in noted] == [("stranger", "")]


def test_trouble_of_our_own_is_nobodys_attempt(bed: Bed) -> None:
    call = bed.exchange()
    bed.gateway.down = True
    assert asked_of_the_service(bed, *call) == ("API_UNAVAILABLE", [])


def test_a_challenge_is_good_once(bed: Bed) -> None:
    call = bed.exchange()
    bed.release(*call)
    assert refused(bed, *call) == "CHALLENGE_UNKNOWN"


def test_a_challenge_is_used_up_by_a_refusal_too(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    assert refused(bed, channel, request + b"\x00", binding) != "CHALLENGE_UNKNOWN"
    assert refused(bed, channel, request, binding) == "CHALLENGE_UNKNOWN"


def test_nothing_is_written_or_given_for_a_caller_who_hung_up(bed: Bed) -> None:
    with pytest.raises(AttestedError) as caught:
        bed.releaser.release(*bed.exchange(), note=bed.notes.update, gone=lambda: True)
    assert caught.value.code == "CALL_GONE"
    assert (bed.gateway.writes, bed.status()) == (0, {})


def test_one_machine_that_asks_too_often_is_told_when_to_ask_again(bed: Bed) -> None:
    bed.rate.configure(rate=0.5, burst=1)
    bed.release()
    with pytest.raises(AttestedError) as caught:
        bed.release()
    assert (caught.value.code, caught.value.retry_after_seconds) == ("IDENTITY_RATE", 2.0)
    assert bed.gateway.writes == 1
    bed.clock.sleep(2)
    assert bed.release().node_name == "w-1"


def test_a_near_view_that_refuses_is_asked_again_of_the_api(bed: Bed) -> None:
    bed.follow(POLICIES, PROFILES)
    bed.cached.caches[IDENTITIES]._begin((), "100")
    assert bed.release().node_name == "w-1"


def test_a_near_view_that_lags_behind_a_revocation_releases_nothing(bed: Bed) -> None:
    bed.follow(*bed.cached.caches)
    document = render_identity(bed.identity)
    document["spec"]["admission"] = "Revoked"
    bed.gateway.apply(document)
    assert refused(bed) == "IDENTITY_REVOKED"
    assert bed.gateway.writes == 0


def test_a_near_view_that_lags_behind_the_recorded_policy_refuses_no_challenge(bed: Bed) -> None:
    bed.follow(*bed.cached.caches)
    bed.sign()
    bed.live.selection()  # a read of the API records the later generation
    assert bed.release().node_name == "w-1"


def test_a_near_view_that_lags_behind_a_retired_profile_releases_nothing(bed: Bed) -> None:
    bed.follow(*bed.cached.caches)
    call = bed.exchange()
    bed.gateway._objects[PROFILES].clear()
    bed.sign()
    assert refused(bed, *call) == "POLICY_EMPTY"
    assert bed.gateway.writes == 0


def test_a_late_answer_is_refused(bed: Bed) -> None:
    call = bed.exchange()
    bed.clock.sleep(60)
    assert refused(bed, *call) == "CHALLENGE_EXPIRED"


def test_a_change_in_between_is_read_again(bed: Bed) -> None:
    document = render_identity(replace(bed.identity, known_by="enroll"))
    bed.gateway.before_write = lambda: bed.gateway.apply(document)
    assert bed.release().node_name == "w-1"
    assert bed.gateway.writes == 1


def test_a_revocation_in_between_wins(bed: Bed) -> None:
    document = render_identity(bed.identity)
    document["spec"]["admission"] = "Revoked"
    bed.gateway.before_write = lambda: bed.gateway.apply(document)
    assert refused(bed) == "IDENTITY_REVOKED"
    assert bed.status() == {}


def test_an_identity_that_never_stands_still_is_given_up(bed: Bed) -> None:
    def change() -> None:
        bed.gateway.apply(render_identity(bed.identity))
        bed.gateway.before_write = change

    bed.gateway.before_write = change
    assert refused(bed) == "API_CONFLICT"
    assert bed.status() == {}


def test_without_the_api_there_is_neither_challenge_nor_release(bed: Bed) -> None:
    call = bed.exchange()
    bed.gateway.down = True
    assert refused(bed, *call) == "API_UNAVAILABLE"
    with pytest.raises(AttestedError) as caught:
        bed.exchange()
    assert caught.value.code == "API_UNAVAILABLE"


def test_evidence_of_another_connection_is_refused(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    assert refused(bed, replace(channel, exporter=b"x" * 32), request, binding) == "BINDING_MISMATCH"


def test_a_door_opened_by_another_tpm_is_refused(bed: Bed) -> None:
    channel, request, binding = bed.exchange()
    other = SoftTpm()
    evidence = issue_handshake_evidence(
        other, other.ak, spki_sha256=channel.spki_sha256, nonce=channel.peer_nonce, pcrs=(15,)
    )
    assert refused(bed, replace(channel, evidence=evidence), request, binding) == "AK_MISMATCH"


def test_a_reset_within_the_connection_is_refused(bed: Bed) -> None:
    channel = bed.channel()
    bed.tpm.reset()
    _unused, request, binding = bed.exchange()
    assert refused(bed, channel, request, binding) == "TPM_RESET_BETWEEN"


def test_a_rebooted_machine_gets_a_new_ticket(bed: Bed) -> None:
    bed.release()
    bed.tpm.reset()
    released = bed.release()
    assert (released.repeated, released.superseded) == (False, True)
    assert bed.status()["tpm"]["resetCount"] == bed.tpm.clock_info.reset_count


def test_a_tpm_that_was_put_back_is_refused_until_an_admin_forgets_its_counters(bed: Bed) -> None:
    bed.tpm.reset()
    bed.release()
    bed.tpm.clock_info = replace(bed.tpm.clock_info, reset_count=0)
    assert refused(bed) == "TPM_ROLLED_BACK"
    bed.gateway.forget_tpm(bed.identity.name)
    assert bed.release().node_name == "w-1"


def test_evidence_that_other_evidence_has_overtaken_is_not_of_a_tpm_that_was_put_back(bed: Bed) -> None:
    """A machine that asks two control plane nodes, or for a ticket and for its attestation at once."""
    bed.watch()
    slow = bed.exchange()
    bed.release()
    assert refused(bed, *slow) == "API_CONFLICT"
    slow = bed.exchange()
    bed.release()
    assert refused(bed, *slow) == "API_CONFLICT"
    bed.tpm.clock_info = replace(bed.tpm.clock_info, clock=1)
    assert refused(bed) == "TPM_ROLLED_BACK"


# ---- the policy in force


def test_without_a_signed_policy_there_is_neither_challenge_nor_release(bed: Bed) -> None:
    call = bed.exchange()
    bed.gateway.delete(POLICIES, "cluster")
    assert refused(bed, *call) == "POLICY_ABSENT"
    with pytest.raises(AttestedError) as caught:
        bed.exchange()
    assert caught.value.code == "POLICY_ABSENT"


def test_a_profile_that_nobody_signed_admits_nobody(bed: Bed) -> None:
    other = PolicySite(bed.bundle.cluster_id)
    other.generation = 5
    bed.gateway.apply(other.sign([]))
    call = bed.exchange()
    assert refused(bed, *call) == "POLICY_EMPTY"


def test_a_policy_for_another_cluster_is_refused(bed: Bed) -> None:
    call = bed.exchange()
    bed.gateway.apply(PolicySite(b"o" * 32).sign(bed.gateway.objects(PROFILES)))
    assert refused(bed, *call) == "POLICY_SIGNATURE"


def test_an_older_policy_refuses_everyone_until_the_site_is_applied_again(bed: Bed) -> None:
    older = bed.policy
    bed.sign(revoked=["9" * 64])
    bed.release()
    call = bed.exchange()
    bed.gateway.apply(older)
    assert refused(bed, *call) == "POLICY_ROLLED_BACK"
    bed.sign(revoked=["9" * 64])
    assert bed.release().node_name == "w-1"


@pytest.mark.parametrize("sign", [True, False], ids=["signed since", "never signed"])
def test_a_revocation_outlives_its_object(bed: Bed, sign: bool) -> None:
    document = render_identity(bed.identity)
    document["spec"]["admission"] = "Revoked"
    bed.gateway.apply(document)
    assert refused(bed) == "IDENTITY_REVOKED"
    if sign:
        bed.sign(revoked=[bed.identity.ek_sha256])
    call = bed.exchange()
    bed.gateway.delete(IDENTITIES, bed.identity.name)
    bed.gateway.apply(render_identity(bed.identity))
    assert refused(bed, *call) == ("IDENTITY_REVOKED" if sign else "POLICY_ROLLED_BACK")
    assert bed.identity.ek_sha256 in bed.record.all_revoked()


def test_the_judged_values_are_kept_for_the_next_policy(bed: Bed) -> None:
    bed.release()
    kept = bed.status()["lastAttestation"]["registers"]
    assert kept == [{"pcr": pcr, "sha256": bed.boot.pcrs[pcr].hex()} for pcr in (0, 4, 7, 9, 11)]


@pytest.fixture
def service(bed: Bed) -> KeyService:
    return bed.service()


def test_the_service_turns_every_error_into_a_refusal(service: KeyService, bed: Bed) -> None:
    def broken(request: bytes) -> bytes:
        raise RuntimeError("a bug")

    bed.releaser.challenge = broken  # type: ignore[method-assign]
    message = message_class(REQUEST)()
    message.challenge.request = b"x"
    for data, code in (
        (message.SerializeToString(), "INTERNAL"),
        (b"\xff", "MESSAGE_MALFORMED"),
        (b"", "MESSAGE_MALFORMED"),
    ):
        with pytest.raises(AttestedError) as caught:
            answer_of(service.answer(data))
        assert caught.value.code == code
        assert "a bug" not in caught.value.message


def test_the_service_says_that_it_is_open(service: KeyService, bed: Bed) -> None:
    message = message_class(REQUEST)()
    message.health.SetInParent()
    health: Any = answer_of(service.answer(message.SerializeToString()))
    assert (health.health.ready, health.health.cluster_id) == (True, bed.bundle.cluster_id)


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_program_describes_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([word])
    assert caught.value.code == 0
    assert "attested-key-service" in capsys.readouterr().out


def test_the_program_names_what_is_missing(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "key.yml"
    config.write_text(
        f'{{"node_name": "cp-1", "api_server": "https://x", "api_endpoint": "x:1", "runtime_directory": "{tmp_path}"}}'
    )
    assert main(["--config", str(config)]) == 1
    assert "KEYS_ABSENT" in capsys.readouterr().err


@pytest.fixture
def chip(bed: Bed) -> Bed:
    """A machine of which both keys are enrolled, and that shows the second one from now on."""
    second = bed.tpm.another_ek()
    bed.identity = replace(bed.identity, ek_alias=second.public.spki_sha256())
    bed.gateway.apply(render_identity(bed.identity))
    bed.tpm.ek = second
    return bed


def test_the_second_key_of_a_machine_is_the_same_machine(chip: Bed) -> None:
    """Its name, disk and status are those of the one identity, and the log says which key came."""
    first, second = chip.identity.keys
    assert chip.release().node_name == "w-1"
    assert chip.notes == {"ek": second, "proven": "yes", "node": "w-1", "identity": chip.identity.name}
    assert chip.identity.name == f"ek-{first[:20]}"
    assert chip.status()["tickets"]["issued"] == 1


def test_a_ticket_is_repeated_over_the_other_key(bed: Bed) -> None:
    """Tickets in memory are kept a machine, not a key."""
    second = bed.tpm.another_ek()
    bed.gateway.apply(render_identity(replace(bed.identity, ek_alias=second.public.spki_sha256())))
    assert not bed.release().repeated
    bed.tpm.ek = second
    assert bed.release().repeated
    assert bed.status()["tickets"]["issued"] == 1


def test_both_keys_share_the_machines_rate(bed: Bed) -> None:
    second = bed.tpm.another_ek()
    bed.gateway.apply(render_identity(replace(bed.identity, ek_alias=second.public.spki_sha256())))
    bed.rate.configure(rate=0.5, burst=1)
    bed.release()
    bed.tpm.ek = second
    assert refused(bed) == "IDENTITY_RATE"


def test_a_revoked_machine_is_refused_by_both_keys_and_for_ever(chip: Bed) -> None:
    """Also when its object is gone, and its second key is written down as another machine's."""
    document = render_identity(replace(chip.identity, admission=Admission.REVOKED))
    chip.gateway.apply(document)
    code, (one,) = asked_of_the_service(chip, *chip.exchange())
    assert (code, one.machine, one.ek_sha256) == ("IDENTITY_REVOKED", chip.identity.name, chip.identity.ek_alias)
    assert set(chip.identity.keys) <= chip.record.current().seen.revoked
    chip.sign(revoked=chip.identity.keys)
    chip.gateway.delete(IDENTITIES, chip.identity.name)
    chip.gateway.apply(render_identity(identity_of(chip.tpm.ek, "w-9")))
    assert refused(chip) == "IDENTITY_REVOKED"


def test_an_alias_that_is_another_machines_key_lets_neither_in(chip: Bed) -> None:
    other = identity_of(chip.tpm.ek, "w-2")
    chip.gateway.apply(render_identity(other))
    code, (one,) = asked_of_the_service(chip, *chip.exchange())
    assert code == one.reason == "EK_ALIAS_TAKEN"
    assert all(name in one.message for name in (chip.identity.name, other.name))


def test_the_second_key_counts_only_with_the_machines_own_attestation_key(chip: Bed) -> None:
    """The pinned attestation key is the machine's, whichever of its endorsement keys it shows."""
    assert chip.release().node_name == "w-1"
    other = SoftTpm()
    chip.tpm.ak, chip.tpm._ak_key = other.ak, other._ak_key
    assert refused(chip) == "AK_NOT_PINNED"
