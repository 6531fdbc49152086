# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both endorsement keys of real TPMs, as enroll asks for them: one chip proves them, and another one's does not."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps.yaml import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Testimony as Said
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.attest import Verifier
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.enrolment import chip_keys
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock, SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import ChallengeRequest
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import Demands
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.node import witness
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_ECC, ALG_RSA
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.exchange import CLUSTER_ID, NOW
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import Challenge
    from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
    from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import Purpose
    from ansible_collections.attested.kubernetes.tests.support.swtpm import Opened, Swtpm

VERIFIER = Verifier(cluster_id=CLUSTER_ID, demands=Demands(), clock=SystemClock(), random=SystemRandom())


@dataclass
class Port:
    """The way to a node: what its module ``attestation_info`` does; a lie is told instead of its own word."""

    config: str
    key: str = "first"
    lie: bytes = b""
    shown: list[ChallengeRequest] = field(default_factory=list)

    def identify(self, purpose: Purpose) -> bytes:
        said = self.lie or base64.b64decode(self._run(purpose)["challenge_request"])
        self.shown.append(ChallengeRequest.parse(said))
        return said

    def answer(self, purpose: Purpose, challenge: Challenge) -> Said:
        told = self._run(purpose, base64.b64encode(challenge.to_bytes()).decode("ascii"))
        return Said(
            binding=base64.b64decode(str(told["binding"])), event_logs=base64.b64decode(str(told["event_logs"]))
        )

    def _run(self, purpose: Purpose, challenge: str | None = None) -> Any:
        params = {
            "node_config": self.config,
            "tpm_timeout_seconds": 20,
            "purpose": purpose.value,
            "challenge": challenge,
            "endorsement_key": self.key,
        }
        return witness.run_attestation_info(params, False).values


@pytest.fixture
def nodes(swtpms: Callable[..., Swtpm], opened: Opened, tmp_path: Path) -> Callable[..., str]:
    """Boot a machine with a real TPM; return the path of its node.yml."""

    def boot(name: str) -> str:
        swtpm, recorded = swtpms(name), boots.load("deb13-base")
        with opened(swtpm) as tpm:
            replay(tpm, firmware=recorded.firmware, userspace=recorded.userspace)
        logs = {"firmware": "eventlog.bin", "userspace": "userspace.json"}
        body = {
            "version": 1,
            "name": name,
            "cluster_name": "prod",
            "cluster_id": CLUSTER_ID.hex(),
            "endpoints": ["192.0.2.11:9090"],
            "join_ca": make_join_ca("prod", now=NOW).certificate.decode("ascii"),
            "tcti": swtpm.tcti,
            "logs": {kind: str(BOOTS / "deb13-base" / file) for kind, file in logs.items()},
        }
        path = tmp_path / f"{name}.yml"
        path.write_text(yaml.safe_dump(body), encoding="utf-8")
        return str(path)

    return boot


def kinds(port: Port) -> list[int]:
    return [one.ek_public.type for one in port.shown]


def test_enrolment_proves_both_keys_of_one_chip(nodes: Callable[..., str]) -> None:
    config = nodes("a")
    first, second = Port(config), Port(config, "second")
    machine = VERIFIER.enroll(first)
    other = VERIFIER.second_key(second, machine)
    assert (kinds(first), kinds(second)) == ([ALG_RSA], [ALG_ECC])
    keys = chip_keys(machine, other, before=None, insecure_first_use=True)
    assert keys.ek_sha256 == first.shown[0].ek_public.spki_sha256()
    assert keys.alias == second.shown[0].ek_public.spki_sha256()
    assert machine.quote.ak_name == other.quote.ak_name


def test_the_second_key_of_another_tpm_is_refused(nodes: Callable[..., str]) -> None:
    """Answered by that TPM, or passed off as the own one's: the attestation key is of one of them only."""
    mine, its = nodes("a"), nodes("b")
    machine = VERIFIER.enroll(Port(mine))
    elsewhere = Port(its, "second")
    assert code_of(lambda: VERIFIER.second_key(elsewhere, machine)) == "AK_MISMATCH"
    own = ChallengeRequest.parse(Port(mine, "second").identify(machine.purpose))
    foreign: Public = elsewhere.shown[0].ek_public
    mixed = ChallengeRequest(ek_public=foreign, ak_public=own.ak_public).to_bytes()
    for teller in (mine, its):
        assert code_of(lambda teller=teller: VERIFIER.second_key(Port(teller, "second", mixed), machine)) == (
            "TPM_CREDENTIAL_REFUSED"
        )


def test_the_first_key_twice_is_no_second_one(nodes: Callable[..., str]) -> None:
    config = nodes("a")
    assert code_of(lambda: VERIFIER.second_key(Port(config), VERIFIER.enroll(Port(config)))) == "EK_SECOND_REPEATED"
