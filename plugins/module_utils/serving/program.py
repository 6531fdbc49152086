# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main of a service: its options, its configuration, and the error that keeps it from serving."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import AttestedError
from ..system import release
from .config import load_config

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

Config = TypeVar("Config")


def run_service(
    argv: Sequence[str] | None,
    *,
    name: str,
    description: str,
    kind: type[Config],
    path: str,
    serve: Callable[[Config, str], Coroutine[Any, Any, None]],
) -> int:
    """Read the configuration, a ``kind`` in ``path`` unless the words name another file, and ``serve`` with both.

    Returns 0 after SIGTERM, 1 with the error on standard error where it cannot serve.
    """
    parser = argparse.ArgumentParser(prog=name, description=description)
    parser.add_argument("--version", action="version", version=f"%(prog)s {release()}")
    parser.add_argument("--config", default=path, metavar="FILE", help="the configuration (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        asyncio.run(serve(load_config(kind, options.config), options.config))
    except AttestedError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    return 0
