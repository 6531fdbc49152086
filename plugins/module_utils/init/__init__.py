# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The init protocol: an admin makes a cluster on a machine that has proven itself first (docs/protocol/init.md).

`service` is the machine's network side, `client` the admin's side; both load grpc and are imported by name. Private to
the collection.
"""

from __future__ import annotations

from .admin import AdminKey, make_admin_key, prove_admin, verify_admin
from .brought import BroughtPolicy, pack_policy
from .desk import Begin, Desk, Doors, Founder
from .exchanges import Exchanges
from .job import Job, Jobs, Teller
from .messages import ADMIN_METADATA, INIT, MAX_POLICY_BYTES, InitOrder, Progress, Success, digest_of
from .secret import SourceDelays, hash_init_secret, verify_init_secret
from .socket import INIT_SOCKET, AdminPort, DeskService, ProvingService, RequestLog, Talk, asked_of, no_question

__all__ = [
    "ADMIN_METADATA",
    "INIT",
    "INIT_SOCKET",
    "MAX_POLICY_BYTES",
    "AdminKey",
    "AdminPort",
    "Begin",
    "BroughtPolicy",
    "Desk",
    "DeskService",
    "Doors",
    "Exchanges",
    "Founder",
    "InitOrder",
    "Job",
    "Jobs",
    "Progress",
    "ProvingService",
    "RequestLog",
    "SourceDelays",
    "Success",
    "Talk",
    "Teller",
    "asked_of",
    "digest_of",
    "hash_init_secret",
    "make_admin_key",
    "no_question",
    "pack_policy",
    "prove_admin",
    "verify_admin",
    "verify_init_secret",
]
