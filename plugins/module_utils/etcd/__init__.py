# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is a member of etcd, and who can go without the others losing their majority. Private to the collection."""

from __future__ import annotations

from .form import run_member, run_member_info
from .gateway import EtcdApi, EtcdCredentials, EtcdGateway
from .members import Member, RemovalPlan, majority, plan_removal
from .removal import remove_member

__all__ = [
    "EtcdApi",
    "EtcdCredentials",
    "EtcdGateway",
    "Member",
    "RemovalPlan",
    "majority",
    "plan_removal",
    "remove_member",
    "run_member",
    "run_member_info",
]
