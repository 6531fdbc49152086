# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine with arm64 proves its boot to real services of a cluster and gets a ticket, by the public modules.

The services and their API run on this host. The machine has no kubelet: it does not become a node. The tests are in the
order of its life and share it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.identity import Admission, NodeIdentity, Role
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.learning import learn_profile
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_identity, render_profile
from ansible_collections.attested.kubernetes.tests.api_bed.conftest import OBJECTS
from ansible_collections.attested.kubernetes.tests.support.api_bed import api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.arm64_bed import (
    HOST,
    LOG,
    NAME,
    Arm64Machine,
    arm64_machine,
    missing,
)
from ansible_collections.attested.kubernetes.tests.support.image_bed import observed
from ansible_collections.attested.kubernetes.tests.support.service_bed import ServiceBed
from ansible_collections.attested.kubernetes.tests.support.vm_bed import registers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("took")]

CONFIG = "/etc/attested/node.yml"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceBed]:
    """Key service and join service of a control plane, with a real API."""
    if reason := missing() or why_not():
        pytest.skip(reason)
    with api_bed(tmp_path_factory.mktemp("api")) as api:
        for path in OBJECTS:
            api.kubectl("apply", "--server-side", "--field-manager=attested-site", "-f", str(path))
        api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=900s")
        bed = ServiceBed(api)
        try:
            bed.start()
            yield bed
        finally:
            assert bed.stop() == 0


@pytest.fixture(scope="module")
def machine(services: ServiceBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arm64Machine]:
    """The machine with the environment and the configuration of a node."""
    cache = Path(os.environ.get("ATTESTED_CACHE") or Path.home() / ".cache" / "attested-kubernetes")
    config = {
        "version": 1,
        "name": NAME,
        "cluster_name": "bed",
        "cluster_id": services.bundle.cluster_id.hex(),
        "endpoints": [f"{HOST}:{services.port}"],
        "join_ca": services.bundle.join_ca_certificate.decode(),
        "tcti": "device:/dev/tpmrm0",
        "logs": {"firmware": LOG, "userspace": "/run/log/systemd/tpm2-measure.log"},
    }
    with arm64_machine(tmp_path_factory.mktemp("vm"), cache) as one:
        one.install_wheels(cache)
        one.inside(f"mkdir -p /etc/attested /run/attested\ncat > {CONFIG} <<'END'\n{yaml.safe_dump(config)}END\n")
        yield one


def test_its_firmware_and_kernel_measured_what_their_log_says(machine: Arm64Machine) -> None:
    assert machine.inside("uname -m").strip() == "aarch64"
    replayed = registers(machine.inside(f"tpm2_eventlog {LOG} 2>/dev/null"))
    read = machine.registers()
    assert {*range(8), 9} <= set(replayed)
    assert all(read[index] == replayed[index] for index in (*range(8), 9))
    assert "0" * 64 not in {read[index] for index in (*range(8), 9, 11)}


def test_it_is_unknown_and_gets_nothing(machine: Arm64Machine, services: ServiceBed) -> None:
    assert machine.ask("join_ticket")["reason"] == "TICKET_REFUSED"
    assert services.last_refusal()["reason"] in {"IDENTITY_UNKNOWN", "IDENTITY_PENDING"}


def test_with_its_key_and_its_profile_it_gets_a_ticket(machine: Arm64Machine, services: ServiceBed) -> None:
    boot, told = observed(machine), machine.ask("attestation_info")
    assert told["nodelock"] == "unlocked"
    read = machine.registers()
    assert all(read[int(index)] == value.upper() for index, value in told["registers"].items())
    profile = learn_profile("arm64", pcrs=boot["pcrs"], events=boot["events"])
    identity = NodeIdentity(ek_sha256=told["ek_sha256"], node_name=NAME, role=Role.WORKER, admission=Admission.APPROVED)
    services.api.apply(render_profile(profile), render_identity(identity))
    services.sign(others=[render_profile(profile)])
    ticket = machine.ask("join_ticket", wait_seconds=60)
    assert (ticket["node_name"], ticket["role"]) == (NAME, "worker")
    found: dict[str, Any] = services.api.get("nodeidentities.attested-kubernetes.dev", identity.name)["status"]
    assert (found["phase"], found["lastAttestation"]["profile"]) == ("Admitted", "arm64")


def test_a_register_that_its_logs_do_not_explain_is_refused(machine: Arm64Machine, services: ServiceBed) -> None:
    """The register of the image, extended once more."""
    machine.inside("tpm2_pcrextend -T device:/dev/tpmrm0 11:sha256=" + "11" * 32)
    assert machine.ask("join_ticket")["reason"] == "TICKET_REFUSED"
    assert services.last_refusal()["reason"] == "EVENT_LOG_MISMATCH"
