# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of git, byte for byte: what our own reader refuses, whatever git itself says to it."""

from __future__ import annotations

import tracemalloc

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import Refusal
from ansible_collections.attested.kubernetes.plugins.module_utils.source.signature import object_id
from ansible_collections.attested.kubernetes.plugins.module_utils.source.staging import (
    MAX_BYTES,
    MAX_ENTRIES,
    FileKind,
    SiteFile,
    read_files,
)
from ansible_collections.attested.kubernetes.tests.support.refusal import Coded

BLOB = b"hello\n"


class Store:
    """Objects by their ids."""

    def __init__(self):
        self.objects = {}

    def put(self, kind, content):
        name = object_id(kind, content)
        self.objects[name] = content
        return name

    def tree(self, *entries):
        return self.put("tree", b"".join(mode + b" " + name + b"\0" + bytes.fromhex(of) for mode, name, of in entries))

    def read(self, kind, ids, *, limit):
        return {name: self.objects[name] for name in ids}


@pytest.fixture
def store():
    return Store()


def code(store, tree):
    with pytest.raises(Refusal) as caught:
        read_files(store, tree)
    return Coded(caught.value)


def test_a_plain_tree_is_its_files(store):
    blob = store.put("blob", BLOB)
    below = store.tree((b"100755", b"run", blob), (b"120000", b"link", store.put("blob", b"../hosts.yml")))
    files = read_files(store, store.tree((b"100644", b"hosts.yml", blob), (b"40000", b"a", below)))
    assert files == (
        SiteFile(path="a/link", kind=FileKind.LINK, content=b"../hosts.yml"),
        SiteFile(path="a/run", kind=FileKind.EXECUTABLE, content=BLOB),
        SiteFile(path="hosts.yml", kind=FileKind.PLAIN, content=BLOB),
    )


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(b"100644", b".git", id="a repository"),
        pytest.param(b"40000", b".GIT", id="a repository where case does not count"),
        pytest.param(b"100644", b"..", id="the folder above"),
        pytest.param(b"100644", b".", id="the folder itself"),
        pytest.param(b"100644", b"a/b", id="a path"),
        pytest.param(b"100644", b"", id="nothing"),
        pytest.param(b"100644", b"a\nb", id="two lines"),
        pytest.param(b"100644", b"\x1b[2J", id="a control sequence"),
        pytest.param(b"100644", b"\xff", id="no UTF-8"),
        pytest.param(b"100644", b"a" * 256, id="a name that no disk takes"),
        pytest.param(b"104755", b"sudo", id="set-user-id"),
        pytest.param(b"100664", b"a", id="a mode of old git"),
        pytest.param(b"020000", b"console", id="a device"),
    ],
)
def test_a_name_or_kind_of_no_plain_site_is_refused(store, mode, name):
    assert (
        code(store, store.tree((mode, name, store.put("blob", BLOB)))) == "SOURCE_TREE_REFUSED: kinds of a plain site"
    )


def test_one_name_twice_is_refused(store):
    """A link and a folder of one name are how a file is written elsewhere."""
    link, below = store.put("blob", b"."), store.tree((b"100644", b"x", store.put("blob", BLOB)))
    assert (
        code(store, store.tree((b"120000", b"a", link), (b"40000", b"a", below)))
        == "SOURCE_TREE_REFUSED: kinds of a plain site"
    )


def test_half_an_entry_is_refused(store):
    assert code(store, store.put("tree", b"100644 a\0" + bytes(19))) == "SOURCE_TREE_REFUSED: kinds of a plain site"


def test_a_submodule_is_refused(store):
    assert code(store, store.tree((b"160000", b"theirs", "00" * 20))) == "SOURCE_TREE_REFUSED: submodule"


@pytest.mark.parametrize("target", [b"", b"/etc/shadow", b"..", b"x/../../y", b"x/..", b"a\0b", b"a" * 1025])
def test_a_link_that_may_lead_out_is_refused(store, target):
    assert code(store, store.tree((b"120000", b"link", store.put("blob", target)))) == "SOURCE_TREE_REFUSED: the link"


def test_a_link_to_the_folder_above_needs_one(store):
    link = store.put("blob", b"..")
    files = read_files(store, store.tree((b"40000", b"a", store.tree((b"120000", b"link", link)))))
    assert files[0].path == "a/link"


def test_a_tree_that_unfolds_is_refused_by_what_it_would_be(store):
    """Twelve trees of which each holds the next ten times."""
    tree = store.tree((b"100644", b"a", store.put("blob", BLOB)))
    for _level in range(12):
        tree = store.tree(*((b"40000", b"%d" % number, tree) for number in range(10)))
    assert code(store, tree) == "SOURCE_TREE_REFUSED: a site of at most"


def test_a_deep_tree_is_refused(store):
    tree = store.tree((b"100644", b"a", store.put("blob", BLOB)))
    for _level in range(24):
        tree = store.tree((b"40000", b"a", tree))
    assert code(store, tree) == "SOURCE_TREE_REFUSED: a site of at most"


def test_a_tree_of_a_million_files_is_refused_without_reading_it_all(store):
    """One entry of it is no entry at all, behind as many as a site may have."""
    entry = b"100644 %07d\0" + bytes(20)
    good = b"".join(entry % number for number in range(MAX_ENTRIES))
    assert code(store, store.put("tree", good + b"broken" * 1_000_000)) == "SOURCE_TREE_REFUSED: a site of at most"


def test_a_link_of_many_megabytes_is_refused_without_taking_it_apart(store):
    tree = store.tree((b"120000", b"link", store.put("blob", b"/" * (MAX_BYTES // 4))))
    tracemalloc.start()
    try:
        assert code(store, tree) == "SOURCE_TREE_REFUSED: the link"
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def test_one_large_file_in_many_places_is_refused(store):
    blob = store.put("blob", bytes(1 << 20))
    assert (
        code(store, store.tree(*((b"100644", b"%d" % number, blob) for number in range(33))))
        == "SOURCE_TREE_REFUSED: a site of at most"
    )
