# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version that the cluster runs, from a watch or the API, and how many nodes have it."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError, KeyServiceError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import RELEASES
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import (
    MAX_NAMED,
    RELEASE_NAME,
    ClusterRelease,
    count_nodes,
)
from ansible_collections.attested.kubernetes.tests.support.kube import FakeGateway, release_of
from ansible_collections.attested.kubernetes.tests.support.release_bed import StandingClock

NODES = {"cp-1": "1.36.3", "w-1": "1.35.4", "w-2": ""}


def release(gateway: FakeGateway, **versions: str) -> ClusterRelease:
    return ClusterRelease(gateway, clock=StandingClock(), versions=lambda: versions or NODES)


def status(gateway: FakeGateway) -> dict[str, object]:
    found = gateway.object(RELEASES, RELEASE_NAME)
    assert found is not None
    return dict(found["status"])


def test_without_a_watch_the_api_is_asked() -> None:
    gateway = FakeGateway(release_of("1.35.4"))
    followed = release(gateway)
    assert followed.version() == "1.35.4"
    gateway.apply(release_of("1.36.3"))
    assert followed.version() == "1.36.3"
    gateway.down = True
    with pytest.raises(ApiError):
        followed.version()


def test_a_watch_answers_while_the_api_is_away() -> None:
    gateway = FakeGateway(release_of("1.35.4"))
    followed = release(gateway)
    followed._cache._begin(*gateway.listing(RELEASES))
    gateway.down = True
    assert followed.version() == "1.35.4"
    followed._cache._take({"type": "MODIFIED", "object": {**release_of("1.36.3"), "metadata": META}})
    assert followed.version() == "1.36.3"
    followed._cache._take({"type": "DELETED", "object": {**release_of("1.36.3"), "metadata": META}})
    with pytest.raises(KeyServiceError) as caught:
        followed.version()
    assert caught.value.code == "CLUSTER_RELEASE_ABSENT"


META = {"name": RELEASE_NAME, "resourceVersion": "200"}


def test_the_nodes_are_counted_and_those_of_another_version_named() -> None:
    assert count_nodes(NODES, "1.36.3") == {"nodes": 3, "current": 1, "others": ["w-1 1.35.4", "w-2 unknown"]}
    many = count_nodes({f"w-{number:03}": "1.35.4" for number in range(100)}, "1.36.3")
    assert (many["nodes"], many["current"], len(many["others"])) == (100, 0, MAX_NAMED)
    assert many["others"][0] == "w-000 1.35.4"


def test_the_status_is_written_once_and_again_when_something_changes() -> None:
    gateway = FakeGateway(release_of("1.36.3"))
    followed = release(gateway)
    followed.run_once()
    followed.run_once()
    assert status(gateway) == count_nodes(NODES, "1.36.3")
    assert gateway.writes == 1
    gateway.apply(release_of("1.37.2"))
    followed.run_once()
    assert status(gateway)["current"] == 0


def test_nothing_is_written_before_the_nodes_are_known_and_where_there_is_no_object() -> None:
    gateway = FakeGateway(release_of("1.36.3"))
    ClusterRelease(gateway, clock=StandingClock(), versions=dict).write_status()
    assert gateway.writes == 0
    release(FakeGateway()).write_status()


def test_who_is_slower_leaves_the_status_to_the_other() -> None:
    gateway = FakeGateway(release_of("1.36.3"))

    def other() -> None:
        gateway.before_write = None
        gateway.apply(release_of("1.36.3"))

    gateway.before_write = other
    followed = release(gateway)
    followed.write_status()
    assert status(gateway) == {}
    followed.write_status()
    assert status(gateway)["nodes"] == len(NODES)
    gateway.down = True
    with pytest.raises(ApiError):
        followed.write_status()
