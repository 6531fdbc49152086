# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copying out of a mounted disk: what is taken, what is left out, and that nothing leads out of it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from typing import TYPE_CHECKING

from ansible_collections.attested.kubernetes.plugins.module_utils.rescue.extract import extract_data
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def disk(folder: Path) -> Path:
    """What a control plane's disk looks like when it is mounted."""
    mounted = folder / "mounted"
    for name, text in {
        "kubernetes/pki/ca.key": "the CA's key",
        "kubernetes/pki/etcd/ca.crt": "a certificate",
        "kubernetes/admin.conf": "a kubeconfig",
        "var/lib/etcd/member/snap/db": "pages",
        "var/lib/etcd/member/wal/0-0.wal": "records",
        "var/log/pods/noise": "not wanted",
        "constellation/node_state.json": '{"Role": "ControlPlane"}',
    }.items():
        path = mounted / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
    return mounted


def test_every_file_of_the_three_places_is_copied_with_its_hash(tmp_path: Path) -> None:
    mounted, out = disk(tmp_path), tmp_path / "out"
    done = extract_data(mounted, out)
    assert [one.path for one in done.files] == [
        "kubernetes/admin.conf",
        "kubernetes/pki/ca.key",
        "kubernetes/pki/etcd/ca.crt",
        "var/lib/etcd/member/snap/db",
        "var/lib/etcd/member/wal/0-0.wal",
        "constellation/node_state.json",
    ]
    for one in done.files:
        data = (out / one.path).read_bytes()
        assert data == (mounted / one.path).read_bytes()
        assert (one.size, one.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=out, check=True)
    told = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert (len(told["files"]), told["left_out"], told["missing"]) == (6, [], [])


def test_the_copies_are_their_owners_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    extract_data(disk(tmp_path), out)
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (out, *out.rglob("*")) if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.lstat().st_mode) for path in out.rglob("*") if path.is_file()} == {0o600}


def test_links_and_what_is_no_file_are_listed_and_not_copied(tmp_path: Path) -> None:
    """A disk of a stranger must neither hand out files of this machine nor write outside of the folder."""
    mounted, out = disk(tmp_path), tmp_path / "out"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("this machine's", encoding="utf-8")
    (mounted / "kubernetes/pki/link").symlink_to(outside / "secret")
    (mounted / "kubernetes/folder").symlink_to(outside)
    os.mkfifo(mounted / "kubernetes/pipe")
    (mounted / "kubernetes/a\nb").write_text("x", encoding="utf-8")
    done = extract_data(mounted, out)
    assert {path: kind.partition(" ")[0] for path, kind in done.left_out} == {
        "kubernetes/pki/link": "link",
        "kubernetes/folder": "link",
        "kubernetes/pipe": "no",
        "kubernetes/a\\nb": "a",
    }
    assert not [path for path in out.rglob("*") if path.is_symlink() or "secret" in path.name]
    assert len(done.files) == 6


def test_a_worker_has_no_etcd_and_that_is_said(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    (mounted / "kubernetes").mkdir(parents=True)
    assert extract_data(mounted, tmp_path / "out").missing == ("var/lib/etcd", "constellation")


def test_a_place_that_is_a_link_out_of_the_disk_is_missing(tmp_path: Path) -> None:
    mounted = disk(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x", encoding="utf-8")
    (mounted / "constellation/node_state.json").unlink()
    (mounted / "constellation").rmdir()
    (mounted / "constellation").symlink_to(tmp_path / "outside")
    assert extract_data(mounted, tmp_path / "out").missing == ("constellation",)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert code_of(lambda: extract_data(tmp_path / "empty", tmp_path / "out")) == "RESCUE_NO_DISK"


def test_nothing_is_written_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x", encoding="utf-8")
    assert code_of(lambda: extract_data(disk(tmp_path), out)) == "FILE_UNUSABLE"
    assert code_of(lambda: extract_data(disk(tmp_path), tmp_path / "no" / "where")) == "FILE_UNUSABLE"


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is mounted for writing, with an etcd that runs on it."""
    mounted = disk(tmp_path)
    database = mounted / "var/lib/etcd/member/snap/db"
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        with database.open("ab") as stream:
            stream.write(b"more")
        return found

    monkeypatch.setattr(os, "fstat", fstat)
    assert code_of(lambda: extract_data(mounted, tmp_path / "out")) == "RESCUE_SOURCE_CHANGED"
