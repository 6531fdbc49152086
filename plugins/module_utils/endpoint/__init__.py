# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API endpoint of a worker: a port on its loopback that leads to whichever control plane answers (ADR 0034).

`choice.py` decides, `splice.py` and `proxy.py` move bytes, `learn.py` keeps the list current. TLS goes through
untouched: the client checks the API server's certificate, so nothing here is believed. Private to the collection.
"""

from __future__ import annotations

from .addresses import parse_address, parse_list, render_list
from .choice import Choice

__all__ = ["Choice", "parse_address", "parse_list", "render_list"]
