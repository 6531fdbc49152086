# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The race of one machine, its claim, its courses; the real TPM is in tests/component/node."""

from __future__ import annotations

import threading

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.nodelock import (
    LockReading,
    LockState,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.node_lock import Acquisition
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.operation import Progress
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.phases import INIT_PHASES
from ansible_collections.attested.kubernetes.plugins.module_utils.node.bootstrapper import (
    BootAction,
    Membership,
    choose_action,
    read_membership,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.claim import Claim, ClaimFile, Contender, Race
from ansible_collections.attested.kubernetes.plugins.module_utils.node.join_claim import StoppableClock
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

CLUSTER, OTHER = bytes(range(32)), bytes(32)
UNLOCKED = LockReading(state=LockState.UNLOCKED)
OURS = LockReading(state=LockState.LOCKED, cluster_id=CLUSTER)
JOIN, INIT = Claim(Contender.JOIN), Claim(Contender.INIT, "a" * 64)
ANOTHER_INIT = Claim(Contender.INIT, "b" * 64)


class Register:
    """The lock register of one boot."""

    def __init__(self):
        self.reading = UNLOCKED
        self.events = 0
        self.breaks = ""

    def read(self):
        return self.reading

    def acquire(self, cluster_id):
        if self.breaks == "before":
            raise TpmError("gone", reason=Reason.TPM_UNREACHABLE)
        won = self.reading.state is LockState.UNLOCKED
        self.events += won
        self.reading = LockReading(state=LockState.LOCKED, cluster_id=cluster_id)
        if self.breaks == "after":
            raise TpmError("gone", reason=Reason.TPM_UNREACHABLE)
        return Acquisition(won=won, reading=self.reading)


@pytest.fixture
def register():
    return Register()


@pytest.fixture
def claims(tmp_path):
    return ClaimFile(tmp_path / "run" / "claim.json")


@pytest.fixture
def race(register, claims):
    return Race(register, cluster_id=CLUSTER, claims=claims)


def take(race, claim):
    with race.turn(claim) as turn:
        return turn.take()


def code_of(race, claim):
    with pytest.raises(AttestedError) as caught:
        take(race, claim)
    return caught.value.code


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(INIT, JOIN, id="init"), pytest.param(JOIN, INIT, id="join")]
)
def test_the_first_to_take_the_lock_has_won(race, register, first, second):
    assert race.winner() is None
    assert take(race, first).won
    assert code_of(race, second) == "RACE_LOST"
    assert (race.winner(), register.events) == (first, 1)


def test_the_winner_goes_on_after_a_kill_and_another_request_is_refused(race, register, claims):
    take(race, INIT)
    anew = Race(register, cluster_id=CLUSTER, claims=claims)
    assert not take(anew, INIT).won
    assert code_of(anew, ANOTHER_INIT) == "INIT_REQUEST_DIFFERS"
    assert register.events == 1


def test_after_a_reset_in_the_middle_of_an_init_the_first_request_goes_on(register, claims):
    """The lock is that of attested-unlock, which had the keys of that init, and the claim went with the boot."""
    register.acquire(CLUSTER)
    race = Race(register, cluster_id=CLUSTER, claims=claims, initialising=lambda: True)
    assert code_of(race, JOIN) == "RACE_LOST"
    with race.turn(INIT) as turn:
        assert turn.again, "the keys have to be those that are open, and are not written anew"
        assert not turn.take().won
    assert code_of(race, ANOTHER_INIT) == "INIT_REQUEST_DIFFERS"
    assert (race.winner(), register.events) == (INIT, 1)


def test_a_lock_that_nothing_explains_is_no_inits(race, register):
    register.acquire(CLUSTER)
    assert code_of(race, INIT) == "RACE_LOST"


def test_a_turn_without_a_lock_leaves_the_race_open(race, claims):
    with race.turn(INIT):
        pass
    assert claims.load() is None
    assert take(race, JOIN).won


def test_killed_between_claim_and_event_the_claim_is_void(race, claims):
    claims.write(INIT)
    assert race.winner() is None
    assert take(race, JOIN).won
    assert race.winner() == JOIN


