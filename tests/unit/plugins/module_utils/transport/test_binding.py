# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The binding digest: every part counts, no two inputs collide, wrong lengths are refused."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.binding import (
    BindingInput,
    Purpose,
    binding_digest,
    challenge_proof,
    handshake_digest,
    label,
    length_prefixed,
)


def good(**changes: Any) -> BindingInput:
    parts = {
        "purpose": Purpose.JOIN,
        "cluster_id": b"c" * 32,
        "exporter": b"e" * 32,
        "spki_sha256": b"k" * 32,
        "nonce": b"n" * 32,
        "proof": b"p" * 32,
        "request_sha256": b"r" * 32,
        "hpke_public": b"h" * 32,
    }
    return BindingInput(**{**parts, **changes})


def test_digest_is_the_hash_of_the_prefixed_parts_in_their_order() -> None:
    """A second implementation, written out by hand, gives the same bytes."""
    parts = [b"attested.kubernetes/bind/join/v1", b"c" * 32, b"e" * 32, b"k" * 32, b"n" * 32, b"p" * 32]
    parts += [b"r" * 32, b"h" * 32]
    expected = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()
    assert binding_digest(good()) == expected


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(BindingInput)])
def test_changing_one_part_changes_the_digest(name: str) -> None:
    changed = {"purpose": Purpose.INIT, "protocol_version": 2}.get(name, b"x" * 32)
    assert binding_digest(good(**{name: changed})) != binding_digest(good())


def test_two_parts_swapped_change_the_digest() -> None:
    assert binding_digest(good(nonce=b"p" * 32, proof=b"n" * 32)) != binding_digest(good())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nonce": b"n" * 31}, id="a nonce that is one byte short"),
        pytest.param({"proof": b""}, id="no proof"),
        pytest.param({"request_sha256": b"r" * 33}, id="a request digest that is one byte long"),
        pytest.param({"hpke_public": b"h"}, id="a one-time key of one byte"),
        pytest.param({"cluster_id": b""}, id="a join without cluster id"),
        pytest.param({"exporter": b"", "spki_sha256": b""}, id="a join without channel"),
        pytest.param({"exporter": b""}, id="an exporter alone"),
        pytest.param({"purpose": Purpose.INIT, "spki_sha256": b""}, id="a certificate hash alone"),
        pytest.param({"purpose": Purpose.VERIFY, "cluster_id": b""}, id="a verification without cluster id"),
    ],
)
def test_parts_of_a_wrong_length_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        good(**changes)
    assert caught.value.code == "BINDING_MALFORMED"


def test_every_wrong_part_is_named() -> None:
    with pytest.raises(Refusal, match="nonce of 1 bytes, proof of 2 bytes, cluster_id of 3 bytes"):
        good(nonce=b"n", proof=b"pp", cluster_id=b"ccc")


def test_over_ssh_a_channel_may_be_absent_and_an_enrolment_may_come_before_the_cluster() -> None:
    over_ssh = {"exporter": b"", "spki_sha256": b""}
    digests = {
        binding_digest(good(purpose=Purpose.ENROLL, cluster_id=b"", **over_ssh)),
        binding_digest(good(purpose=Purpose.ENROLL, **over_ssh)),
        binding_digest(good(purpose=Purpose.INIT, **over_ssh)),
        binding_digest(good(purpose=Purpose.VERIFY, **over_ssh)),
    }
    assert len(digests) == 4


def test_proof_is_an_hmac_over_label_and_nonce() -> None:
    expected = hmac.new(b"s" * 32, b"attested.kubernetes/proof/v1" + b"n" * 32, hashlib.sha256).digest()
    assert challenge_proof(b"s" * 32, b"n" * 32) == expected


def test_handshake_evidence_is_no_bound_evidence() -> None:
    """E1's qualifying data has its own label."""
    expected = hashlib.sha256(length_prefixed(b"attested.kubernetes/doorkeeper/v1", b"n", b"k")).digest()
    assert handshake_digest(nonce=b"n", spki_sha256=b"k") == expected


def test_label_carries_the_protocol_version() -> None:
    assert label("seal", version=7) == b"attested.kubernetes/seal/v7"


def test_prefixes_keep_parts_apart() -> None:
    assert length_prefixed(b"ab", b"c") != length_prefixed(b"a", b"bc")
