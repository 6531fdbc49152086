# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A commit of the site, its signature under pinned keys of both kinds."""

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
    return [made.commit(made.armoured(sign(SIGNED))) for sign in (made.signature, made.ecdsa_signature)]


def one_input(data: bytes) -> None:
    # the signature covers all but itself, so what verifies names this tree, however it is spelled
    assert verify_commit(data, commit=object_id("commit", data), signers=SIGNERS).tree == made.TREE
