# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expected measurements: the three files they may stand in, and what is held against a node."""

from __future__ import annotations

import json

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.node import (
    Measurements,
    parse_measurements,
    verify_measurements,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

FOUR, ONE = "fd5de9df350e3bc4410ac06bbfe5ccdeb93f53b9ef51239f752ce69dbc600f35", "d5" * 32
ENTRIES = {"4": {"expected": FOUR, "warnOnly": False}, "1": {"expected": ONE, "warnOnly": True}, "15": "00" * 32}
# the cluster id of the vector, and register 15 of a node that is in that cluster
CLUSTER = bytes.fromhex("128c164378fe8767f998fbdfe4b4d6463ec5ae1b664ea5999bc27417607ae9b6")
MEMBER = "23400370357e846478cce7cc0c76cdfe4da077cc57b36dee0f665ede2c8b3f2f"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(ENTRIES, id="the map alone"),
        pytest.param({"measurements": ENTRIES}, id="attestationConfig of join-config"),
        pytest.param({"version": "v4", "attestation": {"qemuVTPM": {"measurements": ENTRIES}}}, id="their own file"),
    ],
)
def test_measurements_are_found_where_they_stand(document: dict[str, object]) -> None:
    found = parse_measurements(json.dumps(document).encode())
    assert {index: value.hex() for index, value in found.expected.items()} == {4: FOUR, 1: ONE, 15: "00" * 32}
    assert found.warn_only == {1}


def test_yaml_counts_by_numbers() -> None:
    assert parse_measurements(f"4:\n  expected: {FOUR}\n".encode()).expected == {4: bytes.fromhex(FOUR)}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="a list"),
        pytest.param("{", id="no document"),
        pytest.param("\xff", id="no text"),
        pytest.param("{}", id="an empty map, which theirs takes for any node"),
        pytest.param(json.dumps({"measurements": {}}), id="an empty configuration"),
        pytest.param(json.dumps({"1": ENTRIES["1"]}), id="nothing enforced"),
        pytest.param(json.dumps({"measurements": []}), id="a list of measurements"),
        pytest.param(json.dumps({"attestation": {"a": {}, "b": {}}}), id="two variants"),
        pytest.param(json.dumps({"attestation": []}), id="a list of variants"),
        pytest.param(json.dumps({"attestation": {"a": []}}), id="a variant that is a list"),
        pytest.param(json.dumps({"24": FOUR}), id="a register that no TPM has"),
        pytest.param(json.dumps({"-1": FOUR}), id="a negative register"),
        pytest.param(json.dumps({"\u0664": FOUR}), id="a digit of another script"),
        pytest.param(json.dumps({"4": FOUR[2:]}), id="a short value"),
        pytest.param(json.dumps({"4": "x" * 64}), id="no digits"),
        pytest.param(json.dumps({"4": 4}), id="a number"),
        pytest.param(json.dumps({"4": {"expected": FOUR, "warnOnly": "no"}}), id="a text as truth value"),
        pytest.param("4: a\n---\n4: b", id="two documents"),
    ],
)
def test_what_enforces_nothing_or_is_none_is_refused(text: str) -> None:
    assert code_of(lambda: parse_measurements(text.encode("latin-1"))) == "RESCUE_FILE_MALFORMED: the measurements:"


def test_a_member_has_the_cluster_id_in_register_15() -> None:
    member = parse_measurements(json.dumps(ENTRIES).encode()).of_member(CLUSTER)
    assert member.expected[15].hex() == MEMBER
    alone = Measurements(expected={4: bytes.fromhex(FOUR)}, warn_only=frozenset({15})).of_member(CLUSTER)
    assert (alone.expected[15].hex(), alone.warn_only) == (MEMBER, frozenset())


def test_a_register_that_was_measured_into_before_is_continued() -> None:
    """systemd puts the machine id into register 15 where it measures: the configuration then says another base."""
    based = Measurements(expected={15: b"\x01" * 32}, warn_only=frozenset())
    assert based.of_member(CLUSTER).expected[15].hex() != MEMBER


def test_every_enforced_difference_is_named_and_the_others_are_told() -> None:
    wanted = parse_measurements(json.dumps(ENTRIES).encode())
    good = {4: bytes.fromhex(FOUR), 1: bytes.fromhex(ONE), 15: bytes(32)}
    assert verify_measurements(good, wanted) == ()
    assert verify_measurements(good | {7: b"x" * 32}, wanted) == (), "what is not configured is not looked at"
    assert verify_measurements(good | {1: bytes(32)}, wanted) == (f"PCR 1: expected {ONE}, got {'00' * 32}",)
    with pytest.raises(Refusal, match="PCR 4: .*PCR 15: expected 0{64}, got none") as caught:
        verify_measurements({4: bytes(32), 1: bytes(32)}, wanted)
    assert caught.value.code == "RESCUE_MEASUREMENT_MISMATCH"
    assert "PCR 1:" not in caught.value.message
