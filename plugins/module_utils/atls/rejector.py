# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service that rejected peers are connected to: it answers every call with one text and holds nothing else.

A gRPC client learns of a refusal only by a gRPC status, so there is a server for it; and because it is another server
than the real one, a rejected peer cannot reach real handlers even when every check behind the relay is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._deps.grpc import grpc
from ..reasons import Coarse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_OPTIONS = (
    ("grpc.max_receive_message_length", 1 << 16),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.so_reuseport", 0),
)


class _RejectEverything(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One handler for every method; as a stream it fits calls of every kind."""

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler that rejects."""
        del handler_call_details
        return grpc.stream_stream_rpc_method_handler(_reject)


async def _reject(request_iterator: Any, context: Any) -> AsyncIterator[bytes]:
    del request_iterator
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, Coarse.REFUSED.value)
    yield b""  # never reached; makes this function a stream


async def start_rejector(path: Path) -> Any:
    """Start the service on the unix socket ``path`` and return its ``grpc.aio.Server``."""
    server = grpc.aio.server(options=_OPTIONS, handlers=(_RejectEverything(),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
