# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The renewal of the kubelet's certificate: when, in which order, and what it never takes away."""

from __future__ import annotations

import dataclasses
import datetime as dt
import stat

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import (
    KubeadmError,
    Refusal,
    SystemFault,
    TransportError,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.api import NodeView
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.credential import (
    KubeletCredential,
    Validity,
    place,
    validity,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.node import order
from ansible_collections.attested.kubernetes.plugins.module_utils.node.renewal import Renewal
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import NOW
from ansible_collections.attested.kubernetes.tests.unit.fakes.node import DISK

HOUR = dt.timedelta(hours=1)
DAY = 24 * 3600
AWAY = TransportError("nobody there", reason=Reason.PEER_UNREACHABLE)
REFUSED = TransportError("attestation refused", reason=Reason.TICKET_REFUSED)


def lived(hours):
    return Validity(serial="7", begins=NOW, ends=NOW + hours * HOUR)


@pytest.mark.parametrize(
    ("hours", "renews"),
    [
        pytest.param(72, 48, id="a ticket's certificate, a day before its end"),
        pytest.param(8760, 48, id="kubeadm's of a year, when a ticket's would be"),
        pytest.param(30, 20, id="a shorter one when a third is left"),
    ],
)
def test_when_it_is_time(hours, renews):
    assert lived(hours).renews == NOW + renews * HOUR


def test_the_playbook_node_and_the_timer_agree():
    short = order.RENEW_BELOW_SECONDS
    assert lived(72).renews == lived(72).ends - dt.timedelta(seconds=short)


class FakeReader:
    """An API server that takes what it is told to take, and remembers which credential it was shown."""

    def __init__(self, answers=()):
        self.answers = list(answers)
        self.shown = []

    def __call__(self, path):
        self.shown.append(path.read_bytes())
        return self

    def node(self, name):
        if not self.answers:
            return NodeView(name=name, boot_id="b", ready=True)
        answer = self.answers.pop(0)
        if isinstance(answer, KubeadmError):
            raise answer
        return answer


@pytest.fixture
def old(locked, make_pair):
    """The credential that the kubelet has; it ends in three days."""
    certificate, key = make_pair("w-1")
    credential = KubeletCredential(certificate=certificate, key=key)
    place(credential, locked.paths, clock=locked.clock)
    return credential


@pytest.fixture
def fresh(make_pair):
    """The credential of the next ticket."""
    certificate, key = make_pair("w-1", days=6)
    return KubeletCredential(certificate=certificate, key=key)


@pytest.fixture
def reader():
    return FakeReader()


@pytest.fixture
def renewal(locked, old, fresh, parts, reader, tmp_path):
    del old
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=fresh)
    return Renewal(
        "w-1",
        locked,
        tickets=parts.tickets,
        journal=parts.journal,
        directory=tmp_path / "run/attested/renewal",
        reader=reader,
    )


def in_place(machine):
    return machine.paths.kubelet_credential.read_bytes()


def files(machine):
    return sorted(path.name for path in machine.paths.kubelet_credential.parent.iterdir())


def test_before_its_time_nobody_is_asked(renewal, parts, locked, old, clock):
    clock.sleep(2 * DAY - 1)
    done = renewal.run()
    assert (done.changed, done.validity, parts.tickets.asked) == (False, validity(locked.paths), [])
    assert in_place(locked) == old.to_pem()


@pytest.mark.parametrize(
    "passed", [pytest.param(2 * DAY, id="a day left"), pytest.param(9 * DAY, id="over for days: the same path")]
)
def test_when_it_is_time_the_new_pair_takes_the_place(renewal, parts, locked, fresh, clock, passed):
    clock.sleep(passed)
    done = renewal.run()
    assert done.changed
    assert in_place(locked) == fresh.to_pem()
    assert done.validity == validity(locked.paths)
    assert len(files(locked)) == 2  # the link and its file: no older key stays on the disk


def test_who_asks_for_it_gets_it_at_once(renewal, locked, fresh):
    assert renewal.run(at_once=True).changed
    assert in_place(locked) == fresh.to_pem()


def test_the_assigned_disk_is_named(renewal, parts):
    parts.journal.enter(parts.journal.load().phase, disk_id=DISK)
    renewal.run(at_once=True)
    assert parts.tickets.asked == [DISK]


def test_the_api_is_shown_the_new_pair_while_the_old_is_in_place(renewal, reader, locked, old, fresh):
    seen = []
    reader.node = lambda name: seen.append(in_place(locked))
    renewal.run(at_once=True)
    assert (reader.shown, seen) == ([fresh.to_pem()], [old.to_pem()])


def test_a_node_that_is_not_there_refuses_nothing(renewal, reader):
    """The API knew who asked; a Node that somebody deleted is the kubelet's to make again."""
    reader.answers = [None]
    assert renewal.run(at_once=True).changed


def test_an_api_that_is_away_for_a_moment_is_asked_again(renewal, reader):
    reader.answers = [KubeadmError("no", reason=Reason.API_UNREACHABLE)] * 3
    assert renewal.run(at_once=True).changed


def test_services_that_are_away_are_asked_again(renewal, parts):
    parts.tickets.errors = [AWAY, AWAY]
    assert renewal.run(at_once=True).changed
    assert len(parts.tickets.asked) == 3


def other(make_pair, **changes):
    certificate, key = make_pair(**{"name": "w-1", "days": 6, **changes})
    return KubeletCredential(certificate=certificate, key=key)


def test_the_first_control_plane_gives_up_kubeadms_certificate_of_a_year_for_one_of_a_ticket(
    renewal, locked, fresh, make_pair
):
    """That of a ticket lives three days, which is what bounds how long a machine that was revoked reads."""
    place(other(make_pair, days=365), locked.paths, clock=locked.clock)
    assert renewal.run(at_once=True).changed
    assert in_place(locked) == fresh.to_pem()


def test_a_certificate_of_another_ca_may_end_earlier_where_that_is_asked_for(renewal, parts, locked, make_pair):
    short = other(make_pair, days=1)
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=short)
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "KUBELET_CREDENTIAL_INVALID"
    assert renewal.run(at_once=True, shorter=True).changed
    assert in_place(locked) == short.to_pem()


