# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""attested-node.yml of the site's repository."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import FileKind, SiteFile
from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import PIN_FILE, parse_pin
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.source.test_version import TEXT


def seeds() -> list[bytes]:
    return [TEXT.encode(), f'{{"version": 0x7, "collection": "1.0.0-a+b", "bundle": "{"0f" * 32}"}}'.encode()]


def one_input(data: bytes) -> None:
    parse_pin([SiteFile(path=PIN_FILE, kind=FileKind.PLAIN, content=data)])
