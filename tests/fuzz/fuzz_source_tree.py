# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of a site: the first part of the input is the root, each further one all folders of the next level."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import FileKind, read_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CUT = b"\n--\n"
MAX_BYTES = 512
"""More would unfold to as many files as a site may have, which are no input's cost but the site's."""


class Levels:
    """Objects that need no right hash: the trees of one level are alike, a file holds the last part."""

    def __init__(self, data: bytes) -> None:
        self.parts = data[:MAX_BYTES].split(CUT)
        self.level = -1

    def read(self, kind: str, ids: Iterable[str], *, limit: int) -> Mapping[str, bytes]:
        del limit
        self.level += kind == "tree"
        below = self.parts[self.level] if self.level < len(self.parts) else b""
        return dict.fromkeys(ids, below if kind == "tree" else self.parts[-1])


def entry(mode: bytes, name: bytes) -> bytes:
    return mode + b" " + name + b"\0" + bytes(20)


def seeds() -> list[bytes]:
    site = entry(b"100644", b"hosts.yml") + entry(b"40000", b"roles") + entry(b"100755", "größe".encode())
    return [site, CUT.join([site, entry(b"120000", b"link"), b"../hosts.yml"])]


def one_input(data: bytes) -> None:
    for file in read_files(Levels(data), "00" * 20):
        parts = file.path.split("/")
        assert not {"", ".", "..", ".git"}.intersection(parts), file.path
        assert file.kind is not FileKind.LINK or not file.content.startswith(b"/")
