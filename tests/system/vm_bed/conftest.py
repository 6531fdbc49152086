# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenes of a lab with virtual machines have in common."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def took(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how long a scene took, beside its name."""
    began = time.monotonic()
    yield
    print(f"{request.node.name}: {time.monotonic() - began:.0f} s")
