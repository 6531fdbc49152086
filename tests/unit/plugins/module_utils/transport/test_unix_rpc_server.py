# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions of a unix socket: which are answered, what the log says of them, what a caller learns of an error."""

from __future__ import annotations

import io
import json
import socket
import threading

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import (
    RpcSchema,
    RpcService,
    Service,
    answer_of,
    call_and_wait,
)

REQUEST, RESPONSE = "attested.v1.InitSocketRequest", "attested.v1.InitSocketResponse"
SCHEMA = RpcSchema(
    name="init",
    request=REQUEST,
    response=RESPONSE,
    logged=("correlation_id", "source"),
    titles={"begin": "start"},
    unlogged=frozenset({"follow"}),
    question_bytes=256,
)
DOWN = Refusal("expected a TPM, got none", reason=Reason.TPM_UNREACHABLE, retry_after_seconds=1.5)


def identify(_asked, response):
    response.identity = b"identity"


def begin(asked, response):
    asked.line.set(size=len(asked.message.request))
    response.handle = asked.message.request + bytes([asked.gone()])


def refuse(_asked, _response):
    raise DOWN


def fail(_asked, _response):
    raise ZeroDivisionError("of the program")


@pytest.fixture
def stream():
    return io.StringIO()


def service(stream, **answers):
    return RpcService(SCHEMA, answers, log=Log(stream, as_json=True, clock=SystemClock()))


def question(kind, **fields):
    message = message_class(REQUEST)(correlation_id="c-1", source="192.0.2.7")
    getattr(message, kind).SetInParent()
    for name, value in fields.items():
        setattr(getattr(message, kind), name, value)
    return message.SerializeToString()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_question_is_answered_by_its_function_and_is_one_line_of_the_log(stream):
    answer = service(stream, begin=begin).answer(question("begin", request=b"abc"), lambda: True)
    assert answer_of(answer, RESPONSE).handle == b"abc\x01"
    (line,) = lines(stream)
    said = {name: line[name] for name in ("event", "correlation_id", "source", "size", "outcome")}
    assert said == {
        "event": "init_start",
        "correlation_id": "c-1",
        "source": "192.0.2.7",
        "size": 3,
        "outcome": "ok",
    }


def test_a_question_that_is_no_line_of_the_log_is_answered_too(stream):
    def follow(_asked, response):
        response.followed.ended = True

    assert answer_of(service(stream, follow=follow).answer(question("follow")), RESPONSE).followed.ended
    assert lines(stream) == []


@pytest.mark.parametrize(
    ("answers", "data", "code", "events"),
    [
        pytest.param({"begin": begin}, question("identify"), "MESSAGE_MALFORMED", 1, id="a question of another table"),
        pytest.param({"begin": begin}, b"", "MESSAGE_MALFORMED", 1, id="no question"),
        pytest.param({"begin": begin}, b"\xff", "MESSAGE_MALFORMED", 0, id="no message"),
        pytest.param(
            {"begin": begin},
            question("begin", request=bytes(256)),
            "MESSAGE_TOO_LARGE",
            0,
            id="more than a question has",
        ),
        pytest.param({"identify": refuse}, question("identify"), "TPM_UNREACHABLE", 1, id="a refusal"),
        pytest.param({"identify": fail}, question("identify"), "INTERNAL", 1, id="a fault of the program"),
    ],
)
def test_every_error_becomes_a_refusal(stream, answers, data, code, events):
    with pytest.raises(AttestedError) as caught:
        answer_of(service(stream, **answers).answer(data), RESPONSE)
    assert caught.value.code == code
    assert len(lines(stream)) == events
    assert "of the program" not in caught.value.message


def test_a_refusal_says_when_to_ask_again(stream):
    with pytest.raises(AttestedError) as caught:
        answer_of(service(stream, identify=refuse).answer(question("identify")), RESPONSE)
    assert (caught.value.message, caught.value.retry_after_seconds) == (DOWN.message, 1.5)


async def test_questions_are_answered_in_threads(stream):
    seen = []

    def where(asked, response):
        seen.append((threading.current_thread().name, asked.gone()))
        identify(asked, response)

    served = service(stream, identify=where)
    assert answer_of(await served.handle(question("identify")), RESPONSE).identity == b"identity"
    served.close()
    assert seen == [("init_0", False)]


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", b"\x00\x00\x00\x05half"])
def test_a_caller_that_waits_is_told_of_an_answer_that_ends_early(tmp_path, sent):
    def answer():
        connection, _address = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(sent)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        answering = threading.Thread(target=answer)
        answering.start()
        there = Service(path=tmp_path / "s", name="the witness", absent=Reason.WITNESS_UNREACHABLE, timeout_seconds=5.0)
        with pytest.raises(AttestedError) as caught:
            call_and_wait(there, message_class(REQUEST)())
        answering.join()
    assert caught.value.code == "WITNESS_UNREACHABLE"
