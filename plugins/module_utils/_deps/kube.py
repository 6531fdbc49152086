# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`urllib3`, over which the Kubernetes API is spoken to (control planes only), guarded."""

from __future__ import annotations

from typing import Any

from . import optional

http: Any = optional("urllib3")
http_exceptions: Any = optional("urllib3.exceptions")
