# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `node_status_info`: the status with the node's own name, which needs the node's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.host import SystemClock
from ..kubeadm.operation import Machine
from ..kubeadm.spec import KubernetesPaths
from ..result import Result
from .config import load_node_config
from .journal import NodeJournal
from .status import read_status

if TYPE_CHECKING:
    from collections.abc import Mapping


def run_status(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001
    """Read the node's status; changes nothing."""
    machine = Machine(runner=SystemRunner(), clock=SystemClock(), paths=KubernetesPaths())
    config = load_node_config(params["node_config"])
    status = read_status(machine, NodeJournal(clock=machine.clock))
    return Result(values={"node": config.name, **status.as_result()})
