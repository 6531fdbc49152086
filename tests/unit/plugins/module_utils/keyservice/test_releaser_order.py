# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release asks whom, how often, and what it tells: memory first, the API where memory refuses, four tries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import IDENTITIES, RELEASES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import RELEASE_NAME
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.kube import release_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import Bed, kubelet_request

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def bed() -> Bed:
    return Bed()


def refused(bed: Bed, *call: Any, **options: Any) -> str:
    with pytest.raises(AttestedError) as caught:
        bed.releaser.release(*(call or bed.exchange()), note=bed.notes.update, **options)
    return caught.value.code


def watched(bed: Bed) -> list[str]:
    """Let the cache receive every write at once; return the list of kinds that are read from the API."""
    read: list[str] = []
    bed.watch()
    objects = bed.gateway.objects

    def noted(plural: str, **options: Any) -> Any:
        read.append(plural)
        return objects(plural, **options)

    bed.gateway.objects = noted  # type: ignore[method-assign]
    return read


def test_a_good_release_is_decided_from_memory_and_confirmed(bed: Bed) -> None:
    read = watched(bed)
    assert bed.release().node_name == "w-1"
    assert (read, bed.gateway.writes) == ([], 1)


def test_a_write_that_the_watch_does_not_bring_is_not_trusted(bed: Bed) -> None:
    """The cache may lack other changes, so everything is read from the API."""
    watched(bed)
    bed.cached._settle_seconds = 0.0
    bed.cached.caches[IDENTITIES]._take = lambda event: None  # type: ignore[method-assign]
    assert bed.release().node_name == "w-1"
    assert bed.gateway.writes == 2


def test_registers_are_asked_for_from_memory_and_else_of_the_api(bed: Bed) -> None:
    read = watched(bed)
    bed.exchange()
    assert read == []
    bed.cached.caches[IDENTITIES].invalidate()
    for cache in bed.cached.caches.values():
        cache.invalidate()
    bed.exchange()
    assert read != []


@pytest.mark.parametrize("reason", ["CALL_GONE", "IDENTITY_RATE"])
def test_what_no_other_reading_changes_is_not_asked_of_the_api(bed: Bed, reason: str) -> None:
    call = bed.exchange()
    read = watched(bed)
    if reason == "IDENTITY_RATE":
        bed.rate.configure(rate=0.001, burst=1)
        bed.rate.take(bed.identity.ek_sha256)
    assert refused(bed, *call, gone=lambda: True) == reason
    assert read == []


def test_four_times_somebody_may_be_quicker(bed: Bed) -> None:
    tries: list[int] = []

    def change() -> None:
        tries.append(len(tries))
        bed.gateway.apply(render_identity(bed.identity))
        bed.gateway.before_write = change

    bed.gateway.before_write = change
    assert refused(bed) == "API_CONFLICT"
    assert tries == [0, 1, 2, 3]


def test_an_error_of_the_api_that_is_no_conflict_is_not_tried_again(bed: Bed) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        bed.gateway.before_write = fail
        raise ApiError("expected an answer, got none", reason=Reason.API_UNAVAILABLE)

    bed.gateway.before_write = fail
    assert refused(bed) == "API_UNAVAILABLE"
    assert len(tries) == 1


def test_a_new_configuration_counts_from_the_next_try_on(bed: Bed) -> None:
    demands = Demands(lock_register=14)
    bed.releaser.configure(api_endpoint="other:6443", demands=demands)
    assert bed.releaser.demands is demands
    assert refused(bed) == "QUOTE_SELECTION"
    bed.releaser.configure(api_endpoint="other:6443", demands=Demands())
    assert b"other:6443" in bed.release().issued.ticket


