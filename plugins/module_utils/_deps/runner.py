# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible_runner`, guarded, and loaded only to run a playbook, since it also loads pexpect and a daemon library."""

from __future__ import annotations

from typing import Any

from . import optional


def ansible_runner() -> Any:
    """Return the library or its placeholder."""
    return optional("ansible_runner")
