# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of init by themselves: messages, sameness of requests, redaction, jobs."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import MAX_LINE, MAX_LINES, redact
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_handler import MAX_PROGRESS, Job
from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    MAX_ORDER_BYTES,
    MAX_POLICY_BYTES,
    MAX_REQUEST_BYTES,
    Component,
    Failure,
    InitOrder,
    Progress,
    Success,
    digest_of,
    parse_response,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from hypothesis import given
from hypothesis import strategies as st

CLUSTER = bytes(range(32))
ORDER = InitOrder(
    cluster_name="prod",
    kubernetes_version="1.35.4",
    service_cidr="10.96.0.0/16",
    measurement_salt=b"m" * 32,
    challenge_id=b"c" * 16,
    sealed=b"box",
    extra_sans=("a", "b"),
    components=(Component(url="file:///kubelet", hash="sha256:00", install_path="/usr/bin/kubelet"),),
    admin_request=b"request",
    policy=b'{"kind":"AttestationPolicy"}',
    policy_objects=b"[]",
)


def code_of(call, *arguments):
    with pytest.raises(AttestedError) as caught:
        call(*arguments)
    return Coded(caught.value)


# ---- messages


HOSTILE = "a\tb\x1b[2J\u202ec\nd"
SHOWN = "a       b\\x1b[2J\\u202ec"


def test_what_a_terminal_would_obey_does_not_come_through():
    step = parse_response(Progress(stage=HOSTILE, task=HOSTILE, elapsed_seconds=1.0).to_bytes())
    failure = Failure(code="X", message=HOSTILE, hint=HOSTILE, stage=HOSTILE, task=HOSTILE, log=HOSTILE)
    failed, log = map(parse_response, failure.to_messages())
    assert (step.stage, step.task) == (f"{SHOWN} d", f"{SHOWN} d")
    assert (failed.message, failed.hint, failed.stage) == (f"{SHOWN}\nd", f"{SHOWN}\nd", f"{SHOWN} d")
    assert log == f"{SHOWN}\nd"


def test_an_order_survives_the_wire():
    assert InitOrder.parse(ORDER.to_bytes()) == ORDER


def test_an_order_without_a_policy_is_the_one_that_it_always_was():
    """Whoever knows nothing of the two fields sends these bytes, and reads past them where they are there."""
    plain = replace(ORDER, policy=b"", policy_objects=b"")
    assert ORDER.to_bytes().startswith(plain.to_bytes())
    assert InitOrder.parse(plain.to_bytes()) == plain


def test_a_policy_may_be_as_large_as_it_says():
    order = replace(ORDER, policy=b"p" * (MAX_POLICY_BYTES - 2), policy_objects=b"[]")
    assert InitOrder.parse(order.to_bytes()) == order
    assert len(order.to_bytes()) < MAX_REQUEST_BYTES


@pytest.mark.parametrize(
    ("number", "value"),
    [
        pytest.param(5, "1.35.4", id="kubernetes_version"),
        pytest.param(9, "prod", id="cluster_name"),
        pytest.param(11, "10.96.0.0/16", id="service_cidr"),
        pytest.param(3, "m" * 32, id="measurement_salt"),
    ],
)
def test_the_ancestors_numbers_are_kept(number, value):
    """A field of bytes or text is one tag byte, one length byte, the value."""
    data = value.encode()
    assert bytes([number << 3 | 2, len(data)]) + data in ORDER.to_bytes()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\xff", "MESSAGE_MALFORMED", id="no message"),
        pytest.param(b"\0" * (MAX_REQUEST_BYTES + 1), "MESSAGE_TOO_LARGE", id="too large"),
        pytest.param(replace(ORDER, policy=b"p" * MAX_POLICY_BYTES).to_bytes(), "MESSAGE_TOO_LARGE", id="policy"),
        pytest.param(replace(ORDER, sealed=b"s" * MAX_ORDER_BYTES).to_bytes(), "MESSAGE_TOO_LARGE", id="box"),
        pytest.param(replace(ORDER, extra_sans=("a",) * 65).to_bytes(), "MESSAGE_TOO_LARGE", id="too many names"),
        pytest.param(replace(ORDER, cluster_name="a" * 2049).to_bytes(), "MESSAGE_TOO_LARGE", id="a long name"),
        pytest.param(
            message_class("init.InitRequest")(kms_uri="kms://x").SerializeToString(),
            "SECRETS_IN_CLEAR: the master secret sealed",
            id="master secret",
        ),
        pytest.param(
            message_class("init.InitRequest")(storage_uri="s://x").SerializeToString(),
            "SECRETS_IN_CLEAR: the master secret sealed",
            id="storage",
        ),
    ],
)
def test_another_order_is_refused(data, code):
    assert code_of(InitOrder.parse, data) == code


