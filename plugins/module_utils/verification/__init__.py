# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a running node, for anybody who asks: the exchange, the node's side, the judgement.

`service` is the node's network side, `client` the asking side; both load grpc and are imported by name. Private to the
collection.
"""

from __future__ import annotations

from .exchange import IDENTIFY, TESTIFY, Testimony, exchanged
from .judge import Heard, Question, judge, proven_machine
from .witness import MAX_QUESTION_BYTES, WITNESS_REQUEST, Facts, Witness
from .witness_client import WITNESS_SOCKET, AsyncWitness, EvidencePort

__all__ = [
    "IDENTIFY",
    "MAX_QUESTION_BYTES",
    "TESTIFY",
    "WITNESS_REQUEST",
    "WITNESS_SOCKET",
    "AsyncWitness",
    "EvidencePort",
    "Facts",
    "Heard",
    "Question",
    "Testimony",
    "Witness",
    "exchanged",
    "judge",
    "proven_machine",
]
