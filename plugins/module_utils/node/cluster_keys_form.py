# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of the module ``cluster_keys``: options in, one call of the domain, result out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..attestation import DEFAULT_REGISTER
from ..keys import KeyBundle
from ..keys.wrap import KeyStore, TpmSealer
from ..nodelock import NodeLock, NodeLockPaths
from ..result import Result
from ..tpm import open_tpm
from .answers import AnswerStore
from .base64_option import decode
from .cluster_keys import take_keys
from .config import load_node_config

if TYPE_CHECKING:
    from collections.abc import Mapping


def run_cluster_keys(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Open the sealed keys of the cluster and take them: keep them under the TPM, then lock."""
    config = load_node_config(params["node_config"])
    kept = AnswerStore().take(params["handle"])
    bundle = KeyBundle.from_bytes(kept.open(decode(params["sealed"], "sealed")))
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
