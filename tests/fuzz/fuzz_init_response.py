# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says during an init, as the admin's side reads it."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.services.init_messages import (
    Failure,
    Progress,
    Success,
    parse_response,
)


def seeds() -> list[bytes]:
    failure = Failure(code="RACE_LOST", message="m", hint="h", stage="s", task="t", log="lines")
    return [
        Progress(stage="s", task="t", elapsed_seconds=1.0).to_bytes(),
        Success(kubeconfig=b"k", cluster_id=b"c" * 32).to_bytes(),
        *failure.to_messages(),
    ]


def one_input(data: bytes) -> None:
    parse_response(data)
