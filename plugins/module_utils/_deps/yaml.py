# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`PyYAML` (a dependency of ansible-core), guarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import optional

if TYPE_CHECKING:
    import yaml
else:
    yaml = optional("yaml")

__all__ = ["yaml"]
