# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says that it measured of its site: from its log, which it wrote itself."""

from __future__ import annotations

from dataclasses import astuple

from ansible_collections.attested.kubernetes.plugins.module_utils.source.version import parse_measured
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.source.test_version import MEASURED


def seeds() -> list[bytes]:
    return [MEASURED.to_text().encode()]


def one_input(data: bytes) -> None:
    text = data.decode(errors="replace")
    measured = parse_measured(text)
    assert measured.to_text() == text
    assert {type(value) for value in astuple(measured)} == {str, int}
