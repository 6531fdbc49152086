# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`grpcio`, guarded, and without its fork handlers.

It registers them when it is imported. A child that is forked while another thread is within gRPC then crashes now and
then, though a program takes its place at once, as in ansible-runner's `pty.fork` (grpc/grpc#13998). Nobody here goes on
with gRPC in a forked child, which is what the handlers are for.
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
