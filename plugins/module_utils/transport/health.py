# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Health of a service: named parts, each with a text; reported by `grpc.health.v1` and as systemd status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.runtime import Notifier
    from .grpc_server import Call

HEALTH_METHOD = "/grpc.health.v1.Health/Check"

_SERVING = b"\x08\x01"
"""`HealthCheckResponse` with status SERVING (1)."""
_NOT_SERVING = b"\x08\x02"


class Health:
    """The state of a service's parts; the service works if every part does."""

    def __init__(self, notifier: Notifier, *, version: str, parts: tuple[str, ...]) -> None:
        """Start with all ``parts`` not working."""
        self._notifier = notifier
        self._version = version
        self._parts: dict[str, str | None] = dict.fromkeys(parts, "starting")
        self._announced = False

    @property
    def is_serving(self) -> bool:
        """Whether every part works."""
        return not any(self._parts.values())

    @property
    def sentence(self) -> str:
        """The text of ``systemctl status``."""
        troubles = [f"{name}: {trouble}" for name, trouble in self._parts.items() if trouble]
        return f"{self._version}, {'; '.join(troubles) or 'serving'}"

    def working(self, part: str) -> None:
        """Set ``part`` to working."""
        self._note(part, None)

    def troubled(self, part: str, trouble: str) -> None:
        """Set the error text of ``part``."""
        self._note(part, trouble)

    async def handle(self, request: bytes, call: Call) -> bytes:
        """Return the response of `HEALTH_METHOD`, for any service name in the request."""
        del request, call
        return _SERVING if self.is_serving else _NOT_SERVING

    def _note(self, part: str, trouble: str | None) -> None:
        if self._parts[part] == trouble:
            return
        self._parts[part] = trouble
        if self.is_serving and not self._announced:
            self._announced = True
            self._notifier.ready(self.sentence)
        else:
            self._notifier.status(self.sentence)
