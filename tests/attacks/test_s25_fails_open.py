# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S25: an exception at every step of verifier, key service and API client: none ends in a pass, none leaves a trace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keys import kubelet
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.credential import MintedCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.framing import REQUEST, answer_of
from ansible_collections.attested.kubernetes.plugins.module_utils.keys.kubelet import ClusterCa
from ansible_collections.attested.kubernetes.plugins.module_utils.kube import ApiGateway, LivePolicy, StatusWriter
from ansible_collections.attested.kubernetes.plugins.module_utils.policy import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.proto import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.system import SystemClock
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.faults import (
    BEGIN,
    InjectedError,
    NotReachedError,
    Step,
    steps_of,
    with_fault,
)
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.join.test_ticket import Node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

THREAT = Threat(
    id="S25",
    title="Verifier fails open",
    case="CVE-2022-3500, CVE-2023-3674",
    bed="api",
    stops=(
        ("keys/releaser.py", ""),
        ("keys/calls.py", "INTERNAL"),
        ("kube/live.py", "API_UNAVAILABLE"),
    ),
)

WRITES = "FakeGateway.patch_status"


def raised(step: Step, work: Callable[[], object], error: Exception | None = None) -> str:
    """Return "" if the fault came out of ``work``, else what happened instead."""
    fault = error or InjectedError("a bug")
    try:
        result = with_fault(step, work, fault)
    except type(fault):
        return ""
    except AttestedError as refusal:
        return "" if refusal.__cause__ is fault or refusal.__context__ is fault else f"{step}: {refusal.code}"
    return f"{step}: passed with {type(result).__name__}"


def test_every_step_of_the_verification(exchange: Exchange, counted: Callable[[str], None]) -> None:
    """Whatever fails, the fault comes out: there is no verified object."""
    challenge, record = exchange.challenged()
    given = exchange.answered(challenge)
    steps = steps_of(lambda: exchange.verified(given, record))
    counted(f"verification: {len(steps)} steps with a fault each")
    assert len(steps) > 200
    assert [text for step in steps if (text := raised(step, lambda: exchange.verified(given, record)))] == []
    assert exchange.verified(given, record).identity.node_name == "w-1"


def released(bed: Bed) -> Callable[[], object]:
    """Return a release that was made ready, challenge and all."""
    call = bed.exchange()
    return lambda: bed.release(*call)


def at_the_write(bed: Bed, steps: list[Step]) -> int:
    """Return how many of the steps begin before the status is written: by trying."""
    early = [n for n, step in enumerate(steps) if step.when == BEGIN and step.code.co_qualname == "StatusWriter.write"]
    return early[0]


def test_every_step_of_a_release_before_its_write(counted: Callable[[str], None]) -> None:
    """Nothing is written, kept, derived or given; and the next try of the same machine is good."""
    steps = steps_of(released(Bed()))
    early = steps[: at_the_write(Bed(), steps)]
    bed, wrong = Bed(), []
    assert len(early) > 200
    for step in early:
        try:
            text = raised(step, released(bed))
        except NotReachedError:  # the profiles were read before
            bed = Bed()
            text = raised(step, released(bed))
        wrong += [text] if text else []
        if (bed.gateway.writes, bed.status(), bed.releaser._held) != (0, {}, {}):
            wrong.append(f"{step}: something was written or kept")
            bed = Bed()
    counted(f"release: {len(early)} steps with a fault each before the write, of {len(steps)}")
    assert wrong == []
    assert bed.release().node_name == "w-1"


def test_every_step_of_a_release_from_its_write_on(counted: Callable[[str], None]) -> None:
    """No ticket comes out; what was written once is the same at the next try, which is good."""
    steps = steps_of(released(Bed()))
    wrong = []
    late = steps[at_the_write(Bed(), steps) :]
    assert len(late) > 40
    for step in late:
        bed = Bed()
        text = raised(step, released(bed))
        disk = bed.status().get("diskId")
        again = bed.release()
        if text or bed.gateway.writes > 2 or (disk and bed.status()["diskId"] != disk) or again.node_name != "w-1":
            wrong.append(text or f"{step}: the next try found something else")
    counted(f"release: {len(late)} steps with a fault each from the write on")
    assert wrong == []


def test_every_step_of_a_challenge() -> None:
    bed = Bed()
    asked = _challenge_request(bed)
    steps = steps_of(lambda: bed.releaser.challenge(asked))
    assert len(steps) > 30
    wrong = []
    for step in steps:
        fresh = Bed()
        wrong.append(raised(step, lambda fresh=fresh: fresh.releaser.challenge(_challenge_request(fresh))))
    assert set(wrong) == {""}
    assert bed.release().node_name == "w-1"


