# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a caller of the verification service makes of a status: slow down, gone for now, or no such service."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.services.verification_client import translated

PAUSE = (("attested-retry-after-milliseconds", "2500"),)


def error(status: grpc.StatusCode, trailing: tuple[tuple[str, str], ...] = ()) -> Any:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details="story")


@pytest.mark.parametrize(
    ("given", "reason", "retryable", "pause"),
    [
        pytest.param(
            error(grpc.StatusCode.RESOURCE_EXHAUSTED, PAUSE), "VERIFICATION_LATER", True, 2.5, id="asked too often"
        ),
        pytest.param(
            error(grpc.StatusCode.RESOURCE_EXHAUSTED),
            "VERIFICATION_UNAVAILABLE",
            True,
            0.0,
            id="a limit of gRPC itself, which names no time",
        ),
        pytest.param(error(grpc.StatusCode.UNAVAILABLE), "VERIFICATION_UNAVAILABLE", True, 0.0, id="gone for now"),
        pytest.param(
            error(grpc.StatusCode.UNAVAILABLE, PAUSE),
            "VERIFICATION_UNAVAILABLE",
            True,
            0.0,
            id="gone, whatever it says",
        ),
        pytest.param(error(grpc.StatusCode.UNIMPLEMENTED), "VERIFICATION_UNANSWERED", False, 0.0, id="another service"),
    ],
)
def test_what_a_status_means(given: Any, reason: str, retryable: bool, pause: float) -> None:
    found = translated(given)
    assert (found.code, found.retryable, found.retry_after_seconds) == (reason, retryable, pause)
    assert "'story'" in found.message
