# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's repository, as a machine takes it at its boot: fetched, verified, written, measured (ADR 0022).

Nothing of a repository is believed before a pinned key's signature over its commit was checked, and no working copy
exists before. Private to the collection; other packages import from here.
"""

from __future__ import annotations

from .config import SourceConfig, parse_source, source_problems
from .obtain import Machine, Obtained, Places, Source, Story
from .signature import SignedCommit, Signer, parse_signer, verify_commit
from .staging import Limits, Staging
from .tree import FileKind, SiteFile, read_files
from .version import (
    PIN_FILE,
    Installed,
    Kept,
    Measured,
    Pin,
    parse_kept,
    parse_measured,
    parse_pin,
    require_installed,
    require_later,
)

__all__ = [
    "PIN_FILE",
    "FileKind",
    "Installed",
    "Kept",
    "Limits",
    "Machine",
    "Measured",
    "Obtained",
    "Pin",
    "Places",
    "SignedCommit",
    "Signer",
    "SiteFile",
    "Source",
    "SourceConfig",
    "Staging",
    "Story",
    "parse_kept",
    "parse_measured",
    "parse_pin",
    "parse_signer",
    "parse_source",
    "read_files",
    "require_installed",
    "require_later",
    "source_problems",
    "verify_commit",
]
