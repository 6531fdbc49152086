# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""manifest.json of a bundle."""

from __future__ import annotations

import json

from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.manifest import parse_manifest
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.bundle.conftest import document


def seeds() -> list[bytes]:
    return [json.dumps(document()[0]).encode()]


def one_input(data: bytes) -> None:
    parse_manifest(data)
