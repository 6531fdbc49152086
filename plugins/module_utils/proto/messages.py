# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create message classes from the committed descriptor set on first use, without generated code."""

from __future__ import annotations

import base64
import functools
from typing import Any

from .._deps.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from ..errors import Refusal
from ..reasons import Reason
from .descriptors import DESCRIPTOR_SET_BASE64

MAX_MESSAGE_BYTES = 1 << 20
"""A message larger than this is refused before it is parsed."""


@functools.cache
def _classes() -> dict[str, Any]:
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTOR_SET_BASE64)).file
    return message_factory.GetMessages(files, pool=descriptor_pool.DescriptorPool())


def message_class(full_name: str) -> Any:
    """Return the class of ``full_name``, for example ``attested.v1.Evidence``."""
    return _classes()[full_name]


def parse(full_name: str, data: bytes, *, limit: int = MAX_MESSAGE_BYTES) -> Any:
    """Return the message of ``data``; raises `Refusal` MESSAGE_MALFORMED, or MESSAGE_TOO_LARGE before parsing."""
    if len(data) > limit:
        raise Refusal(
            f"expected at most {limit} bytes of {full_name}, got {len(data)}", reason=Reason.MESSAGE_TOO_LARGE
        )
    try:
        return message_class(full_name).FromString(data)
    except message.DecodeError as error:
        raise Refusal(f"expected a {full_name}, got other bytes", reason=Reason.MESSAGE_MALFORMED) from error


def method_path(service: str, method: str) -> str:
    """Return the gRPC path of a method, for example ``/join.API/IssueJoinTicket``."""
    return f"/{service}/{method}"
