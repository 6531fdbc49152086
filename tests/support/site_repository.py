# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's repository: real git, real keys of ssh-keygen, signed commits."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

BUNDLE = "9f2c1d5e" * 8
RELEASE = "0.1.0"
HOSTS = "nodes:\n  children:\n    workers:\n      hosts:\n        w-1: {}\n"


def run(*words: str | Path, cwd: Path, stdin: bytes | None = None) -> str:
    """Run a program and return its output, without the git settings of the caller."""
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(cwd)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | quiet
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, input=stdin, capture_output=True, check=False, env=environment
    )
    if done.returncode:
        raise AssertionError(f"{words}: {done.stderr.decode()}")
    return done.stdout.decode().strip()


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key pair of ssh-keygen below ``directory``."""

    directory: Path
    name: str = "admin"
    kind: str = "ed25519"

    @property
    def private(self) -> Path:
        """The file of the private key."""
        return self.directory / f"{self.name}.key"

    @property
    def line(self) -> str:
        """The public key, in the form of node.yml."""
        return self.private.with_suffix(".key.pub").read_text(encoding="utf-8").strip()

    def made(self) -> Key:
        """Create both files."""
        run(
            *("ssh-keygen", "-q", "-t", self.kind, "-N", "", "-C", f"{self.name}@example", "-f", self.private),
            cwd=self.directory,
        )
        return self


@dataclass(frozen=True, kw_only=True)
class SiteRepository:
    """A repository with a working copy at ``path``; each change is one commit."""

    path: Path
    key: Key
    files: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The URL to fetch it from this machine's disk."""
        return f"file://{self.path}"

    def made(self) -> SiteRepository:
        """Create the repository with a first version."""
        self.path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.release(1, {"hosts.yml": HOSTS, "group_vars/nodes/site.yml": "attested_node_ip: 10.0.0.21\n"})
        return self

    def release(self, version: int, files: dict[str, str] | None = None, **pin: Any) -> str:
        """Commit a version; return the commit's id."""
        body = {"version": version, "collection": RELEASE, "bundle": BUNDLE, **pin}
        self.write({"attested-node.yml": yaml.safe_dump(body), **(files or {})})
        return self.commit()

    def write(self, files: dict[str, str]) -> None:
        """Write and stage ``files``."""
        for name, text in files.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        self.git("add", "--all")

    def commit(self, *, key: Key | None = None, signed: bool = True) -> str:
        """Commit the staged files, signed by ``key`` (the admin's), or unsigned."""
        signer = (key or self.key).private
        settings = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={signer}"]
        sign = ["-S"] if signed else []
        self.git(*settings, "commit", "--quiet", "--allow-empty", "-m", "Change the site", *sign)
        return self.head

    @property
    def head(self) -> str:
        """The id of the latest commit."""
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str | Path, stdin: bytes | None = None) -> str:
        """Run git in the repository."""
        person = ("-c", "user.name=Admin", "-c", "user.email=admin@example")
        return run("git", *person, *words, cwd=self.path, stdin=stdin)

    def commit_tree(self, tree: str) -> str:
        """Commit a tree by its id, signed, as the head of main, regardless of staged files."""
        settings = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={self.key.private}"]
        commit = self.git(*settings, "commit-tree", "-S", "-p", "HEAD", "-m", "A tree", tree)
        self.git("update-ref", "refs/heads/main", commit)
        return commit
