# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message to an enrolled key: it opens with that key and for that exchange, and with nothing else."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.transport import sealed_box
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import (
    OneTimeKey,
    open_to_key,
    seal_to_key,
)
from cryptography.hazmat.primitives.asymmetric import x25519

KEY, OTHER = OneTimeKey.generate(), OneTimeKey.generate()
BINDING = b"b" * 32
SEALED = seal_to_key(b"secret", recipient=KEY.public, binding=BINDING)


def test_it_opens_with_its_key_for_its_exchange():
    sealed = seal_to_key(b"secret", recipient=KEY.public, binding=BINDING)
    assert open_to_key(sealed, key=KEY, binding=BINDING) == b"secret"


@pytest.mark.parametrize(
    ("sealed", "key", "binding"),
    [
        pytest.param(SEALED, OTHER, BINDING, id="with another key"),
        pytest.param(SEALED, KEY, b"c" * 32, id="for another exchange"),
        pytest.param(SEALED[:-1] + bytes([SEALED[-1] ^ 1]), KEY, BINDING, id="with a changed bit"),
        pytest.param(b"", KEY, BINDING, id="from nothing"),
    ],
)
def test_it_opens_with_nothing_else(sealed, key, binding):
    with pytest.raises(Refusal) as caught:
        open_to_key(sealed, key=key, binding=binding)
    assert caught.value.code == "SEAL_UNOPENABLE"


@pytest.mark.parametrize("recipient", [pytest.param(b"", id="nothing"), pytest.param(bytes(32), id="the zero point")])
def test_a_key_that_is_none_is_refused(recipient):
    with pytest.raises(Refusal) as caught:
        seal_to_key(b"secret", recipient=recipient, binding=BINDING)
    assert caught.value.code == "BINDING_MALFORMED"
    assert (recipient.hex() or "nothing") in caught.value.message


def test_its_context_is_labelled():
    key = x25519.X25519PrivateKey.from_private_bytes(KEY.export())
    assert sealed_box._suite().decrypt(SEALED, key, b"attested.kubernetes/seal/key/v1" + BINDING) == b"secret"
