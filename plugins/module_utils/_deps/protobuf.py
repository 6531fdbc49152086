# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`protobuf`, guarded; separate from `grpc`, so that verification does not load grpcio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import optional

if TYPE_CHECKING:
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
else:
    descriptor_pb2 = optional("google.protobuf.descriptor_pb2")
    descriptor_pool = optional("google.protobuf.descriptor_pool")
    message = optional("google.protobuf.message")
    message_factory = optional("google.protobuf.message_factory")

__all__ = [
    "descriptor_pb2",
    "descriptor_pool",
    "message",
    "message_factory",
]