def test_a_ticket_names_the_version_that_the_cluster_has_now(bed: Bed) -> None:
    assert b"1.35.4" in bed.release().issued.ticket
    bed.gateway.apply(release_of("1.36.3"))
    again = bed.release()
    assert again.repeated
    assert b"1.36.3" in again.issued.ticket


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="none"),
        pytest.param({"kubernetesVersion": 1.35}, id="a number"),
        pytest.param({"kubernetesVersion": "latest"}, id="another form"),
        pytest.param({"kubernetesVersion": "1.36.3\n"}, id="a line more"),
        pytest.param("1.36.3", id="no mapping"),
    ],
)
def test_without_a_version_of_the_cluster_there_is_no_ticket(bed: Bed, spec: Any) -> None:
    bed.gateway.apply({**release_of(""), "spec": spec})
    writes = bed.gateway.writes
    assert refused(bed) == "CLUSTER_RELEASE_ABSENT"
    bed.gateway.delete(RELEASES, RELEASE_NAME)
    assert refused(bed) == "CLUSTER_RELEASE_ABSENT"
    assert bed.gateway.writes == writes


def test_the_same_key_is_given_the_same_ticket_again(bed: Bed) -> None:
    first = bed.release()
    again = bed.release()
    assert [(one.repeated, one.superseded) for one in (first, again)] == [(False, False), (True, False)]
    assert again.issued.held == first.issued.held


# ---- machines that nobody enrolled


def unknown(bed: Bed, **identity: Any) -> None:
    """Let the registry know another machine than the one that asks."""
    bed.gateway.delete(IDENTITIES, bed.identity.name)
    bed.gateway.apply(render_identity(replace(bed.identity, ek_sha256="9" * 64, **identity)))


def test_who_asks_for_the_name_of_another_machine_is_told_apart(bed: Bed) -> None:
    """S6: its own key is proven, and no identity's."""
    call = bed.exchange()
    unknown(bed)
    with pytest.raises(AttestedError) as caught:
        bed.release(*call)
    assert caught.value.code == "IDENTITY_NODE_TAKEN"
    assert f"ek-{'9' * 20}" in str(caught.value)
    assert bed.identity.ek_sha256 in str(caught.value)
    assert bed.notes == {"ek": bed.identity.ek_sha256, "proven": "yes", "claims": "w-1"}


def test_who_asks_for_a_name_that_is_free_is_unknown(bed: Bed) -> None:
    call = bed.exchange()
    unknown(bed, node_name="w-2")
    assert refused(bed, *call) == "IDENTITY_UNKNOWN"
    assert bed.notes["claims"] == "w-1"


def test_who_names_no_node_is_unknown(bed: Bed) -> None:
    bed.csr = b"no request"
    call = bed.exchange()
    unknown(bed)
    assert refused(bed, *call) == "IDENTITY_UNKNOWN"
    assert "claims" not in bed.notes


def waiting(bed: Bed, node_name: str = "") -> None:
    """Let the machine that asks wait for an admin, under its own name or ``node_name``, beside another that is w-1."""
    unknown(bed)
    pending = replace(bed.identity, admission=Admission.PENDING, node_name=node_name or bed.identity.name)
    bed.gateway.apply(render_identity(pending))


def test_who_waits_and_asks_for_the_name_of_another_machine_is_told_apart(bed: Bed) -> None:
    """S6: waiting under one name makes it nobody's node, and the alarm is the same."""
    call = bed.exchange()
    waiting(bed)
    with pytest.raises(AttestedError) as caught:
        bed.release(*call)
    assert caught.value.code == "IDENTITY_NODE_TAKEN"
    assert f"the TPM of ek-{'9' * 20}, got the key {bed.identity.ek_sha256}" in str(caught.value)
    assert bed.notes["claims"] == "w-1"


def test_who_waits_and_asks_for_a_name_that_is_free_waits_on(bed: Bed) -> None:
    bed.csr = kubelet_request("w-7")
    call = bed.exchange()
    waiting(bed)
    assert refused(bed, *call) == "IDENTITY_PENDING"
    assert bed.notes["claims"] == "w-7"


def test_who_waits_under_the_very_name_that_it_asks_for_is_no_pretender(bed: Bed) -> None:
    bed.csr = kubelet_request("w-7")
    call = bed.exchange()
    waiting(bed, "w-7")
    assert refused(bed, *call) == "IDENTITY_PENDING"


