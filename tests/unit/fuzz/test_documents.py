# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A few random mutations of every document that others hand in; `tests/fuzz/documents.py` tries ten thousand each."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.fuzz.documents import DOCUMENTS, tried

if TYPE_CHECKING:
    from ansible_collections.attested.kubernetes.tests.conftest import Counted

COUNT = 40
SEED = int(os.environ.get("ATTESTED_DOCUMENT_SEED", "1"))
if "ATTESTED_RANDOM_EXAMPLES" in os.environ:  # `make nightly` tries others each time
    SEED = random.SystemRandom().randrange(1, 1 << 32)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_mutation_is_accepted_or_has_a_code(name: str, counted: Counted) -> None:
    print(f"{name}: ATTESTED_DOCUMENT_SEED={SEED}")
    found = tried(name, count=COUNT, seed=SEED)
    assert found.accepted + found.refused == COUNT
    counted(f"documents: {name}, {COUNT} mutations of seed {SEED}, {found.refused} refused")
