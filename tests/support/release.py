# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build and sign the published files of the version in galaxy.yml, from the commit that is checked out.

Usage: python tests/support/release.py --key FILE [--output DIRECTORY]

Writes DIRECTORY/VERSION/ with the archive of the collection, its SBOM (CycloneDX 1.6), SHA256SUMS of both, and
SHA256SUMS.sig by ssh-keygen. The directory appears complete or not at all. Exits with 1 and a line that says what to
do if something is not ready for a release. docs/releasing.md has the steps before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import (
    ARCHITECTURES,
    is_version,
    load_table,
    version_key,
)
from ansible_collections.attested.kubernetes.tests.support.house import ROOT
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILES = Path("roles/bundle_builder/files")
SUMS = "SHA256SUMS"
NAMESPACE = "attested-release"
"""What a signature is for: ssh-keygen refuses one that the same key made for git."""
UNPUBLISHED = "attested.invalid/"
"""The prefix of the Go modules that exist in this tree only."""


def release(tree: Path, *, key: Path, output: Path) -> Path:
    """Return the new directory with the files of the version; raise SystemExit if the tree or the key is not ready."""
    version = version_to_release(tree)
    place = output / version
    if place.exists():
        raise SystemExit(f"expected no release in {place}, got one; remove it to build the version again")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=output) as scratch:
        source, made = Path(scratch, "source"), Path(scratch, version)
        made.mkdir()
        _git(tree, "checkout-index", "--all", f"--prefix={source}/")
        galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection", "build", "--output-path", str(made)]
        subprocess.run(galaxy, cwd=source, check=True, stdout=subprocess.DEVNULL)
        seconds, commit = _git(tree, "rev-list", "--timestamp", "--max-count=1", "HEAD").split()
        bom = sbom(source, version=version, commit=commit, date=datetime.fromtimestamp(int(seconds), UTC))
        (made / f"attested-kubernetes-{version}.cdx.json").write_text(bom, encoding="utf-8")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
        (made / SUMS).write_text("".join(sums), encoding="utf-8")
        _sign(made / SUMS, key)
        made.rename(place)
    return place


def version_to_release(tree: Path) -> str:
    """Return the version in galaxy.yml; raise SystemExit if the tree is not the commit of its release."""
    # whatever the user's settings: a new file that was not added, such as the first CHANGELOG.rst, is a change
    if changes := _git(tree, "status", "--porcelain", "--untracked-files=all").splitlines():
        raise SystemExit(
            f"expected a working tree without changes, got {changes[0]!r}; commit or remove what git status shows"
        )
    version = str(yaml.safe_load((tree / "galaxy.yml").read_text(encoding="utf-8"))["version"])
    releases = yaml.safe_load((tree / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]
    newest = max(filter(is_version, releases), key=version_key, default="none")
    if version != newest:
        raise SystemExit(
            f"expected {version} of galaxy.yml as the newest release in changelogs/changelog.yaml, got {newest}; "
            "set the version, run antsibull-changelog release, and commit"
        )
    if fragments := sorted(path.name for path in (tree / "changelogs" / "fragments").glob("*.y*ml")):
        raise SystemExit(
            f"expected no fragment outside a release, got {fragments[0]} in changelogs/fragments; "
            "run antsibull-changelog release for a new version, and commit"
        )
    return version


def sbom(tree: Path, *, version: str, commit: str, date: datetime) -> str:
    """Return the SBOM of ``tree`` as JSON, the same at each call."""
    purl = PackageURL("generic", "attested", "kubernetes", version)
    collection = Component(
        type=ComponentType.APPLICATION,
        name="attested.kubernetes",
        version=version,
        purl=purl,
        bom_ref=str(purl),
        licenses=[LicenseExpression("GPL-3.0-or-later")],
        properties=[Property(name="attested:commit", value=commit)],
    )
    components = [*node_packages(tree), *controller_packages(tree), *programs(tree)]
    bom = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"{purl}#{commit}"),
        metadata=BomMetaData(component=collection, timestamp=date),
        components=components,
    )
    bom.register_dependency(collection, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def node_packages(tree: Path) -> Iterator[Component]:
    """Yield the Python packages of nodes, each with the hashes of all its wheels."""
    for path in sorted((tree / FILES / "python").glob("requirements-*.txt")):
        for line in _lines(path):
            pinned, *hashes = line.split()
            name, version = pinned.split("==")
            purl = PackageURL("pypi", name=name, version=version)
            yield Component(
                name=name,
                version=version,
                purl=purl,
                bom_ref=str(purl),
                scope=ComponentScope.REQUIRED,
                hashes=_hashes(one.removeprefix("--hash=sha256:") for one in hashes),
            )


def controller_packages(tree: Path) -> Iterator[Component]:
    """Yield the Python packages of the controller, without a version: CycloneDX has ranges from 1.7 on only."""
    for line in _lines(tree / "meta" / "requirements.txt"):
        name = re.split(r"[^\w.-]", line)[0]
        requirement = Property(name="attested:requirement", value=line)
        purl = PackageURL("pypi", name=name)
        yield Component(name=name, purl=purl, bom_ref=str(purl), properties=[requirement])


def programs(tree: Path) -> Iterator[Component]:
    """Yield the programs and images of all Kubernetes releases, each version once."""
    table = load_table(tree / FILES / "releases")
    found: dict[tuple[str, str], dict[str, str]] = {}
    for one in table.releases.values():
        for key in one.versions.items():
            found.setdefault(key, {}).update(one.hashes[key[0]])
    for (name, version), hashes in found.items():
        row = table.components[name]
        image = row.image.format(version=version)
        yield Component(
            type=ComponentType.APPLICATION if row.url else ComponentType.CONTAINER,
            name=name,
            version=version,
            bom_ref=f"{name}@{version}",
            scope=ComponentScope.REQUIRED,
            purl=None if row.module.startswith(UNPUBLISHED) else _go_purl(row.module, version),
            external_references=_downloads(row.url, version, hashes) if row.url else [],
            properties=[Property(name="attested:image", value=image)] if image else [],
        )


def _go_purl(module: str, version: str) -> PackageURL:
    namespace, _slash, name = module.rpartition("/")
    return PackageURL("golang", namespace, name, f"v{version}")


def _downloads(url: str, version: str, hashes: Mapping[str, str]) -> list[ExternalReference]:
    """Return the published file of each architecture, with its hash if the table has one."""
    return [
        ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(url.format(version=version, arch=arch)),
            hashes=_hashes([hashes[arch]] if hashes else []),
        )
        for arch in ARCHITECTURES
    ]


def _hashes(values: Iterable[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=value) for value in values]


def _lines(path: Path) -> list[str]:
    """Return the requirements in ``path``, each with its hashes in one line."""
    joined = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def _git(tree: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=tree, check=True, capture_output=True, text=True).stdout


def _sign(path: Path, key: Path) -> None:
    argv = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(path)]
    done = subprocess.run(argv, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"expected a key that ssh-keygen signs with, got {key} ({said}); name another with --key")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Build and sign the published files of the version in galaxy.yml.")
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="the key of ssh-keygen that signs")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist", metavar="DIRECTORY", help="where VERSION/ is made (default: dist)"
    )
    given = parser.parse_args()
    place = release(ROOT, key=given.key, output=given.output.resolve())  # programs run in other directories
    print(f"{place}: {', '.join(path.name for path in sorted(place.iterdir()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
