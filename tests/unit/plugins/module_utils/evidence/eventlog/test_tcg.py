# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parser of firmware logs: strict, bounded, and never an error outside the tree."""

from __future__ import annotations

import struct

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError, Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.eventlog.tcg import parse_firmware_log
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import ALG_SHA1, ALG_SHA256
from ansible_collections.attested.kubernetes.tests.support import boots
from hypothesis import given
from hypothesis import strategies as st

BASE = boots.load("deb13-base").firmware
SHA256 = ((0x000B, 32),)


def header(algorithms: tuple[tuple[int, int], ...] = SHA256, *, signature: bytes = b"Spec ID Event03\x00") -> bytes:
    body = signature + struct.pack("<IBBBBI", 0, 0, 2, 0, 2, len(algorithms))
    body += b"".join(struct.pack("<HH", alg, size) for alg, size in algorithms) + b"\x00"
    return struct.pack("<II20sI", 0, 3, bytes(20), len(body)) + body


def event(pcr: int, kind: int, data: bytes = b"", digests: tuple[tuple[int, bytes], ...] = ((11, b"d" * 32),)) -> bytes:
    listed = b"".join(struct.pack("<H", alg) + digest for alg, digest in digests)
    return struct.pack("<III", pcr, kind, len(digests)) + listed + struct.pack("<I", len(data)) + data


def locality(value: bytes) -> bytes:
    return event(0, 3, b"StartupLocality\x00" + value)


def test_a_recorded_log_has_its_events() -> None:
    log = parse_firmware_log(BASE)
    assert len(log.events) == 44
    assert log.events[0].data.decode("utf-16-le") == "2025.02-8+deb13u1\x00"


def test_no_log_is_an_empty_log() -> None:
    assert parse_firmware_log(b"").events == ()


def test_events_with_several_banks_keep_all_digests() -> None:
    log = parse_firmware_log(header(((4, 20), (11, 32))) + event(1, 1, b"x", ((11, b"b" * 32), (4, b"a" * 20))))
    assert log.events[0].digests == {ALG_SHA1: b"a" * 20, ALG_SHA256: b"b" * 32}


def test_no_action_extends_nothing_and_may_name_no_register() -> None:
    log = parse_firmware_log(header() + event(0xFFFFFFFF, 3, b"H-CRTM"))
    assert (log.events, log.startup_locality) == ((), 0)


@pytest.mark.parametrize(("value", "expected"), [(b"\x00", 0), (b"\x03", 3), (b"\x04", 4)])
def test_startup_locality_is_read(value: bytes, expected: int) -> None:
    assert parse_firmware_log(header() + locality(value)).startup_locality == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(BASE[:-1], "40 more bytes at offset", id="truncated by one byte"),
        pytest.param(BASE + b"\x00", "12 more bytes at offset", id="one byte behind the end"),
        pytest.param(header(signature=b"Spec ID Event02\x00"), "the header Spec ID Event03", id="another header"),
        pytest.param(BASE[65:], "in the firmware event log", id="no header"),
        pytest.param(header(()), "1 to 8 algorithms", id="no algorithm"),
        pytest.param(header(((11, 32),) * 9), "1 to 8 algorithms", id="nine algorithms"),
        pytest.param(header(((11, 32), (11, 32))), "every algorithm once", id="an algorithm twice"),
        pytest.param(header(((11, 31),)), "the digest size of algorithm 0x000b", id="a digest size that is wrong"),
        pytest.param(header(((0x99, 0),)), "the digest size of algorithm 0x0099", id="an unknown digest of no size"),
        pytest.param(header(((0x99, 65),)), "the digest size of algorithm 0x0099", id="an unknown digest too large"),
        pytest.param(header() + event(1, 1, b"", ()), "1 digests an event", id="an event without digest"),
        pytest.param(header() + event(1, 1, b"", ((4, b"d" * 20),)), "algorithm 0x0004", id="an unannounced algorithm"),
        pytest.param(
            header(((4, 20), (11, 32))) + event(1, 1, b"", ((4, b"d" * 20), (4, b"d" * 20))),
            "algorithm 0x0004",
            id="one algorithm twice in an event",
        ),
        pytest.param(header() + event(24, 1), "a register below 24", id="a register that does not exist"),
        pytest.param(header() + locality(b"\x01"), "one StartupLocality", id="a locality that cannot start a TPM"),
        pytest.param(header() + locality(b""), "one StartupLocality", id="no locality"),
        pytest.param(header() + locality(b"\x03") * 2, "one StartupLocality", id="two localities"),
        pytest.param(header() + event(0, 1) + locality(b"\x03"), "one StartupLocality", id="a locality that is late"),
        pytest.param(header() + event(1, 1) * 4097, "at most 4096 events", id="too many events"),
    ],
)
def test_a_malformed_log_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Refusal, match=message) as caught:
        parse_firmware_log(data)
    assert caught.value.code == "EVENT_LOG_MALFORMED"


def test_a_header_with_more_bytes_than_it_says_is_refused() -> None:
    data = bytearray(header() + b"\x00")
    data[28:32] = struct.pack("<I", len(data) - 32)
    with pytest.raises(Refusal, match="the end of the header"):
        parse_firmware_log(bytes(data))


def test_vendor_information_is_skipped() -> None:
    data = bytearray(header() + b"vendor" + event(1, 1))
    vendor = len(header()) - 1
    data[vendor] = 6
    data[28:32] = struct.pack("<I", len(header()) - 32 + 6)
    assert len(parse_firmware_log(bytes(data)).events) == 1


def test_an_oversized_log_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(Refusal) as caught:
        parse_firmware_log(bytes(512 * 1024 + 1))
    assert caught.value.code == "EVENT_LOG_TOO_LARGE"


@given(at=st.integers(0, len(BASE) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_a_log_or_a_refusal(at: int, bit: int) -> None:
    changed = bytearray(BASE)
    changed[at] ^= 1 << bit
    _parsed_or_refused(bytes(changed))


@given(end=st.integers(0, len(BASE)))
def test_a_truncated_log_gives_a_log_or_a_refusal(end: int) -> None:
    _parsed_or_refused(BASE[:end])


@given(tail=st.binary(max_size=300))
def test_bytes_behind_a_header_give_a_log_or_a_refusal(tail: bytes) -> None:
    _parsed_or_refused(header() + tail)


def _parsed_or_refused(data: bytes) -> None:
    try:
        log = parse_firmware_log(data)
    except AttestedError as error:
        assert error.code in {"EVENT_LOG_MALFORMED", "EVENT_LOG_TOO_LARGE"}
    else:
        assert all(0 <= one.pcr < 24 for one in log.events)
