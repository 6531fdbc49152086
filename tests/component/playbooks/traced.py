# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What replaced modules do in tests of the order of calls: they write a line, and answer what the test says.

The answer to ``NAME HOST`` is for one host alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def call(root: str, name: str, host: str, params: dict[str, Any]) -> dict[str, Any]:
    said = json.loads(Path(root, "answers.json").read_text())
    shown = [params[one] for one in said.get("shown", ()) if params.get(one)]
    with Path(root, "trace").open("a") as trace:
        trace.write((params.get("what") or " ".join([name, *shown])) + "\n")
    results = said["results"]
    result: dict[str, Any] = results.get(f"{name} {host}", results.get(name, {}))
    return result
