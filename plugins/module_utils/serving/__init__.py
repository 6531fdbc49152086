# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every service of ours is built on: configuration, log, gRPC server, health, systemd.

A service is a constructor, a server and a short main: read the configuration, build the collaborators, serve, drain
on SIGTERM. Only `*/service.py` imports this package; it is private to the collection.
"""

from __future__ import annotations

from .config import load_config
from .grpc_server import Call, Handler, ServerLimits, StreamHandler, UnixServer
from .health import HEALTH_METHOD, Health
from .logs import Line, Log, open_log
from .metrics import Metrics, Page, Pages, counted, health_page
from .program import run_service
from .reload import Reloader
from .runtime import Notifier, wait_for_stop

__all__ = [
    "HEALTH_METHOD",
    "Call",
    "Handler",
    "Health",
    "Line",
    "Log",
    "Metrics",
    "Notifier",
    "Page",
    "Pages",
    "Reloader",
    "ServerLimits",
    "StreamHandler",
    "UnixServer",
    "counted",
    "health_page",
    "load_config",
    "open_log",
    "run_service",
    "wait_for_stop",
]
