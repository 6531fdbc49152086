# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gateway against a real API: its user's own certificate, compare-and-set, Nodes that arrive, and no API."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ApiError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.kube_api import (
    IDENTITIES,
    ApiGateway,
    CredentialFiles,
    revision_of,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.live_policy import (
    LivePolicy,
    StatusChange,
    StatusWriter,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.nodes import NodeWatcher
from ansible_collections.attested.kubernetes.tests.support.policy_site import GivenPolicy
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

KIND = "nodeidentities.attested-kubernetes.dev"


class Fixed:
    """A credential that never changes."""

    def __init__(self, bed: ApiBed, user: str) -> None:
        self._files = CredentialFiles(bed.directory / f"{user}.crt", bed.directory / f"{user}.key")

    def current(self) -> CredentialFiles:
        return self._files


@pytest.fixture(scope="module")
def gateway(api: ApiBed) -> ApiGateway:
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    return ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=Fixed(api, "key-service"))


def identity(seed: str, node_name: str, **spec: str) -> dict[str, Any]:
    ek = (seed * 64)[:64]
    return {
        "apiVersion": "attested-kubernetes.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": f"ek-{ek[:20]}"},
        "spec": {"ekSha256": ek, "nodeName": node_name, "role": "worker", "admission": "Approved", **spec},
    }


PROFILE = {
    "apiVersion": "attested-kubernetes.dev/v1alpha1",
    "kind": "MeasurementProfile",
    "metadata": {"name": "base"},
    "spec": {
        "posture": "boot",
        "registers": [{"pcr": 4, "values": [{"sha256": "04" * 32, "label": "good"}]}],
        "referenceEvents": [{"pcr": 4, "sha256": "05" * 32, "text": "boot loader"}],
    },
}


def live_of(gateway: ApiGateway) -> LivePolicy:
    return LivePolicy(gateway, GivenPolicy(PROFILE), clock=SystemClock())


def test_the_site_s_objects_come_back_as_policy(api: ApiBed, gateway: ApiGateway) -> None:
    api.apply(identity("d1", "gw-1"), PROFILE)
    try:
        snapshot = live_of(gateway).snapshot()
    finally:
        api.kubectl("delete", "measurementprofile", "base")  # the services of other tests read the same API
    assert snapshot.identity_for("d1" * 32).node_name == "gw-1"
    assert "base" in [one.name for one in snapshot.profiles()]


def test_a_revision_is_that_of_the_whole_object_and_changes_with_each_write(api: ApiBed, gateway: ApiGateway) -> None:
    name = "ek-" + "d3" * 10
    assert gateway.revision(IDENTITIES, name) == ""
    api.apply(identity("d3", "gw-3"))
    found = []
    for write in (None, ("label", "some=label"), ("annotate", "some=annotation"), ("delete",)):
        if write is not None:
            api.kubectl(write[0], "nodeidentity", name, *write[1:])
        if write == ("delete",):
            assert gateway.revision(IDENTITIES, name) == ""
            api.apply(identity("d3", "gw-3"))
        document = gateway.object(IDENTITIES, name)
        assert document is not None
        found.append(gateway.revision(IDENTITIES, name))
        assert found[-1] == revision_of(document)
    assert len(set(found)) == len(found)


def test_only_one_of_two_writers_of_one_reading_wins(api: ApiBed, gateway: ApiGateway) -> None:
    api.apply(identity("d2", "gw-2"))
    snapshot, writer = live_of(gateway).snapshot(), StatusWriter(gateway)
    registration = snapshot.registration_for("d2" * 32)
    disks = [f"00000000-0000-4000-8000-{number:012d}" for number in range(8)]
    outcomes: list[str] = []

    def write(disk: str) -> None:
        try:
            writer.write(registration, StatusChange(phase="Admitted", disk_id=disk))
            outcomes.append(disk)
        except ApiError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=write, args=(disk,)) for disk in disks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome in disks]
    assert len(winners) == 1
    assert sorted(set(outcomes) - set(winners)) == ["API_CONFLICT"]
    assert api.get(KIND, registration.identity.name)["status"]["diskId"] == winners[0]


def test_an_identity_is_joined_when_its_node_appears(api: ApiBed, gateway: ApiGateway) -> None:
    """The key service of the bed may see the Node first: it looks with the same eyes, and either's write counts."""
    api.apply(identity("d3", "gw-3"))
    policy, writer = live_of(gateway), StatusWriter(gateway)
    writer.write(policy.snapshot().registration_for("d3" * 32), StatusChange(phase="Admitted"))
    seen = threading.Event()
    watcher = NodeWatcher(gateway, policy, writer, cached=policy, own_name="cp-1", joined=lambda _name: None)

    def watch() -> None:
        while not seen.is_set():  # as the service does: again and again, also after an answer that did not come
            with contextlib.suppress(ApiError):
                watcher.run_once(5)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    api.kubectl("create", "-f", "-", stdin='{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gw-3"}}')
    try:
        wait_for(lambda: phase_of(api, "d3") == "Joined")
    finally:
        seen.set()
        thread.join(timeout=20)
    assert not thread.is_alive()


def phase_of(api: ApiBed, seed: str) -> str:
    return str(api.get(KIND, identity(seed, "")["metadata"]["name"])["status"]["phase"])


def test_another_users_reading_is_forbidden(api: ApiBed) -> None:
    api.ca.issue("nobody", names=[(NameOID.COMMON_NAME, "nobody")])
    other = ApiGateway(server=api.server, ca_file=api.directory / "ca.crt", credential=Fixed(api, "nobody"))
    with pytest.raises(ApiError) as caught:
        live_of(other).snapshot()
    assert caught.value.code == "API_FORBIDDEN"


def test_no_api_is_a_refusal(api: ApiBed, tmp_path: Path) -> None:
    gone = ApiGateway(
        server="https://127.0.0.1:9", ca_file=api.directory / "ca.crt", credential=Fixed(api, "key-service")
    )
    with pytest.raises(ApiError) as caught:
        live_of(gone).snapshot()
    assert caught.value.code == "API_UNAVAILABLE"


def test_an_api_of_another_ca_is_not_believed(api: ApiBed, tmp_path: Path) -> None:
    foreign = type(api.ca).make(tmp_path)
    other = ApiGateway(server=api.server, ca_file=foreign.directory / "ca.crt", credential=Fixed(api, "key-service"))
    with pytest.raises(ApiError) as caught:
        live_of(other).snapshot()
    assert caught.value.code == "API_UNAVAILABLE"
