# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command that builds a release, on a clone in which a version was released; a user's tools verify the files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import load_table
from ansible_collections.attested.kubernetes.tests.support import release
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from ansible_collections.attested.kubernetes.tests.support.site_repository import Key, run
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = "99.0.0"
ARCHIVE, SBOM = f"attested-kubernetes-{VERSION}.tar.gz", f"attested-kubernetes-{VERSION}.cdx.json"
SIGNER = "release@example"
FRAGMENT = "---\nminor_changes:\n  - release - something new.\n"


def clone(source: Path, place: Path) -> Path:
    run("git", "clone", "--quiet", "--shared", source, place, cwd=place.parent)
    return place


def commit(tree: Path) -> None:
    person = ("-c", "user.name=Release", "-c", f"user.email={SIGNER}", "-c", "commit.gpgsign=false")
    run("git", "add", "--all", cwd=tree)
    run("git", *person, "commit", "--quiet", "--message", "Release", cwd=tree)


def write(tree: Path, name: str, text: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text, encoding="utf-8")


def set_version(tree: Path, version: str) -> None:
    text = (tree / "galaxy.yml").read_text(encoding="utf-8")
    write(tree, "galaxy.yml", re.sub(r"(?m)^version: .*$", f"version: {version}", text))


def build(tree: Path, key: Path, *words: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "ROOT", tree)
        patch.setattr(sys, "argv", ["release.py", "--key", str(key), *words])
        assert release.main() == 0


