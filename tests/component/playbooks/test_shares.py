# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook `secrets` with shares: split, lost, put back, moved to a new site; and nothing shows meanwhile."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from ansible_collections.attested.kubernetes.plugins.module_utils.admin import secrets
from ansible_collections.attested.kubernetes.plugins.module_utils.admin.site_directory import Site
from ansible_collections.attested.kubernetes.tests.component.playbooks.test_site import (
    PASSWORD,
    VaultLibrary,
    clear_secrets,
    copy_example,
    files,
    leaks,
    play,
)

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sites") / "prod"
    copy_example(path)
    (path.parent / "password").write_text(PASSWORD, encoding="utf-8")
    shutil.copytree(path, path.parent / "bare")
    return path


@pytest.fixture
def bare(site: Path, tmp_path: Path) -> Path:
    """A site without secrets, and the password file beside it."""
    shutil.copytree(site.parent / "bare", tmp_path / "new")
    shutil.copy(site.parent / "password", tmp_path)
    return tmp_path / "new"


@pytest.fixture(scope="module")
def shares(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split made at the highest verbosity, its output kept beside it."""
    folder = tmp_path_factory.mktemp("split")
    home = folder / "home"
    done = run(
        site, "-vvvv", "--diff", split="2/3", shares_to=str(folder / "shares"),
        env={"HOME": str(home), "ANSIBLE_HOME": str(home / ".ansible"), "ANSIBLE_LOG_PATH": str(folder / "log")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "output").write_text(done.stdout + done.stderr, encoding="utf-8")
    return folder / "shares"


def run(
    site: Path, *options: str, env: dict[str, str] | None = None, **variables: object
) -> subprocess.CompletedProcess[str]:
    password = str(site.parent / "password")
    return play(
        "secrets", *options, "--vault-password-file", password, "-e", json.dumps(variables), cwd=site, **env or {}
    )


def words(shares: Path) -> list[str]:
    """Return pieces of every share as they would look in a log: whole lines, and words in a row."""
    pieces = []
    for path in sorted(shares.iterdir()):
        lines = [line for line in path.read_text(encoding="ascii").splitlines() if line[:2].strip().isdigit()]
        row = [token for line in lines for token in line.split() if not token.isdigit()]
        pieces += [*lines, *(" ".join(row[at : at + 3]) for at in range(4, len(row) - 3))]
    return pieces


def test_no_share_shows_at_full_verbosity_and_a_planted_one_would(site: Path, shares: Path) -> None:
    canaries = words(shares) + clear_secrets(site, VaultLibrary())
    assert len(canaries) > 3 * 60
    output = (shares.parent / "output").read_text(encoding="utf-8")
    elsewhere = (shares.parent / "home", site)
    log = (shares.parent / "log").read_text(encoding="utf-8")
    assert leaks(canaries, (output, log), elsewhere) == set()
    planted = output + canaries[0] + canaries[20]
    assert leaks(canaries, (planted,), elsewhere) == {canaries[0], canaries[20]}
    assert {path.stat().st_mode & 0o777 for path in shares.iterdir()} == {0o600}


def test_a_second_run_with_the_same_folder_changes_nothing(site: Path, shares: Path) -> None:
    before = files(shares)
    again = run(site, split="2/3", shares_to=str(shares))
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout
    assert files(shares) == before


def test_check_mode_says_that_it_would_split_and_writes_nothing(site: Path, shares: Path, tmp_path: Path) -> None:
    assert shares.exists()
    done = run(site, "--check", split="2/3", shares_to=str(tmp_path / "safe"))
    assert "changed=1" in done.stdout
    assert not (tmp_path / "safe").exists()


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        pytest.param({"split": "2/3", "shares_to": "{site}/shares"}, "SHARES_EXPOSED", id="into the site"),
        pytest.param({"shares_from": "{shares}/share-1.txt"}, "SHARES_TOO_FEW", id="one share of two"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    site: Path, shares: Path, variables: dict[str, str], code: str
) -> None:
    before = files(site)
    filled = {name: text.format(site=site, shares=shares) for name, text in variables.items()}
    done = run(site, **filled)
    assert done.returncode != 0
    assert code in done.stdout
    assert files(site) == before
    assert not leaks(words(shares), (done.stdout, done.stderr), ())


def test_a_lost_master_secret_comes_back_from_shares(site: Path, shares: Path, tmp_path: Path) -> None:
    copy = tmp_path / "prod"
    shutil.copytree(site, copy)
    shutil.copy(site.parent / "password", tmp_path)
    Site.at(copy).master_secret.unlink()
    two = [str(shares / "share-1.txt"), str(shares / "share-3.txt")]
    assert run(copy, shares_from=two).returncode == 0
    assert secrets.load(Site.at(copy), VaultLibrary()) == secrets.load(Site.at(site), VaultLibrary())


def test_a_new_site_from_shares_alone_is_the_same_cluster_with_other_keys(site: Path, shares: Path, bare: Path) -> None:
    done = run(bare, shares_from=str(shares))
    assert done.returncode == 0, done.stdout
    ours, theirs = (secrets.load(Site.at(one), VaultLibrary()) for one in (bare, site))
    assert (ours.master, ours.cluster_id) == (theirs.master, theirs.cluster_id)
    assert ours.join_ca_key != theirs.join_ca_key


def test_constellations_master_secret_is_imported_with_its_salt(bare: Path, tmp_path: Path) -> None:
    source = tmp_path / "constellation-mastersecret.json"
    source.write_text(json.dumps({"key": "A" * 43 + "=", "salt": "B" * 42 + "A="}), encoding="ascii")
    done = run(bare, import_from=str(source), measurement_salt="ab" * 32)
    assert done.returncode == 0, done.stdout
    bundle = secrets.load(Site.at(bare), VaultLibrary())
    assert bundle.master.key.reveal() == bytes(32)
    assert bundle.measurement_salt == b"\xab" * 32
