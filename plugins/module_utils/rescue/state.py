# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a cluster beside its master secret: Constellation's state file (version v1), or the salt alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import SiteError
from ..reasons import Reason
from ..system import load_documents

_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterValues:
    """The measurement salt, 32 public bytes, and the cluster id, b"" where nobody noted it."""

    measurement_salt: bytes
    cluster_id: bytes = b""


def parse_state(data: bytes) -> ClusterValues:
    """Return the values of ``constellation-state.yaml``; raises RESCUE_STATE_MALFORMED."""
    try:
        documents = load_documents(data.decode("utf-8"))
    except ValueError as error:
        raise _malformed(f"it cannot be read: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _malformed("expected one mapping")
    if documents[0].get("version") != "v1":
        raise _malformed(f"expected version v1, got {str(documents[0].get('version'))[:20]}")
    values = documents[0].get("clusterValues")
    if not isinstance(values, dict):
        raise _malformed("expected clusterValues")
    return ClusterValues(
        measurement_salt=_hex(values, "measurementSalt"),
        cluster_id=_hex(values, "clusterID") if values.get("clusterID") else b"",
    )


def _hex(values: dict[Any, Any], name: str) -> bytes:
    text = values.get(name)
    try:
        data = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        data = b""
    if len(data) != _BYTES:
        raise _malformed(f"expected {name} as {2 * _BYTES} hex digits")
    return data


def _malformed(problem: str) -> SiteError:
    return SiteError(f"the state file: {problem}", reason=Reason.RESCUE_STATE_MALFORMED)
