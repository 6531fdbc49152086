# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for the pip installer that `ansible-test --venv` downloads: runs Python's bundled pip.

`tests/run.py` puts it where ansible-test looks first, so that sanity tests need no network besides the package index.
"""

from __future__ import annotations

import ensurepip
import sys
from pathlib import Path

DROPPED = frozenset({"--no-setuptools", "--no-wheel"})


def main() -> int:
    """Install the packages of the command line with the bundled pip."""
    bundled = getattr(ensurepip, "_WHEEL_PKG_DIR", None) or Path(ensurepip.__file__).parent / "_bundled"
    sys.path.insert(0, str(next(Path(bundled).glob("pip-*.whl"))))
    from pip._internal.cli.main import main as pip  # noqa: PLC0415  # only importable from here on

    return pip(["install", *(word for word in sys.argv[1:] if word not in DROPPED)])


if __name__ == "__main__":
    raise SystemExit(main())
