# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S34: the repository that a machine boots from is changed, or set back; the working copy must never hear of it.

Each starts from a boot that was good, so a copy is there which must stay as it is. More of them, without that copy:
`tests/component/source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.tests.component.source.conftest import key, site
from ansible_collections.attested.kubernetes.tests.component.source.conftest import machine as machine_of_the_site
from ansible_collections.attested.kubernetes.tests.support.refusal import code_of
from ansible_collections.attested.kubernetes.tests.support.site_repository import Key
from ansible_collections.attested.kubernetes.tests.support.threats import Threat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.attested.kubernetes.tests.component.source.conftest import Booting
    from ansible_collections.attested.kubernetes.tests.support.site_repository import SiteRepository

__all__ = ["key", "machine_of_the_site", "site"]

THREAT = Threat(
    id="S34",
    title="ansible-pull repository tampering",
    case="ansible#75609: verified after the working copy was changed",
    bed="git",
    stops=(
        ("source/signature.py", "SOURCE_UNSIGNED"),
        ("source/signature.py", "SOURCE_SIGNER_UNKNOWN"),
        ("source/signature.py", "SOURCE_SIGNATURE"),
        ("source/version.py", "SOURCE_ROLLED_BACK"),
        ("source/version.py", "SOURCE_HISTORY_REWRITTEN"),
        ("source/staging.py", "SOURCE_TREE_REFUSED"),
    ),
)


@pytest.fixture
def machine(machine_of_the_site: Callable[..., Booting], site: SiteRepository) -> Booting:
    """A machine that has booted version 2 of its site."""
    made = machine_of_the_site()
    site.release(2)
    made.boot()
    return made


def copy_of(machine: Booting) -> dict[str, bytes]:
    """Return every file of the working copy, with what it holds."""
    files = (path for path in sorted(machine.places.memory.rglob("*")) if path.is_file())
    return {str(path.relative_to(machine.places.memory)): path.read_bytes() for path in files}


def refusal(machine: Booting) -> str:
    """Return the code of a refusal that changed neither the working copy nor what is kept."""
    before, kept = copy_of(machine), machine.places.kept.read_bytes()
    assert before
    code = code_of(machine.boot)
    assert copy_of(machine) in ({}, before)  # the old one or none, never a mixture
    assert machine.places.kept.read_bytes() == kept
    return code


def test_the_next_version_of_the_site(machine: Booting, site: SiteRepository) -> None:
    commit = site.release(3)
    assert machine.boot().measured.commit == commit


def test_a_commit_without_a_signature(machine: Booting, site: SiteRepository) -> None:
    site.write({"hosts.yml": "all: {}\n"})
    site.commit(signed=False)
    assert refusal(machine) == "SOURCE_UNSIGNED"


def test_a_commit_of_another_key(machine: Booting, site: SiteRepository, tmp_path: Path) -> None:
    site.commit(key=Key(directory=tmp_path, name="stranger").made())
    assert refusal(machine) == "SOURCE_SIGNER_UNKNOWN"


def test_a_signature_moved_to_another_commit(machine: Booting, site: SiteRepository) -> None:
    site.release(3)
    raw = site.git("cat-file", "commit", "HEAD").replace("Change the site", "Change the sity") + "\n"
    forged = site.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
    site.git("update-ref", "refs/heads/main", forged)
    assert refusal(machine) == "SOURCE_SIGNATURE"


def test_an_older_commit_with_its_good_signature(machine: Booting, site: SiteRepository) -> None:
    site.git("update-ref", "refs/heads/main", "HEAD^")
    assert refusal(machine) == "SOURCE_ROLLED_BACK"


def test_a_newer_version_on_a_history_that_leaves_out_the_last(machine: Booting, site: SiteRepository) -> None:
    site.git("reset", "--quiet", "--hard", "HEAD^")
    site.release(3)
    assert refusal(machine) == "SOURCE_HISTORY_REWRITTEN"


def test_a_submodule(machine: Booting, site: SiteRepository) -> None:
    site.release(3)
    site.git("update-index", "--add", "--cacheinfo", f"160000,{site.head},roles/theirs")
    site.commit()
    assert refusal(machine) == "SOURCE_TREE_REFUSED: submodule"


def test_a_link_out_of_the_site(machine: Booting, site: SiteRepository) -> None:
    site.release(3)
    (site.path / "group_vars/link").symlink_to("/etc/shadow")
    site.git("add", "--all")
    site.commit()
    assert refusal(machine) == "SOURCE_TREE_REFUSED: the link"


def test_hooks_of_the_repository(machine: Booting, site: SiteRepository, tmp_path: Path) -> None:
    """A signed site whose repository brings hooks along: none of them runs here."""
    commit = site.release(3, {"hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
    for name in ("post-checkout", "post-merge", "reference-transaction"):
        hook = site.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
        hook.chmod(0o755)
    assert machine.boot().measured.commit == commit
    assert not (tmp_path / "ran").exists()
