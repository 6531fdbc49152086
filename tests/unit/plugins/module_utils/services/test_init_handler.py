# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's side of init: a good request, and the same one with one point changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, KubeadmError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest, answer
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.services import exchanges
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_admin import make_admin_key, prove_admin
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    Failure,
    Progress,
    Success,
    parse_response,
)
from ansible_collections.attested.kubernetes.tests.support.brought import packed
from ansible_collections.attested.kubernetes.tests.support.init_bed import (
    EXPORTER,
    KUBECONFIG,
    SPKI,
    InitBed,
    Waiting,
    failing,
    make_keys,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import FakeClock
from cryptography import x509
from cryptography.hazmat.primitives import serialization

KUBEADM_FAILED = KubeadmError("expected phase certs to end well", reason=Reason.KUBEADM_PHASE_FAILED)


@pytest.fixture
def bed():
    return InitBed()


def said(bed, handle):
    return [parse_response(one) for one in bed.followed(handle)]


def refused(bed, asked):
    """Return the code of a request whose sender is not known: the peer gets no more than its coarse text."""
    with pytest.raises(AttestedError) as caught:
        bed.desk.begin(asked)
    assert bed.founding.founded == []
    return Coded(caught.value)


def failed(bed, handle):
    """Return the code that an admin who is known is told."""
    (failure,) = [one for one in said(bed, handle) if isinstance(one, Failure)]
    return Coded(failure)


def test_a_good_request_makes_the_cluster(bed):
    *progress, last = said(bed, bed.begun())
    assert last == Success(kubeconfig=KUBECONFIG, cluster_id=bed.cluster_id)
    assert [(one.stage, one.task) for one in progress if isinstance(one, Progress)] == [
        ("Make the cluster", "Set up the control plane")
    ]
    order, bundle, digest, judged = bed.founding.founded[0]
    assert (order.cluster_name, bundle, len(digest)) == ("prod", bed.bundle, 64)
    assert judged[0] == bed.boot.pcrs[0]


def test_a_machine_that_is_locked_between_its_logs_and_the_quote_answers_once_more(bed, monkeypatch):
    """Logs of before and a quote of after explain nothing, and the admin would read of a foreign lock."""
    good, answered = bed.logs, []

    def locked_meanwhile(*given, **known):
        answered.append(known["logs"])
        bed.logs = good
        return answer(*given, **known)

    bed.logs = replace(good, userspace=b"")
    monkeypatch.setattr(exchanges, "answer", locked_meanwhile)
    bed.judged()
    assert [logs == good for logs in answered] == [False, True]


# ---- who asks


def test_without_an_admins_proof_nothing_begins(bed):
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified, admin_proof=b"")) == "ADMIN_UNAUTHENTICATED"


def test_constellations_init_secret_is_no_proof(bed):
    """Field 8 is reserved: whatever it holds, the request needs a certificate."""
    verified = bed.judged()
    secret = b"\x42\x06secret"
    asked = bed.asked(bed.order(verified), verified, admin_proof=b"")
    assert refused(bed, replace(asked, request=asked.request + secret)) == "ADMIN_UNAUTHENTICATED"


def test_a_request_that_was_changed_on_its_way_is_refused(bed):
    verified = bed.judged()
    asked = bed.asked(bed.order(verified), verified)
    changed = bed.order(verified, kubernetes_version="1.30.0").to_bytes()
    assert refused(bed, replace(asked, request=changed)) == "ADMIN_SIGNATURE"


def test_a_signature_over_another_exchange_is_refused(bed):
    old = bed.judged()
    verified = bed.judged()
    order = bed.order(verified)
    proof = prove_admin(bed.admin, binding=old.machine.binding, request=order.to_bytes())
    assert refused(bed, bed.asked(order, verified, admin_proof=proof)) == "ADMIN_SIGNATURE"


def test_an_admin_of_another_ca_is_refused(bed):
    ca, _bundle = make_keys()
    bed.admin = make_admin_key(ca=ca, cluster_id=bed.cluster_id, now=bed.clock.now())
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified)) == "ADMIN_CERTIFICATE_UNTRUSTED"


def test_an_admin_of_another_cluster_under_the_same_ca_is_refused(bed):
    bed.admin = make_admin_key(ca=bed.ca, cluster_id=bytes(32), now=bed.clock.now())
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified)) == "ADMIN_CERTIFICATE_UNTRUSTED"


def test_the_join_ca_itself_is_no_admin(bed):
    der = x509.load_pem_x509_certificate(bed.ca.certificate).public_bytes(serialization.Encoding.DER)
    bed.admin = replace(bed.admin, certificate=der)
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified)) == "ADMIN_CERTIFICATE_MALFORMED"


