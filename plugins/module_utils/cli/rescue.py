# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue`: derive keys from a master secret, and open a disk with them, without a cluster."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..errors import SystemFault
from ..keyservice.derive import DiskId
from ..reasons import Reason
from ..rescue.disk import copy_header, disk_id_of, find_disk, mount_disk, unmount_disk
from ..rescue.extract import ETCD, MANIFEST, PKI, SUMS, extract_data
from ..rescue.keyspace import entries, open_keyspace
from ..rescue.values import derive_cluster
from .rescue_disks import WRONG, examine_disks, key_of, mounted_disk, secret_files
from .rescue_nodes import add_nodes
from .rescue_output import add_secret, master_of, print_values, values_of, warn, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..core.command import Runner


# `attested rescue extract|etcd`: copy the data of a dead control plane to files, and list the content of its etcd.

_DATABASE = "member/snap/db"
_REVISION_WIDTH, _SIZE_WIDTH = 10, 9


def add_data(actions: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands extract and etcd to ``actions``."""
    taken = actions.add_parser(
        "extract", parents=[common], help="copy PKI and etcd out of a disk, with a hash of each file"
    )
    source = taken.add_mutually_exclusive_group(required=True)
    source.add_argument("--disk", metavar="FILE", help="the disk or an image of it; needs --master-secret")
    source.add_argument("--from", dest="mounted", metavar="FOLDER", help="its mount point, if it is already mounted")
    add_secret(taken, required=False)
    taken.add_argument("--partition", type=int, metavar="N", help="the partition, if several hold a disk")
    taken.add_argument("--out", required=True, metavar="FOLDER", help="an empty folder, on an encrypted disk or tmpfs")
    taken.set_defaults(run=_extract)
    etcd = actions.add_parser("etcd", parents=[common], help="list the content of etcd without a running etcd")
    etcd.add_argument("--data", required=True, metavar="PATH", help=f"the data of etcd, or its file {_DATABASE}")
    etcd.add_argument("--prefix", default="/", help="only keys with this prefix (default: %(default)s)")
    etcd.add_argument("--get", metavar="KEY", help="write the value of this key to --out instead")
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
    print_values(values, as_json=options.json)
    return 0


def _found(out: Path, name: str) -> str | None:
    return str(out / name) if (out / name).is_dir() else None


@contextmanager
def _mounted(options: argparse.Namespace) -> Iterator[tuple[Path, str | None]]:
    """Yield the mount point of the disk and its UUID, if known; unmount at the end what was mounted here."""
    if options.mounted:
        yield Path(options.mounted), None
        return
    if not options.master_secret:
        raise SystemFault("expected --master-secret with --disk", reason=Reason.FILE_UNUSABLE)
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
    print_values({"keys": len(found), "revision, bytes": rows}, as_json=options.json)
    return 0


def _get(options: argparse.Namespace, found: list[Any]) -> int:
    exact = [one for one in found if one.key == options.get.encode()]
    if not exact or not options.out:
        problem = f"expected the key {options.get[:200]}, etcd has none" if not exact else "expected --out with --get"
        raise SystemFault(problem, reason=Reason.FILE_UNUSABLE)
    target = Path(options.out)
    (name,) = written(target.parent, {target.name: exact[0].value})
    print_values({"key": options.get, "bytes": len(exact[0].value), "file": name}, as_json=options.json)
    return 0


def add_rescue(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand to ``commands``."""
    rescue = commands.add_parser("rescue", help="keys and disks of a lost cluster (docs/rescue.md)")
    actions = rescue.add_subparsers(required=True, metavar="COMMAND")
    keys = actions.add_parser("keys", parents=[common], help="derive every key, and try them on disks")
    add_secret(keys)
    keys.add_argument(
        "--disk",
        action="append",
        default=[],
        metavar="UUID|FILE",
        help="a LUKS UUID, or a disk, an image (also with partitions) or a copy of a header; repeatable",
    )
    known = keys.add_mutually_exclusive_group()
    known.add_argument(
        "--state", metavar="FILE", help="constellation-state.yaml: gives the salt, checks the cluster id"
    )
    known.add_argument("--measurement-salt", metavar="HEX", help="the salt, 64 digits; it is not a secret")
    keys.add_argument("--out", metavar="FOLDER", help="write the keys to this folder as files of mode 0600")
    keys.add_argument("--show-secrets", action="store_true", help="print the keys on the terminal")
    keys.add_argument(
        "--insecure-any-header",
        action="store_true",
        help="also derive the key of a disk with an unexpected header; the key is not tried on the disk",
    )
    keys.set_defaults(run=_keys)
    mount = actions.add_parser("mount", parents=[common], help="open a disk and mount it, read only")
    add_secret(mount)
    mount.add_argument("--disk", required=True, metavar="FILE", help="the disk or an image of it")
    mount.add_argument("--partition", type=int, metavar="N", help="the partition, if several hold a disk")
    mount.add_argument("--at", required=True, metavar="FOLDER", help="an empty folder")
    mount.set_defaults(run=_mount)
    unmount = actions.add_parser("unmount", parents=[common], help="undo mount")
    unmount.add_argument("--uuid", required=True, help="the disk's UUID, as mount printed it")
    unmount.add_argument("--at", required=True, metavar="FOLDER", help="the folder where it is mounted")
    unmount.set_defaults(run=_unmount)
    add_data(actions, common)
    add_nodes(actions, common)


def _keys(options: argparse.Namespace) -> int:
    master = master_of(options.master_secret)
    insecure = options.insecure_any_header
    found = [row for one in options.disk for row in examine_disks(one, master, insecure=insecure, warn=warn)]
    values_known = values_of(state=options.state, measurement_salt=options.measurement_salt)
    secrets = derive_cluster(master, disks=tuple(row["disk"] for row in found), values=values_known)
    public = secrets.public
    values: dict[str, Any] = {
        "master secret": public.fingerprint,
        "cluster id": public.cluster_id or None,
        "PCR 15 sha256": public.pcr15_sha256 or None,
        "PCR 15 sha384": public.pcr15_sha384 or None,
        "SSH CA": public.ssh_ca,
        "disks": found,
    }
    if options.show_secrets:
        values["secrets"] = {name: _shown(name, data) for name, data in secret_files(secrets).items()}
    if options.out:
        values["files"] = written(Path(options.out), secret_files(secrets))
    shown = values if options.json else {**values, "disks": [_row(one) for one in found]}
    print_values(shown, as_json=options.json)
    return 1 if any(row["key"] == WRONG for row in found) else 0


def _mount(options: argparse.Namespace) -> int:
    master = master_of(options.master_secret)
    place = Path(options.at)
    if not place.is_dir() or any(place.iterdir()):
        raise SystemFault(f"expected an empty folder, got {place}", reason=Reason.FILE_UNUSABLE)
    runner: Runner = SystemRunner()
    with tempfile.TemporaryDirectory(prefix="attested-rescue-") as folder:
        source = Path(options.disk)
        copy = copy_header(source, Path(folder), place=find_disk(source, partition=options.partition))
        uuid = disk_id_of(copy)
        mounted = mount_disk(runner, copy, key_of(runner, copy, master), place=place)
    values = {
        "disk": uuid,
        "mounted": f"{mounted.place}, read only",
        "PKI": f"{mounted.place}/kubernetes/pki",
        "etcd": f"{mounted.place}/var/lib/etcd",
        "afterwards": f"attested rescue unmount --uuid {uuid} --at {mounted.place}",
    }
    print_values(values, as_json=options.json)
    return 0


def _unmount(options: argparse.Namespace) -> int:
    unmount_disk(SystemRunner(), place=Path(options.at), name=f"rescue-{DiskId(options.uuid).uuid}")
    return 0


def _shown(name: str, data: bytes) -> str:
    return data.decode("ascii") if name == "ssh_ca" else data.hex()


def _row(disk: dict[str, str]) -> str:
    return f"{disk['disk']}  header: {disk['header']}  key: {disk['key']}  ({disk['from']})"
