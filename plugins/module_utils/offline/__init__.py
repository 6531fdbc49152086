# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster's secrets lies in safes: shares of the master secret on paper.

Utilities of this package are private to the collection. It needs no cluster, no Ansible and no network.
"""

from __future__ import annotations

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

__all__ = [
    "MAX_SHARES_BYTES",
    "MIN_PASSPHRASE",
    "Rebuilt",
    "Share",
    "ShareOrder",
    "SplitFacts",
    "combine_shares",
    "holds_split",
    "parse_share",
    "read_shares",
    "require_empty",
    "require_outside",
    "require_passphrase",
    "shares_of",
    "split_master",
    "write_secret",
    "write_shares",
]
