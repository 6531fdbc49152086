# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each step of a ticket at the API: a process is killed there, the machine is revoked there, another replica is first.

The API server reaches etcd through a relay that holds the connection of one step. etcd syncs its writes. What is
written meanwhile goes through a second API server, without the relay.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import pause_before_retry
from ansible_collections.attested.kubernetes.tests.bench.ticket_rate import install
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.refusal import refused
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed
from ansible_collections.attested.kubernetes.tests.support.swtpm import missing_tools
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.services.received_ticket import TicketMaterial

REACHED_SECONDS = 900.0
REGISTRY = "/registry/attested-kubernetes.dev"
POLICY_READ, WRITE_ASKED = "the policy is read", "the status is written"
WRITE_COMMITTED, WRITE_TOLD = "the status is committed", "the watch delivers the status"
BEFORE_THE_WRITE, AFTER_THE_WRITE = (POLICY_READ, WRITE_ASKED), (WRITE_COMMITTED, WRITE_TOLD)
T = TypeVar("T")
VICTIMS = ("key", "kube-apiserver", "etcd")


@dataclass(slots=True, eq=False)
class Hold:
    """Holds a connection from the moment when it carries ``pattern`` to etcd, or with ``told`` from it.

    With ``answers`` these bytes pass, and what comes from etcd after them is held.
    """

    pattern: bytes
    told: bool = False
    answers: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Relay:
    """Forwards connections to ``port`` of this host until it is closed."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._hold: Hold | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that there are end with their processes."""
        self._server.close()

    @contextlib.contextmanager
    def holding(self, hold: Hold) -> Iterator[Hold]:
        """Hold what ``hold`` names until the block ends, or ``hold.over`` is set."""
        self._hold = hold
        try:
            yield hold
        finally:
            self._hold = None
            hold.over.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._server.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:  # etcd was killed: the API server connects again
                    client.close()
                    continue
                held: list[Hold] = []  # those whose bytes to etcd have passed on this connection
                for source, sink, to_etcd in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, sink, held, to_etcd), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, held: list[Hold], to_etcd: bool) -> None:
        with contextlib.suppress(OSError), source, sink:
            seen = b""
            while data := source.recv(1 << 16):
                hold = self._hold
                seen += data
                found = hold is not None and hold.pattern in seen
                seen = seen[1 - len(hold.pattern) :] if hold else b""  # a pattern may come in two pieces
                if hold and found and to_etcd is not hold.told:
                    held.append(hold)
                    hold.reached.set()
                    if not hold.answers:
                        hold.over.wait()
                elif hold in held and not to_etcd:
                    hold.over.wait()
                sink.sendall(data)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Bed:
    """An API server behind the relay with its services, and another API server on the same etcd."""

    relay: Relay
    etcd: str
    services: ServiceBed
    replica: ServiceBed

    def hold(self, step: str, machine: Machine) -> Hold:
        """Return the hold of this step of the machine's ticket."""
        ak = machine.tpm.ak.public.name().hex().encode()
        return {
            POLICY_READ: Hold(f"{REGISTRY}/attestationpolicies/cluster".encode()),
            WRITE_ASKED: Hold(ak),
            WRITE_COMMITTED: Hold(ak, answers=True),
            WRITE_TOLD: Hold(ak, told=True),
        }[step]

    def stored(self, machine: Machine) -> str:
        """Return the machine's identity as etcd has it (API of etcd: /v3/kv/range)."""
        key = f"{REGISTRY}/nodeidentities/{name_of(machine)}".encode()
        body = json.dumps({"key": base64.b64encode(key).decode()}).encode()
        with urllib.request.urlopen(f"{self.etcd}/v3/kv/range", data=body, timeout=60) as answer:
            (found,) = json.load(answer)["kvs"]
        return base64.b64decode(found["value"]).decode()

    def is_reached(self, step: str, machine: Machine, hold: Hold) -> bool:
        """Return whether the ticket is at this step; after the write, etcd has its promise."""
        done = machine.tpm.ak.public.name().hex() in self.stored(machine)
        return hold.reached.is_set() and done == (step in AFTER_THE_WRITE)

    def decides_from_cache(self, machine: Machine) -> bool:
        """Return whether a ticket of this machine reads the policy alone, not a list."""
        read = self.hold(POLICY_READ, machine)
        read.over.set()
        with self.relay.holding(read), contextlib.suppress(AttestedError):
            machine.ask()
        return read.reached.is_set()

    def kill(self, victim: str, hold: Hold) -> None:
        """Kill a process while the step is held, drop what was held, and start the process again."""
        processes = (self.services if victim == "key" else self.services.api).processes
        processes[victim].kill()
        processes[victim].wait()
        hold.over.set()
        if victim == "key":
            self.services.start_key_service()
        else:
            self.services.api.start_again(victim)


def name_of(machine: Machine) -> str:
    """Return the name of the machine's identity."""
    return f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The bed of this file."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    if missing := missing_tools():
        pytest.skip(f"no TPM for the control plane: {', '.join(missing)} not installed")
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(api_bed(tmp_path_factory.mktemp("steps"), syncs=True))
        install(api)
        (etcd,) = (word.partition("=")[2] for word in api.commands["kube-apiserver"] if "--etcd-servers=" in word)
        direct = api.add_server("direct", {"etcd-servers": etcd})
        relay = Relay(int(etcd.rpartition(":")[2]))
        stack.callback(relay.close)
        words = api.commands["kube-apiserver"]
        words[words.index(f"--etcd-servers={etcd}")] = f"--etcd-servers=http://127.0.0.1:{relay.port}"
        api.restart_server("kube-apiserver", api.server)
        other = dataclasses.replace(api, port=int(direct.rpartition(":")[2]))
        services = ServiceBed(api)
        stack.callback(services.stop)
        services.start()
        replica = ServiceBed(other, bundle=services.bundle, name="cp-2")
        stack.callback(replica.stop)
        replica.start()
        yield Bed(relay, etcd, services, replica)


