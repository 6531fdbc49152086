# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`prometheus_client`, guarded (control planes only)."""

from __future__ import annotations

from typing import Any

from . import optional

prometheus: Any = optional("prometheus_client")
