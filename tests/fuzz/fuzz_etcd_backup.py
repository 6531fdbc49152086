# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup of etcd as anybody may have altered it, and its content as whoever has a recipient may have made it."""

from __future__ import annotations

import contextlib
import io

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import (
    close_to,
    make_identity,
    open_stream,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.etcd_archive import (
    Manifest,
    OpenedBackup,
    parse_manifest,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError

IDENTITY, RECIPIENT = make_identity()
MANIFEST = Manifest(
    taken="2026-11-25T23:15:00Z",
    node="cp-1",
    cluster_id="00" * 32,
    policy_generation=3,
    revision=48211,
    kubernetes_version="1.35.4",
    authorities={"ca": ["9f2c1d5e9f2c1d5e"]},
    size=3,
    sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
)
CLOSED = close_to(MANIFEST.to_line() + b"abc", [RECIPIENT])


def seeds() -> list[bytes]:
    return [MANIFEST.to_line(), MANIFEST.to_line() + b"abc", b"\n", CLOSED]


def one_input(data: bytes) -> None:
    _take(data)
    with contextlib.suppress(AttestedError):
        open_stream(io.BytesIO(data), OpenedBackup(None, begin=lambda _one: None), [IDENTITY])
    found = parse_manifest(data)
    assert parse_manifest(found.to_line()) == found
    assert "/" not in found.file_name


def _take(data: bytes) -> None:
    out = io.BytesIO()
    opened = OpenedBackup(out, begin=lambda _one: None)
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        assert opened.write(piece) == len(piece)
    with contextlib.suppress(AttestedError):
        manifest = opened.finish()
        assert manifest.size == len(out.getvalue())
