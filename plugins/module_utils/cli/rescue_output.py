# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared functions of the commands of `attested rescue`: read secrets, write keys, print results."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes, write_atomic
from ..errors import SystemFault, visible
from ..keyservice.ring import import_ring
from ..reasons import Reason
from ..rescue.values import ClusterValues, parse_state

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from ..keyservice.ring import MasterRing

_MAX_SECRET_BYTES = 4096
_MAX_STATE_BYTES = 65536
_SALT_HEX = 64
_WIDTH = 18


def add_secret(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add --master-secret."""
    parser.add_argument(
        "--master-secret",
        required=required,
        metavar="FILE",
        help="constellation-mastersecret.json, or - for standard input",
    )


def master_of(name: str) -> MasterRing:
    """Return all versions of the master secret in a file, or on standard input if ``name`` is "-"."""
    data = sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1) if name == "-" else read_bytes(name, limit=_MAX_SECRET_BYTES)
    return import_ring(data)


def state_of(name: str) -> ClusterValues:
    """Return the cluster's values in the state file ``name``."""
    return parse_state(read_bytes(name, limit=_MAX_STATE_BYTES))


def values_of(*, state: str | None, measurement_salt: str | None) -> ClusterValues | None:
    """Return the cluster's values from the file ``state`` or the given salt, None without either."""
    if state:
        return state_of(state)
    if not measurement_salt:
        return None
    try:
        salt = bytes.fromhex(measurement_salt)
    except ValueError:
        salt = b""
    if len(salt) * 2 != _SALT_HEX:
        raise SystemFault(
            f"expected {_SALT_HEX} hex digits as the measurement salt", reason=Reason.RESCUE_FILE_MALFORMED
        )
    return ClusterValues(measurement_salt=salt)


def written(folder: Path, files: dict[str, bytes]) -> list[str]:
    """Write secrets as files of mode 0600, and return their paths; raises FILE_UNUSABLE."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make {folder}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    for name, data in files.items():
        write_atomic(folder / name, data, mode=0o600)
    return [str(folder / name) for name in files]


def warn(text: str) -> None:
    """Print a warning on standard error."""
    sys.stderr.write(f"attested: warning: {visible(text)}\n")


def print_values(values: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: names and values, one line for each item of a list, or JSON."""
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2) + os.linesep)
        return
    for name, value in values.items():
        if isinstance(value, dict):
            rows = [f"{one}: {inner}" for one, inner in value.items()]
        elif isinstance(value, list):
            rows = [str(one) for one in value]
        else:
            rows = [] if value is None else [str(value)]
        for row in rows:
            sys.stdout.write(f"{visible(name):<{_WIDTH}}{visible(row)}\n")
