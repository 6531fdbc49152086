# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long to wait, as a service says it that nobody has verified yet."""

from __future__ import annotations

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.client import (
    RETRY_METADATA,
    requested_pause,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.transport.grpc_server import RETRY_HEADER


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        pytest.param("1500", 1.5, id="milliseconds"),
        pytest.param("60001", 60.0, id="longer than a minute"),
        pytest.param("-1", 0.0, id="below nothing"),
        pytest.param("soon", 0.0, id="a word"),
        pytest.param("٣", 0.0, id="digits of another script"),
        pytest.param("9" * 5000, 0.0, id="more digits than Python would read"),
        pytest.param(b"1500", 0.0, id="bytes"),
    ],
)
def test_what_is_told_is_read_with_care(told: str | bytes, seconds: float) -> None:
    assert requested_pause({RETRY_METADATA: told}) == seconds


def test_silence_is_no_pause() -> None:
    assert requested_pause({"other": "1500"}) == 0.0


def test_our_services_say_it_under_this_name() -> None:
    assert RETRY_METADATA == RETRY_HEADER
