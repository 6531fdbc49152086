# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: a machine in a directory."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.tests.unit.fakes.machine import clock, locked, machine, make_pair, programs

__all__ = ["clock", "locked", "machine", "make_pair", "programs"]
