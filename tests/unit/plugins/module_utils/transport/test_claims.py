# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is behind a call: found by the relay's path, by nothing else."""

from __future__ import annotations

import contextvars

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.claims import Claims, Registry, claims

PATH = "/run/attested-join/atls-x/00ff"
CLAIMS = Claims(
    evidence=b"e", peer_nonce=b"n", spki_sha256=b"s", exporter=b"x", remote="10.0.0.7:4711", accepted_at=1.0
)


@pytest.fixture
def registry() -> Registry:
    """One open connection."""
    filled = Registry()
    filled.add(PATH, CLAIMS)
    return filled


def test_the_peer_of_grpc_is_the_path_of_the_relay(registry: Registry) -> None:
    """Found while it is open, gone once it is removed, and removing it twice is no error."""
    assert registry.find(f"unix:{PATH}") is CLAIMS
    registry.remove(PATH)
    registry.remove(PATH)
    with pytest.raises(Refusal):
        registry.find(f"unix:{PATH}")


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param("unix:", id="a caller that has bound nothing"),
        pytest.param("unix:/run/attested-join/atls-x/00fe", id="another path"),
        pytest.param(f"unix-abstract:{PATH}", id="an abstract name of the same spelling"),
        pytest.param(PATH, id="the path without its kind"),
        pytest.param("ipv4:127.0.0.1:4711", id="TCP"),
        pytest.param("", id="nothing"),
    ],
)
def test_every_other_peer_is_refused(registry: Registry, peer: str) -> None:
    """There is no default."""
    with pytest.raises(Refusal) as caught:
        registry.find(peer)
    assert caught.value.reason is Reason.CHANNEL_NOT_ATTESTED


def test_there_are_no_claims_outside_of_a_call() -> None:
    """A handler that is called in another way gets a refusal, not somebody's claims."""
    with pytest.raises(Refusal) as caught:
        contextvars.Context().run(claims)  # other tests of this process put somebody into theirs
    assert caught.value.reason is Reason.CHANNEL_NOT_ATTESTED
