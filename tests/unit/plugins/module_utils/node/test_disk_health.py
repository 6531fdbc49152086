# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node says of its state disk: to the cluster, in its log, and to who asks for its status."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.disk.kernel_log import Damage
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    KubeadmError,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.disk_health import (
    CONDITION,
    REPORT_AGAIN,
    DiskHealth,
    main,
    plan_condition,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node.disk_record import PATH, DiskRecord, Seen
from ansible_collections.attested.kubernetes.plugins.module_utils.node.journal import NodeJournal, NodePhase
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renewal_record import DIRECTORY, RenewalRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.run_record import REATTEST, RunRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.status import read_status
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

READY = {"type": "Ready", "status": "True"}
AWAY = KubeadmError("expected an answer, got none", reason=Reason.API_UNREACHABLE)


class FakeNode:
    """A Node's conditions as the API keeps them."""

    def __init__(self):
        self.found = [READY]
        self.errors = []
        self.asked = 0

    def conditions(self, name):
        assert name == "w-1"
        self.asked += 1
        for error in self.errors:
            raise error
        return None if self.found is None else tuple(self.found)

    def set_condition(self, name, condition):
        assert name == "w-1"
        self.found = [one for one in self.found if one["type"] != condition["type"]] + [condition]

    @property
    def ours(self):
        return next((one for one in self.found if one["type"] == CONDITION), None)


class Bed:
    """One node: what its log says now, its Node, what was said."""

    def __init__(self, record, clock):
        self.damage = Damage()
        self.node = FakeNode()
        self.record = record
        self.clock = clock
        self.said = []
        self.health = DiskHealth(
            "w-1", look=lambda: self.damage, node=self.node, record=record, clock=clock, log=self.said.append
        )

    def run(self, seconds=60):
        self.clock.sleep(seconds)
        return self.health.run()


@pytest.fixture
def record(locked):
    return DiskRecord(locked.paths.lock_marker.with_name(PATH.name))


@pytest.fixture
def bed(record, clock):
    return Bed(record, clock)


def test_a_sound_disk_is_said_to_be_sound_once(bed):
    bed.run()
    assert bed.node.ours == {
        "type": "StateDiskCorrupt",
        "status": "False",
        "reason": "NoCorruption",
        "message": "no read of the state disk has failed in this boot; next: nothing",
        "lastHeartbeatTime": "2026-11-21T12:01:00Z",
        "lastTransitionTime": "2026-11-21T12:01:00Z",
    }
    assert bed.node.found[0] == READY
    bed.run()
    assert bed.node.asked == 1
    assert bed.said == ["StateDiskCorrupt of Node w-1 is False (NoCorruption)"]


def test_a_changed_sector_is_told_at_once(bed):
    bed.run()
    bed.damage = Damage((16440,))
    bed.run()
    ours = bed.node.ours
    assert (ours["status"], ours["reason"]) == ("True", "SectorCorrupt")
    assert ours["message"] == (
        "at least 1 sector of the state disk did not read as written, the last found at 2026-11-21T12:02:00Z; each "
        "read of them fails; next: attested explain STATE_DISK_CORRUPT"
    )
    assert ours["lastTransitionTime"] == "2026-11-21T12:02:00Z"
    assert bed.said[1].startswith("STATE_DISK_CORRUPT: expected each sector")
    assert bed.said[2:] == ["StateDiskCorrupt of Node w-1 is True (SectorCorrupt)"]


def test_more_sectors_are_news_and_no_transition(bed):
    bed.damage = Damage((8,))
    bed.run()
    bed.damage = Damage((16,))
    bed.run()
    assert bed.node.ours["message"].startswith("at least 2 sectors ")
    assert bed.node.ours["lastTransitionTime"] == "2026-11-21T12:01:00Z"
    assert bed.node.ours["lastHeartbeatTime"] == "2026-11-21T12:02:00Z"


def test_what_the_log_has_forgotten_is_still_known_in_this_boot(bed):
    bed.damage = Damage((8,))
    bed.run()
    bed.damage = Damage()
    bed.run(REPORT_AGAIN.total_seconds())
    assert (bed.node.ours["status"], bed.node.asked) == ("True", 2)


def test_the_next_boot_says_what_it_has_seen_itself(bed, record, clock):
    bed.damage = Damage((8,))
    bed.run()
    record._path.unlink()
    bed.damage = Damage()
    bed.run()
    assert (bed.node.ours["status"], bed.node.ours["lastTransitionTime"]) == ("False", "2026-11-21T12:02:00Z")


def test_the_api_is_asked_every_few_minutes_and_a_node_made_anew_is_told(bed):
    for _minute in range(5):
        bed.run()
    assert bed.node.asked == 1
    bed.node.found = [READY]
    bed.run()
    assert bed.node.asked == 2
    assert bed.node.ours["status"] == "False"
    assert len(bed.said) == 1


def test_a_cluster_that_is_away_is_told_later_and_the_node_knows_at_once(bed, record):
    bed.node.errors = [AWAY]
    bed.damage = Damage((8,))
    assert code_of(bed.run) == "API_UNREACHABLE"
    assert record.load().damage == Damage((8,))
    assert code_of(bed.run) == "API_UNREACHABLE"
    assert len(bed.said) == 1
    bed.node.errors = []
    bed.run()
    assert bed.node.ours["status"] == "True"


def test_a_kubelet_that_has_no_node_yet_is_waited_for(bed):
    bed.node.found = None
    bed.run()
    bed.node.found = [READY]
    bed.run()
    assert bed.node.ours["status"] == "False"


def test_a_log_that_cannot_be_read_is_not_a_sound_disk(bed, record, clock):
    def broken():
        raise SystemFault("cannot read /dev/kmsg", reason=Reason.FILE_UNUSABLE)

    health = DiskHealth("w-1", look=broken, node=bed.node, record=record, clock=clock, log=bed.said.append)
    assert code_of(health.run) == "FILE_UNUSABLE"
    assert (bed.node.asked, bed.node.ours) == (0, None)


def test_a_clock_that_was_set_back_keeps_nobody_waiting(bed, record, clock):
    record.save(Seen(reported_at=clock.now() + timedelta(days=1)))
    bed.run()
    assert bed.node.ours["status"] == "False"


def test_a_transition_is_kept_where_the_status_is_the_same(clock):
    was = {"type": CONDITION, "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    now = clock.now()
    assert plan_condition([READY, was], Seen(), now=now)["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    bad = Seen(damage=Damage((8,)), found_at=now)
    assert plan_condition([READY, was], bad, now=now)["lastTransitionTime"] == "2026-11-21T12:00:00Z"


def test_what_was_kept_comes_back(record, clock):
    seen = Seen(damage=Damage((8, 16)), found_at=clock.now(), reported_at=clock.now())
    record.save(seen)
    assert record.load() == seen


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("[]", id="a list"),
        pytest.param('{"version": 2, "sectors": [1], "found_at": null, "told_at": null}', id="another version"),
        pytest.param('{"version": 1, "sectors": ["x"], "found_at": null, "told_at": null}', id="no sector"),
        pytest.param('{"version": 1, "sectors": [1], "found_at": 7, "told_at": null}', id="no time"),
        pytest.param('{"version": 1, "sectors": [1]}', id="half of it"),
    ],
)
def test_a_file_that_is_not_ours_says_nothing(record, content):
    record._path.write_text(content)
    assert record.load() == Seen()


@pytest.fixture
def journal(tmp_path, clock):
    made = NodeJournal(tmp_path / "node.json", clock=clock)
    made.enter(NodePhase.JOINED)
    return made


@pytest.fixture
def node(locked, programs):
    """A node that runs: locked, its kubelet active."""
    programs.active = True
    return locked


@pytest.fixture
def corrupt(record, clock):
    record.save(Seen(damage=Damage((8,)), found_at=clock.now(), reported_at=clock.now()))


def test_a_person_is_called_and_told_what_to_do(node, journal, corrupt):
    status = read_status(node, journal).as_result()
    assert (status["needs_person"], status["reason"], status["phase"]) == (True, "STATE_DISK_CORRUPT", "Joined")
    assert status["to_do"] == Reason.STATE_DISK_CORRUPT.value.hint
    assert status["message"] == (
        "at 2026-11-21T12:00:00+00:00: expected each sector of the state disk as it was written, got at least 1 sector "
        "with other content, the lowest 8"
    )


def test_nobody_is_called_for_a_sound_disk(node, journal, record, clock):
    record.save(Seen(reported_at=clock.now()))
    assert not read_status(node, journal).needs_person


def test_refused_evidence_goes_before_it(node, journal, corrupt, clock):
    refused = TransportError("expected x", reason=Reason.EVIDENCE_REFUSED)
    with pytest.raises(TransportError), RunRecord(REATTEST, node.paths.lock_marker.parent, clock=clock).kept():
        raise refused
    assert read_status(node, journal).state.reason == "EVIDENCE_REFUSED"


def test_a_renewal_that_passes_by_itself_does_not_hide_it(node, journal, corrupt, clock):
    renewal = RenewalRecord(node.paths.lock_marker.with_name(DIRECTORY.name), clock=clock)
    renewal.failed(AWAY, next_seconds=3600, passes=True)
    status = read_status(node, journal)
    assert (status.needs_person, status.state.reason) == (True, "STATE_DISK_CORRUPT")


def test_a_machine_that_is_no_node_any_more_says_nothing_of_it(node, journal, corrupt):
    journal.remove()
    assert read_status(node, journal).state.reason is None


def test_the_program_says_why_it_could_not(tmp_path, capsys):
    assert main(["--config", str(tmp_path / "none.yml")]) == 1
    assert capsys.readouterr().err.startswith("attested-agent disk-health: FILE_UNUSABLE: ")
