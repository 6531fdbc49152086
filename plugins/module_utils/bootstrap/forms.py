# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the modules ``attestation_info`` and ``cluster_keys``: options in, one call of the domain, result out."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from ..attestation import DEFAULT_REGISTER, Challenge, Purpose
from ..errors import SiteError
from ..keys import KeyBundle
from ..keys.wrap import KeyStore, TpmSealer
from ..nodelock import NodeLock, NodeLockPaths
from ..reasons import Reason
from ..result import Result
from ..tpm import open_tpm
from .answers import AnswerStore
from .initial import take_keys
from .node_config import load_node_config
from .witness import identify, read_event_logs, testify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tpm import Tpm
    from .node_config import NodeConfig

_SHOWN_REGISTERS = range(16)


def run_attestation_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Identify this machine, and answer the challenge if ``params`` holds one; an init's answer is kept for its box."""
    config = load_node_config(params["node_config"])
    with open_tpm(config.tcti, timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        if params["challenge"] is None:
            return Result(values=_identity(tpm, config))
        return Result(values=_testimony(tpm, config, params))


def run_cluster_keys(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Open the sealed keys of the cluster and take them: keep them under the TPM, then lock."""
    config = load_node_config(params["node_config"])
    kept = AnswerStore().take(params["handle"])
    bundle = KeyBundle.from_bytes(kept.open(_decode(params["sealed"], "sealed")))
    judged = {index: value for index, value in kept.pcrs.items() if index != DEFAULT_REGISTER}
    with open_tpm(config.tcti, timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        lock = NodeLock(tpm, paths=NodeLockPaths(userspace_log=config.logs.userspace))
        if check_mode:
            return Result(values={"cluster_id": bundle.cluster_id.hex(), "steps": []})
        steps = take_keys(
            bundle, config=config, tpm=tpm, store=KeyStore(), sealer=TpmSealer(tpm), lock=lock, judged=judged
        )
    shown = [{"name": step.name, "title": step.title, "seconds": round(step.seconds, 3)} for step in steps]
    return Result(changed=bool(steps), values={"cluster_id": bundle.cluster_id.hex(), "steps": shown})


def _identity(tpm: Tpm, config: NodeConfig) -> dict[str, Any]:
    request = identify(tpm)
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
    challenge = Challenge.parse(_decode(params["challenge"], "challenge"))
    answered = testify(tpm, challenge, purpose=purpose, cluster_id=config.cluster_id, logs=logs)
    values = {
        "node": config.name,
        "binding": _encode(answered.bound.to_bytes()),
        "event_logs": _encode(logs.to_bytes()),
    }
    return {**values, "handle": AnswerStore().put(answered)} if purpose is Purpose.INIT else values


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SiteError(f"expected base64 in {name}, got something else", reason=Reason.OPTION_INVALID) from error