@pytest.mark.parametrize(
    ("breaks", "winner"),
    [
        pytest.param("before", None, id="the TPM failed before the event: the race is open"),
        pytest.param("after", INIT, id="the TPM failed after the event: the race is won"),
    ],
)
def test_a_failing_lock_leaves_what_the_register_says(race, register, breaks, winner):
    register.breaks = breaks
    assert code_of(race, INIT) == "TPM_UNREACHABLE"
    register.breaks = ""
    assert race.winner() == winner
    take(race, INIT)
    assert (race.winner(), register.events) == (INIT, 1)


def test_a_process_outside_of_the_race_wins_too(race, register, claims):
    with race.turn(JOIN) as turn:
        register.acquire(CLUSTER)
        with pytest.raises(AttestedError, match="a process outside"):
            turn.take()
    assert claims.load() is None
    assert code_of(race, INIT) == "RACE_LOST"
    assert race.winner() is None


@pytest.mark.parametrize(
    ("reading", "code"),
    [
        pytest.param(LockReading(state=LockState.FOREIGN, why="?"), "NODELOCK_FOREIGN", id="foreign"),
        pytest.param(LockReading(state=LockState.LOCKED, cluster_id=OTHER), "NODELOCK_OTHER_CLUSTER", id="other"),
    ],
)
def test_a_register_of_others_is_refused_by_name(race, register, reading, code):
    register.reading = reading
    assert code_of(race, JOIN) == code
    assert race.winner() is None
    with pytest.raises(AttestedError) as caught:
        choose_action(reading, cluster_id=CLUSTER, membership=Membership.JOINED, claim=JOIN)
    assert caught.value.code == code


def test_only_one_of_many_threads_wins(race, register):
    said, barrier = [], threading.Barrier(32)

    def contend(claim):
        barrier.wait()
        try:
            said.append(take(race, claim).won)
        except AttestedError as error:
            said.append(error.code)

    threads = [threading.Thread(target=contend, args=(Claim(Contender.INIT, f"{one:064x}"),)) for one in range(31)]
    threads.append(threading.Thread(target=contend, args=(JOIN,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (said.count(True), said.count(False), register.events) == (1, 0, 1)
    assert set(said) <= {True, "RACE_LOST", "INIT_REQUEST_DIFFERS"}


# ---- the claim as a file


@pytest.mark.parametrize("claim", [JOIN, INIT])
def test_a_claim_survives_its_file(claims, claim):
    claims.write(claim)
    assert claims.load() == claim
    claims.remove()
    assert claims.load() is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="no mapping"),
        pytest.param(JOIN.to_bytes().replace(b"1", b"2"), id="another version"),
        pytest.param(JOIN.to_bytes().replace(b"1", b"true"), id="a version that only equals"),
        pytest.param(JOIN.to_bytes().replace(b"join", b"both"), id="another contender"),
        pytest.param(JOIN.to_bytes().replace(b"join", b"init"), id="init without a request"),
        pytest.param(INIT.to_bytes().replace(b"init", b"join"), id="join with a request"),
        pytest.param(INIT.to_bytes().replace(b"a" * 64, b"A" * 64), id="another spelling"),
        pytest.param(INIT.to_bytes().replace(b'"' + b"a" * 64 + b'"', b"[]"), id="a request that is no text"),
        pytest.param(JOIN.to_bytes().replace(b"}", b', "more": 1}'), id="a field more"),
        pytest.param(b"[" * 100_000, id="brackets"),
    ],
)
def test_another_claim_is_refused(data):
    with pytest.raises(AttestedError) as caught:
        Claim.parse(data)
    assert caught.value.code == "CLAIM_MALFORMED"


# ---- the action


