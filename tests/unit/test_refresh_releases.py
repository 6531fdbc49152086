# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that refreshes the table of releases, against a server with files in the publishers' formats."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import load_table
from ansible_collections.attested.kubernetes.tests.support.refresh_releases import (
    TABLE,
    Publishers,
    hash_in,
    main,
    refresh,
    render,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GITHUB = "/github.com"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def files() -> dict[str, str]:
    """Return what the publishers have, by host and path: each in its own format."""
    kubernetes = {
        f"/dl.k8s.io/v1.37.{patch}/bin/linux/{arch}/{name}.sha256": sha(f"{name} 1.37.{patch} {arch}")
        for patch in (2, 3)
        for arch in ("amd64", "arm64")
        for name in ("kubeadm", "kubelet", "kubectl")
    }
    etcd = "".join(
        f"{sha(f'etcd {arch}')}  etcd-v3.7.0-{system}-{arch}.tar.gz\n"
        for system, arch in (("darwin", "amd64"), ("linux", "amd64"), ("linux", "arm64"))
    )
    return {
        "/dl.k8s.io/release/stable-1.37.txt": "v1.37.3",
        "/dl.k8s.io/release/stable-1.38.txt": "v1.38.0\n",
        **kubernetes,
        f"{GITHUB}/etcd-io/etcd/releases/download/v3.7.0/SHA256SUMS": etcd,
        **{
            f"/get.helm.sh/helm-v4.3.1-linux-{arch}.tar.gz.sha256sum": f"{sha(arch)}  helm-v4.3.1-linux-{arch}.tar.gz\n"
            for arch in ("amd64", "arm64")
        },
    }


@pytest.fixture
def mirror(files: dict[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = files.get(self.path)
            self.send_response(404 if text is None else 503 if text == "down" else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for name in ("components.yml", "1.37.yml"):
        shutil.copy(TABLE / name, tmp_path / name)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["refresh_releases.py", *words])
    return main()


def test_new_patches_and_hashes_are_written_and_said(table, mirror):
    said = refresh(table, Publishers(mirror), check=False)

    release = load_table(table).release_for("1.37.3")
    assert release.hashes["kubelet"] == {arch: sha(f"kubelet 1.37.3 {arch}") for arch in ("amd64", "arm64")}
    assert release.hashes["etcd"] == {arch: sha(f"etcd {arch}") for arch in ("amd64", "arm64")}
    assert release.hashes["kube-proxy"] == {}
    assert {"new release 1.37.3", "new hashes of kubeadm 1.37.2", "new hashes of helm 4.3.1"} <= set(said.news)
    assert said.news[-1] == "new minor 1.38.0: the table has no file of it"
    assert (said.differing, said.publishers.failed) == ([], [])


def test_a_second_run_finds_nothing_but_the_minor(table, mirror):
    refresh(table, Publishers(mirror), check=False)
    before = (table / "1.37.yml").read_text()

    again = refresh(table, Publishers(mirror), check=False)

    assert again.news == ["new minor 1.38.0: the table has no file of it"]
    assert (table / "1.37.yml").read_text() == before


def test_check_writes_nothing_and_ends_with_one(table, mirror, monkeypatch, capsys):
    before = (table / "1.37.yml").read_text()

    assert run(monkeypatch, "--check", "--mirror", mirror, "--table", str(table)) == 1

    assert "new release 1.37.3" in capsys.readouterr().out
    assert (table / "1.37.yml").read_text() == before


def test_a_hash_that_differs_is_said_and_not_written(table, mirror, files, monkeypatch, capsys):
    known = load_table(table).release_for("1.37.2").hashes["runc"]["amd64"]
    other = sha("another runc")
    files[f"{GITHUB}/opencontainers/runc/releases/download/v1.4.3/runc.sha256sum"] = f"{other} *runc.amd64\n"

    assert run(monkeypatch, "--mirror", mirror, "--table", str(table)) == 1

    assert f"differs: runc 1.4.3 amd64: expected {known} as in the table, got {other}" in capsys.readouterr().out
    assert load_table(table).release_for("1.37.2").hashes["runc"]["amd64"] == known


def test_a_publisher_that_does_not_answer_is_said_and_the_others_are_read(table, mirror, files, monkeypatch, capsys):
    files[f"{GITHUB}/etcd-io/etcd/releases/download/v3.7.0/SHA256SUMS"] = "down"

    assert run(monkeypatch, "--mirror", mirror, "--table", str(table)) == 1

    assert "etcd-io/etcd/releases/download/v3.7.0/SHA256SUMS: COMPONENT_UNREACHABLE" in capsys.readouterr().out
    assert load_table(table).release_for("1.37.2").hashes["etcd"] == {}
    assert load_table(table).release_for("1.37.2").hashes["helm"]


def test_with_nothing_new_it_says_so(table, mirror, files, monkeypatch, capsys):
    files.clear()

    assert run(monkeypatch, "--check", "--mirror", mirror, "--table", str(table)) == 0

    assert capsys.readouterr().out == "nothing new\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("a" * 64, "a" * 64, id="a hash alone"),
        pytest.param(f"{'a' * 64}  runc.amd64\n{'b' * 64}  runc.arm64\n", "b" * 64, id="hashes and names"),
        pytest.param(f"{'b' * 64} *./runc.arm64\n", "b" * 64, id="a name with its folder, in binary mode"),
        pytest.param(f"{'a' * 64}\n{'b' * 64}\n", "", id="two hashes without names"),
        pytest.param(f"{'a' * 64}  runc.amd64\n", "", id="another file alone"),
        pytest.param("<html>not found</html>", "", id="a page"),
        pytest.param("A" * 64, "", id="no hash in lower case"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_a_checksum_file_says(text, found):
    assert hash_in(text, "runc.arm64") == found


@pytest.mark.parametrize("name", ["1.35.yml", "1.36.yml", "1.37.yml"])
def test_the_files_are_as_the_command_writes_them(name):
    """Otherwise the next refresh would be lost in changes of form."""
    text = (TABLE / name).read_text()

    assert render(yaml.safe_load(text), text) == text
