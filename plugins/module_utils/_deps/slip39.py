# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`shamir-mnemonic` (SLIP-39), guarded, and loaded only to split or rebuild a secret on an admin's machine."""

from __future__ import annotations

from typing import Any

from . import optional


def slip39() -> Any:
    """Return the library or its placeholder."""
    return optional("shamir_mnemonic")


def slip39_checksum() -> Any:
    """Return the library's checksum of words, or a placeholder."""
    return optional("shamir_mnemonic.rs1024")


def slip39_words() -> Any:
    """Return the library's list of words, or a placeholder."""
    return optional("shamir_mnemonic.wordlist")
