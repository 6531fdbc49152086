# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared functions of the commands `attested kit` and `attested secret`: read a passphrase, print public values."""

from __future__ import annotations

import getpass
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ..admin.age_file import require_passphrase
from ..core.files import read_bytes
from ..errors import SiteError, visible
from ..keyservice.master import SecretBytes
from ..reasons import Reason

if TYPE_CHECKING:
    import argparse

_MAX_PASSPHRASE_BYTES = 512
_WIDTH = 18


def add_passphrase(parser: argparse.ArgumentParser, text: str) -> None:
    """Add --passphrase, with the help ``text``, and --passphrase-file."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--passphrase", action="store_true", help=text)
    given.add_argument("--passphrase-file", metavar="FILE", help="read it from this file, for example /dev/fd/3")


def passphrase_of(options: argparse.Namespace, *, new: bool) -> SecretBytes:
    """Return the passphrase (a ``new`` one is typed twice), b"" if no option asks for it.

    Raises PASSPHRASE_UNUSABLE.
    """
    if options.passphrase_file:
        return require_passphrase(read_bytes(options.passphrase_file, limit=_MAX_PASSPHRASE_BYTES))
    if not options.passphrase:
        return SecretBytes(b"")
    first = _typed("Passphrase: ")
    if new and _typed("The same again: ") != first:
        raise SiteError("expected the same passphrase twice, got two", reason=Reason.PASSPHRASE_UNUSABLE)
    return first


def _typed(prompt: str) -> SecretBytes:
    return require_passphrase(ask(prompt, what="passphrase"))


def ask(prompt: str, *, what: str) -> bytes:
    """Return the input from the terminal, without echo; raises PASSPHRASE_UNUSABLE without a terminal."""
    if not _has_terminal():
        raise SiteError(
            f"expected a terminal to ask for the {what}, there is none",
            reason=Reason.PASSPHRASE_UNUSABLE,
            hint=f"Use --{what}-file instead.",
        )
    return getpass.getpass(prompt).encode("utf-8")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def print_values(values: dict[str, Any], *, as_json: bool) -> None:
    """Print rows of names and values, or JSON for programs."""
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
        return
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            rows = one if isinstance(one, dict) else {name: one}
            sys.stdout.writelines(
                f"{visible(str(label)):<{_WIDTH}}{visible(str(text))}\n" for label, text in rows.items()
            )
            sys.stdout.write("\n" if isinstance(one, dict) else "")
