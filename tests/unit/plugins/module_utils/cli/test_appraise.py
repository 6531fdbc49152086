# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested appraise`, as a person and as a program see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.cli import command
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.constellation import (
    VERIFY_SERVICE_USER_DATA,
    issue_constellation_document,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.policy.manifest import render_document, render_profile
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import learned
from ansible_collections.attested.kubernetes.tests.support.soft_tpm import SoftTpm

if TYPE_CHECKING:
    from pathlib import Path

BOOT = boots.load("deb13-base")
TPM = SoftTpm(BOOT.pcrs)
NONCE = b"n" * 32


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a good document, its policy and the profile that the policy names."""
    (tmp_path / "document.json").write_bytes(issue_constellation_document(TPM, TPM.ak, nonce=NONCE))
    (tmp_path / "profile.yml").write_text(render_document(render_profile(learned(BOOT))))
    write(tmp_path)
    return tmp_path


def write(place: Path, **changes: object) -> None:
    policy = {
        "variant": "qemu-vtpm",
        "insecureConstellationPeer": True,
        "attestationKeys": [TPM.ak.name.hex()],
        "userData": VERIFY_SERVICE_USER_DATA.hex(),
        "nonce": NONCE.hex(),
        "profile": "profile.yml",
        **changes,
    }
    (place / "policy.yml").write_text(json.dumps(policy))


def run(place: Path, *words: str) -> int:
    return command.main(["appraise", str(place / "document.json"), "--policy", str(place / "policy.yml"), *words])


def test_a_good_document_is_accepted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "qemu-vtpm: accepted"
    assert lines[1] == "  1  ok       The policy permits documents of a Constellation peer"
    assert f"attestation key  {TPM.ak.name.hex()}" in lines


def test_a_refusal_names_step_code_and_hint(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, nonce="00" * 32)
    assert run(place) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "qemu-vtpm: refused"
    assert lines[6].startswith("  6  REFUSED  Every quote verifies")
    assert lines[7].strip().startswith("BINDING_MISMATCH: expected a quote over")
    assert lines[9] == "  7  -        All quotes are of one run of the TPM"


def test_a_program_gets_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, attestationKeys=[])
    assert run(place, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["accepted"], said["reason"], said["findings"]) == (False, "CONSTELLATION_KEY_UNKNOWN", {})
    assert [step["state"] for step in said["steps"][2:5]] == ["passed", "refused", "not reached"]
    write(place)
    assert run(place, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["accepted"], said["reason"], said["message"], said["hint"]) == (True, None, None, None)


@pytest.mark.parametrize(("moment", "code"), [("2026-11-24T12:00:00Z", 0), ("2026-11-24T12:00:00", 1), ("soon", 1)])
def test_the_time_can_be_another(place: Path, capsys: pytest.CaptureFixture[str], moment: str, code: int) -> None:
    assert run(place, "--at", moment) == code
    assert ("expected a time such as" in capsys.readouterr().err) == bool(code)


def test_a_file_that_is_not_there_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, profile="other.yml")
    assert run(place) == 1
    assert "FILE_UNUSABLE" in capsys.readouterr().err


def test_terminal_output_holds_no_control_character(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "document.json").write_text('{"\\u001b[2Jx": 1}')
    assert run(place) == 1
    assert "\x1b" not in capsys.readouterr().out
