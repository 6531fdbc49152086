# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the modules `rotation_info` and `rotation_phase`: select the functions of a rotation by its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..result import Result
from ..rotation.values import Step
from .ca_rotation import change_authorities, inspect_authorities
from .config import load_node_config
from .encryption_rotation import change_keys, inspect_cluster, inspect_keys
from .master_versions import inspect_versions, take_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

_INSPECT = {"authorities": inspect_authorities, "encryption_key": inspect_keys, "master_secret": inspect_versions}
_CHANGE = {"authorities": change_authorities, "encryption_key": change_keys}


def run_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Return the rotation's state on this node, or that of the cluster; raises as the selected inspection."""
    inspect = inspect_cluster if params["scope"] == "cluster" else _INSPECT[params["kind"]]
    return Result(values=inspect(params))


def run_phase(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Execute this node's part of the first phase of a plan.

    The admin's machine sends versions of the master secret.
    """
    if params["kind"] == "master_secret":
        return take_versions(params, check_mode)
    step = Step.of(params["plan"], load_node_config(params["node_config"]).name, kind=params["kind"])
    return _CHANGE[params["kind"]](step, params, check_mode)
