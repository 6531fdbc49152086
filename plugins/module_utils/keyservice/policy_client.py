# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of the key service's socket for root: read its record of the policy, or begin the record again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import PolicyError
from ..proto.messages import message_class, parse
from ..reasons import Reason
from ..transport.unix_rpc import Service, call_and_wait

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

POLICY_SOCKET = "/run/attested/key-service-policy.sock"
POLICY_REQUEST = "attested.v1.PolicyRequest"
POLICY_RESPONSE = "attested.v1.PolicyResponse"
CALL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """The policy record of a control plane; ``reason`` and ``message`` say why it is unusable, else they are empty.

    With an unusable record all machines are refused. ``revoked`` also has the revocations of an unusable record, so
    that the site can sign them again.
    """

    generation: int
    revoked: tuple[str, ...]
    reason: str
    message: str
    changed: bool = False


class PolicyClient:
    """The client, for modules; its calls raise KEY_SERVICE_UNREACHABLE."""

    def __init__(self, path: str | Path = POLICY_SOCKET, *, timeout_seconds: float = CALL_SECONDS) -> None:
        """Call the socket at ``path``."""
        self._service = Service(
            path=path,
            name="the key service",
            absent=Reason.KEY_SERVICE_UNREACHABLE,
            timeout_seconds=timeout_seconds,
        )

    def state(self) -> RecordState:
        """Return the record."""
        return self._call(b"")

    def adopt(self, document: Mapping[str, Any]) -> RecordState:
        """Begin the record with the site's signed policy; raises `PolicyError` if the key service refuses it."""
        state = self._call(json.dumps(dict(document)).encode())
        if state.reason:
            raise PolicyError(state.message, reason=Reason.__members__.get(state.reason, Reason.INTERNAL))
        return state

    def _call(self, adopt: bytes) -> RecordState:
        request = message_class(POLICY_REQUEST)(adopt=adopt)
        return _state(parse(POLICY_RESPONSE, call_and_wait(self._service, request)))


def _state(message: Any) -> RecordState:
    return RecordState(
        generation=message.generation,
        revoked=tuple(message.revoked),
        reason=message.refusal.code,
        message=message.refusal.message,
        changed=message.changed,
    )
