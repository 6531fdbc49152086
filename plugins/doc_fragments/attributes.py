# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attributes check mode, diff mode and idempotence; a module adds `support` (and `details`)."""

from __future__ import annotations


class ModuleDocFragment:
    """The three attributes; `attested.kubernetes.attributes.reader` is for modules that change nothing."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and report what it would change, without changing it.
  diff_mode:
    description: Shows what changed, or in check mode what would change.
  idempotent:
    description: A second run with the same options changes nothing.
"""

    READER = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and report what it would change, without changing it.
    support: full
    details:
      - This module changes nothing.
  diff_mode:
    description: Shows what changed, or in check mode what would change.
    support: N/A
    details:
      - This module changes nothing.
  idempotent:
    description: A second run with the same options changes nothing.
    support: full
    details:
      - This module changes nothing.
"""
