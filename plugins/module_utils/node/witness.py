# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies a node and issues its evidence over ssh, for a challenge of the admin's machine.

The join client performs the same exchange with a join service.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes
from ..evidence.challenge import BindingContext, Challenge, ChallengeRequest, answer
from ..evidence.evidence import EventLogs
from ..evidence.node_lock import NodeLock, NodeLockPaths
from ..result import Result
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key, load_endorsement_key, load_second_endorsement_key
from ..transport.binding import Purpose
from .answers import AnswerStore, decode
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..evidence.challenge import Answer
    from ..tpm.client import Tpm
    from ..tpm.commands import LoadedKey
    from .config import EventLogPaths, NodeConfig


NODELOCK_LOG = Path("/run/attested/nodelock.log")
_LOG_LIMIT = 512 << 10


def read_event_logs(paths: EventLogPaths, *, nodelock: Path = NODELOCK_LOG) -> EventLogs:
    """Return the logs of this boot.

    A missing log is empty, and then its registers are verified by value only.
    """
    return EventLogs(
        firmware=_content(paths.firmware),
        userspace=_content(paths.userspace),
        nodelock=_content(nodelock),
        command_line=_content(paths.command_line),
    )


def identify(tpm: Tpm, *, second: bool = False) -> ChallengeRequest:
    """Return the challenge request of this machine: its public keys and EK certificates.

    ``second``: use the second endorsement key of the TPM, with the same attestation key.
    """
    ek = _endorsement_key(tpm, second=second)
    return ChallengeRequest(
        ek_public=ek.public, ak_public=load_attestation_key(tpm).public, ek_certificates=ek.certificates
    )


def testify(
    tpm: Tpm, challenge: Challenge, *, purpose: Purpose, cluster_id: bytes, logs: EventLogs, second: bool
) -> Answer:
    """Return the answer to ``challenge`` over ssh.

    There is no channel to bind; the logs are the bound request. ``second``: use the second endorsement key, as
    `identify` does.
    """
    context = BindingContext(purpose=purpose, cluster_id=cluster_id, request=logs.to_bytes())
    ek, ak = _endorsement_key(tpm, second=second), load_attestation_key(tpm)
    return answer(tpm, challenge, context, ek=ek, ak=ak, logs=logs)


def _endorsement_key(tpm: Tpm, *, second: bool) -> LoadedKey:
    return load_second_endorsement_key(tpm) if second else load_endorsement_key(tpm)


def _content(path: Path) -> bytes:
    return read_bytes(path, limit=_LOG_LIMIT) if path.exists() else b""


# The work of the module ``attestation_info``: options in, one call of the domain, result out.

_SHOWN_REGISTERS = range(16)
_WAITS_FOR_BOX = frozenset({Purpose.INIT, Purpose.SHARE})


def run_attestation_info(params: Mapping[str, Any], check_mode: bool) -> Result:  # noqa: ARG001  # a reader
    """Identify this machine, or answer the challenge in ``params``.

    Store the answer if a sealed box will follow.
    """
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
