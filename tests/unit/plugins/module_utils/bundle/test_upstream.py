# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where programs come from: what the option may say, and how a program gets out of an archive."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle import download as module
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import (
    Upstream,
    extract,
    parse_upstreams,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import AttestedError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason

if TYPE_CHECKING:
    from pathlib import Path

ETCD = b"\x7fELF etcd " * 1000
ROW = {"name": "etcd", "urls": ["https://a.example/etcd", "/srv/etcd"], "sha256": "ab" * 32}


def tarred(name: str = "etcd-v3/etcd", kind: bytes = tarfile.REGTYPE) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.size = len(ETCD) if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(ETCD))
    return raw.getvalue()


def from_archive(tmp_path: Path, data: bytes, **how: str) -> bytes:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    extract(Upstream(name="etcd", urls=("/source",), sha256="ab" * 32, **how), source, target)
    return target.read_bytes()


def test_a_row_is_what_it_says() -> None:
    parsed = parse_upstreams([ROW, {**ROW, "name": "etcdctl", "extract": "tar", "member": "etcdctl"}])
    assert parsed["etcd"] == Upstream(name="etcd", urls=("https://a.example/etcd", "/srv/etcd"), sha256="ab" * 32)
    assert (parsed["etcdctl"].extract, parsed["etcdctl"].member) == ("tar", "etcdctl")


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        pytest.param([{**ROW, "urls": []}], "at least one URL", id="nowhere"),
        pytest.param([{**ROW, "urls": ["ftp://a/etcd"]}], "ftp://a/etcd", id="another scheme"),
        pytest.param([{**ROW, "urls": ["file:///etcd"]}], "file:///etcd", id="a file by a scheme"),
        pytest.param([{**ROW, "urls": ["etcd"]}], "'etcd'", id="a relative path"),
        pytest.param([{**ROW, "urls": ["https://a/e tcd"]}], "e tcd", id="a space"),
        pytest.param([{**ROW, "sha256": "AB" * 32}], "lower-case", id="a hash in capitals"),
        pytest.param([{**ROW, "sha256": ""}], "64 lower-case hex digits", id="no hash"),
        pytest.param([{**ROW, "extract": "tar"}], "member", id="a tar without a member"),
        pytest.param([{**ROW, "member": "etcd"}], "member", id="a member without a tar"),
        pytest.param([ROW, ROW], "once", id="twice"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(rows: list[dict[str, Any]], what: str) -> None:
    with pytest.raises(AttestedError) as caught:
        parse_upstreams(rows)
    assert caught.value.reason is Reason.OPTION_INVALID
    assert what in caught.value.message


@pytest.mark.parametrize(
    ("data", "how"),
    [
        pytest.param(ETCD, {}, id="as it is"),
        pytest.param(gzip.compress(ETCD), {"extract": "gzip"}, id="gzip"),
        pytest.param(tarred(), {"extract": "tar", "member": "etcd-v3/etcd"}, id="out of a tar"),
        pytest.param(tarred("./etcd"), {"extract": "tar", "member": "etcd"}, id="of a directory"),
    ],
)
def test_the_program_comes_out(tmp_path: Path, data: bytes, how: dict[str, str]) -> None:
    assert from_archive(tmp_path, data, **how) == ETCD


@pytest.mark.parametrize(
    ("data", "how"),
    [
        pytest.param(ETCD, {"extract": "gzip"}, id="no gzip"),
        pytest.param(gzip.compress(ETCD)[:-20], {"extract": "gzip"}, id="gzip that was cut off"),
        pytest.param(ETCD, {"extract": "tar", "member": "etcd"}, id="no tar"),
        pytest.param(tarred()[:-200], {"extract": "tar", "member": "etcd-v3/etcd"}, id="a tar that was cut off"),
        pytest.param(tarred(), {"extract": "tar", "member": "etcd"}, id="another member"),
        pytest.param(tarred(kind=tarfile.DIRTYPE), {"extract": "tar", "member": "etcd-v3/etcd"}, id="a directory"),
    ],
)
def test_what_does_not_come_out_is_told(tmp_path: Path, data: bytes, how: dict[str, str]) -> None:
    with pytest.raises(AttestedError) as caught:
        from_archive(tmp_path, data, **how)
    assert caught.value.reason is Reason.COMPONENT_NOT_INSIDE


def test_what_unfolds_beyond_any_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", len(ETCD) - 1)
    with pytest.raises(AttestedError) as caught:
        from_archive(tmp_path, gzip.compress(ETCD), extract="gzip")
    assert caught.value.reason is Reason.COMPONENT_NOT_INSIDE