@pytest.fixture
def machine(steps: Bed, tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    """A machine that never asked, of a key service that decides from its cache again."""
    number = abs(hash(request.node.nodeid)) % 10**8
    made, other = (Machine(f"{stem}-{number}", steps.services, tmp_path / stem) for stem in ("w", "o"))
    made.enroll()
    other.enroll()
    wait_for(lambda: steps.decides_from_cache(other))
    return made


def persistent(machine: Machine) -> tuple[list[TicketMaterial], int]:
    """Ask until there is a ticket; return it with that of another request, and how often it was refused before."""
    refusals = 0
    while True:
        try:
            return [machine.ask(), machine.ask()], refusals
        except AttestedError as error:
            assert pause_before_retry(error), error
            refusals += 1
            time.sleep(0.1)


@contextlib.contextmanager
def asking_at(steps: Bed, step: str, machine: Machine, ask: Callable[[], T]) -> Iterator[tuple[Hold, Callable[[], T]]]:
    """Call ``ask`` in a thread until the ticket is held at ``step``; yield the hold and what returns the result."""
    with ThreadPoolExecutor(1) as workers, steps.relay.holding(steps.hold(step, machine)) as hold:
        answer = workers.submit(ask)
        wait_for(lambda: steps.is_reached(step, machine, hold) or answer.done(), seconds=REACHED_SECONDS, every=0.02)
        assert not answer.done(), f"expected a ticket that is held where {step}: {steps.services.lines('key')[-2:]}"
        yield hold, answer.result


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("step", [*BEFORE_THE_WRITE, *AFTER_THE_WRITE])
def test_a_process_that_is_killed_at_a_step_breaks_no_promise(
    steps: Bed, machine: Machine, step: str, victim: str
) -> None:
    """All tickets of the machine are for the disk and the key that its identity records, and all are counted."""
    with asking_at(steps, step, machine, lambda: persistent(machine)) as (hold, answer):
        steps.kill(victim, hold)
        tickets, _refusals = answer()
    status = json.loads(steps.stored(machine))["status"]
    assert {one.public.disk_id for one in tickets} == {status["diskId"]}
    assert status["akName"] == machine.tpm.ak.public.name().hex()
    certificates = {one.public.kubelet_certificate for one in tickets}
    assert len(certificates) <= status["tickets"]["issued"]


@pytest.mark.parametrize("step", BEFORE_THE_WRITE)
def test_a_revocation_between_request_and_decision_refuses(steps: Bed, machine: Machine, step: str) -> None:
    """It is effective at the decision that was under way, and leaves nothing of that in the status."""
    with asking_at(steps, step, machine, lambda: refused(machine.ask, steps.services)) as (hold, answer):
        revoke(steps, machine)
        hold.over.set()
        assert answer()["reason"] == "IDENTITY_REVOKED"
    assert "diskId" not in steps.stored(machine)


@pytest.mark.parametrize("step", AFTER_THE_WRITE)
def test_a_revocation_after_the_decision_refuses_the_next_request(steps: Bed, machine: Machine, step: str) -> None:
    """The decision was before it; its ticket is for a certificate that the API server denies everything."""
    with asking_at(steps, step, machine, lambda: outcome(machine)) as (hold, answer):
        revoke(steps, machine)
        hold.over.set()
        assert answer() in {"a ticket", "TICKET_REFUSED"}
    assert refused(machine.ask, steps.services)["reason"] == "IDENTITY_REVOKED"
    assert refused(at_the_replica(steps, machine).ask, steps.replica)["reason"] == "IDENTITY_REVOKED"


@pytest.mark.parametrize("step", [*BEFORE_THE_WRITE, *AFTER_THE_WRITE])
def test_another_replica_that_is_asked_meanwhile_gives_the_same_disk(steps: Bed, machine: Machine, step: str) -> None:
    """One of the two writes the disk. Evidence from before the accepted one is no rollback: the machine asks again."""
    with asking_at(steps, step, machine, lambda: persistent(machine)) as (hold, answer):
        theirs = at_the_replica(steps, machine).ask()
        hold.over.set()
        ours, refusals = answer()
    assert {one.public.disk_id for one in ours} == {theirs.public.disk_id}
    assert refusals == (step in BEFORE_THE_WRITE)
    status = json.loads(steps.stored(machine))["status"]
    assert (status["diskId"], status["tickets"]["issued"]) == (theirs.public.disk_id, 2)
    assert "TPM_ROLLED_BACK" not in {line.get("reason") for line in steps.services.lines("key")}


def at_the_replica(steps: Bed, machine: Machine) -> Machine:
    """Return the same machine, which asks the other replica."""
    other = dataclasses.replace(machine, bed=steps.replica)
    other.tpm = machine.tpm
    return other


def revoke(steps: Bed, machine: Machine) -> None:
    """Revoke the machine through the other API server."""
    at_the_replica(steps, machine).enroll(admission="Revoked")


def outcome(machine: Machine) -> str:
    """Return whether there was a ticket, or the reason code."""
    try:
        machine.ask()
    except AttestedError as error:
        return error.code
    return "a ticket"