@pytest.mark.parametrize("certificate", [b"", b"no certificate"])
def test_a_certificate_that_is_none_is_refused(bed, certificate):
    bed.admin = replace(bed.admin, certificate=certificate)
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified)) == "ADMIN_CERTIFICATE_MALFORMED"


def test_a_certificate_of_no_known_version_is_refused(bed):
    """Found by the fuzzer: the library has an error of its own for it."""
    version = bytes.fromhex("a003020102")
    assert version in bed.admin.certificate
    bed.admin = replace(bed.admin, certificate=bed.admin.certificate.replace(version, version[:-1] + b"\x0a"))
    verified = bed.judged()
    assert refused(bed, bed.asked(bed.order(verified), verified)) == "ADMIN_CERTIFICATE_MALFORMED"


def test_a_clock_that_is_days_off_is_named():
    bed = InitBed(clock=FakeClock())
    verified = bed.judged()
    asked = bed.asked(bed.order(verified), verified)
    bed.clock.elapsed = 240.0
    bed.admin = make_admin_key(ca=bed.ca, cluster_id=bed.cluster_id, now=bed.clock.now().replace(year=2027))
    asked = bed.asked(bed.order(verified), verified)
    with pytest.raises(AttestedError, match="by this machine's clock") as caught:
        bed.desk.begin(asked)
    assert caught.value.code == "ADMIN_CERTIFICATE_EXPIRED"


def with_admins_clock(bed, off):
    """An admin whose clock is off by so much makes a new key and asks."""
    bed.admin = make_admin_key(ca=bed.ca, cluster_id=bed.cluster_id, now=bed.clock.now() + off)
    verified = bed.judged()
    return bed.asked(bed.order(verified), verified)


@pytest.mark.parametrize("hours", [-1, 1], ids=["an hour behind", "an hour ahead"])
def test_an_admins_clock_may_be_an_hour_off(bed, hours):
    *_progress, last = said(bed, bed.desk.begin(with_admins_clock(bed, timedelta(hours=hours))))
    assert last == Success(kubeconfig=KUBECONFIG, cluster_id=bed.cluster_id)


@pytest.mark.parametrize("days", [-365, 365], ids=["a year behind", "a year ahead"])
def test_an_admins_clock_that_is_a_year_off_is_named_and_the_next_try_succeeds(bed, days):
    with pytest.raises(AttestedError, match="by this machine's clock, got one from 20") as caught:
        bed.desk.begin(with_admins_clock(bed, timedelta(days=days)))
    assert caught.value.code == "ADMIN_CERTIFICATE_EXPIRED"
    assert bed.founding.founded == []
    assert isinstance(said(bed, bed.desk.begin(with_admins_clock(bed, timedelta())))[-1], Success)


# ---- the exchange


def test_the_master_secret_in_clear_is_refused(bed):
    verified = bed.judged()
    message = message_class("init.InitRequest").FromString(bed.order(verified).to_bytes())
    message.kms_uri = "kms://cluster-kms?key=a2V5&salt=c2FsdA=="
    asked = bed.asked(bed.order(verified), verified, request=message.SerializeToString())
    assert refused(bed, asked) == "SECRETS_IN_CLEAR: the master secret sealed"


def test_a_request_over_another_connection_is_refused(bed):
    verified = bed.judged()
    asked = bed.asked(bed.order(verified), verified, exporter=b"f" * 32)
    assert refused(bed, asked) == "CHANNEL_NOT_BOUND"
    assert isinstance(said(bed, bed.desk.begin(replace(asked, exporter=EXPORTER)))[-1], Success)


@pytest.mark.parametrize("elapsed", [pytest.param(0, id="unknown"), pytest.param(301, id="too old")])
def test_an_exchange_that_is_not_open_is_refused(elapsed):
    bed = InitBed(clock=FakeClock())
    verified = bed.judged()
    bed.clock.elapsed += elapsed
    order = bed.order(verified) if elapsed else bed.order(verified, challenge_id=b"x" * 16)
    assert refused(bed, bed.asked(order, verified)) == "CHALLENGE_UNKNOWN"


def test_an_exchange_is_used_once(bed):
    verified = bed.judged()
    asked = bed.asked(bed.order(verified), verified)
    said(bed, bed.desk.begin(asked))
    with pytest.raises(AttestedError) as caught:
        bed.desk.begin(asked)
    assert caught.value.code == "CHALLENGE_UNKNOWN"