def test_a_certificate_that_ends_when_the_old_one_does_is_good_enough(renewal, parts, locked, make_pair):
    same = other(make_pair, days=3)
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=same)
    assert renewal.run(at_once=True).changed
    assert in_place(locked) == same.to_pem()


def test_what_is_shown_to_the_api_is_shown_to_nobody_else(renewal, reader, tmp_path):
    seen = []
    directory = tmp_path / "run/attested/renewal"
    reader.node = lambda _name: seen.extend(
        stat.S_IMODE(one.stat().st_mode) for one in (directory, *directory.iterdir())
    )
    renewal.run(at_once=True)
    assert seen == [0o700, 0o600]


def test_unless_told_otherwise_the_api_is_that_of_the_kubelets_configuration(old, fresh, locked, parts, tmp_path):
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=fresh)
    own = Renewal("w-1", locked, tickets=parts.tickets, journal=parts.journal, directory=tmp_path / "run")
    locked.paths.kubelet_config.unlink(missing_ok=True)
    with pytest.raises(SystemFault) as caught:
        own.run(at_once=True)
    assert caught.value.code == "FILE_UNUSABLE"
    assert f"cannot read {locked.paths.kubelet_config}" in caught.value.message
    assert in_place(locked) == old.to_pem()


def test_the_cas_of_a_ticket_are_taken_once_its_certificate_is_in_place(renewal, locked, fresh):
    seen = []
    renewal.run(at_once=True, trust=lambda authorities: seen.append((authorities, in_place(locked))))
    assert seen == [(b"ca", fresh.to_pem())]


def test_the_cas_of_a_ticket_that_the_api_refuses_are_not_taken(renewal, reader):
    reader.answers = [KubeadmError("401", reason=Reason.KUBELET_CREDENTIAL_REFUSED)]
    seen = []
    with pytest.raises(KubeadmError):
        renewal.run(at_once=True, trust=seen.append)
    assert seen == []


