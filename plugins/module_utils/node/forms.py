# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``attestation_info``: options in, one call of the domain, result out."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ..attestation import Challenge, Purpose
from ..nodelock import NodeLock, NodeLockPaths
from ..result import Result
from ..tpm import open_tpm
from .answers import AnswerStore
from .base64_option import decode
from .config import load_node_config
from .witness import identify, read_event_logs, testify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tpm import Tpm
    from .config import NodeConfig

_SHOWN_REGISTERS = range(16)
_WAITS_FOR_BOX = frozenset({Purpose.INIT, Purpose.SHARE})


def run_attestation_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Identify this machine, and answer the challenge if ``params`` holds one; what a box will be sealed to is kept."""
    config = load_node_config(params["node_config"])
    with open_tpm(config.tcti, timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        if params["challenge"] is None:
            return Result(values=_identity(tpm, config, second=_wants_second(params)))
        return Result(values=_testimony(tpm, config, params))


def _wants_second(params: Mapping[str, Any]) -> bool:
    return bool(params["endorsement_key"] == "second")


def _identity(tpm: Tpm, config: NodeConfig, *, second: bool) -> dict[str, Any]:
    request = identify(tpm, second=second)
    lock = NodeLock(tpm, paths=NodeLockPaths(userspace_log=config.logs.userspace)).read()
    return {
        "node": config.name,
        "ek_sha256": request.ek_public.spki_sha256(),
        "ak_name": request.ak_public.name().hex(),
        "ek_certified": bool(request.ek_certificates),
        "nodelock": lock.state.value,
        "registers": {str(pcr): value.hex() for pcr, value in sorted(tpm.pcr_read(_SHOWN_REGISTERS).items())},
        "challenge_request": _encode(request.to_bytes()),
    }


def _testimony(tpm: Tpm, config: NodeConfig, params: Mapping[str, Any]) -> dict[str, Any]:
    logs = read_event_logs(config.logs)
    purpose = Purpose(params["purpose"])
    challenge = Challenge.parse(decode(params["challenge"], "challenge"))
    answered = testify(
        tpm, challenge, purpose=purpose, cluster_id=config.cluster_id, logs=logs, second=_wants_second(params)
    )
    values = {
        "node": config.name,
        "binding": _encode(answered.bound.to_bytes()),
        "event_logs": _encode(logs.to_bytes()),
    }
    return {**values, "handle": AnswerStore().put(answered)} if purpose in _WAITS_FOR_BOX else values


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
