# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ClusterRelease on a real API: what it accepts, and that tickets follow it without a restart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import ApiGateway, CredentialFiles
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import ClusterRelease
from ansible_collections.attested.kubernetes.tests.support.kube import release_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import RELEASE
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed
    from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed


@pytest.fixture(autouse=True)
def put_back(api: ApiBed, bed: ServiceBed) -> Iterator[None]:
    """Let the cluster of the bed run 1.35.4 again after each test."""
    yield
    api.kubectl("delete", RELEASE, "cluster", "--ignore-not-found")
    api.apply(release_of("1.35.4"))


def gateway_of(bed: ServiceBed) -> ApiGateway:
    """Return the API as the key service's own user."""
    own = bed.directory / "key-service"

    class Minted:
        def current(self) -> CredentialFiles:
            return CredentialFiles(own / "api-client.crt", own / "api-client.key", serial=1)

    return ApiGateway(server=bed.api.server, ca_file=bed.api.directory / "ca.crt", credential=Minted())


def is_refused(machine: Machine) -> bool:
    try:
        machine.ask()
    except AttestedError:
        return True
    return False


def test_tickets_name_the_version_from_the_moment_that_it_is_set(
    api: ApiBed, bed: ServiceBed, machines: Callable[..., Machine]
) -> None:
    machine = machines()
    assert machine.ask().public.kubernetes_version == "1.35.4"
    api.apply(release_of("1.36.3"))
    wait_for(lambda: machine.ask().public.kubernetes_version == "1.36.3")
    api.kubectl("delete", RELEASE, "cluster")
    wait_for(lambda: is_refused(machine))
    assert bed.last_refusal()["reason"] == "CLUSTER_RELEASE_ABSENT"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(release_of("1.34.9"), "cannot be downgraded", id="an older minor version"),
        pytest.param(release_of("1.35.3"), "cannot be downgraded", id="an older patch"),
        pytest.param(release_of("v1.36.3"), "should match", id="another form"),
        pytest.param(release_of("1.36"), "should match", id="a minor version alone"),
        pytest.param(release_of("1.36.3") | {"metadata": {"name": "other"}}, "expected the name cluster", id="a name"),
    ],
)
def test_what_is_no_release_is_refused(api: ApiBed, document: dict[str, Any], said: str) -> None:
    words = ("apply", "--server-side", "--field-manager=attested-site", "-f", "-")
    assert said in api.kubectl(*words, stdin=json.dumps(document), check=False)
    assert api.get(RELEASE, "cluster")["spec"]["kubernetesVersion"] == "1.35.4"


def test_the_key_service_writes_the_status_and_nothing_else(api: ApiBed, bed: ServiceBed) -> None:
    versions = {"cp-1": "1.35.4", "w-1": "1.34.2"}
    release = ClusterRelease(gateway_of(bed), clock=SystemClock(), versions=lambda: versions)

    def table() -> list[list[str]]:
        # The bed's own key service counts the Nodes of other tests into the same status, so it is written again.
        release.write_status()
        return [line.split() for line in api.kubectl("get", "clusterrelease", "-o", "wide").splitlines()]

    wait_for(lambda: table()[1][:4] == ["cluster", "1.35.4", "2", "1"] and "1.34.2" in table()[1][-1])
    assert [*table()[0][:4], table()[0][-1]] == ["NAME", "KUBERNETES", "NODES", "CURRENT", "OTHERS"]
    assert "1.35.4" in api.kubectl("get", "attested")