def test_a_certificate_that_the_api_refuses_never_replaces_one_that_works(renewal, reader, locked, old, tmp_path):
    reader.answers = [KubeadmError("401", reason=Reason.KUBELET_CREDENTIAL_REFUSED)]
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "KUBELET_CREDENTIAL_REFUSED"
    assert in_place(locked) == old.to_pem()
    assert list((tmp_path / "run/attested/renewal").iterdir()) == []


def test_an_api_that_stays_away_leaves_what_was_there(renewal, reader, locked, old):
    reader.answers = [KubeadmError("no", reason=Reason.API_UNREACHABLE)] * 99
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "API_UNREACHABLE"
    assert in_place(locked) == old.to_pem()


@pytest.mark.parametrize("error", [AWAY, REFUSED], ids=["nobody answers", "refused: bad standing, or revoked"])
def test_without_a_ticket_it_keeps_what_it_has(renewal, parts, locked, old, error):
    parts.tickets.errors = [error] * 99
    with pytest.raises(TransportError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == error.code
    assert in_place(locked) == old.to_pem()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name": "w-2"}, id="another node's"),
        pytest.param({"organization": "system:masters"}, id="another group's"),
        pytest.param({"days": 2}, id="one that ends before the old one"),
    ],
)
def test_a_certificate_that_is_not_a_better_one_of_this_node_is_refused(
    renewal, parts, reader, locked, old, make_pair, changes
):
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=other(make_pair, **changes))
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "KUBELET_CREDENTIAL_INVALID"
    assert (in_place(locked), reader.shown) == (old.to_pem(), [])


def test_a_certificate_over_another_key_is_refused(renewal, parts, locked, old, fresh, make_pair):
    mixed = KubeletCredential(certificate=fresh.certificate, key=other(make_pair).key)
    parts.tickets.ticket = dataclasses.replace(parts.tickets.ticket, credential=mixed)
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "KUBELET_CREDENTIAL_INVALID"
    assert in_place(locked) == old.to_pem()


def test_a_machine_that_is_not_locked_does_not_renew(renewal, parts, locked):
    locked.paths.lock_marker.unlink()
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert (caught.value.code, parts.tickets.asked) == ("NODELOCK_NOT_HELD", [])


def test_a_machine_without_a_certificate_has_nothing_to_renew(renewal, parts, locked):
    locked.paths.kubelet_credential.unlink()
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert (caught.value.code, parts.tickets.asked) == ("KUBELET_CREDENTIAL_MISSING", [])


def test_a_certificate_that_cannot_be_read_is_told(renewal, locked):
    locked.paths.kubelet_credential.resolve().write_bytes(b"no certificate")
    with pytest.raises(KubeadmError) as caught:
        renewal.run(at_once=True)
    assert caught.value.code == "KUBECONFIG_MALFORMED"


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours catches it, and what would clean up does not run."""


def die(*_words, **_more):
    raise KilledError


def test_killed_before_the_rename_loses_nothing_and_the_next_run_cleans_up(
    renewal, locked, old, fresh, reader, tmp_path, monkeypatch
):
    """Dies where the key lies in two places besides: on tmpfs, and on the disk in a file that nothing names."""
    locked.clock.sleep(60)
    with monkeypatch.context() as patch:
        patch.setattr(renewal, "_remove_leftovers", lambda: None)
        patch.setattr("pathlib.Path.symlink_to", die)
        with pytest.raises(KilledError):
            renewal.run(at_once=True)
    assert in_place(locked) == old.to_pem()
    assert (tmp_path / "run/attested/renewal/candidate.pem").read_bytes() == fresh.to_pem()
    locked.clock.sleep(60)
    assert renewal.run(at_once=True).changed
    assert in_place(locked) == fresh.to_pem()
    assert len(files(locked)) == 2
    assert list((tmp_path / "run/attested/renewal").iterdir()) == []


def test_key_and_ticket_are_forgotten_whatever_happens(renewal, parts):
    renewal.run()
    assert parts.tickets.discarded == 1  # what a killed run left
    renewal.run(at_once=True)
    assert parts.tickets.discarded == 3
    parts.tickets.errors = [Refusal("no", reason=Reason.TICKET_SIGNATURE)]
    with pytest.raises(Refusal):
        renewal.run(at_once=True)
    assert parts.tickets.discarded == 5