@pytest.mark.parametrize(
    "said",
    [
        Progress(stage="s", task="t", elapsed_seconds=1.5),
        Success(kubeconfig=b"k", cluster_id=CLUSTER),
        Success(kubeconfig=b"k", cluster_id=CLUSTER, policy_generation=7),
        Failure(code="RACE_LOST", message="m", hint="h", stage="s", task="t"),
    ],
)
def test_an_answer_survives_the_wire(said):
    messages = said.to_messages() if isinstance(said, Failure) else (said.to_bytes(),)
    assert [parse_response(one) for one in messages] == [said]


def test_an_empty_answer_is_refused():
    assert code_of(parse_response, b"") == "MESSAGE_MALFORMED"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(ORDER, challenge_id=b"d" * 16), id="another exchange"),
        pytest.param(replace(ORDER, sealed=b"another box"), id="sealed anew"),
        pytest.param(replace(ORDER, admin_request=b""), id="another admin's key"),
        pytest.param(replace(ORDER, policy=b"of another day", policy_objects=b"[{}]"), id="another policy"),
        pytest.param(replace(ORDER, policy=b"", policy_objects=b""), id="no policy, as older admins have none"),
    ],
)
def test_the_same_request_in_another_exchange_is_the_same(other):
    assert digest_of(other.to_bytes(), cluster_id=CLUSTER) == digest_of(ORDER.to_bytes(), cluster_id=CLUSTER)


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_name": "q"},
        {"kubernetes_version": "1.36.0"},
        {"service_cidr": "10.97.0.0/16"},
        {"measurement_salt": b"n" * 32},
        {"extra_sans": ("ab",)},
        {"components": ()},
        {"conformance_mode": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_for_something_else_is_another(change):
    other = replace(ORDER, **change).to_bytes()
    assert digest_of(other, cluster_id=CLUSTER) != digest_of(ORDER.to_bytes(), cluster_id=CLUSTER)


def test_the_same_words_for_another_cluster_are_another_request():
    assert digest_of(ORDER.to_bytes(), cluster_id=bytes(32)) != digest_of(ORDER.to_bytes(), cluster_id=CLUSTER)


# ---- redaction

KEY = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain words", "plain words", id="nothing to hide"),
        pytest.param(f"a\n{KEY}\nb", "a\n[redacted]\nb", id="a private key"),
        pytest.param(KEY[:40], "[redacted]", id="the beginning of one"),
        pytest.param(KEY[30:] + "\nb", "[redacted]\nb", id="the end of one"),
        pytest.param("use abcdef.0123456789abcdef now", "use [redacted] now", id="a bootstrap token"),
        pytest.param("Authorization: Bearer abc.def-ghi", "Authorization: [redacted]", id="a bearer"),
        pytest.param("eyJhbGciOiJI.eyJzdWIi.c2ln", "[redacted]", id="a web token"),
        pytest.param('{"password": "a b", "x": 1}', '{"password": [redacted], "x": 1}', id="a named one in JSON"),
        pytest.param("--certificate-key=0011", "--certificate-key=[redacted]", id="an option"),
        pytest.param("client-key-data: QUJD", "client-key-data:[redacted]", id="a kubeconfig"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text, shown):
    assert redact(text.split("\n")) == shown


@given(st.binary(min_size=6, max_size=64), st.sampled_from(["hex", "base64", "urlsafe", "unpadded"]))
def test_a_known_secret_is_hidden_in_every_spelling(secret, spelling):
    spelt = {
        "hex": secret.hex(),
        "base64": base64.b64encode(secret).decode(),
        "urlsafe": base64.urlsafe_b64encode(secret).decode(),
        "unpadded": base64.b64encode(secret).decode().rstrip("="),
    }[spelling]
    assert spelt not in redact([f"before {spelt} after"], secrets=[secret])


def test_a_step_shows_its_last_lines_only():
    shown = redact([f"line {number}" for number in range(1000)]).splitlines()
    assert (len(shown), shown[-1]) == (MAX_LINES, "line 999")
    assert len(redact(["a" * 10_000])) == MAX_LINE + 1


# ---- jobs


def test_a_job_keeps_no_more_than_it_may_and_always_its_end():
    job = Job("0" * 64)
    for _number in range(MAX_PROGRESS + 10):
        job.add(b"x")
    job.end(b"end", failed=False)
    heard, ended = job.follow(0, wait_seconds=0)
    assert (len(heard), heard[-1], ended) == (MAX_PROGRESS + 1, b"end", True)


def test_who_follows_hears_only_what_is_new():
    job = Job("0" * 64)
    job.add(b"one")
    job.add(b"two")
    assert job.follow(1, wait_seconds=0) == ((b"two",), False)
    assert job.follow(2, wait_seconds=0) == ((), False)
