# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database file of an etcd on somebody's disk."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.extract import entries, open_database
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.rescue.test_keyspace import database


def seeds() -> list[bytes]:
    return [database()]


def one_input(data: bytes) -> None:
    for entry in entries(open_database(data)):
        assert isinstance(entry.key, bytes)
        assert entry.revision >= 0