@pytest.mark.parametrize(
    ("reading", "membership", "claim", "action"),
    [
        pytest.param(UNLOCKED, Membership.NONE, None, BootAction.RACE, id="a fresh machine races"),
        pytest.param(UNLOCKED, Membership.NONE, INIT, BootAction.RACE, id="a claim without the lock is void"),
        pytest.param(UNLOCKED, Membership.JOINED, None, BootAction.REJOIN, id="a member after a reset rejoins"),
        pytest.param(
            UNLOCKED, Membership.JOINING, None, BootAction.REJOIN, id="so does one that was killed while joining"
        ),
        pytest.param(UNLOCKED, Membership.INITIALISED, None, BootAction.KEYS, id="a founder is never initialised anew"),
        pytest.param(UNLOCKED, Membership.INITIALISING, None, BootAction.KEYS, id="nor one that was killed in init"),
        pytest.param(OURS, Membership.JOINED, JOIN, BootAction.KUBELET, id="a restart only looks after the kubelet"),
        pytest.param(OURS, Membership.INITIALISED, INIT, BootAction.KUBELET, id="on a founder too"),
        pytest.param(OURS, Membership.JOINED, None, BootAction.KUBELET, id="even if a playbook has joined it"),
        pytest.param(OURS, Membership.JOINING, JOIN, BootAction.JOIN, id="a join that was killed goes on"),
        pytest.param(OURS, Membership.INITIALISING, INIT, BootAction.INIT, id="an init that was killed goes on"),
        pytest.param(OURS, Membership.NONE, INIT, BootAction.INIT, id="killed right after the lock: init goes on"),
        pytest.param(OURS, Membership.NONE, JOIN, BootAction.JOIN, id="killed right after the lock: join goes on"),
    ],
)
def test_the_action_follows_from_register_disk_and_claim(reading, membership, claim, action):
    assert choose_action(reading, cluster_id=CLUSTER, membership=membership, claim=claim) is action


def test_a_lock_that_nothing_explains_is_refused():
    with pytest.raises(AttestedError) as caught:
        choose_action(OURS, cluster_id=CLUSTER, membership=Membership.NONE, claim=None)
    assert caught.value.code == "NODELOCK_UNCLAIMED"


@pytest.mark.parametrize(
    ("phase", "membership"),
    [
        pytest.param(None, Membership.NONE, id="no journal"),
        pytest.param(NodePhase.ASKING, Membership.NONE, id="asked only"),
        pytest.param(NodePhase.LOCKED, Membership.JOINING, id="locked"),
        pytest.param(NodePhase.JOINING, Membership.JOINING, id="joining"),
        pytest.param(NodePhase.JOINED, Membership.JOINED, id="joined"),
    ],
)
def test_the_journal_says_who_is_a_member(machine, clock, tmp_path, phase, membership):
    journal = NodeJournal(tmp_path / "node.json", clock=clock)
    if phase is not None:
        journal.enter(phase)
    assert read_membership(machine, journal) is membership


@pytest.mark.parametrize(("left", "membership"), [(1, Membership.INITIALISING), (0, Membership.INITIALISED)])
def test_kubeadms_journal_says_who_is_a_founder(machine, clock, tmp_path, left, membership):
    done = tuple(phase.name for phase in INIT_PHASES[: len(INIT_PHASES) - left])
    machine.journal.save(Progress(operation="init", config_sha256="0" * 64, done=done))
    assert read_membership(machine, NodeJournal(tmp_path / "node.json", clock=clock)) is membership


# ---- small parts


def test_a_stopped_clock_wakes_whoever_sleeps(clock):
    stoppable, said = StoppableClock(clock), []

    def sleep():
        try:
            stoppable.sleep(3600)
        except AttestedError as error:
            said.append(error.code)

    thread = threading.Thread(target=sleep)
    thread.start()
    stoppable.stop()
    thread.join(timeout=30)
    assert said == ["RACE_LOST"]


@pytest.mark.parametrize("left", [pytest.param(True, id="a journal"), pytest.param(False, id="no journal")])
def test_a_journal_is_put_back_as_it_was(clock, tmp_path, left):
    journal = NodeJournal(tmp_path / "node.json", clock=clock)
    if left:
        journal.enter(NodePhase.ASKING)
    before = journal.snapshot()
    journal.enter(NodePhase.JOINED)
    journal.put_back(before)
    assert journal.snapshot() == before
    assert (tmp_path / "node.json").exists() is left
