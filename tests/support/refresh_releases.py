# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refresh the table of releases from the publishers' checksum files, and report new versions.

Usage: python tests/support/refresh_releases.py [--check] [--mirror URL] [--table DIRECTORY]

Adds new patches up to the newest that Kubernetes publishes for each minor, and missing hashes. A published hash that
differs from the table's is reported and never written. With --mirror the files are read below URL/HOST/.
Maintainers decide about versions of other components and new minors: the command only reports them.
Exits with 1 if a hash differs, a publisher cannot be read, or --check finds a new version.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.download import SystemWeb
from ansible_collections.attested.kubernetes.plugins.module_utils.bundle.versions import (
    ARCHITECTURES,
    COMPONENTS_FILE,
    FIRST_FETCH,
    is_version,
    load_table,
    version_key,
)
from ansible_collections.attested.kubernetes.plugins.module_utils.errors import ComponentError
from ansible_collections.attested.kubernetes.plugins.module_utils.reasons import Reason
from ansible_collections.attested.kubernetes.tests.support.house import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = ROOT / "roles" / "bundle_builder" / "files" / "releases"
LIMIT = 1 << 20
WIDTH = 200
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Publishers:
    """The publishers' files, each read once; ``mirror``: URL below which they are stored by host, or empty."""

    mirror: str
    read: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def text(self, url: str) -> str:
        """Return the text at ``url``, empty if it is not published or unreadable (recorded in ``failed``)."""
        if url not in self.read:
            self.read[url] = self._get(url)
        return self.read[url]

    def _get(self, url: str) -> str:
        place = f"{self.mirror.rstrip('/')}/{url.removeprefix('https://')}" if self.mirror else url
        try:
            with SystemWeb().get(place, start=0) as reply:
                return reply.read(LIMIT).decode("utf-8", "replace")
        except (ComponentError, OSError) as error:
            if getattr(error, "reason", None) is not Reason.COMPONENT_NOT_FOUND:
                self.failed.append(f"cannot read {place}: {error}")
            return ""


@dataclass(slots=True)
class Refresh:
    """One run: new versions, and hashes that differ from the publisher's."""

    publishers: Publishers
    shared: dict[str, Any]
    news: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    def minor(self, document: dict[str, Any]) -> None:
        """Update the document of one minor in place."""
        minor, patches = document["minor"], document["patches"]
        for version in self._unknown(minor, patches):
            self.news.append(f"new release {version}")
            patches[version] = dict.fromkeys(self.shared["kubernetes"], FIRST_FETCH)
        document["patches"] = dict(sorted(patches.items(), key=lambda row: version_key(row[0]), reverse=True))
        for version, rows in document["patches"].items():
            for name in rows:
                rows[name] = self._hashes(name, version, rows[name])
        for name, row in document["components"].items():
            if "sha256" in row:
                row["sha256"] = self._hashes(name, row["version"], row["sha256"])

    def next_minor(self, minor: str) -> None:
        """Return whether Kubernetes publishes a minor after ``minor``, the last of the table."""
        major, number = version_key(minor)
        if newest := self._stable(f"{major}.{number + 1}"):
            self.news.append(f"new minor {newest}: the table has no file of it")

    def _unknown(self, minor: str, patches: dict[str, Any]) -> Iterator[str]:
        newest = self._stable(minor)
        if newest.startswith(f"{minor}."):
            last = max(version_key(version)[2] for version in patches)
            yield from (f"{minor}.{patch}" for patch in range(last + 1, version_key(newest)[2] + 1))

    def _stable(self, minor: str) -> str:
        said = self.publishers.text(self.shared["stable"].format(minor=minor)).strip().removeprefix("v")
        return said if is_version(said) else ""

    def _hashes(self, name: str, version: str, known: Any) -> Any:
        """Return the row of one component: the known one, else the published one."""
        pattern = {**self.shared["kubernetes"], **self.shared["components"]}[name]
        found = {}
        for arch in ARCHITECTURES:
            url, checksums = (pattern[key].format(version=version, arch=arch) for key in ("url", "checksums"))
            if published := hash_in(self.publishers.text(checksums), url.rpartition("/")[2]):
                found[arch] = published
        if known == FIRST_FETCH:
            if set(found) != set(ARCHITECTURES):
                return known
            self.news.append(f"new hashes of {name} {version}")
            return found
        for arch, published in found.items():
            if published != known[arch]:
                self.differing.append(
                    f"differs: {name} {version} {arch}: expected {known[arch]} as in the table, got {published}"
                )
        return known


def hash_in(text: str, name: str) -> str:
    """Return the hash of the file ``name`` in a checksum file: lines of hash and name, or one hash."""
    alone = []
    for words in (line.split() for line in text.splitlines()):
        if not words or not _HASH.fullmatch(words[0]):
            continue
        if len(words) == 1:
            alone.append(words[0])
        elif words[-1].lstrip("*").rpartition("/")[2] == name:
            return words[0]
    return alone[0] if len(alone) == 1 else ""


def render(document: dict[str, Any], before: str) -> str:
    """Return the file of a minor, with the leading comments of the file ``before``."""
    head = [line for line in before.splitlines(keepends=True) if line.startswith(("---", "#"))]
    return "".join(head) + yaml.safe_dump(document, sort_keys=False, width=WIDTH)


def refresh(table: Path, publishers: Publishers, *, check: bool) -> Refresh:
    """Refresh the files in ``table``; with ``check``, only report."""
    load_table(table)
    run = Refresh(publishers, yaml.safe_load((table / COMPONENTS_FILE).read_text()))
    paths = sorted(table.glob("1.*.yml"), key=lambda path: version_key(path.stem))
    for path in paths:
        before = path.read_text()
        document = yaml.safe_load(before)
        run.minor(document)
        if not check:
            path.write_text(render(document, before))
    run.next_minor(paths[-1].stem)
    load_table(table)
    return run


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Refresh the table of releases from the publishers' checksum files.")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where something is new")
    parser.add_argument(
        "--mirror", default="", metavar="URL", help="where the publishers' files lie, below their hosts"
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="directory of the table (default: the role's)")
    given = parser.parse_args()
    publishers = Publishers(given.mirror)
    run = refresh(given.table, publishers, check=given.check)
    for line in (*run.news, *run.differing, *publishers.failed):
        print(line)
    if not (run.news or run.differing or publishers.failed):
        print("nothing new")
    return 1 if run.differing or publishers.failed or (given.check and run.news) else 0


if __name__ == "__main__":
    sys.exit(main())
