# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TPMT_PUBLIC, and what is made of it: name, key, credential."""

from __future__ import annotations

from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Public
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.templates import make_credential
from ansible_collections.attested.kubernetes.tests.support.tpm import CountingRandom, public_area


def seeds() -> list[bytes]:
    return [public_area(key) for key in ("ak-ecc", "ak-rsa", "ek")]


def one_input(data: bytes) -> None:
    public = Public.parse(data)
    assert public.marshal() == data
    public.name()
    public.spki_sha256()
    make_credential(public, b"\x00\x0b" + bytes(32), bytes(32), CountingRandom())