def _challenge_request(bed: Bed) -> bytes:
    message = message_class("attested.v1.ChallengeRequest")(
        ek_public=bed.tpm.ek.public.marshal(), ak_public=bed.tpm.ak.public.marshal(), protocol_version=1
    )
    return bytes(message.SerializeToString())


def test_the_service_answers_every_fault_with_a_refusal() -> None:
    """On the socket: an answer that carries a ticket never follows a fault."""
    bed = Bed()
    service = bed.service()

    def message() -> bytes:
        channel, request, binding = bed.exchange()
        made = message_class(REQUEST)()
        made.release.channel.CopyFrom(channel.to_message())
        made.release.request, made.release.binding = request, binding
        return bytes(made.SerializeToString())

    first = message()
    steps = [step for step in steps_of(lambda: service.answer(first)) if step.file == "keys/calls.py"]
    good: Any = answer_of(service.answer(message()))
    assert good.ticket.ticket
    codes = []
    for step in steps:
        sent = message()
        try:
            answer = with_fault(step, lambda sent=sent: service.answer(sent), InjectedError("x"))
            codes.append(code_of(lambda answer=answer: answer_of(answer)))
        except InjectedError:
            codes.append("no answer")  # the connection ends without one
    assert set(codes) == {"INTERNAL", "no answer"}
    assert "INTERNAL" in codes


@pytest.mark.parametrize("what", ["objects", "patch_status", "object"])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ApiError("away", reason=Reason.API_UNAVAILABLE), id="the API is away"),
        pytest.param(InjectedError("a bug"), id="a bug"),
        pytest.param(TimeoutError(), id="a timeout"),
        pytest.param(MemoryError(), id="no memory"),
    ],
)
def test_the_api_fails_at_each_call(what: str, error: Exception) -> None:
    bed = Bed()
    work = released(bed)
    called = []

    def failing(*_rest: object, **_options: object) -> Any:
        called.append(what)
        raise error

    setattr(bed.gateway, what, failing)
    try:
        assert work() is None
    except type(error):
        assert bed.status() == {}
    except AssertionError:
        assert called == [], "a release that needed the API passed without it"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"metadata": {"name": "x"}}, id="no spec"),
        pytest.param({"metadata": {"name": "x"}, "spec": {"admission": True}}, id="another type"),
        pytest.param(None, id="null"),
        pytest.param([], id="a list"),
    ],
)
def test_an_api_that_answers_nonsense_lets_nobody_in(document: Any) -> None:
    bed = Bed()
    work = released(bed)
    bed.gateway.objects = lambda *_rest, **_options: (document,)  # type: ignore[method-assign]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any error at all is a no, a result is not
        work()
    assert not isinstance(caught.value, AssertionError)
    assert bed.status() == {}


def test_without_the_api_there_is_no_release() -> None:
    bed = Bed()
    work = released(bed)
    bed.gateway.down = True
    assert code_of(work) == "API_UNAVAILABLE"
    assert bed.status() == {}


def test_every_step_of_the_api_client(api: ApiBed, tmp_path: Path, counted: Callable[[str], None]) -> None:
    """The same release over the real API: each function of the client fails once."""
    ca = ClusterCa(api.ca.certificate, api.ca.key)
    credential = MintedCredential(ca, tmp_path, clock=SystemClock())
    gateway = ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=credential)
    bed = Bed()
    bed.clock.moment = datetime.now(UTC)
    api.apply(render_identity(bed.identity), render_profile(learned(boots.load("deb13-base"))))
    bed.releaser._policy, bed.releaser._writer = (
        LivePolicy(gateway, GivenPolicy(render_profile(learned(boots.load("deb13-base")))), clock=bed.clock),
        StatusWriter(gateway),
    )
    steps = steps_of(released(bed), packages=("kube",))
    counted(f"API client: {len(steps)} steps with a fault each")
    assert len(steps) > 20
    wrong = []
    for step in steps:
        bed.releaser._held.clear()
        text = raised(step, released(bed))
        wrong += [text] if text else []
        wrong += [f"{step}: a ticket is held"] if bed.releaser._held else []
    assert wrong == []
    assert bed.release().node_name == "w-1"
    assert kubelet.KUBELET_LIFE
    api.kubectl("delete", "nodeidentity", bed.identity.name)


def test_every_step_of_opening_a_ticket() -> None:
    """On the node: no material comes out of a fault."""
    node = Node()
    answer = node.answer()
    steps = steps_of(lambda: node.open(answer))
    assert len(steps) > 30
    assert [text for step in steps if (text := raised(step, lambda: node.open(answer)))] == []
    assert node.open(answer).public.node_name == "w-1"
