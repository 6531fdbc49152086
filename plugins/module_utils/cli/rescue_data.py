# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue extract|etcd`: the data of a dead control plane as files, and what stands in its etcd."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault
from ..reasons import Reason
from ..rescue import ETCD, MANIFEST, PKI, SUMS, entries, extract_data, open_keyspace
from .rescue_disks import mounted_disk
from .rescue_output import add_secret, master_of, say, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_DATABASE = "member/snap/db"
_REVISION_WIDTH, _SIZE_WIDTH = 10, 9


def add_data(actions: Any, common: argparse.ArgumentParser) -> None:
    """Add the commands to those of `attested rescue`."""
    taken = actions.add_parser(
        "extract", parents=[common], help="copy PKI and etcd out of a disk, with a hash of each file"
    )
    source = taken.add_mutually_exclusive_group(required=True)
    source.add_argument("--disk", metavar="FILE", help="the disk or an image of it; needs --master-secret")
    source.add_argument("--from", dest="mounted", metavar="FOLDER", help="where it is mounted already, read only")
    add_secret(taken, required=False)
    taken.add_argument("--partition", type=int, metavar="N", help="which one, where several hold a disk")
    taken.add_argument("--out", required=True, metavar="FOLDER", help="an empty folder, on an encrypted disk or tmpfs")
    taken.set_defaults(run=_extract)
    etcd = actions.add_parser("etcd", parents=[common], help="what stands in etcd, without an etcd that runs")
    etcd.add_argument("--data", required=True, metavar="PATH", help=f"the data of etcd, or its file {_DATABASE}")
    etcd.add_argument("--prefix", default="/", help="only keys that begin so (default: %(default)s)")
    etcd.add_argument("--get", metavar="KEY", help="write the value of this one key to --out instead")
    etcd.add_argument("--out", metavar="FILE", help="a file of mode 0600: a value may be a secret")
    etcd.set_defaults(run=_etcd)


def _extract(options: argparse.Namespace) -> int:
    out = Path(options.out)
    with _mounted(options) as (place, uuid):
        done = extract_data(place, out)
    values: dict[str, Any] = {
        "disk": uuid,
        "files": str(len(done.files)),
        "bytes": str(sum(one.size for one in done.files)),
        "PKI": _found(out, PKI),
        "etcd": _found(out, ETCD),
        "left out": [f"{path} ({kind})" for path, kind in done.left_out],
        "missing": list(done.missing),
        "hashes": f"{out / SUMS}, {out / MANIFEST}",
        "to check": f"cd {out} && sha256sum --check --quiet {SUMS}",
    }
    say(values, as_json=options.json)
    return 0


def _found(out: Path, name: str) -> str | None:
    return str(out / name) if (out / name).is_dir() else None


@contextmanager
def _mounted(options: argparse.Namespace) -> Iterator[tuple[Path, str | None]]:
    """Yield where the disk is mounted and its UUID where that is known; what was mounted here is unmounted again."""
    if options.mounted:
        yield Path(options.mounted), None
        return
    if not options.master_secret:
        raise SystemFault("expected --master-secret beside --disk", reason=Reason.FILE_UNUSABLE)
    master = master_of(options.master_secret)
    with mounted_disk(Path(options.disk), master, partition=options.partition) as (place, uuid):
        yield place, uuid


def _etcd(options: argparse.Namespace) -> int:
    path = Path(options.data)
    database = open_keyspace(path / _DATABASE if path.is_dir() else path)
    if options.get:
        return _get(options, entries(database, prefix=options.get.encode()))
    found = entries(database, prefix=options.prefix.encode())
    rows: list[Any] = [
        {"key": one.key.decode("utf-8", "backslashreplace"), "bytes": len(one.value), "revision": one.revision}
        for one in found
    ]
    if not options.json:
        rows = [f"{row['revision']:>{_REVISION_WIDTH}} {row['bytes']:>{_SIZE_WIDTH}} {row['key']}" for row in rows]
    say({"keys": len(found), "revision, bytes": rows}, as_json=options.json)
    return 0


def _get(options: argparse.Namespace, found: list[Any]) -> int:
    exact = [one for one in found if one.key == options.get.encode()]
    if not exact or not options.out:
        problem = f"expected the key {options.get[:200]}, etcd has none" if not exact else "expected --out beside --get"
        raise SystemFault(problem, reason=Reason.FILE_UNUSABLE)
    target = Path(options.out)
    (name,) = written(target.parent, {target.name: exact[0].value})
    say({"key": options.get, "bytes": len(exact[0].value), "file": name}, as_json=options.json)
    return 0
