# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node says when it is asked over ssh: who it is, and evidence over somebody's challenge.

The join client speaks for itself; this is the other driver of the same exchange.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..attestation import BindingContext, ChallengeRequest, EventLogs, answer
from ..system import read_bytes
from ..tpm import load_attestation_key, load_endorsement_key, load_second_endorsement_key

if TYPE_CHECKING:
    from ..attestation import Answer, Challenge, Purpose
    from ..tpm import LoadedKey, Tpm
    from .config import EventLogPaths

NODELOCK_LOG = Path("/run/attested/nodelock.log")
_LOG_LIMIT = 512 << 10


def read_event_logs(paths: EventLogPaths, *, nodelock: Path = NODELOCK_LOG) -> EventLogs:
    """Return the logs of this boot; one that does not exist is empty, and then its registers count by value alone."""
    return EventLogs(
        firmware=_content(paths.firmware),
        userspace=_content(paths.userspace),
        nodelock=_content(nodelock),
        command_line=_content(paths.command_line),
    )


def identify(tpm: Tpm, *, second: bool = False) -> ChallengeRequest:
    """Return the public keys and certificates by which this machine asks to be challenged.

    ``second``: by the other endorsement key of its TPM, and the same attestation key.
    """
    ek = _endorsement_key(tpm, second=second)
    return ChallengeRequest(
        ek_public=ek.public, ak_public=load_attestation_key(tpm).public, ek_certificates=ek.certificates
    )


def testify(
    tpm: Tpm, challenge: Challenge, *, purpose: Purpose, cluster_id: bytes, logs: EventLogs, second: bool
) -> Answer:
    """Return the answer to ``challenge`` over ssh: no channel to bind, the logs are the request.

    ``second``: by the key that `identify` shows with it.
    """
    context = BindingContext(purpose=purpose, cluster_id=cluster_id, request=logs.to_bytes())
    ek, ak = _endorsement_key(tpm, second=second), load_attestation_key(tpm)
    return answer(tpm, challenge, context, ek=ek, ak=ak, logs=logs)


def _endorsement_key(tpm: Tpm, *, second: bool) -> LoadedKey:
    return load_second_endorsement_key(tpm) if second else load_endorsement_key(tpm)


def _content(path: Path) -> bytes:
    return read_bytes(path, limit=_LOG_LIMIT) if path.exists() else b""
