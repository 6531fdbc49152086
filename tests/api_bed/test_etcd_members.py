# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of a real etcd with TLS: one is killed for good and taken out, a new one learns and gets its vote.

Somebody writes all the while. kubeadm adds members where a machine joins; here etcdctl does, in the same two steps.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Self

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_client import (
    EtcdCredentials,
    EtcdGateway,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_member import run_member, run_member_info
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_members import remove_member
from ansible_collections.attested.kubernetes.tests.support.api_bed import binaries, why_not
from ansible_collections.attested.kubernetes.tests.support.etcd_bed import EtcdBed, etcd_bed
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.etcd_members import RemovalPlan

MEMBERS = ("cp-1", "cp-2", "cp-3")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdBed]:
    """Three members that answer."""
    with _three(tmp_path) as bed:
        yield bed


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdBed]:
    """Three members that nobody kills; the last test with them takes one out."""
    with _three(tmp_path_factory.mktemp("quiet")) as bed:
        yield bed


@contextlib.contextmanager
def _three(directory: Path) -> Iterator[EtcdBed]:
    if (reason := why_not()) or not (binaries() / "etcdctl").is_file():
        pytest.skip(reason or "no etcdctl in the cache: build the bundle first (playbook bundle)")
    with etcd_bed(directory, *MEMBERS) as bed:
        yield bed


def options(etcd: EtcdBed, asked: str) -> dict[str, str]:
    """Return the options of the modules on the machine that is asked."""
    return {"endpoint": etcd.members[asked].client_url, "certificates": str(etcd.directory), "address": ""}


def names(etcd: EtcdBed, asked: str) -> dict[str, bool]:
    """Return who is listed, and whether each has a vote and answers."""
    return {one.name: one.healthy and not one.is_learner for one in etcd.gateway(asked).members()}


def lose(etcd: EtcdBed, name: str, *, asked: str) -> None:
    """Kill a member for good, and wait until the others have a leader again, which it may have been."""
    etcd.kill(name)
    wait_for(lambda: names(etcd, asked) == {**names(etcd, asked), **dict.fromkeys(etcd.alive(), True), name: False})


def remove(etcd: EtcdBed, *, asked: str, name: str, address: str = "") -> RemovalPlan:
    """Do what the module does on the machine that is asked."""
    return remove_member(etcd.gateway(asked), name=name, address=address, clock=SystemClock())


class Writer:
    """Writes numbers one after the other through one member, each to be taken; counts those that were not."""

    def __init__(self, etcd: EtcdBed, member: str) -> None:
        self._etcd = etcd
        self._member = member
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.taken: list[int] = []
        self.lost: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._ends.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            said = self._etcdctl("put", f"n{number}", "x", "--command-timeout=30s")
            (self.taken if said.strip() == "OK" else self.lost).append(number)

    def _etcdctl(self, *words: str) -> str:
        return self._etcd.etcdctl(self._member, *words, check=False)


def test_a_member_that_is_lost_for_good_is_replaced_and_the_others_never_stop(etcd: EtcdBed) -> None:
    """cp-1 is killed, taken out through cp-2, and a new cp-1 without its data learns before it has a vote.

    The writer begins once the others have a leader: etcd itself drops what is on its way to one that dies.
    """
    lose(etcd, "cp-1", asked="cp-2")
    with Writer(etcd, "cp-3") as writer:
        assert remove(etcd, asked="cp-2", name="cp-1")
        assert names(etcd, "cp-2") == {"cp-2": True, "cp-3": True}
        assert not remove(etcd, asked="cp-2", name="cp-1")
        (etcd.directory / "cp-1").rename(etcd.directory / "lost")
        etcd.learn("cp-1", asked="cp-2")
        etcd.promote("cp-1", asked="cp-2")
        etcd.wait_healthy("cp-1", asked="cp-2")
        wait_for(lambda: bool(writer.taken or writer.lost))
    assert names(etcd, "cp-1") == dict.fromkeys(MEMBERS, True)
    assert writer.taken
    assert writer.lost == []
    kept = etcd.etcdctl("cp-1", "get", "n", "--prefix", "--keys-only").split()
    assert len(kept) == len(writer.taken)


