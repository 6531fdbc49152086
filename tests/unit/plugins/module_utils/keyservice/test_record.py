# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record outside etcd: what its file and the counter together say after every way to break off or to go back."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.core.logs import Log, open_log
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, SystemFault, TpmError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.cached_policy import CachedPolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import policy_record_key
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, POLICIES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import LivePolicy
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import MasterSecret, SecretBytes
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.policy_watch import (
    PolicyHandler,
    PolicyWatch,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.record import (
    Entry,
    PolicyRecord,
    RecordFiles,
    RecordKey,
    Recovery,
    recover,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.record import Seen
from ansible_collections.attested.kubernetes.plugins.module_utils.proto.messages import message_class, parse
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway
from ansible_collections.attested.kubernetes.tests.support.policy_site import (
    GivenPolicy,
    MemoryCounter,
    PolicySite,
    authority_of,
    record_in,
)

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = b"c" * 32
EK, OTHER = "a" * 64, "b" * 64
SITE = PolicySite(CLUSTER)


class Bed:
    """One control plane's disk and counter; `start` is a start of its key service."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.counter = MemoryCounter()
        self.published = directory / "policy-record.json"
        self.staged = directory / "policy-record.next"
        self.policies = [SITE.plan([], generation=number) for number in range(5)]

    def start(self, **options: Any) -> PolicyRecord:
        return record_in(self.directory, self.counter, **{"cluster_id": CLUSTER, **options})

    def adopted(self) -> PolicyRecord:
        record = self.start()
        record.adopt(self.policies[1])
        return record


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def code(action: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        action()
    return caught.value.code


def test_nothing_is_believed_before_the_site_said_so(bed: Bed) -> None:
    record = bed.start()
    assert code(record.current) == "POLICY_NOT_ADOPTED"
    assert code(lambda: record.follow(bed.policies[4])) == "POLICY_NOT_ADOPTED"
    assert code(lambda: record.note_revoked([EK])) == "POLICY_NOT_ADOPTED"
    assert record.adopt(bed.policies[1]) == Seen.of(bed.policies[1])


def test_each_change_counts_and_is_there_after_a_start(bed: Bed) -> None:
    record = bed.adopted()
    before = bed.counter.value
    record.follow(bed.policies[2])
    record.follow(bed.policies[2])
    record.note_revoked([EK])
    record.note_revoked([EK])
    assert bed.counter.value == before + 2
    seen = bed.start().current().seen
    assert (seen.generation, seen.revoked) == (2, {EK})
    assert bed.published.stat().st_mode & 0o777 == 0o600


def test_what_the_site_takes_back_is_remembered_as_such(bed: Bed) -> None:
    record = bed.adopted()
    record.note_revoked([EK, OTHER])
    record.follow(SITE.plan([], generation=2, revoked=[OTHER], reinstated=[EK]))
    before = bed.counter.value
    again = bed.start()
    assert again.note_revoked([EK]).revoked == {OTHER}
    assert (bed.counter.value, again.current().seen.reinstated) == (before, {EK})
    again.follow(SITE.plan([], generation=3, revoked=[OTHER]))
    assert bed.start().note_revoked([EK]).revoked == {EK, OTHER}


def test_a_record_of_the_release_before_is_taken(bed: Bed) -> None:
    bed.adopted()
    key = RecordKey(key=SecretBytes(b"r" * 32), cluster_id=CLUSTER, node_name="cp-1")
    document = json.loads(bed.published.read_bytes())
    del document["mac"], document["reinstated"]
    bed.published.write_text(json.dumps({**document, "mac": key._mac(document, key.key)}))
    assert bed.start().current().seen == Seen.of(bed.policies[1])


def test_it_goes_no_way_back(bed: Bed) -> None:
    record = bed.adopted()
    record.follow(bed.policies[3])
    assert code(lambda: record.follow(bed.policies[2])) == "POLICY_ROLLED_BACK"
    assert code(lambda: record.adopt(bed.policies[2])) == "POLICY_ROLLED_BACK"
    assert record.current().seen.generation == 3


def damage(text: bytes) -> bytes:
    document = json.loads(text)
    return json.dumps({**document, "revoked": []}).encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda bed, old: bed.published.write_bytes(old), id="an older record of the same disk"),
        pytest.param(lambda bed, old: bed.published.unlink(), id="the record deleted"),
        pytest.param(lambda bed, old: bed.published.write_bytes(damage(bed.published.read_bytes())), id="edited"),
        pytest.param(lambda bed, old: bed.published.write_bytes(b"{}"), id="emptied"),
        pytest.param(lambda bed, old: bed.published.write_bytes(b"\xff"), id="overwritten"),
        pytest.param(lambda bed, old: bed.counter.increment(), id="somebody counted"),
        pytest.param(lambda bed, old: setattr(bed.counter, "value", None), id="the counter deleted"),
        pytest.param(
            lambda bed, old: (bed.published.unlink(), bed.staged.write_bytes(old)), id="an older record as a staged one"
        ),
    ],
)
def test_another_record_than_the_counters_is_refused_until_the_site_says_so(bed: Bed, change: Any) -> None:
    record = bed.adopted()
    old = bed.published.read_bytes()
    record.follow(bed.policies[2])
    record.note_revoked([EK])
    change(bed, old)
    again = bed.start()
    assert code(again.current) == "POLICY_ROLLED_BACK"
    assert code(lambda: again.follow(bed.policies[3])) == "POLICY_ROLLED_BACK"
    again.adopt(SITE.plan([], generation=3, revoked=[EK]))
    assert bed.start().current().seen.generation == 3


def test_the_site_signs_what_an_unusable_record_still_says(bed: Bed) -> None:
    bed.adopted().note_revoked([EK])
    bed.counter.increment()
    again = bed.start()
    assert again.all_revoked() == {EK}
    assert again.state() is None
    assert code(lambda: again.adopt(bed.policies[2])) == "POLICY_ROLLED_BACK"


@pytest.mark.parametrize(
    "options", [pytest.param({"node": "cp-2"}, id="node"), pytest.param({"cluster_id": b"d" * 32}, id="cluster")]
)
def test_a_record_of_another_is_none(bed: Bed, options: dict[str, Any]) -> None:
    bed.adopted()
    assert code(bed.start(**options).current) == "POLICY_ROLLED_BACK"


def test_the_key_is_of_the_master_secret_and_the_cluster() -> None:
    master = MasterSecret(key=SecretBytes(b"k" * 32), salt=SecretBytes(b"s" * 32))
    other = MasterSecret(key=SecretBytes(b"l" * 32), salt=SecretBytes(b"s" * 32))
    keys = [policy_record_key(*pair).reveal() for pair in ((master, CLUSTER), (master, b"d" * 32), (other, CLUSTER))]
    assert len(set(keys)) == len(keys)


# ---- broken off


def entry(counter: int) -> Entry:
    return Entry(seen=Seen(generation=1, content_sha256="00"), counter=counter)


@pytest.mark.parametrize(
    ("published", "staged", "counter", "expected"),
    [
        # what a kill leaves
        pytest.param(None, None, None, Recovery.ABSENT, id="nothing was ever there"),
        pytest.param(4, None, 4, Recovery.USE, id="at rest, or torn while staging"),
        pytest.param(4, 5, 4, Recovery.INCREMENT, id="staged, not yet counted"),
        pytest.param(4, 5, 5, Recovery.PUBLISH, id="counted, not yet published"),
        pytest.param(5, None, 5, Recovery.USE, id="published"),
        pytest.param(None, 5, 4, Recovery.ROLLED_BACK, id="the first one staged, not yet counted: the site goes on"),
        pytest.param(None, 5, 5, Recovery.PUBLISH, id="the first one counted, not yet published"),
        # what no kill leaves
        pytest.param(3, None, 4, Recovery.ROLLED_BACK, id="an older record"),
        pytest.param(3, 4, 5, Recovery.ROLLED_BACK, id="two older records"),
        pytest.param(5, None, 4, Recovery.ROLLED_BACK, id="a record from the future: another TPM"),
        pytest.param(4, 6, 4, Recovery.USE, id="a staged record from the future is let be"),
        pytest.param(4, 3, 4, Recovery.USE, id="a staged record from the past is let be"),
        pytest.param(None, None, 4, Recovery.ROLLED_BACK, id="a counter without a record"),
        pytest.param(4, None, None, Recovery.ROLLED_BACK, id="a record without a counter"),
    ],
)
def test_recovery(published: int | None, staged: int | None, counter: int | None, expected: Recovery) -> None:
    files = [None if number is None else entry(number) for number in (published, staged)]
    assert recover(published=files[0], staged=files[1], counter=counter) is expected


def test_a_counter_that_fails_once_leaves_nothing_half_done(bed: Bed) -> None:
    """Without a kill: the TPM was busy, or counted and its answer was lost."""
    record = bed.adopted()
    increment = bed.counter.increment

    def busy() -> int:
        raise TpmError("busy", reason=Reason.TPM_BUSY)

    def lost() -> int:
        increment()
        return busy()

    for number, failing in enumerate((busy, lost), start=2):
        bed.counter.increment = failing  # type: ignore[method-assign]
        assert code(lambda number=number: record.follow(bed.policies[number])) == "TPM_BUSY"
        assert record.current().seen.generation == number - 1
        bed.counter.increment = increment  # type: ignore[method-assign]
        assert record.follow(bed.policies[number]).generation == number
        assert bed.start().current().seen.generation == number


def test_somebody_who_counts_meanwhile_ends_it(bed: Bed) -> None:
    record = bed.adopted()
    bed.counter.increment()
    assert record.current().seen.generation == 1
    assert code(lambda: record.follow(bed.policies[2])) == "POLICY_ROLLED_BACK"
    assert code(record.current) == "POLICY_ROLLED_BACK"


def test_a_counter_that_jumps_ends_it(bed: Bed) -> None:
    record = bed.adopted()
    bed.counter.increment = lambda: 99  # type: ignore[method-assign]
    assert code(lambda: record.follow(bed.policies[2])) == "POLICY_ROLLED_BACK"
    assert code(record.current) == "POLICY_ROLLED_BACK"


# ---- root's socket, and the watch


def handler_of(bed: Bed) -> PolicyHandler:
    record = bed.start()
    return PolicyHandler(record, authority_of(record, cluster_id=CLUSTER), log=open_log())


def asked(handler: PolicyHandler, adopt: bytes = b"") -> Any:
    request = message_class("attested.v1.PolicyRequest")(adopt=adopt).SerializeToString()
    return parse("attested.v1.PolicyResponse", handler.answer(request))


def signed(generation: int, **changes: Any) -> bytes:
    return json.dumps(SITE.signed(SITE.plan([], generation=generation, **changes))).encode()


def test_root_may_ask_and_hand_a_policy_over(bed: Bed) -> None:
    handler = handler_of(bed)
    assert asked(handler).refusal.code == "POLICY_NOT_ADOPTED"
    first, second = asked(handler, signed(2, revoked=[EK])), asked(handler, signed(2, revoked=[EK]))
    assert (first.changed, first.generation, list(first.revoked)) == (True, 2, [EK])
    assert (second.changed, second.refusal.code) == (False, "")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(b"{", "MESSAGE_MALFORMED", id="no JSON"),
        pytest.param(b"[]", "MESSAGE_MALFORMED", id="no object"),
        pytest.param(b"{}", "MANIFEST_INVALID", id="no policy"),
        pytest.param(
            json.dumps(PolicySite(b"x" * 32).sign([])).encode(), "POLICY_SIGNATURE", id="a policy of another cluster"
        ),
        pytest.param(signed(0), "POLICY_ROLLED_BACK", id="an older policy"),
    ],
)
def test_what_is_no_newer_policy_of_the_site_is_not_adopted(bed: Bed, document: bytes, expected: str) -> None:
    bed.adopted()
    handler = handler_of(bed)
    assert asked(handler, document).refusal.code == expected
    assert asked(handler).generation == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ZeroDivisionError("x"), "INTERNAL", id="an unexpected error"),
        pytest.param(SystemFault("x", reason=Reason.FILE_UNUSABLE), "FILE_UNUSABLE", id="a file that cannot be read"),
    ],
)
def test_a_failed_answer_is_an_answer_and_no_absent_key_service(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str
) -> None:
    def fail(_record: PolicyRecord) -> frozenset[str]:
        raise error

    bed.adopted()
    handler = handler_of(bed)
    monkeypatch.setattr(PolicyRecord, "all_revoked", fail)
    assert asked(handler).refusal.code == expected


def log_to(stream: io.StringIO) -> Log:
    return Log(stream, as_json=True, clock=SystemClock())


class Ending(SystemClock):
    """A clock that goes on by half a minute each time it is asked; ``first`` runs at the second, ``each`` at others."""

    def __init__(self) -> None:
        self.asked = 0
        self.first = self.each = lambda: None

    def monotonic(self) -> float:
        self.asked += 1
        if self.asked > 1:
            (self.first if self.asked == 2 else self.each)()
        return 25.0 * self.asked


def watch_of(
    gateway: FakeGateway,
    live: LivePolicy,
    *,
    cached: CachedPolicy | None = None,
    stream: io.StringIO | None = None,
    clock: SystemClock | None = None,
) -> PolicyWatch:
    """Return a watch; without ``cached`` the cache is empty, so that the API is read."""
    return PolicyWatch(
        gateway,
        live,
        cached=cached or CachedPolicy(gateway, GivenPolicy(), clock=SystemClock()),
        node_name="cp-1",
        clock=clock or SystemClock(),
        log=log_to(stream or io.StringIO()),
    )


def revoked_identity(ek: str, admission: str = "Revoked") -> dict[str, Any]:
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": f"w-{ek[0]}", "role": "worker", "admission": admission},
    }


def test_the_watch_learns_what_nobody_asked_about_and_says_what_it_has_seen(bed: Bed) -> None:
    record = bed.adopted()
    gateway = FakeGateway(json.loads(signed(2)), revoked_identity(EK), revoked_identity(OTHER, "Approved"))
    live = LivePolicy(gateway, authority_of(record, cluster_id=CLUSTER), clock=SystemClock())
    watch = watch_of(gateway, live)
    watch.settle()
    assert (record.current().seen.generation, record.current().seen.revoked) == (2, {EK})
    (policy,) = gateway.objects(POLICIES)
    assert policy["status"]["seenBy"]["cp-1"]["generation"] == 2
    writes = gateway.writes
    watch.settle()
    assert gateway.writes == writes
    gateway.apply(revoked_identity(EK, "Approved"))
    assert code(watch.settle) == "POLICY_ROLLED_BACK"
    gateway.apply(json.loads(signed(3, revoked=[EK])))
    watch.settle()


def test_a_revocation_counts_whatever_else_is_wrong_with_its_object(bed: Bed) -> None:
    record = bed.adopted()
    odd = revoked_identity(EK)
    odd["spec"]["role"] = "of no meaning"
    gateway = FakeGateway(json.loads(signed(2)), odd)
    live = LivePolicy(gateway, authority_of(record, cluster_id=CLUSTER), clock=SystemClock())
    assert code(lambda: live.identity_for(EK)) == "MANIFEST_INVALID"
    assert record.current().seen.revoked == {EK}
    live.settle_revocations()
    gateway.apply(revoked_identity(EK, "Approved"))
    assert code(lambda: live.identity_for(EK)) == "POLICY_ROLLED_BACK"


def test_the_watch_logs_and_names_what_cannot_be_read_once(bed: Bed) -> None:
    bad = {"metadata": {"name": "odd"}, "kind": "MeasurementProfile", "spec": {"posture": "boot", "registers": 7}}
    gateway, stream = FakeGateway(json.loads(signed(2)), bad), io.StringIO()
    live = LivePolicy(gateway, authority_of(bed.adopted(), cluster_id=CLUSTER), clock=SystemClock())
    watch = watch_of(gateway, live, stream=stream)
    watch.settle()
    watch.settle()
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "object_unreadable"
    assert "MeasurementProfile odd" in json.loads(line)["detail"]
    (policy,) = gateway.objects(POLICIES)
    (named,) = policy["status"]["seenBy"]["cp-1"]["unreadable"]
    assert "MeasurementProfile odd.spec: registers" in named


def test_the_watch_settles_at_each_revocation(bed: Bed) -> None:
    record = bed.adopted()
    gateway = FakeGateway(json.loads(signed(2)), revoked_identity(EK, "Approved"))
    live = LivePolicy(gateway, authority_of(record, cluster_id=CLUSTER), clock=SystemClock())
    cached = CachedPolicy(gateway, GivenPolicy(), clock=SystemClock())
    cached.caches[IDENTITIES]._begin(*gateway.listing(IDENTITIES))
    clock = Ending()
    watch = watch_of(gateway, live, cached=cached, clock=clock)

    def revoke() -> None:
        """Revoke the machine once the watch has settled, and tell of another one of which nothing changed."""
        for document in (revoked_identity(OTHER, "Approved"), revoked_identity(EK)):
            gateway.apply(document)
            found = gateway.object(IDENTITIES, document["metadata"]["name"])
            cached.caches[IDENTITIES]._take({"type": "MODIFIED", "object": found})

    clock.first = revoke
    watch.run_once(60)
    assert record.all_revoked() == {EK}


def test_revocations_without_an_end_do_not_keep_the_watch_from_its_next_round(bed: Bed) -> None:
    bed.adopted()
    gateway = FakeGateway(json.loads(signed(2)), revoked_identity(EK))
    live = LivePolicy(gateway, authority_of(bed.start(), cluster_id=CLUSTER), clock=SystemClock())
    clock = Ending()
    watch = watch_of(gateway, live, clock=clock)
    clock.first = clock.each = lambda: watch._notice_revoked(revoked_identity(EK))
    watch.run_once(60)


def test_an_object_of_no_form_wakes_nobody(bed: Bed) -> None:
    gateway = FakeGateway(json.loads(signed(2)))
    watch = watch_of(gateway, LivePolicy(gateway, authority_of(bed.adopted(), cluster_id=CLUSTER), clock=SystemClock()))
    for document in ({}, {"spec": None}, {"spec": {"admission": "Approved"}}):
        watch._notice_revoked(document)
    assert not watch._revoked.is_set()


def keyed(bed: Bed, key: bytes, *former: bytes) -> PolicyRecord:
    first, *rest = (SecretBytes(one) for one in (key, *former))
    made = RecordKey(key=first, cluster_id=CLUSTER, node_name="cp-1", former=tuple(rest))
    record = PolicyRecord(RecordFiles(bed.directory), bed.counter, made)
    record.load()
    return record


OLD_KEY, NEW_KEY = b"o" * 32, b"n" * 32


def test_a_record_goes_over_to_the_key_of_a_rotated_master_secret(bed: Bed) -> None:
    seen = keyed(bed, OLD_KEY).adopt(bed.policies[1])
    both = keyed(bed, NEW_KEY, OLD_KEY)
    assert both.state() == seen
    counted = bed.counter.read()
    assert [both.renew(), both.renew()] == [True, False]
    assert bed.counter.read() == (counted or 0) + 1
    assert keyed(bed, NEW_KEY).state() == seen
    assert keyed(bed, OLD_KEY).state() is None


def test_a_renewal_that_was_cut_is_finished_under_either_key(bed: Bed) -> None:
    seen = keyed(bed, OLD_KEY).adopt(bed.policies[1])
    both = keyed(bed, NEW_KEY, OLD_KEY)
    both._files.publish = lambda: None  # type: ignore[method-assign]  # killed before the rename
    both.renew()
    assert bed.staged.exists()
    again = keyed(bed, NEW_KEY, OLD_KEY)
    assert (again.state(), again.renew()) == (seen, False)


def test_a_record_of_a_key_that_nobody_has_is_none_and_is_not_renewed(bed: Bed) -> None:
    keyed(bed, OLD_KEY).adopt(bed.policies[1])
    strange = keyed(bed, NEW_KEY, b"x" * 32)
    assert (strange.state(), strange.renew()) == (None, False)
