# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Joining a cluster by ticket: the node's side, and the join service that relays. Private to the collection."""

from __future__ import annotations

from .doorkeeper import Attester, OccasionalAttester
from .endpoints import Doors, Favourite, SystemResolver
from .outlook import Outlook, first_window, most_telling, outlook, passes_by_itself, pause_before_retry
from .store import TicketStore
from .ticket import ClosedTicket, Expected, TicketMaterial, open_ticket, read_ticket

__all__ = [
    "Attester",
    "ClosedTicket",
    "Doors",
    "Expected",
    "Favourite",
    "OccasionalAttester",
    "Outlook",
    "SystemResolver",
    "TicketMaterial",
    "TicketStore",
    "first_window",
    "most_telling",
    "open_ticket",
    "outlook",
    "passes_by_itself",
    "pause_before_retry",
    "read_ticket",
]
