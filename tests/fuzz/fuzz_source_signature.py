# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH signature of a commit, taken out of its armour so that mutations reach the fields."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.source.signature import (
    object_id,
    parse_signer,
    verify_commit,
)
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.source import test_signature as made

SIGNERS = [parse_signer(made.line(key)) for key in (made.KEY, made.P256)]
SIGNED = made.HEAD + made.MESSAGE


def seeds() -> list[bytes]:
    return [made.signature(SIGNED), made.signature(SIGNED, hash_name=b"sha256"), made.ecdsa_signature(SIGNED)]


def one_input(data: bytes) -> None:
    commit = made.commit(made.armoured(data))
    assert verify_commit(commit, commit=object_id("commit", commit), signers=SIGNERS).tree == made.TREE