def verifies(place: Path, key: Key) -> bool:
    """Return whether ssh-keygen accepts the signature for the signer and the purpose."""
    signers = place.parent / "allowed_signers"
    signers.write_text(f'{SIGNER} namespaces="attested-release" {key.line}\n', encoding="utf-8")
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", SIGNER, "-n", "attested-release"]
    argv += ["-s", str(place / "SHA256SUMS.sig")]
    with (place / "SHA256SUMS").open("rb") as sums:
        return subprocess.run(argv, stdin=sums, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of the commit of this tree, with a release of one fragment committed."""
    tree = clone(ROOT, tmp_path_factory.mktemp("released") / "tree")
    set_version(tree, VERSION)
    # each fragment is checked as a page of its own, and plugins are read by ansible-doc: both take long
    shutil.rmtree(tree / "changelogs" / "fragments", ignore_errors=True)
    write(tree, "changelogs/fragments/something.yml", FRAGMENT)
    write(tree, "changelogs/.plugin-cache.yaml", f"version: {VERSION}\nplugins: {{}}\n")
    run(sys.executable, "-m", "antsibull_changelog", "release", cwd=tree)
    commit(tree)
    return tree


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(directory=tmp_path_factory.mktemp("key")).made()


@pytest.fixture(scope="module")
def published(released: Path, key: Key) -> Path:
    """Return the directory with the published files, built where ignored files lie around."""
    for name in ("coverage.xml", ".secrets/key"):
        write(released, name, "of this working tree alone\n")
    build(released, key.private)
    return released / "dist" / VERSION


@pytest.fixture(scope="module")
def bom(published: Path) -> dict[str, Any]:
    return json.loads((published / SBOM).read_text(encoding="utf-8"))


@pytest.fixture
def copy(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "copy" / VERSION)


def test_the_written_changelog_passes_the_linters(released):
    run(sys.executable, "-m", "antsibull_changelog", "lint", cwd=released)
    assert run(sys.executable, "-m", "yamllint", "--strict", "changelogs", cwd=released) == ""


def test_the_files_are_complete_and_nothing_else_is_left(published, released):
    assert {path.name for path in published.iterdir()} == {ARCHIVE, SBOM, "SHA256SUMS", "SHA256SUMS.sig"}
    assert [path.name for path in published.parent.iterdir()] == [VERSION]
    assert run("git", "status", "--porcelain", cwd=released) == ""


def test_sums_and_signature_verify(copy, key, tmp_path):
    said = run("sha256sum", "--check", "SHA256SUMS", cwd=copy)

    assert sorted(said.splitlines()) == [f"{SBOM}: OK", f"{ARCHIVE}: OK"]
    assert verifies(copy, key)
    assert not verifies(copy, Key(directory=tmp_path, name="other").made())


def test_a_changed_byte_of_the_archive_is_noticed(copy):
    data = bytearray((copy / ARCHIVE).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / ARCHIVE).write_bytes(data)

    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=copy, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"{ARCHIVE}: FAILED" in done.stdout


def test_a_sum_that_was_written_again_is_noticed(copy, key):
    text = (copy / "SHA256SUMS").read_text(encoding="utf-8")
    (copy / "SHA256SUMS").write_text(re.sub(r"^\w{64}", "0" * 64, text), encoding="utf-8")

    assert not verifies(copy, key)


def test_the_archive_has_what_is_committed_but_no_tests(published):
    with tarfile.open(published / ARCHIVE) as tar:
        names = set(tar.getnames())
        manifest = json.load(tar.extractfile("MANIFEST.json"))
        changelog = tar.extractfile("CHANGELOG.rst").read().decode()

    assert manifest["collection_info"]["version"] == VERSION
    assert f"v{VERSION}" in changelog
    assert "- release - something new." in changelog
    assert {"README.md", "LICENSE", "changelogs/changelog.yaml", "meta/requirements.txt", "pyproject.toml"} <= names
    left = (
        "tests",
        "changelogs/fragments",
        "changelogs/.plugin-cache.yaml",
        "dist",
        "coverage.xml",
        ".secrets",
        ".git",
    )
    assert [name for name in names if name.startswith(left)] == []


def test_the_sbom_follows_the_schema_and_says_what_it_is_of(published, bom, released):
    text = (published / SBOM).read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None

    of = bom["metadata"]["component"]
    assert (of["name"], of["version"]) == ("attested.kubernetes", VERSION)
    assert of["purl"] == f"pkg:generic/attested/kubernetes@{VERSION}"
    assert of["licenses"] == [{"expression": "GPL-3.0-or-later"}]
    assert of["properties"] == [{"name": "attested:commit", "value": run("git", "rev-parse", "HEAD", cwd=released)}]


def test_the_sbom_has_the_programs_of_every_release(bom):
    table = load_table(ROOT / release.FILES / "releases")
    named = {(one["name"], one.get("version")): one for one in bom["components"]}
    for version, of_table in table.releases.items():
        assert set(of_table.versions.items()) <= set(named)
        kubeadm = named["kubeadm", version]
        assert kubeadm["purl"] == f"pkg:golang/k8s.io/kubernetes@v{version}"
        assert kubeadm["scope"] == "required"
        found = {
            one["url"]: [hash_["content"] for hash_ in one.get("hashes", [])] for one in kubeadm["externalReferences"]
        }
        assert found == {
            f"https://dl.k8s.io/v{version}/bin/linux/{arch}/kubeadm": [of_table.hashes["kubeadm"][arch]]
            if of_table.hashes["kubeadm"]
            else []
            for arch in ("amd64", "arm64")
        }
    assert {version.rpartition(".")[0] for name, version in named if name == "kubeadm"} == set(table.defaults)
    pause = named["pause", table.release_for("1.37").pause]
    assert (pause["type"], pause.get("purl")) == ("container", None), "its Go module is published nowhere"
    assert pause["properties"] == [{"name": "attested:image", "value": f"registry.k8s.io/pause:{pause['version']}"}]


def test_the_sbom_has_the_packages_of_nodes_with_all_hashes(bom):
    listed = {}
    for name in ("node", "control-plane"):
        text = (ROOT / release.FILES / "python" / f"requirements-{name}.txt").read_text(encoding="utf-8")
        for part in re.split(r"\n(?=\w)", text):
            if pinned := re.match(r"([\w-]+)==(\S+)", part):
                listed[pinned.groups()] = sorted(re.findall(r"sha256:(\w{64})", part))
    found = {
        (one["name"], one["version"]): sorted(hash_["content"] for hash_ in one["hashes"])
        for one in bom["components"]
        if one.get("purl", "").startswith("pkg:pypi/") and "@" in one["purl"]
    }

    assert found == listed
    assert len(next(hashes for (name, _version), hashes in found.items() if name == "cryptography")) > 1


def test_the_sbom_invents_no_version_for_packages_of_the_controller(bom):
    found = {one["purl"]: one for one in bom["components"] if "version" not in one}
    lines = (ROOT / "meta" / "requirements.txt").read_text(encoding="utf-8").splitlines()

    listed = [line for line in lines if not line.startswith("#")]
    assert sorted(one["properties"][0]["value"] for one in found.values()) == sorted(listed)
    assert found["pkg:pypi/pyrage"]["properties"] == [{"name": "attested:requirement", "value": "pyrage>=1.4,<2"}]


def test_a_second_run_elsewhere_makes_the_same_sbom(published, released, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(released, key.private, "--output", "here")

    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert (tmp_path / "here" / VERSION / SBOM).read_bytes() == (published / SBOM).read_bytes()


def _changed_file(tree: Path) -> None:
    write(tree, "README.md", "changed\n")


def _new_file(tree: Path) -> None:
    write(tree, "docs/new.md", "new\n")


def _next_version(tree: Path) -> None:
    set_version(tree, "99.1.0")
    commit(tree)


def _earlier_version(tree: Path) -> None:
    set_version(tree, "9.10.0")
    commit(tree)


def _first_release_to_come(tree: Path) -> None:
    write(tree, "changelogs/changelog.yaml", "---\nancestor: null\nreleases: {}\n")
    commit(tree)


def _new_fragment(tree: Path) -> None:
    write(tree, "changelogs/fragments/later.yml", FRAGMENT)
    commit(tree)


def _built_before(tree: Path) -> None:
    write(tree, f"dist/{VERSION}/{ARCHIVE}", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(_changed_file, "got ' M README.md'; commit or remove", id="a changed file"),
        pytest.param(_new_file, r"got '\?\? docs/new.md'; commit or remove", id="a new file"),
        pytest.param(_next_version, "expected 99.1.0 of .*, got 99.0.0; set", id="a version that was not released"),
        pytest.param(_earlier_version, "expected 9.10.0 of .*, got 99.0.0; set", id="a version before the newest"),
        pytest.param(_first_release_to_come, "expected 99.0.0 of .*, got none; set", id="no release at all"),
        pytest.param(_new_fragment, "got later.yml in .*; run antsibull-changelog release", id="a later fragment"),
        pytest.param(_built_before, "expected no release in .*/99.0.0, got one; remove it", id="built before"),
    ],
)
def test_a_tree_that_is_not_ready_is_refused(released, key, tmp_path, change: Callable[[Path], None], said: str):
    tree = clone(released, tmp_path / "tree")
    change(tree)
    before = sorted((tree / "dist").rglob("*"))

    with pytest.raises(SystemExit, match=said) as caught:
        build(tree, key.private)

    assert str(caught.value).startswith("expected ")
    assert "\n" not in str(caught.value)
    assert sorted((tree / "dist").rglob("*")) == before


@pytest.mark.parametrize("text", [pytest.param("no key\n", id="another file"), pytest.param(None, id="no file")])
def test_a_key_that_does_not_sign_is_refused(released, tmp_path, text: str | None):
    other = tmp_path / "key"
    if text is not None:
        other.write_text(text, encoding="utf-8")

    with pytest.raises(
        SystemExit, match=r"^expected a key that ssh-keygen signs with, got /.*/key \(.+\); name another"
    ):
        build(released, other, "--output", str(tmp_path / "out"))

    assert list((tmp_path / "out").iterdir()) == []
