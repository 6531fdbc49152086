# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON of a header: one spelling only, so that no other reader can understand something else.

json-c, which cryptsetup reads with, takes the last of two equal keys, cuts texts at an escaped NUL, and knows comments.
Here a text is taken only if writing what was read gives the very same bytes.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import DiskError
from ..reasons import Reason
from ..system import require_shallow, unique_members

MAX_DEPTH = 8
"""Objects and lists in one another; cryptsetup's own headers have four."""
_MAX_DIGITS = 10


def load_json(text: bytes) -> dict[str, Any]:
    """Return the object that ``text`` spells in cryptsetup's one way; raises LUKS_JSON_MALFORMED.

    1. ASCII without escapes (cryptsetup before 2.4 wrote a slash as backslash and slash, which is taken), and shallow
    before anything else reads it. 2. JSON without fractions, long numbers or a key twice.
    3. An object, whose compact spelling is ``text`` again.
    """
    try:
        plain = text.decode("ascii").replace("\\/", "/")
    except UnicodeDecodeError:
        raise _malformed("expected ASCII") from None
    if "\\" in plain:  # 1
        raise _malformed("expected no escaped letters")
    try:
        require_shallow(plain, levels=MAX_DEPTH)
        value = json.loads(  # 2
            plain, object_pairs_hook=unique_members, parse_int=_integer, parse_float=_refuse, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)) from error
    if not isinstance(value, dict) or json.dumps(value, separators=(",", ":")) != plain:  # 3
        raise _malformed("expected an object in its compact spelling")
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or digits.startswith("-"):
        raise ValueError(f"expected a number of at most {_MAX_DIGITS} digits")
    return int(digits)


def _refuse(text: str) -> Any:
    raise ValueError(f"expected whole numbers only, got {text[:20]}")


def _malformed(problem: str) -> DiskError:
    return DiskError(f"the header's JSON: {problem}", reason=Reason.LUKS_JSON_MALFORMED)
