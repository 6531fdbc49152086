# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue`: what follows from a master secret, and a disk opened with it, where no cluster answers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SystemFault
from ..keys import DiskId
from ..reasons import Reason
from ..rescue import copy_header, derive_cluster, disk_id_of, find_disk, mount_disk, unmount_disk
from ..system import SystemRunner
from .rescue_data import add_data
from .rescue_disks import WRONG, examine_disks, key_of, secret_files
from .rescue_nodes import add_nodes
from .rescue_output import add_secret, master_of, say, values_of, warn, written

if TYPE_CHECKING:
    import argparse

    from ..system import Runner


def add_rescue(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to those of `attested`."""
    rescue = commands.add_parser("rescue", help="keys and disks of a cluster that is gone (docs/rescue.md)")
    actions = rescue.add_subparsers(required=True, metavar="COMMAND")
    keys = actions.add_parser("keys", parents=[common], help="derive every key, and try them on disks")
    add_secret(keys)
    keys.add_argument(
        "--disk",
        action="append",
        default=[],
        metavar="UUID|FILE",
        help="a LUKS UUID, or a disk, an image (also with partitions) or a copy of a header; may be given again",
    )
    known = keys.add_mutually_exclusive_group()
    known.add_argument(
        "--state", metavar="FILE", help="constellation-state.yaml: gives the salt, checks the cluster id"
    )
    known.add_argument("--measurement-salt", metavar="HEX", help="the salt alone, 64 digits; it is no secret")
    keys.add_argument("--out", metavar="FOLDER", help="write the keys there as files of mode 0600")
    keys.add_argument("--show-secrets", action="store_true", help="print the keys on the terminal")
    keys.add_argument(
        "--insecure-any-header",
        action="store_true",
        help="derive the key of a disk whose header is not as it must be; the key is not tried on it",
    )
    keys.set_defaults(run=_keys)
    mount = actions.add_parser("mount", parents=[common], help="open a disk and mount it, read only")
    add_secret(mount)
    mount.add_argument("--disk", required=True, metavar="FILE", help="the disk or an image of it")
    mount.add_argument("--partition", type=int, metavar="N", help="which one, where several hold a disk")
    mount.add_argument("--at", required=True, metavar="FOLDER", help="an empty folder")
    mount.set_defaults(run=_mount)
    unmount = actions.add_parser("unmount", parents=[common], help="undo mount")
    unmount.add_argument("--uuid", required=True, help="the disk's UUID, as mount printed it")
    unmount.add_argument("--at", required=True, metavar="FOLDER", help="where it is mounted")
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
    say(shown, as_json=options.json)
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
    say(values, as_json=options.json)
    return 0


def _unmount(options: argparse.Namespace) -> int:
    unmount_disk(SystemRunner(), place=Path(options.at), name=f"rescue-{DiskId(options.uuid).uuid}")
    return 0


def _shown(name: str, data: bytes) -> str:
    return data.decode("ascii") if name == "ssh_ca" else data.hex()


def _row(disk: dict[str, str]) -> str:
    return f"{disk['disk']}  header: {disk['header']}  key: {disk['key']}  ({disk['from']})"
