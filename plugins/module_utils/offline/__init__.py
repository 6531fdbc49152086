# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster's secrets lies in safes: shares of the master secret on paper, and recovery kits.

Utilities of this package are private to the collection. It needs no cluster, no Ansible and no network.
"""

from __future__ import annotations

from .age_file import parse_identities
from .closing import Cost, KitKeys, Lock, close_kit, describe_kit, open_kit
from .kit import MAX_CONTENT_BYTES, Kit
from .kit_places import read_kit_file, require_free, require_replaceable, write_kit_file, write_opened
from .passphrase import MIN_PASSPHRASE, require_passphrase
from .places import (
    MAX_SHARES_BYTES,
    holds_split,
    read_shares,
    require_empty,
    require_outside,
    write_secret,
    write_shares,
)
from .shares import (
    Rebuilt,
    Share,
    ShareOrder,
    SplitFacts,
    combine_shares,
    parse_share,
    shares_of,
    split_master,
)
from .token import Pkcs11Token, open_token

__all__ = [
    "MAX_CONTENT_BYTES",
    "MAX_SHARES_BYTES",
    "MIN_PASSPHRASE",
    "Cost",
    "Kit",
    "KitKeys",
    "Lock",
    "Pkcs11Token",
    "Rebuilt",
    "Share",
    "ShareOrder",
    "SplitFacts",
    "close_kit",
    "combine_shares",
    "describe_kit",
    "holds_split",
    "open_kit",
    "open_token",
    "parse_identities",
    "parse_share",
    "read_kit_file",
    "read_shares",
    "require_empty",
    "require_free",
    "require_outside",
    "require_passphrase",
    "require_replaceable",
    "shares_of",
    "split_master",
    "write_kit_file",
    "write_opened",
    "write_secret",
    "write_shares",
]
