# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where shares may lie, and when a folder already holds the split that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.places import (
    holds_split,
    write_secret,
    write_shares,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.shares import ShareOrder
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded
from ansible_collections.attested.kubernetes.tests.unit.plugins.module_utils.admin.test_shares import (
    MASTER,
    OTHER,
    texts,
)

if TYPE_CHECKING:
    from pathlib import Path

ORDER = ShareOrder(threshold=2, count=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_shares(tmp_path / "shares", texts(threshold=2, count=3))
    return tmp_path / "shares"


def test_a_folder_holds_the_split_that_was_written_into_it(folder: Path, tmp_path: Path) -> None:
    assert holds_split(folder, MASTER, ORDER) is True
    assert holds_split(tmp_path / "none", MASTER, ORDER) is False
    (tmp_path / "empty").mkdir()
    assert holds_split(tmp_path / "empty", MASTER, ORDER) is False


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "share-2.txt").unlink(), id="a share is missing"),
        pytest.param(lambda folder: (folder / "share-2.txt").write_text("academic"), id="a share is broken"),
        pytest.param(lambda folder: (folder / "other").write_text(""), id="something else lies there"),
        pytest.param(lambda folder: (folder / "share-3.txt").write_text(texts(OTHER)[2]), id="of another cluster"),
    ],
)
def test_a_folder_with_something_else_is_refused(folder: Path, change) -> None:
    change(folder)
    with pytest.raises(AttestedError) as caught:
        holds_split(folder, MASTER, ORDER)
    assert Coded(caught.value) == "PLACE_TAKEN: an empty folder"


@pytest.mark.parametrize(
    ("master", "order"),
    [
        pytest.param(OTHER, ORDER, id="another secret"),
        pytest.param(MASTER, ShareOrder(threshold=3, count=3), id="another threshold"),
        pytest.param(MASTER, ShareOrder(threshold=2, count=4), id="another number"),
    ],
)
def test_a_folder_with_another_split_is_refused(folder: Path, master, order: ShareOrder) -> None:
    with pytest.raises(AttestedError) as caught:
        holds_split(folder, master, order)
    assert Coded(caught.value) == "PLACE_TAKEN: an empty folder"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="ascii")
    for call in (lambda path: holds_split(path, MASTER, ORDER), lambda path: write_shares(path, ("x",))):
        with pytest.raises(AttestedError) as caught:
            call(tmp_path / "file")
        assert Coded(caught.value) == "PLACE_TAKEN: an empty folder"


@pytest.mark.parametrize("sign", [".git", ".hg", ".svn", "hosts.yml"])
def test_a_place_below_a_repository_or_a_site_is_refused(tmp_path: Path, sign: str) -> None:
    (tmp_path / sign).mkdir()
    with pytest.raises(AttestedError) as caught:
        write_secret(tmp_path / "a" / "b", b"x")
    assert caught.value.code == "SHARES_EXPOSED"


def test_a_secret_is_its_owners_alone_also_where_a_wider_file_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_secret(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
