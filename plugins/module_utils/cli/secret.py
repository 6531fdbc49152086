# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested secret`: make, show and combine shares of a master secret, without a cluster.

No secret is printed. Passphrases are typed at the terminal or read from a file (also /dev/fd/N). A master secret is
read from a file or standard input, and is written to a file of its owner or to a pipe.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..admin.cluster_file import read_cluster_file
from ..admin.places import MAX_SHARES_BYTES, read_shares, require_empty, require_outside, write_secret, write_shares
from ..admin.shares import ShareOrder, combine_shares, shares_of, split_master
from ..core.files import read_bytes
from ..core.host import SystemRandom
from ..errors import SystemFault
from ..keyservice.master import import_master_secret
from ..reasons import Reason
from .prompts import add_passphrase, passphrase_of, print_values

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ..admin.shares import Share, SplitFacts
    from ..keyservice.master import MasterSecret

_MAX_SECRET_BYTES = 4096
_STREAM = "-"


def add_secret(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    secret = commands.add_parser("secret", help="shares of a cluster's master secret (docs/recovery-kit.md)")
    actions = secret.add_subparsers(required=True, metavar="COMMAND")
    show = actions.add_parser("show", parents=[common], help="show what a file contains, without its secret")
    show.add_argument("files", nargs="+", metavar="FILE", help="shares, folders of them, or a master secret")
    show.set_defaults(run=_show)
    split = actions.add_parser("split", parents=[common], help="make n shares, of which any k rebuild the secret")
    split.add_argument(
        "--master-secret", required=True, metavar="FILE", help="the master secret's JSON, or - for standard input"
    )
    split.add_argument("-k", type=int, required=True, dest="threshold", help="how many rebuild it, at least 2")
    split.add_argument("-n", type=int, required=True, dest="count", help="how many are made, at most 16")
    split.add_argument("--out", required=True, metavar="FOLDER", help="an empty folder outside of every repository")
    split.add_argument(
        "--cluster-file", metavar="FILE", help="cluster.yml of the site: the shares then name the cluster"
    )
    add_passphrase(split, "also ask for a new passphrase that the shares need")
    split.set_defaults(run=_split)
    combine = actions.add_parser("combine", parents=[common], help="rebuild the master secret, or only try it")
    combine.add_argument("files", nargs="+", metavar="FILE", help="shares, folders of them, or - for standard input")
    combine.add_argument("--out", metavar="FILE", help="write the secret to this file; - for a pipe; omit to only try")
    add_passphrase(combine, "ask for the passphrase of the shares")
    combine.set_defaults(run=_combine)


def _show(options: argparse.Namespace) -> int:
    rows = [row for name in options.files for row in _rows_of(name)]
    print_values({"files": rows}, as_json=options.json)
    return 0


def _rows_of(name: str) -> list[dict[str, str]]:
    if not Path(name).is_dir() and read_bytes(name, limit=MAX_SHARES_BYTES).lstrip().startswith(b"{"):
        master = import_master_secret(read_bytes(name, limit=_MAX_SECRET_BYTES))
        return [{"file": name, "is": "a master secret in clear", "master secret": master.fingerprint()}]
    shares = read_shares([name])
    if not shares:
        raise SystemFault(f"expected shares in {name}, found none", reason=Reason.SHARE_MALFORMED)
    return [{"file": share.phrase.name, **_about(share), **_named(share.facts)} for share in shares]


def _about(share: Share) -> dict[str, str]:
    phrase = share.phrase
    return {
        "is": f"share {phrase.place}, {phrase.threshold} are needed",
        "split": f"{phrase.split:05x}",
        "words": "whole",
    }


def _named(facts: SplitFacts) -> dict[str, str]:
    rows = {
        "cluster id": facts.cluster_id,
        "measurement salt": facts.measurement_salt,
        "master secret": facts.fingerprint,
    }
    return {name: value for name, value in rows.items() if value}


def _split(options: argparse.Namespace) -> int:
    require_empty(options.out)
    master = _master_of(options.master_secret)
    salt = b""
    if options.cluster_file:
        salt = _salt_of(options.cluster_file, master)
    passphrase = passphrase_of(options, new=True)
    order = ShareOrder(threshold=options.threshold, count=options.count, passphrase=passphrase)
    texts = split_master(master, salt=salt, order=order, random=SystemRandom())
    paths = write_shares(options.out, texts)
    print_values({"master secret": master.fingerprint(), "files": [str(path) for path in paths]}, as_json=options.json)
    return 0


def _combine(options: argparse.Namespace) -> int:
    to_pipe = options.out == _STREAM
    if to_pipe and sys.stdout.isatty():
        raise SystemFault("expected a pipe behind --out -, got a terminal", reason=Reason.SHARES_EXPOSED)
    if options.out and not to_pipe:
        require_outside(options.out)
    rebuilt = combine_shares(_shares_of(options.files), passphrase_of(options, new=False))
    values = {"shares": "they rebuild it", **_named(rebuilt.facts)}
    if to_pipe:
        sys.stdout.write(rebuilt.master.to_json().decode("ascii"))
        return 0
    if options.out:
        values["written"] = str(write_secret(options.out, rebuilt.master.to_json()))
    print_values(values, as_json=options.json)
    return 0


def _shares_of(files: Sequence[str]) -> tuple[Share, ...]:
    if list(files) != [_STREAM]:
        return read_shares(files)
    if sys.stdin.isatty():
        sys.stderr.write("Type or paste the shares, an empty line after each; end with Ctrl-D.\n")
    data = sys.stdin.buffer.read(MAX_SHARES_BYTES + 1)
    if len(data) > MAX_SHARES_BYTES:
        raise SystemFault(
            f"expected at most {MAX_SHARES_BYTES} bytes on standard input, found more", reason=Reason.FILE_UNUSABLE
        )
    return shares_of("standard input", data)


def _salt_of(path: str, master: MasterSecret) -> bytes:
    facts = read_cluster_file(path)
    facts.require_master(master)
    return facts.measurement_salt


def _master_of(name: str) -> MasterSecret:
    data = (
        sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1) if name == _STREAM else read_bytes(name, limit=_MAX_SECRET_BYTES)
    )
    return import_master_secret(data)
