# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recovery: an admin opens the disk of a node that no cluster answers (docs/protocol/recovery.md).

`service` is the node's network side, `client` the admin's side; both load grpc and are imported by name. Private to
the collection.
"""

from __future__ import annotations

from .contest import Contender, Contest
from .desk import RecoveryDesk
from .keys import ClusterKeys
from .messages import RECOVER, RecoverAnswer, RecoverOrder, RecoverySecrets
from .outcome import Outcome, State, needs_a_person, table
from .socket import RECOVERY_SOCKET, RecoveryDeskService, RecoveryPort
from .unlocking import HelperTrial, Locked, Offer, Unlocking

__all__ = [
    "RECOVER",
    "RECOVERY_SOCKET",
    "ClusterKeys",
    "Contender",
    "Contest",
    "HelperTrial",
    "Locked",
    "Offer",
    "Outcome",
    "RecoverAnswer",
    "RecoverOrder",
    "RecoveryDesk",
    "RecoveryDeskService",
    "RecoveryPort",
    "RecoverySecrets",
    "State",
    "Unlocking",
    "needs_a_person",
    "table",
]
