# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of the API bed: one real API for the whole run, with our objects installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = Path(__file__).parents[2] / "roles" / "key_service" / "files"


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBed]:
    """A real API with our custom resources, RBAC and admission policy, as init applies them."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with api_bed(tmp_path_factory.mktemp("api")) as bed:
        for name in ("crds", "rbac", "admission"):
            words = ("apply", "--server-side", "--field-manager=attested-site", "-f", str(FILES / f"{name}.yml"))
            bed.kubectl(*words)
        bed.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield bed
