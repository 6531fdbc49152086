# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parser of JSON-seq logs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_records
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA256, ALG_SHA384
from ansible_collections.attested.kubernetes.tests.support import boots
from hypothesis import given
from hypothesis import strategies as st

BASE = boots.load("deb13-base").userspace
DIGEST = {"hashAlg": "sha256", "digest": "ab" * 32}


def record(**changes: Any) -> bytes:
    members = {"pcr": 11, "digests": [DIGEST], "content_type": "systemd", "content": {"string": "ready"}}
    members.update(changes)
    kept = {name: value for name, value in members.items() if value is not None}
    return b"\x1e" + json.dumps(kept).encode() + b"\n"


def test_systemds_log_has_its_records() -> None:
    told = [(one.pcr, one.kind, one.text.split(":")[0]) for one in parse_records(BASE, "userspace log")]
    assert told == [(15, "machine-id", "machine-id"), (11, "phase", "sysinit"), (11, "phase", "ready")]


def test_no_log_has_no_records() -> None:
    assert parse_records(b"", "userspace log") == ()


def test_every_bank_is_kept() -> None:
    digests = [DIGEST, {"hashAlg": "sha384", "digest": "cd" * 48}]
    assert parse_records(record(digests=digests), "log")[0].digests == {
        ALG_SHA256: b"\xab" * 32,
        ALG_SHA384: b"\xcd" * 48,
    }


def test_a_record_of_an_nv_index_extends_no_register() -> None:
    assert parse_records(record(pcr=None, nv_index=0x1D10200), "log") == ()


@pytest.mark.parametrize("content", [None, [], {"string": 7}, {}])
def test_a_record_need_not_explain_itself(content: object) -> None:
    assert parse_records(record(content=content), "log")[0].text == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"{}", "a record separator in front", id="no separator"),
        pytest.param(b"\x1e", "a JSON record", id="an empty record"),
        pytest.param(BASE[:-3], "a JSON record", id="truncated"),
        pytest.param(b"\x1e\xff", "a JSON record", id="no UTF-8"),
        pytest.param(b"\x1e[]", "a JSON object", id="a list"),
        pytest.param(b'\x1e{"pcr": 1, "pcr": 2}', "a JSON record", id="a member twice"),
        pytest.param(b"\x1e" + b"[" * 100_000, "a JSON record", id="a hundred thousand lists in each other"),
        pytest.param(b"\x1e" + b"9" * 5000, "a JSON record", id="a number of five thousand digits"),
        pytest.param(record() * 257, "at most 256 records", id="too many records"),
        pytest.param(record(pcr=None), "a register below 24", id="no register"),
        pytest.param(record(pcr=True), "a register below 24", id="a truth value for a register"),
        pytest.param(record(pcr=24), "a register below 24", id="a register that does not exist"),
        pytest.param(record(pcr=-1), "a register below 24", id="a negative register"),
        pytest.param(record(pcr="11"), "a register below 24", id="a register as text"),
        pytest.param(record(digests=None), "a list of digests", id="no digests"),
        pytest.param(record(digests=[]), "a list of digests", id="an empty list of digests"),
        pytest.param(record(digests={"sha256": "ab"}), "a list of digests", id="digests as an object"),
        pytest.param(record(digests=[DIGEST, DIGEST]), "one digest an algorithm", id="one algorithm twice"),
        pytest.param(record(digests=["ab"]), "a digest of a known", id="a digest that is a text"),
        pytest.param(record(digests=[{**DIGEST, "hashAlg": "md5"}]), "a digest of a known", id="MD5"),
        pytest.param(record(digests=[{**DIGEST, "digest": "ab"}]), "a digest of a known", id="a digest of one byte"),
        pytest.param(record(digests=[{**DIGEST, "digest": "zz"}]), "a digest of a known", id="a digest that is no hex"),
    ],
)
def test_a_malformed_log_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Refusal, match=message) as caught:
        parse_records(data, "userspace log")
    assert caught.value.code == "EVENT_LOG_MALFORMED"
    assert "in the userspace log" in caught.value.message


def test_an_oversized_log_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(Refusal) as caught:
        parse_records(bytes(128 * 1024 + 1), "userspace log")
    assert caught.value.code == "EVENT_LOG_TOO_LARGE"


@given(at=st.integers(0, len(BASE) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_records_or_a_refusal(at: int, bit: int) -> None:
    changed = bytearray(BASE)
    changed[at] ^= 1 << bit
    _parsed_or_refused(bytes(changed))


@given(end=st.integers(0, len(BASE)))
def test_a_truncated_log_gives_records_or_a_refusal(end: int) -> None:
    _parsed_or_refused(BASE[:end])


def _parsed_or_refused(data: bytes) -> None:
    try:
        records = parse_records(data, "log")
    except AttestedError as error:
        assert error.code == "EVENT_LOG_MALFORMED"
    else:
        assert all(one.digests for one in records)
