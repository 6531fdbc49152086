# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`grpcio`, guarded, and without its fork handlers.

grpcio registers fork handlers when it is imported. With them a child that is forked while another thread uses gRPC
sometimes crashes, even if it execs a program at once, as in ansible-runner's `pty.fork` (grpc/grpc#13998). The handlers
are only for gRPC in a forked child, which this collection does not use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import optional

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

if TYPE_CHECKING:
    import grpc
else:
    grpc = optional("grpc")

__all__ = ["grpc"]
