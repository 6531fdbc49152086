# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules attestation_info and cluster_keys on a real TPM with a recorded boot: the whole init exchange."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils._deps.yaml import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemRandom
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.challenge import (
    ChallengeRequest,
    new_challenge,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.ca import make_join_ca
from ansible_collections.attested.kubernetes.plugins.module_utils.node import member, witness
from ansible_collections.attested.kubernetes.tests.support.boots import BOOTS
from ansible_collections.attested.kubernetes.tests.support.exchange import NOW, SELECTION

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.support.swtpm import Swtpm

CLUSTER_ID = b"c" * 32


@pytest.fixture
def config(swtpm: Swtpm, tmp_path: Path) -> str:
    """Return the path of a node.yml for this TPM and the logs of a recorded boot."""
    body = {
        "version": 1,
        "name": "cp-1",
        "cluster_name": "prod",
        "cluster_id": CLUSTER_ID.hex(),
        "endpoints": ["192.0.2.11:9090"],
        "join_ca": make_join_ca("prod", now=NOW).certificate.decode("ascii"),
        "tcti": swtpm.tcti,
        "logs": {
            "firmware": str(BOOTS / "deb13-base" / "eventlog.bin"),
            "userspace": str(BOOTS / "deb13-base" / "userspace.json"),
        },
    }
    path = tmp_path / "node.yml"
    path.write_text(yaml.safe_dump(body), encoding="utf-8")
    return str(path)


def parameters(config: str, **changes: Any) -> dict[str, Any]:
    return {
        "node_config": config,
        "tpm_timeout_seconds": 10,
        "purpose": "verify",
        "challenge": None,
        "endorsement_key": "first",
        **changes,
    }


def test_machine_says_who_it_is_without_a_challenge(config: str) -> None:
    said = witness.run_attestation_info(parameters(config), False)
    request = ChallengeRequest.parse(base64.b64decode(said.values["challenge_request"]))
    assert said.values["ek_sha256"] == request.ek_public.spki_sha256()
    assert (said.values["node"], said.values["ek_certified"], said.changed) == ("cp-1", True, False)
    assert len(said.values["registers"]) == 16


def test_answer_for_verify_keeps_nothing_on_the_node(config: str) -> None:
    identity = witness.run_attestation_info(parameters(config), False).values
    request = ChallengeRequest.parse(base64.b64decode(identity["challenge_request"]))
    challenge, _record = new_challenge(request, selection=SELECTION, random=SystemRandom(), now=NOW)
    text = base64.b64encode(challenge.to_bytes()).decode("ascii")
    said = witness.run_attestation_info(parameters(config, challenge=text), False)
    assert set(said.values) == {"node", "binding", "event_logs"}


@pytest.mark.parametrize("challenge", ["no base64!", "é"])
def test_challenge_that_is_no_base64_is_refused(config: str, challenge: str) -> None:
    with pytest.raises(AttestedError) as refused:
        witness.run_attestation_info(parameters(config, challenge=challenge), False)
    assert refused.value.code == "OPTION_INVALID"


def test_box_without_an_answer_that_waits_is_refused(config: str) -> None:
    with pytest.raises(AttestedError) as refused:
        member.run_cluster_keys(parameters(config, handle="0" * 32, sealed=""), False)
    assert refused.value.code == "ANSWER_UNKNOWN"
