# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of unknown machines before a real API: who waits, what kubectl decides, what the key service cannot."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.kube import CLAIM
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

KIND = "nodeidentities.attested-kubernetes.dev"
_SECONDS = 60


@pytest.fixture(scope="module")
def queueing(api: ApiBed) -> Iterator[ServiceBed]:
    """Both services of a site that chose ``queue``."""
    made = ServiceBed(api)
    path = made.directory / "key.yml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "unknown_machines": "queue"}))
    try:
        made.start()
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture
def stranger(queueing: ServiceBed, tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    """A machine that nobody enrolled; the profile of its boot is in force."""
    name = f"q-{abs(hash(request.node.nodeid)) % 10**8}"
    known = Machine(f"{name}-known", queueing, tmp_path / "known")
    known.enroll()
    return Machine(name, queueing, tmp_path / "stranger")


def refused(machine: Machine) -> str:
    with pytest.raises(AttestedError):
        machine.ask()
    return str(machine.bed.last_refusal("key")["reason"])


def queued(machine: Machine) -> str:
    """Let the machine ask, and return the name of the identity that waits."""
    assert refused(machine) == "IDENTITY_UNKNOWN"
    name = f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"
    deadline = time.monotonic() + _SECONDS
    while "NotFound" in machine.bed.api.kubectl("get", KIND, name, check=False):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return name


def patch(api: ApiBed, name: str, user: str = "admin", **spec: str) -> str:
    words = ("patch", KIND, name, "--type=merge", "-p", json.dumps({"spec": spec}))
    return api.kubectl(*words, user=user, check=False)


def test_the_walk_of_an_unknown_machine(api: ApiBed, stranger: Machine) -> None:
    """It asks, waits, is approved with kubectl, and joins: docs/machines.md."""
    name = queued(stranger)
    found = api.get(KIND, name)
    assert (found["spec"]["admission"], found["spec"]["nodeName"]) == ("Pending", name)
    assert found["metadata"]["annotations"][CLAIM] == stranger.name
    assert refused(stranger) == "IDENTITY_PENDING"
    assert stranger.name in api.kubectl("get", KIND, "-o", "wide")
    assert "patched" in patch(api, name, admission="Approved", nodeName=stranger.name)
    assert stranger.ask().public.node_name == stranger.name


def test_a_refused_machine_waits_no_more(api: ApiBed, stranger: Machine) -> None:
    name = queued(stranger)
    assert "patched" in patch(api, name, admission="Refused")
    assert refused(stranger) == "IDENTITY_REFUSED"
    assert "does not wait again" in patch(api, name, admission="Pending")


def test_its_name_and_role_are_settled_once(api: ApiBed, stranger: Machine) -> None:
    name = queued(stranger)
    assert "needs a nodeName of its own" in patch(api, name, admission="Approved")
    assert "patched" in patch(api, name, nodeName=stranger.name)
    assert "patched" in patch(api, name, admission="Approved")
    assert "nodeName is immutable" in patch(api, name, nodeName="another")
    assert "role is immutable" in patch(api, name, role="control-plane")


def test_the_default_lets_nobody_wait(api: ApiBed, bed: ServiceBed, tmp_path: Path) -> None:
    machine = Machine("refused-by-default", bed, tmp_path / "machine")
    assert refused(machine) == "IDENTITY_UNKNOWN"
    time.sleep(2)
    name = f"ek-{machine.tpm.ek.public.spki_sha256()[:20]}"
    assert "NotFound" in api.kubectl("get", KIND, name, check=False)


def document(seed: str, **spec: str) -> dict[str, Any]:
    ek = (seed * 64)[:64]
    name = f"ek-{ek[:20]}"
    wanted = {"ekSha256": ek, "nodeName": name, "role": "worker", "admission": "Pending", **spec}
    head = {"apiVersion": "attested-kubernetes.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": name}}
    return {**head, "spec": wanted}


@pytest.fixture(scope="module")
def key_service(api: ApiBed) -> str:
    """The key service's own user."""
    api.ca.issue("key-service", names=[(NameOID.COMMON_NAME, "attested:key-service")])
    return "key-service"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"admission": "Approved", "nodeName": "w-9"}, id="an approved machine"),
        pytest.param({"nodeName": "w-9"}, id="a waiting one with a node's name"),
        pytest.param({"role": "control-plane"}, id="a waiting control plane"),
    ],
)
def test_the_key_service_admits_nobody(api: ApiBed, key_service: str, spec: dict[str, str]) -> None:
    words = ("create", "--validate=false", "-f", "-")
    said = api.kubectl(*words, stdin=json.dumps(document("d1", **spec)), user=key_service, check=False)
    assert "makes identities that wait" in said


def test_the_key_service_takes_away_only_who_waits(api: ApiBed, key_service: str) -> None:
    approved, waiting = document("7d", admission="Approved", nodeName="w-7d"), document("7e")
    api.apply(approved, waiting)
    said = api.kubectl("delete", KIND, approved["metadata"]["name"], user=key_service, check=False)
    assert "takes away only identities that wait" in said
    assert "deleted" in api.kubectl("delete", KIND, waiting["metadata"]["name"], user=key_service, check=False)
    assert "forbidden" in patch(api, approved["metadata"]["name"], key_service, admission="Refused").lower()
