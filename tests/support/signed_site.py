# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a repository of a site directory: signed on `main`, and `tampered`, signed by a stranger.

Usage: python -m ansible_collections.attested.kubernetes.tests.support.signed_site SITE KEYS BUNDLE_SHA256 URL
The keys are created in KEYS. The site then configures its workers to boot from URL, signed by the admin.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from ansible_collections.attested.kubernetes.tests.support.site_repository import Key, SiteRepository

ROOT = Path(__file__).resolve().parents[2]
VERSION = 7


def sign(directory: Path, keys: Path, bundle: str, url: str) -> None:
    """Commit the site, and on another branch a stranger's version."""
    site = SiteRepository(path=directory, key=Key(directory=keys).made())
    site.git("init", "--quiet", "--initial-branch=main")
    site.release(VERSION, {"group_vars/nodes/source.yml": settings(url, site.key)}, bundle=bundle, collection=release())
    site.git("checkout", "--quiet", "-b", "tampered")
    site.write({"group_vars/nodes/tampered.yml": "attested_wait_seconds: 1\n"})
    site.commit(key=Key(directory=keys, name="stranger").made())
    site.git("checkout", "--quiet", "main")


def settings(url: str, key: Key) -> str:
    """Return the site's settings of its repository."""
    transport = urlsplit(url).scheme
    source = {"url": url, "signers": [key.line], "transports": [transport], "minimum": VERSION}
    return yaml.safe_dump({f"attested_source_{name}": value for name, value in source.items()})


def release() -> str:
    """Return the release of this collection, which the machines of its lab have."""
    return str(yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"])


if __name__ == "__main__":
    sign(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])
