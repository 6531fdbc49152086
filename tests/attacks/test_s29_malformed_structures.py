# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S29: malformed ASN.1, TPM structures, logs, messages: every target of the fuzzer with two hundred made-up inputs.

The fuzzer itself, guided by coverage, is the stage `fuzz` (`fuzz_long` in the night); this holds without atheris.
"""

from __future__ import annotations

import importlib
import random
import zlib
from typing import Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.evidence import Evidence
from ansible_collections.attested.kubernetes.tests.support.house import COLLECTION, ROOT
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

THREAT = Threat(
    id="S29",
    title="Malformed structures",
    case="go-attestation's and OSS-Fuzz' findings",
    bed="bytes",
    stops=(
        ("evidence/evidence.py", "MESSAGE_MALFORMED"),
        ("tests/fuzz/run_target.py", ""),
    ),
)

NAMES = [path.stem for path in sorted((ROOT / "tests" / "fuzz").glob("fuzz_*.py"))]
INPUTS = 200


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """Return ``seed`` with some bytes changed, cut, or doubled."""
    data = bytearray(seed)
    for _unused in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[at : at + chance.randrange(1, 65)]
        else:
            data[at:at] = chance.choice([b"\xff" * 4, bytes(4), b"\x7f\xff", b"\x80", b"[", b'"'])
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_an_object_or_a_refusal(name: str) -> None:
    target: Any = importlib.import_module(f"{COLLECTION}.tests.fuzz.{name}")
    chance = random.Random(zlib.crc32(name.encode()))
    seeds, refused = target.seeds(), 0
    for _unused in range(INPUTS):
        try:
            target.one_input(mutated(chance.choice(seeds), chance))
        except AttestedError:
            refused += 1
    assert (refused > 0) is not getattr(target, "NEVER_REFUSES", False)


def test_noise_is_no_evidence() -> None:
    assert code_of(lambda: Evidence.parse(b"\xff" * 100)) == "MESSAGE_MALFORMED"
