# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S25: an exception at every step of verifier, key service and API client: none ends in a pass, none leaves a trace."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps.yaml import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.cli.audit import lines_of
from ansible_collections.attested.kubernetes.plugins.module_utils.core import documents
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice import kubelet
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.app import MintedCredential
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.audit_log import AuditLog, AuditPlace
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.auditing import verify_audit
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import REQUEST
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.join_lease import LEASE
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ApiGateway
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kubelet import ClusterCa
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy, StatusWriter
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ticket import ENCRYPTION_FILE
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.unix_rpc import answer_of
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.control_plane import ENCRYPTION
from ansible_collections.attested.kubernetes.tests.support.ek import chain_of
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.faults import (
    BEGIN,
    END,
    InjectedError,
    NotReachedError,
    Step,
    passed,
    raised,
    steps_of,
    with_fault,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed
from ansible_collections.attested.kubernetes.tests.support.service_bed import POLICY
from ansible_collections.attested.kubernetes.tests.support.threats import Threat
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.services.test_received_ticket import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedNode
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import Channel
    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.reattest import Reattested
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

THREAT = Threat(
    id="S25",
    title="Verifier fails open",
    case="CVE-2022-3500, CVE-2023-3674",
    bed="api",
    stops=(
        ("keyservice/releaser.py", ""),
        ("keyservice/rpc.py", "INTERNAL"),
        ("keyservice/live_policy.py", "API_UNAVAILABLE"),
    ),
)

_VARIANTS = "ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.evidence"
_AROUND = (
    "keyservice/audit_",
    "keyservice/ca.py",
    "keyservice/rpc.py",
    "keyservice/join_attempts.py",
    "transport/unix_rpc.py",
)
"""What surrounds a decision that was taken: these answer, record and tell."""


def test_every_step_of_the_verification(exchange: Exchange, counted: Callable[[str], None]) -> None:
    """Whatever fails, the fault comes out: there is no verified object. All that may be asked for is asked for."""
    root, certificates = chain_of(exchange.tpm.ek.public)
    demands = Demands(ek_roots=(root,))
    door = exchange.knock()
    challenge, record = exchange.challenged(ek_certificates=certificates)
    given = exchange.answered(challenge)

    def work() -> VerifiedNode:
        return exchange.verified(given, record, earlier=exchange.opened(door), demands=demands)

    steps = steps_of(work)
    counted(f"verification: {len(steps)} steps with a fault each")
    assert files_of(steps) > {"evidence/registry.py", "evidence/ek_certificate.py", "evidence/ek_profile.py"}
    assert [text for step in steps if (text := raised(step, work))] == []
    assert [text for step in steps for text in passed(step, work)] == []
    assert work().identity.node_name == "w-1"


@pytest.mark.parametrize(
    ("variant", "tests"),
    [("constellation", "test_documents"), ("sev_snp", "test_reports"), ("tdx", "test_quotes")],
)
def test_every_step_of_the_other_verifiers(variant: str, tests: str, counted: Callable[[str], None]) -> None:
    """The good case of each, with which their own tests begin."""
    work = importlib.import_module(f"{_VARIANTS}.{variant}.{tests}").verified
    steps = steps_of(work)
    counted(f"{variant}: {len(steps)} steps with a fault each")
    assert len(steps) > 40
    assert [text for step in steps if (text := raised(step, work))] == []
    assert [text for step in steps for text in passed(step, work)] == []
    assert work()


def files_of(steps: Iterable[Step]) -> set[str]:
    return {step.file for step in steps}


def from_memory() -> Bed:
    """A control plane that asks a key service which decides from memory, and reads files and record of its own."""
    bed = Bed(Role.CONTROL_PLANE)
    bed.give_own_files({ENCRYPTION_FILE: ENCRYPTION})
    bed.watch()
    return bed


BEDS = pytest.mark.parametrize("make", [pytest.param(Bed, id="worker"), pytest.param(from_memory, id="control plane")])


def released(bed: Bed) -> Callable[[], object]:
    """Return a release that was made ready, challenge and all."""
    call = bed.exchange()
    bed.forget()
    return lambda: bed.release(*call)


def test_a_generator_that_an_earlier_fault_left_is_no_step() -> None:
    """The collector closes such a generator at any time; a fault raised in it would be lost, and count as passed."""

    def open_generator() -> None:
        events = yaml.parse("a: 1\n---\nb: 2\n", Loader=yaml.BaseLoader)
        left = documents._Reader(events).documents()
        next(left)
        left_in_a_cycle: list[Any] = [left]
        left_in_a_cycle.append(left_in_a_cycle)

    step = Step(documents._Reader.documents.__code__, BEGIN)
    for when in (BEGIN, END):
        open_generator()
        with pytest.raises(NotReachedError):
            with_fault(replace(step, when=when), lambda: [[] for _unused in range(100_000)], InjectedError("x"))


def beginning(steps: Sequence[Step], name: str) -> int:
    """Return the number of the step with which the function of this name begins."""
    return next(n for n, step in enumerate(steps) if step.when == BEGIN and step.code.co_qualname == name)


def holder(bed: Bed) -> str:
    """Return which identity has the turn to join."""
    return str(bed.gateway.leases[LEASE]["spec"].get("holderIdentity", "")) if bed.gateway.leases else ""


@BEDS
def test_every_step_of_a_release_before_its_write(make: Callable[[], Bed], counted: Callable[[str], None]) -> None:
    """Nothing is written, kept, derived or given; and the next try of the same machine is good."""
    steps = steps_of(released(make()))
    early = steps[: beginning(steps, "StatusWriter.write")]
    bed, wrong = make(), []
    turn = beginning(steps, "JoinTurns.take") if bed.asks_control_plane else len(steps)
    assert len(early) > 200
    for number, step in enumerate(early):
        text = raised(step, released(bed))
        wrong += [text] if text else []
        turns = {"", bed.identity.name} if number > turn else {""}
        if (bed.gateway.writes, bed.status(), bed.releaser._held) != (0, {}, {}) or holder(bed) not in turns:
            wrong.append(f"{step}: something was written or kept")
            bed = make()
    counted(f"release, {bed.identity.role.value}: {len(early)} steps with a fault each before the write")
    assert wrong == []
    assert bed.release().node_name == "w-1"


@BEDS
def test_every_step_of_a_release_from_its_write_on(make: Callable[[], Bed], counted: Callable[[str], None]) -> None:
    """No ticket comes out; what was written once is the same at the next try, which is good."""
    steps = steps_of(released(make()))
    wrong = []
    late = steps[beginning(steps, "StatusWriter.write") :]
    assert len(late) > 40
    for step in late:
        bed = make()
        text = raised(step, released(bed))
        disk = bed.status().get("diskId")
        again = bed.release()
        if text or bed.gateway.writes > 2 or (disk and bed.status()["diskId"] != disk) or again.node_name != "w-1":
            wrong.append(text or f"{step}: the next try found something else")
    counted(f"release, {make().identity.role.value}: {len(late)} steps with a fault each from the write on")
    assert wrong == []


def test_a_control_plane_s_steps_are_its_own() -> None:
    """The cases above go through what a worker's release has nothing of."""
    assert files_of(steps_of(released(from_memory()))) > {
        "keyservice/record.py",
        "keyservice/control_plane.py",
        "keyservice/cached_policy.py",
        "keyservice/join_lease.py",
        "policy/signature.py",
    }


def test_every_step_of_a_reattestation(counted: Callable[[str], None]) -> None:
    """Nothing is renewed before the write, and afterwards nobody is told that it was; the next push is good."""
    bed = Bed()
    bed.join()
    reattester = bed.reattester()

    def pushed() -> Callable[[], Reattested]:
        call = bed.push()
        bed.forget()
        return lambda: reattester.reattest(*call, note=bed.notes.update)

    steps = steps_of(pushed())
    write = beginning(steps, "StatusWriter.write")
    counted(f"re-attestation: {len(steps)} steps with a fault each, {write} of them before the write")
    wrong = []
    for number, step in enumerate(steps):
        writes, before = bed.gateway.writes, bed.status()
        text = raised(step, pushed())
        wrong += [text] if text else []
        if bed.gateway.writes - writes > (number > write) or _without_times(bed.status()) != _without_times(before):
            wrong.append(f"{step}: something else was written")
    assert wrong == []
    assert pushed()().node_name == "w-1"


def _without_times(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status without what a good re-attestation renews."""
    return {name: value for name, value in status.items() if name not in {"lastAttestation", "tpm"}}


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


def _message(kind: str, **fields: bytes) -> bytes:
    made = message_class(REQUEST)()
    for name, value in fields.items():
        setattr(getattr(made, kind), name, value)
    return bytes(made.SerializeToString())


def _answering(kind: str, call: tuple[Channel, bytes, bytes]) -> bytes:
    """Return the message of a call that answers a challenge."""
    channel, request, binding = call
    made = message_class(REQUEST)()
    getattr(made, kind).channel.CopyFrom(channel.to_message())
    getattr(made, kind).request, getattr(made, kind).binding = request, binding
    return bytes(made.SerializeToString())


MESSAGES: dict[str, Callable[[Bed], bytes]] = {
    "ticket": lambda bed: _answering("release", bed.exchange()),
    "reattested": lambda bed: _answering("reattest", bed.push()),
    "challenge": lambda bed: _message("challenge", request=_challenge_request(bed)),
    "certificate_chain": lambda bed: _message("server_certificate", certificate_request=bed.csr),
}
"""A good message of each call, by the name of the answer to it."""


@pytest.mark.parametrize("answered", MESSAGES)
def test_the_service_answers_every_fault_with_a_refusal(answered: str, counted: Callable[[str], None]) -> None:
    """On the socket: an answer that gives something never follows a fault, and the audit log stays whole."""
    bed = Bed()
    bed.join()
    service = bed.service()
    first = MESSAGES[answered](bed)
    steps = [step for step in steps_of(lambda: service.answer(first)) if step.file.startswith(_AROUND)]
    good: Any = answer_of(service.answer(MESSAGES[answered](bed)))
    assert good.WhichOneof("answer") == answered
    codes = []
    for step in steps:
        sent = MESSAGES[answered](bed)
        try:
            answer = with_fault(step, lambda sent=sent: service.answer(sent), InjectedError("x"))
            codes.append(code_of(lambda answer=answer: answer_of(answer)))
        except InjectedError:
            codes.append("no answer")  # the connection ends without one
    counted(f"service, {answered}: {len(steps)} steps with a fault each around the decision")
    assert set(codes) == {"INTERNAL", "no answer"}
    assert code_of(lambda: answer_of(service.answer(b"\xff"))) == "MESSAGE_MALFORMED"
    assert verify_audit(lines_of(str(bed.directory / "audit"))).last.sequence >= 1


def test_every_fault_while_a_refusal_is_recorded() -> None:
    """A refused call whose record, or what is told of it, fails is refused all the same."""
    bed = Bed()
    service = bed.service()
    used = MESSAGES["ticket"](bed)
    assert answer_of(service.answer(used))
    steps = [step for step in steps_of(lambda: service.answer(used)) if step.file.startswith(_AROUND)]
    assert {"keyservice/audit_log.py", "keyservice/join_attempts.py"} < files_of(steps)
    codes = []
    for step in steps:
        try:
            answer = with_fault(step, lambda: service.answer(used), InjectedError("x"))
            codes.append(code_of(lambda answer=answer: answer_of(answer)))
        except InjectedError:
            codes.append("no answer")
    assert set(codes) <= {"INTERNAL", "no answer", "CHALLENGE_UNKNOWN"}
    assert "INTERNAL" in codes


@pytest.mark.parametrize("error", [InjectedError("a bug"), OSError(28, "no space"), MemoryError()], ids=repr)
def test_every_step_of_writing_the_audit_log(error: Exception, tmp_path: Path, counted: Callable[[str], None]) -> None:
    """Each record begins a file and ends the life of another: a fault comes out, and what is written stays whole."""
    log = opened(tmp_path, file_bytes=1, files=2)
    for _unused in range(3):
        log.decided("release", {})
    steps = steps_of(lambda: log.decided("release", {"node": "w-1"}))
    counted(f"audit log: {len(steps)} steps with a fault each")
    assert len(steps) > 20
    wrong = []
    for step in steps:
        wrong.append(raised(step, lambda: log.decided("release", {"node": "w-1"}), error))
        log.decided("release", {"node": "w-2"})
        verify_audit(lines_of(str(tmp_path)))
    assert set(wrong) == {""}


def test_every_step_of_opening_the_audit_log(tmp_path: Path) -> None:
    """There is no log to go on with; what is there stays whole, half a record of a power cut aside."""
    opened(tmp_path).decided("release", {})
    (path,) = AuditPlace(directory=tmp_path).existing()
    whole = path.read_bytes()

    def work() -> AuditLog:
        path.write_bytes(whole + b'{"event":"rel')
        return opened(tmp_path)

    steps = steps_of(work)
    assert len(steps) > 20
    for step in steps:
        assert raised(step, work) == ""
        assert opened(tmp_path).head().sequence >= 2
        verify_audit(lines_of(str(tmp_path)))


def opened(directory: Path, **place: int) -> AuditLog:
    made = AuditPlace(directory=directory, **place)
    return AuditLog(made, node="cp-1", clock=SystemClock(), random=SystemRandom())


@pytest.mark.parametrize("what", ["objects", "patch_status", "object", "revision"])
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


@contextmanager
def policy_in(api: ApiBed, document: dict[str, Any]) -> Iterator[None]:
    """Have this signed policy in the API, and afterwards the one that was there."""
    before = api.get(POLICY)["items"]
    api.apply(document)
    yield
    if before:
        api.apply({**before[0], "metadata": {"name": "cluster"}, "status": {}})
    else:
        api.kubectl("delete", POLICY, "cluster")


def test_every_step_of_the_api_client(api: ApiBed, tmp_path: Path, counted: Callable[[str], None]) -> None:
    """The same release over the real API: each function of the client, and of what judges the policy, fails once."""
    ca = ClusterCa(api.ca.certificate, api.ca.key)
    credential = MintedCredential(ca, tmp_path, clock=SystemClock())
    gateway = ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=credential)
    bed = Bed()
    bed.clock.moment = datetime.now(UTC)
    api.apply(render_identity(bed.identity), render_profile(learned(boots.load("deb13-base"))))
    bed.live = LivePolicy(gateway, bed.authority, clock=bed.clock)
    bed.releaser._policy, bed.releaser._writer = bed.live, StatusWriter(gateway)
    with policy_in(api, bed.policy):
        own = ("kube_", "live_policy.py", "authority.py", "record.py")
        steps = steps_of(released(bed), packages=(*(f"keyservice/{name}" for name in own), "policy/signature.py"))
        counted(f"API client and policy: {len(steps)} steps with a fault each")
        assert {"keyservice/record.py", "policy/signature.py"} < files_of(steps)
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
