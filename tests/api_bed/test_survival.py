# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the two services survive, and what the join service cannot give away."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.client import KeyClient
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.derive import DiskId, disk_key
from ansible_collections.attested.kubernetes.plugins.module_utils.services.join_client import fetch_ticket
from ansible_collections.attested.kubernetes.plugins.module_utils.services.retry_policy import pause_before_retry
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.service_bed import Machine, ServiceBed, another_user
from ansible_collections.attested.kubernetes.tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.key_bundle import KeyBundle
    from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed

    Machines = Callable[..., Machine]

TICKETS = 100
PLANTED = b"canary-planted-in-a-request-0001"


@pytest.fixture
def own(api: ApiBed) -> Iterator[ServiceBed]:
    """Services of this test alone."""
    made = ServiceBed(api)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def spellings(secret: bytes) -> set[bytes]:
    """Return how a secret could lie in a memory: raw, hex, base64."""
    return {secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")}


def canaries(bundle: KeyBundle, disks: list[str]) -> dict[str, bytes]:
    """Return every secret that 100 tickets had to do with."""
    found = {
        "master secret": bundle.master.key.reveal(),
        "join CA key": bundle.join_ca_key.reveal().splitlines()[1],
        "measurement secret": bundle.measurement_secret().reveal(),
    }
    return found | {
        f"disk key {number}": disk_key(bundle.master, DiskId(disk)).reveal() for number, disk in enumerate(disks)
    }


def found_in(memory: bytes, secrets: dict[str, bytes]) -> set[str]:
    """Return the names of the secrets that a memory holds."""
    return {name for name, secret in secrets.items() if any(one in memory for one in spellings(secret))}


@contextlib.contextmanager
def planted(bed: ServiceBed) -> Iterator[None]:
    """Let the join service hold a canary: the beginning of a TLS record, which it keeps until the rest comes."""
    hello = b"\x16\x03\x01" + (400).to_bytes(2, "big") + b"\x01\x00" + (396).to_bytes(2, "big") + PLANTED * 4
    with socket.create_connection(("127.0.0.1", bed.port)) as connection:
        connection.sendall(hello)
        yield


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root may read the memory of another user's process")
def test_the_join_services_memory_holds_no_secret(own: ServiceBed, tmp_path: Path) -> None:
    """After 100 tickets. The scan first finds what is planted, and in the key service what it holds."""
    machines = [Machine(f"mem-{number}", own, tmp_path / str(number)) for number in range(4)]
    disks = set()
    for machine in machines:
        machine.enroll()
    for number in range(TICKETS):
        disks.add(machines[number % len(machines)].ask().public.disk_id)
    secrets = canaries(own.bundle, sorted(disks))
    with planted(own):
        wait_for(lambda: found_in(own.memory("join"), {"planted": PLANTED}) == {"planted"})
    # what it holds all the time; what it derives for a ticket may be overwritten by now
    assert {"master secret", "join CA key"} <= found_in(own.memory("key"), secrets)
    assert found_in(own.memory("join"), secrets) == set()


def test_each_service_killed_and_started_again_goes_on(own: ServiceBed, tmp_path: Path) -> None:
    machine = Machine("kill-1", own, tmp_path / "kill-1")
    machine.enroll()
    first = machine.ask()
    own.kill("join")
    with pytest.raises(AttestedError) as away:
        fetch_ticket(machine.config(), machine.machine)
    assert away.value.code == "PEER_UNREACHABLE"
    assert pause_before_retry(away.value)
    own.start_join_service()
    assert machine.ask() == first
    own.kill("key")
    with pytest.raises(AttestedError) as deaf:
        fetch_ticket(machine.config(), machine.machine)
    assert deaf.value.code == "JOIN_SERVICE_UNAVAILABLE"
    assert pause_before_retry(deaf.value)
    own.start_key_service()
    assert machine.ask().public.disk_id == first.public.disk_id
    assert machine.identity()["status"]["diskId"] == first.public.disk_id


def test_without_the_api_nothing_is_released(own: ServiceBed, tmp_path: Path) -> None:
    """The key service is pointed at a port where nobody listens."""
    machine = Machine("api-1", own, tmp_path / "api-1")
    machine.enroll()
    own.kill("key")
    config = (own.directory / "key.yml").read_text()
    (own.directory / "key.yml").write_text(config.replace(own.api.server, "https://127.0.0.1:9"))
    own.start_key_service()
    with pytest.raises(AttestedError) as caught:
        machine.ask()
    assert caught.value.code == "JOIN_SERVICE_UNAVAILABLE"
    assert own.last_refusal()["reason"] == "API_UNAVAILABLE"


def test_the_join_service_stays_small(own: ServiceBed, tmp_path: Path) -> None:
    machine = Machine("rss-1", own, tmp_path / "rss-1")
    machine.enroll()
    for _unused in range(20):
        machine.ask()
    assert own.resident_bytes("join") < 120e6


def test_another_user_is_not_heard_by_the_key_service(own: ServiceBed) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    own.socket.chmod(0o666)
    with another_user():
        code = code_of(lambda: KeyClient(own.socket).health())
    assert code == "KEY_SERVICE_CALLER_UNKNOWN"
    assert [line for line in own.lines("key") if line["event"] == "caller_refused"][-1]["user"] == 1
