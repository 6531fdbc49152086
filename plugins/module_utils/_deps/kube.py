# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`kubernetes` (control planes only), guarded."""

from __future__ import annotations

from typing import Any

from . import optional

client: Any = optional("kubernetes.client")
rest: Any = optional("kubernetes.client.rest")
http_exceptions: Any = optional("urllib3.exceptions")