def test_the_old_machine_comes_back_with_its_data_and_is_no_member(etcd: EtcdBed) -> None:
    """It has its certificates and the whole store; etcd ends by itself, since the others took its membership away."""
    lose(etcd, "cp-1", asked="cp-2")
    remove(etcd, asked="cp-2", name="cp-1")
    process = etcd.start_again("cp-1")
    assert process.wait(timeout=120) != 0 or "removed" in etcd.log("cp-1")
    assert "the member has been permanently removed from the cluster" in etcd.log("cp-1")
    assert names(etcd, "cp-2") == {"cp-2": True, "cp-3": True}


def test_a_live_member_stays_where_the_others_would_be_no_majority(etcd: EtcdBed) -> None:
    """cp-3 is gone, so cp-2 alone would be left of two; nothing changes, and the dead one may go instead."""
    lose(etcd, "cp-3", asked="cp-2")
    with pytest.raises(AttestedError) as caught:
        remove(etcd, asked="cp-2", name="cp-1")
    assert caught.value.code == "ETCD_QUORUM_AT_RISK"
    assert set(names(etcd, "cp-2")) == set(MEMBERS)
    assert remove(etcd, asked="cp-2", name="cp-3")
    assert names(etcd, "cp-2") == {"cp-1": True, "cp-2": True}


def test_nothing_is_taken_out_of_a_cluster_that_lost_its_majority(etcd: EtcdBed) -> None:
    """Two of three are gone: the one that is left says so, before it is asked for what it cannot do."""
    etcd.kill("cp-2")
    etcd.kill("cp-3")
    with pytest.raises(AttestedError) as caught:
        remove(etcd, asked="cp-1", name="cp-3")
    assert caught.value.code == "ETCD_QUORUM_LOST"
    assert "not healthy: cp-1, cp-2, cp-3" in caught.value.message


def test_the_last_one_is_never_taken_out(tmp_path: Path) -> None:
    if (reason := why_not()) or not (binaries() / "etcdctl").is_file():
        pytest.skip(reason or "no etcdctl in the cache: build the bundle first (playbook bundle)")
    with etcd_bed(tmp_path, "cp-1") as etcd:
        with pytest.raises(AttestedError) as caught:
            remove(etcd, asked="cp-1", name="cp-1")
        assert caught.value.code == "ETCD_LAST_MEMBER"
        assert names(etcd, "cp-1") == {"cp-1": True}


def test_one_that_was_added_and_never_started_is_known_by_its_address(quiet: EtcdBed) -> None:
    """As where the machine died in the middle of its join."""
    quiet.add("cp-4", "https://192.0.2.14:2380", asked="cp-1")
    assert not remove(quiet, asked="cp-1", name="cp-4")
    plan = remove(quiet, asked="cp-1", name="cp-4", address="192.0.2.14")
    assert plan.member is not None
    assert plan.member.is_learner
    assert set(names(quiet, "cp-1")) == set(MEMBERS)


def test_etcd_is_not_asked_without_its_own_certificates(
    quiet: EtcdBed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another CA's certificate is no way in, and a member with another CA's certificate is none."""
    other = EtcdBed(directory=tmp_path_factory.mktemp("other"))
    with etcd_bed(other.directory, "x"):
        gateway = EtcdGateway(quiet.members["cp-1"].client_url, EtcdCredentials.below(other.directory))
        with pytest.raises(AttestedError) as caught:
            gateway.members()
    assert caught.value.code == "ETCD_UNREACHABLE"


def test_the_modules_say_who_would_go_who_went_and_who_stays(quiet: EtcdBed) -> None:
    """Check mode names the same change; a second run has none, and etcd says so in its own words to whoever insists."""
    given = {**options(quiet, "cp-2"), "name": "cp-3", "state": "absent"}
    member = next(one for one in quiet.gateway("cp-2").members() if one.name == "cp-3")
    planned = run_member(given, check_mode=True)
    assert (planned.changed, planned.values["removed"]["name"]) == (True, "cp-3")
    assert run_member_info(options(quiet, "cp-2"), check_mode=False).values["healthy"] == len(MEMBERS)
    done = run_member(given, check_mode=False)
    assert done.diff is not None
    assert (done.changed, done.diff.before, done.diff.after) == (True, "cp-1\ncp-2\ncp-3\n", "cp-1\ncp-2\n")
    again = run_member(given, check_mode=False)
    assert (again.changed, again.values["removed"], again.values["majority"]) == (False, {}, 2)
    with pytest.raises(AttestedError, match="member not found") as caught:
        quiet.gateway("cp-2").remove(member)
    assert caught.value.code == "ETCD_REFUSED"
