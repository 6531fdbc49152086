# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A refused boot is explained by what firmware measured differently from the last boot that the cluster accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import TransportError
from ansible_collections.attested.kubernetes.plugins.module_utils.node.boot_record import BootRecord
from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import NodeRun, StepName
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.exchange import logs_of

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.attested.kubernetes.plugins.module_utils.node.order import Parts

FIRMWARE = "PCR 0 event 1 (EV_S_CRTM_VERSION): expected \"firmware version '2025.02-8+deb13u1'\""


def record(folder: Path, boot: str = "deb13-base") -> BootRecord:
    """The record of a machine that booted ``boot`` this time."""
    return BootRecord(lambda: logs_of(boots.load(boot)), folder / "accepted.json")


@pytest.mark.parametrize(
    ("boot", "told"),
    [
        pytest.param("deb13-firmware", FIRMWARE, id="the firmware was changed: its versions"),
        pytest.param("deb13-cmdline", "attested.tampered=1", id="the command line was changed"),
        pytest.param("deb13-secureboot", "CN=attested corpus PK", id="a key of Secure Boot: by its name"),
    ],
)
def test_what_differs_is_told(tmp_path: Path, boot: str, told: str) -> None:
    record(tmp_path).keep()
    said = record(tmp_path, boot).difference()
    assert said.startswith("this boot differs from the last accepted boot; PCR ")
    assert told in said
    assert len(said) < 8 * 500


def test_the_same_boot_is_told_as_the_same(tmp_path: Path) -> None:
    record(tmp_path).keep()
    assert record(tmp_path).difference() == "firmware measured the same as in the last accepted boot"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="none was accepted yet"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(json.dumps({"version": 2, "events": []}).encode(), id="another version"),
        pytest.param(json.dumps({"version": 1, "events": [{"pcr": 1}]}).encode(), id="an event of another form"),
        pytest.param(json.dumps([1]).encode(), id="a list"),
    ],
)
def test_without_a_record_nothing_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "accepted.json").write_bytes(content)
    assert record(tmp_path).difference() == ""


def test_a_boot_without_a_log_is_not_remembered(tmp_path: Path) -> None:
    odd = replace(boots.load("deb13-base"), firmware=b"x")
    broken = BootRecord(lambda: logs_of(odd), tmp_path / "accepted.json")
    broken.keep()
    assert not (tmp_path / "accepted.json").exists()
    record(tmp_path).keep()
    assert broken.difference() == ""


class Remembering:
    """Says what it is told to say."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.kept = 0

    def keep(self) -> None:
        self.kept += 1

    def difference(self) -> str:
        return self.said


@pytest.mark.parametrize(
    ("reason", "said", "message"),
    [
        pytest.param(Reason.TICKET_REFUSED, "PCR 0 differs", "expected a ticket; PCR 0 differs", id="refused"),
        pytest.param(Reason.TICKET_REFUSED, "", "expected a ticket", id="refused, and nothing is known"),
        pytest.param(Reason.JOIN_CA_MISMATCH, "PCR 0 differs", "expected a ticket", id="another failure"),
    ],
)
def test_a_refusal_says_what_this_machine_sees(parts: Parts, reason: Reason, said: str, message: str) -> None:
    boots_seen = Remembering(said)
    run = NodeRun(replace(parts, boots=boots_seen))
    parts.tickets.errors.append(TransportError("expected a ticket", reason=reason))
    with pytest.raises(TransportError):
        run.apply([StepName.TICKET])
    assert parts.journal.load().message == message
    assert boots_seen.kept == 0


def test_a_ticket_makes_this_boot_a_good_one(parts: Parts) -> None:
    boots_seen = Remembering("")
    NodeRun(replace(parts, boots=boots_seen)).apply([StepName.TICKET])
    assert boots_seen.kept == 1
