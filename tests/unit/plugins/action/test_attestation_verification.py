# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enrolment with papers beside the machine: what the action reads of them vouches for the TPM that was proven."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.action.attestation_verification import ActionModule
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.verify import VerifiedMachine


class Proven:
    """In the verifier's place: the machine has proven itself."""

    def __init__(self) -> None:
        self.machine = Exchange().run().machine

    def enroll(self, port: object, registers: object) -> VerifiedMachine:
        """Return the machine, whichever way leads to it."""
        del port, registers
        return self.machine


class Enrolling(ActionModule):  # type: ignore[misc]
    """The action of a host that nobody enrolled yet."""

    def __init__(self) -> None:
        self.proven = Proven()
        self.task_vars = {"inventory_hostname": "w-1", "hostvars": {"w-1": {}}, "groups": {"workers": ["w-1"]}}

    def verifier(self, params: Mapping[str, Any]) -> Any:
        """Return the one that believes the machine."""
        del params
        return self.proven

    def port(self, params: Mapping[str, Any], **options: str) -> Any:
        """Return no way."""
        del params, options

    def enroll(self, delivered: Path | None, serial: str = "") -> Mapping[str, Any]:
        """Return the result of the task with these options."""
        plain = ("learn_profile", "read_boot", "insecure_first_use", "replacing", "second_key")
        papers = {"delivered": str(delivered) if delivered else None, "serial": serial}
        return self.perform({**dict.fromkeys(plain), "purpose": "enroll", "preset": "auto", **papers}, False).values


def listed(folder: Path, ek: str) -> Path:
    path = folder / "delivery.csv"
    path.write_text(f"serial,ek_sha256\nA1,{'0' * 64}\nB2,{ek}\n", encoding="utf-8")
    return path


def test_the_papers_of_the_machine_vouch_for_it(tmp_path: Path) -> None:
    action = Enrolling()
    told = action.enroll(listed(tmp_path, action.proven.machine.ek_sha256), "B2")
    assert told["known_by"] == "delivery list delivery.csv, serial B2"
    assert told["ek_sha256"] == action.proven.machine.ek_sha256


def test_the_papers_of_another_machine_refuse_it(tmp_path: Path) -> None:
    action = Enrolling()
    with pytest.raises(AttestedError) as caught:
        action.enroll(listed(tmp_path, action.proven.machine.ek_sha256), "A1")
    assert caught.value.code == "EK_NOT_AS_DELIVERED"


def test_without_papers_nobody_vouches_for_it() -> None:
    with pytest.raises(AttestedError) as caught:
        Enrolling().enroll(None)
    assert caught.value.code == "EK_NOT_VOUCHED_FOR"
