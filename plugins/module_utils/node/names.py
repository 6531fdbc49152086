# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's name as the name of a node (RFC 1123, dotted names included)."""

from __future__ import annotations

from ..errors import SystemFault
from ..kubeadm import is_node_name
from ..reasons import Reason


def normal_node_name(host: str) -> str:
    """Return ``host`` as Kubernetes takes it: lower case, without a closing dot; raises NODE_NAME_INVALID.

    Nothing else is changed: two hosts whose names differ in more than that never get one name.
    """
    name = host.strip().removesuffix(".").lower()
    if not host.isascii() or not is_node_name(name):
        raise SystemFault(
            f"expected a host name of lower-case DNS labels, got {host[:300]!r}", reason=Reason.NODE_NAME_INVALID
        )
    return name
