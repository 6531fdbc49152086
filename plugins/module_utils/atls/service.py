# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's side of attested TLS, as services import it; it loads grpc and pyOpenSSL.

registry = Registry()
server = UnixServer(socket_path=backend, handlers=..., interceptors=(ClaimsInterceptor(registry),), log=log)
listener = Listener(backend_socket=backend, registry=registry, server_credentials=current, validator=doorkeeper)
await server.start()
await listener.start("", 9090)
...                                  # in a handler: claims().exporter, claims().evidence
await listener.stop(grace_seconds=5)
await server.stop()
"""

from __future__ import annotations

from .claims import Claims, ClaimsInterceptor, Registry, claims
from .context import ServerCredentials
from .limits import Limits
from .relay import Listener

__all__ = ["Claims", "ClaimsInterceptor", "Limits", "Listener", "Registry", "ServerCredentials", "claims"]