def test_who_asks_for_evidence_without_an_end_costs_nobody_else_his_exchange(bed):
    """Too many exchanges are open: the oldest of the source that has the most is forgotten."""
    verified = bed.judged()
    asked = bed.asked(bed.order(verified), verified)
    first = bed.challenge_id
    for number in range(200):
        challenge, _record = bed.question().challenge(ChallengeRequest.parse(bed.desk.identity()))
        bed.desk.testimony(challenge.to_bytes(), exporter=EXPORTER, spki_sha256=SPKI, source="198.51.100.1")
        assert len(bed.desk._exchanges._open) == min(number + 2, 128)
    assert first in bed.desk._exchanges._open
    assert isinstance(said(bed, bed.desk.begin(asked))[-1], Success)


def test_evidence_needs_a_channel(bed):
    challenge, _record = bed.question().challenge(ChallengeRequest.parse(bed.desk.identity()))
    with pytest.raises(AttestedError) as caught:
        bed.desk.testimony(challenge.to_bytes(), exporter=b"", spki_sha256=b"")
    assert caught.value.code == "BINDING_MALFORMED"


# ---- what an admin who is known hears


def test_a_box_for_another_machine_is_named(bed):
    other = InitBed()
    verified = bed.judged()
    order = bed.order(verified, sealed=other.judged().machine.seal(bed.bundle.to_bytes()))
    assert failed(bed, bed.desk.begin(bed.asked(order, verified))) == "SEAL_UNOPENABLE"


def test_keys_of_another_cluster_are_named(bed):
    _ca, bundle = make_keys(bed.ca)
    verified = bed.judged()
    assert failed(bed, bed.desk.begin(bed.asked(bed.order(verified, bundle=bundle), verified))) == "CLUSTER_ID_MISMATCH"
    assert bed.founding.founded == []


def test_the_same_request_finds_the_running_job_and_another_is_refused(bed):
    waiting = Waiting()
    bed.founding.acts = [waiting]
    first = bed.begun()
    assert waiting.begun.wait(timeout=60)
    again, other = bed.begun(), bed.begun(kubernetes_version="1.36.0")
    assert failed(bed, other) == "INIT_REQUEST_DIFFERS"
    waiting.go_on.set()
    assert said(bed, first) == said(bed, again)
    assert len(bed.founding.founded) == 1
    assert isinstance(said(bed, bed.begun())[-1], Success)
    assert len(bed.founding.founded) == 1


def test_another_policy_of_the_site_is_no_other_request(bed):
    """It follows the running job, whose policy is the first one."""
    waiting = Waiting()
    bed.founding.acts = [waiting]
    first = bed.begun(**packed(bed.cluster_id))
    assert waiting.begun.wait(timeout=60)
    again = bed.begun(**packed(bed.cluster_id, generation=2))
    waiting.go_on.set()
    assert said(bed, first) == said(bed, again)
    assert [order.policy for order, *_others in bed.founding.founded] == [packed(bed.cluster_id)["policy"]]


def test_a_failed_init_goes_on_with_the_policy_that_the_site_has_by_then(bed):
    bed.founding.acts = [failing(KUBEADM_FAILED), lambda _teller: None]
    assert failed(bed, bed.begun(**packed(bed.cluster_id))) == "KUBEADM_PHASE_FAILED"
    newer = packed(bed.cluster_id, generation=2)
    assert isinstance(said(bed, bed.begun(**newer))[-1], Success)
    (_first, *_more), (order, *_others) = bed.founding.founded
    assert (order.policy, order.policy_objects) == (newer["policy"], newer["policy_objects"])


def test_the_same_request_goes_on_after_a_failure(bed):
    bed.founding.acts = [failing(KUBEADM_FAILED), lambda _teller: None]
    assert failed(bed, bed.begun()) == "KUBEADM_PHASE_FAILED"
    assert isinstance(said(bed, bed.begun())[-1], Success)
    first, second = bed.founding.founded
    assert first[2] == second[2]


def test_the_last_lines_come_back_redacted(bed):
    master = bed.bundle.master.key.reveal()
    bed.founding.acts = [failing(KUBEADM_FAILED, "phase certs", f"wrote {master.hex()}", "password=hunter22")]
    _step, failure, lines = said(bed, bed.begun())
    assert (failure.stage, failure.task) == ("Make the cluster", "Set up the control plane")
    assert lines == "phase certs\nwrote [redacted]\npassword=[redacted]"


def test_an_error_that_nobody_expected_ends_the_job_too(bed):
    bed.founding.acts = [failing(ZeroDivisionError("secret detail"))]
    answers = said(bed, bed.begun())
    assert answers[-1].code == "INTERNAL"
    assert "secret detail" not in answers[-1].message


def test_a_handle_of_nobody_is_refused(bed):
    with pytest.raises(AttestedError) as caught:
        bed.desk.follow(b"x" * 16, 0, wait_seconds=0)
    assert caught.value.code == "INIT_HANDLE_UNKNOWN"
