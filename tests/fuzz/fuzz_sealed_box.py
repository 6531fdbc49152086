# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sealed box."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.transport.sealed_box import (
    OneTimeKey,
    open_sealed,
    seal,
)

KEY = OneTimeKey.generate()
BOX = seal(b"secret", secret=b"s" * 32, binding=b"b" * 32, recipient=KEY.public)


def seeds() -> list[bytes]:
    return [BOX]


def one_input(data: bytes) -> None:
    # one message has many encodings in protobuf, so another spelling of the box may open, but to nothing else
    assert open_sealed(data, secret=b"s" * 32, binding=b"b" * 32, one_time_key=KEY) == b"secret"