@pytest.mark.parametrize("admission", [Admission.REFUSED, Admission.REVOKED])
def test_who_was_decided_about_is_not_asked_whom_it_pretends_to_be(bed: Bed, admission: Admission) -> None:
    call = bed.exchange()
    unknown(bed)
    bed.gateway.apply(render_identity(replace(bed.identity, admission=admission, node_name="w-2")))
    assert refused(bed, *call) == f"IDENTITY_{admission.value.upper()}"
    assert "claims" not in bed.notes


def test_a_revoked_machine_is_no_pretender(bed: Bed) -> None:
    call = bed.exchange()
    document = render_identity(bed.identity)
    document["spec"]["admission"] = "Revoked"
    bed.gateway.apply(document)
    assert refused(bed, *call) == "IDENTITY_REVOKED"
    assert bed.notes == {"ek": bed.identity.ek_sha256, "proven": "yes", "node": "w-1"}


def test_a_challenge_of_another_machine_does_not_wait(bed: Bed) -> None:
    """One machine's calls follow each other; two machines' need not."""
    call, stranger = bed.exchange(), Bed()
    stranger.releaser._machines = bed.releaser._machines
    with ThreadPoolExecutor(1) as pool:
        with bed.releaser._machines.held(bed.identity.ek_sha256):
            waiting = pool.submit(bed.release, *call)
            assert stranger.release().node_name == "w-1"
            assert bed.status() == {}
        assert waiting.result().node_name == "w-1"
    assert bed.status()["phase"] == "Admitted"


CALLS = (
    *("object", "objects", "revision", "listing", "patch_status", "create", "merge", "delete"),
    *("lease", "node", "config_map"),
)
MOST_CALLS = 24


class Moment:
    """Does something once, before the call of the API with this number."""

    def __init__(self, bed: Bed, number: int, act: Callable[[], None]) -> None:
        self.has_come = False
        self.status: dict[str, Any] = {}
        self._bed, self._left, self._act = bed, number, act
        for name in CALLS:
            setattr(bed.gateway, name, partial(self._call, getattr(bed.gateway, name)))

    def _call(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if not self.has_come and not self._left:
            self.has_come = True
            self.status = self._bed.status()
            self._act()
        self._left -= 1
        return method(*args, **named)


def revoke(bed: Bed, *, sign: bool) -> None:
    """Revoke the machine as the playbook does: its identity, and with ``sign`` the policy too."""
    bed.gateway.apply(render_identity(replace(bed.identity, admission=Admission.REVOKED)))
    if sign:
        bed.sign(revoked=[bed.identity.ek_sha256])


def pushed(bed: Bed) -> Callable[[], object]:
    """Make the machine a node; return its re-attestation."""
    bed.join()
    call = bed.push()
    return lambda: bed.reattester().reattest(*call, note=bed.notes.update)


def asked(bed: Bed) -> Callable[[], object]:
    """Return the machine's first ticket."""
    return partial(bed.release, *bed.exchange())


def asked_again(bed: Bed) -> Callable[[], object]:
    """Return a repeated ticket of the machine."""
    bed.release()
    return asked(bed)


@pytest.mark.parametrize("sign", [False, True], ids=["object", "object and policy"])
@pytest.mark.parametrize("request_of", [asked, asked_again, pushed])
@pytest.mark.parametrize("near_view", [False, True], ids=["api", "watch"])
@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
def test_a_revocation_at_any_moment_between_request_and_decision_refuses(
    role: Role, near_view: bool, request_of: Callable[[Bed], Callable[[], object]], sign: bool
) -> None:
    """At each call of the API: the answer was written before the revocation, or there is none. None is given after."""
    for number in range(MOST_CALLS):
        bed = Bed(role)
        if near_view:
            bed.watch()
        decide, before = request_of(bed), bed.status()
        moment = Moment(bed, number, partial(revoke, bed, sign=sign))
        try:
            decide()
        except AttestedError as error:
            assert moment.has_come, (number, error.code)
            assert error.code == "IDENTITY_REVOKED", number
            assert bed.status() == moment.status, number
        else:
            assert not moment.has_come or moment.status != before, number
        if not moment.has_come:
            break
        assert refused(bed) == "IDENTITY_REVOKED", number
    assert 0 < number < MOST_CALLS - 1
