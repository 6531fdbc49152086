# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seams to the machine without Ansible: commands, files, clock, random numbers, memory-only directories."""

from __future__ import annotations

from .clock import Clock, SystemClock, span
from .command import CommandResult, Follower, Runner, SystemRunner
from .documents import (
    MAX_ANSWER_BYTES,
    MAX_ANSWER_LEVELS,
    load_document,
    load_documents,
    load_json,
    require_shallow,
    unique_members,
)
from .files import make_directory, place_link, read_bytes, remove, write_atomic
from .locks import NamedLocks
from .random import Random, SystemRandom, shuffled, uniform
from .rate import TokenBuckets
from .redaction import HIDDEN, MAX_LINE, MAX_LINES, hide, redact
from .sources import Shares, source_of, source_of_remote
from .tmpfs import mount_kind, require_no_swap, require_tmpfs
from .version import release

__all__ = [
    "HIDDEN",
    "MAX_ANSWER_BYTES",
    "MAX_ANSWER_LEVELS",
    "MAX_LINE",
    "MAX_LINES",
    "Clock",
    "CommandResult",
    "Follower",
    "NamedLocks",
    "Random",
    "Runner",
    "Shares",
    "SystemClock",
    "SystemRandom",
    "SystemRunner",
    "TokenBuckets",
    "hide",
    "load_document",
    "load_documents",
    "load_json",
    "make_directory",
    "mount_kind",
    "place_link",
    "read_bytes",
    "redact",
    "release",
    "remove",
    "require_no_swap",
    "require_shallow",
    "require_tmpfs",
    "shuffled",
    "source_of",
    "source_of_remote",
    "span",
    "uniform",
    "unique_members",
    "write_atomic",
]
