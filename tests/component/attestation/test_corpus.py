# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tpm2-tools and we agree on every document of the corpus: on each log, each event, each quote, each refusal."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog import kinds
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.kinds import describe
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.replay import (
    initial_value,
    replay,
    verify_replay,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import (
    FirmwareEvent,
    FirmwareLog,
    parse_firmware_log,
    parse_records,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import verify_quote
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from ansible_collections.attested.kubernetes.tests.support.tpm2_tools import require_tool

if TYPE_CHECKING:
    from pathlib import Path

IMA_REGISTER, PHASES_REGISTER = 10, 11
_VALUE = re.compile(r"^\s*(\d+)\s*:\s*0x([0-9A-Fa-f]{64})\s*$", re.MULTILINE)
_EVENT = re.compile(
    r"^- EventNum: (?P<number>\d+)\n  PCRIndex: (?P<pcr>\d+)\n  EventType: (?P<kind>\S+)\n(?P<rest>(?:  .*\n|\n)*)",
    re.MULTILINE,
)
_DIGEST = re.compile(r'AlgorithmId: sha256\n    Digest: "([0-9a-f]{64})"')
_DOCUMENTS = [pytest.param(one, id=one.name) for one in boots.documents()]


def read_log(path: Path) -> str:
    done = subprocess.run([require_tool("tpm2_eventlog"), str(path)], capture_output=True, timeout=900, check=True)
    return done.stdout.decode(errors="replace")


def values(told: str) -> dict[int, bytes]:
    return {int(index): bytes.fromhex(value) for index, value in _VALUE.findall(told)}


def _knows_startup_locality() -> bool:
    """Whether the tool takes the event into account: 5.4 (Debian 12) does not, 5.7 (Debian 13) does."""
    command = [require_tool("tpm2_eventlog"), "--version"]
    told = subprocess.run(command, capture_output=True, timeout=900, check=True).stdout.decode()
    return tuple(map(int, re.findall(r'version="(\d+)\.(\d+)', told)[0])) > (5, 4)


def check_quote(
    document: boots.Document, *, nonce: bytes | None = None, attest: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    arguments = {
        "-u": document.pem,
        "-m": attest or document.file("tpms_attest"),
        "-s": document.file("tpmt_signature"),
        "-f": document.file("pcrs"),
        "-g": "sha256",
        "-q": (document.nonce if nonce is None else nonce).hex(),
    }
    command = [require_tool("tpm2_checkquote"), *(str(part) for pair in arguments.items() for part in pair)]
    return subprocess.run(command, capture_output=True, timeout=900, check=False)


def evidence(document: boots.Document) -> Evidence:
    """The document as we see it, with the register values that the tool reads from its own file."""
    told = check_quote(document)
    assert told.returncode == 0, told.stderr.decode()
    return Evidence(
        variant="tpm2",
        ak_public=document.public,
        quote=document.file("tpms_attest").read_bytes(),
        signature=document.file("tpmt_signature").read_bytes(),
        pcrs=values(told.stdout.decode()),
    )


def test_the_corpus_is_whole() -> None:
    assert len(boots.names()) == 12
    assert len(boots.documents()) == 11


@pytest.mark.parametrize("name", boots.names())
def test_tpm2_eventlog_replays_each_log_to_our_values(name: str) -> None:
    theirs = values(read_log(boots.BOOTS / name / "eventlog.bin"))
    log = parse_firmware_log(boots.load(name).firmware)
    ours = replay(log, ())
    if log.startup_locality and not _knows_startup_locality():
        # An older tool extends the event's digest of zeros: we agree once we do so too. The TPM's own value is ours.
        assert ours[0] == boots.load(name).pcrs[0] != theirs[0]
        as_event = FirmwareEvent(pcr=0, kind=3, digests={ALG_SHA256: bytes(32)}, data=b"")
        ours = replay(FirmwareLog(events=(as_event, *log.events), startup_locality=0), ())
    assert theirs == {pcr: ours.get(pcr, initial_value(pcr)) for pcr in theirs}
    assert set(ours) <= set(theirs)


@pytest.mark.parametrize("name", boots.names())
def test_tpm2_eventlog_reads_each_event_as_we_do(name: str) -> None:
    """Number, register, type and digest of every event; EV_NO_ACTION extends nothing and is not among ours."""
    told = read_log(boots.BOOTS / name / "eventlog.bin")
    theirs = [
        (int(one["number"]), int(one["pcr"]), one["kind"], _DIGEST.findall(one["rest"])[0])
        for one in _EVENT.finditer(told)
        if one["kind"] != "EV_NO_ACTION"
    ]
    log = parse_firmware_log(boots.load(name).firmware)
    assert [(one.number, one.pcr, kinds.name(one.kind), one.digests[ALG_SHA256].hex()) for one in log.events] == theirs
    assert len(theirs) > 30


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_tpm2_checkquote_and_we_accept_each_quote(document: boots.Document) -> None:
    presented = evidence(document)
    verified = verify_quote(presented, qualifying_data=document.nonce)
    assert verified.pcrs == presented.pcrs
    assert len(verified.pcrs) == 24


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_tpm2_checkquote_and_we_refuse_each_quote_over_another_nonce(document: boots.Document) -> None:
    other = bytes([document.nonce[0] ^ 1]) + document.nonce[1:]
    assert check_quote(document, nonce=other).returncode != 0
    with pytest.raises(Refusal) as caught:
        verify_quote(evidence(document), qualifying_data=other)
    assert caught.value.code == "BINDING_MISMATCH"


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_tpm2_checkquote_and_we_refuse_each_quote_with_a_changed_byte(document: boots.Document, tmp_path: Path) -> None:
    attest = bytearray(document.file("tpms_attest").read_bytes())
    attest[-1] ^= 1  # in the digest over the registers
    (tmp_path / "attest").write_bytes(attest)
    assert check_quote(document, attest=tmp_path / "attest").returncode != 0
    with pytest.raises(Refusal) as caught:
        verify_quote(dataclasses.replace(evidence(document), quote=bytes(attest)), qualifying_data=document.nonce)
    assert caught.value.code == "QUOTE_SIGNATURE"


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_each_quoted_boot_is_replayed_read_and_explained(document: boots.Document) -> None:
    """The quote, not the list beside it: each of its registers follows from the logs that were recorded with it."""
    quoted = verify_quote(evidence(document), qualifying_data=document.nonce).pcrs
    boot = boots.load(document.boot)
    firmware, userspace = parse_firmware_log(boot.firmware), parse_records(boot.userspace, "userspace log")
    verify_replay(quoted, firmware, userspace)
    explained = {IMA_REGISTER, *replay(firmware, userspace)}
    assert {pcr: quoted[pcr] for pcr in quoted if pcr not in explained} == {
        pcr: initial_value(pcr) for pcr in quoted if pcr not in explained
    }
    events = describe(firmware, userspace, command_line=boot.command_line)
    assert len(events) == len(firmware.events) + len(userspace)
    assert all(event.text.isprintable() and not event.text.startswith("event type") for event in events)
