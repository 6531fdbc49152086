# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of a recovery kit as anybody may have altered it, and its content as whoever has a key may have."""

from __future__ import annotations

import contextlib
import hashlib

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.envelope import (
    FILE_KEY_BYTES,
    KitKeys,
    PassphraseFacts,
    TokenFacts,
    describe_kit,
    open_envelope,
    open_kit,
    read_envelope,
    seal_envelope,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.kit import Kit
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.keyservice.master import SecretBytes
from ansible_collections.attested.kubernetes.tests.support.kits import sample_kit

KEY = SecretBytes(bytes(FILE_KEY_BYTES))
COST = PassphraseFacts(memory_kib=65536, passes=1, lanes=1, salt=bytes(16))
TOKEN = TokenFacts(key_sha256=bytes(32), wrapped=bytes(256))
AGE = b"age-encryption.org/v1\n-> X25519 TUrwj7WYUE+wv8kLuqSPKO8CVBj4kvxEx6maV6ED/Tc\n"


class Unwrapped:
    """A token that gives out the key of the seeds: what lies behind it is to be reached too."""

    def unwrap(self, facts: TokenFacts) -> SecretBytes:
        assert len(facts.key_sha256) == 32
        return KEY


def seeds() -> list[bytes]:
    kit = sample_kit(files=(("cluster.yml", b"version: 1\n"),))
    content = kit.to_bytes()
    closed = [
        seal_envelope(content, cluster=kit.cluster_id, facts=facts, file_key=KEY, nonce=bytes(12))
        for facts in (COST, TOKEN)
    ]
    return [*closed, content, AGE + b"6Q+xM02KZuAmeCSZYikT0yNfEzWuHW294dWZ7cjonAY\n--- x\n"]


def one_input(data: bytes) -> None:
    with contextlib.suppress(AttestedError):
        Kit.from_bytes(data).to_bytes()
    with contextlib.suppress(AttestedError):
        open_kit(data, KitKeys(token=Unwrapped()))
    whole = data[: data.rfind(b"\nend: ") + 1]  # as somebody would end it who knows how
    ended = whole + b"end: " + hashlib.sha256(whole).hexdigest().encode() + b"\n"
    with contextlib.suppress(AttestedError):
        envelope = read_envelope(ended)
        assert len(envelope.cluster_id) == 32
        open_envelope(envelope, KEY)
    describe_kit(data)
