# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue`: what follows from a master secret, and a disk opened with it, where no cluster answers."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttestedError, DiskError, SystemFault
from ..keys import DiskId, import_master_secret
from ..reasons import Reason
from ..rescue import (
    ClusterValues,
    DiskCopy,
    copy_header,
    derive_cluster,
    disk_id_of,
    judge_copy,
    mount_disk,
    parse_state,
    require_key,
    unmount_disk,
)
from ..system import SystemRunner, read_bytes, write_atomic

if TYPE_CHECKING:
    import argparse

    from ..keys import DiskKey, MasterSecret
    from ..rescue import ClusterSecrets
    from ..system import Runner

_MAX_SECRET_BYTES = 4096
_MAX_STATE_BYTES = 65536
_SALT_HEX = 64
_WIDTH = 18


def add_rescue(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to those of `attested`."""
    rescue = commands.add_parser("rescue", help="keys and disks of a cluster that is gone (docs/rescue.md)")
    actions = rescue.add_subparsers(required=True, metavar="COMMAND")
    keys = actions.add_parser("keys", parents=[common], help="derive every key, and try them on disks")
    _add_secret(keys)
    keys.add_argument(
        "--disk",
        action="append",
        default=[],
        metavar="UUID|FILE",
        help="a LUKS UUID, or a disk, an image or a copy of a header; may be given again",
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
    _add_secret(mount)
    mount.add_argument("--disk", required=True, metavar="FILE", help="the disk or an image of it")
    mount.add_argument("--at", required=True, metavar="FOLDER", help="an empty folder")
    mount.set_defaults(run=_mount)
    unmount = actions.add_parser("unmount", parents=[common], help="undo mount")
    unmount.add_argument("--uuid", required=True, help="the disk's UUID, as mount printed it")
    unmount.add_argument("--at", required=True, metavar="FOLDER", help="where it is mounted")
    unmount.set_defaults(run=_unmount)


def _add_secret(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master-secret",
        required=True,
        metavar="FILE",
        help="constellation-mastersecret.json, or - for standard input",
    )


def _keys(options: argparse.Namespace) -> int:
    master = _master_of(options.master_secret)
    found = [_disk(one, master, insecure=options.insecure_any_header) for one in options.disk]
    secrets = derive_cluster(master, disks=tuple(row["disk"] for row in found), values=_values_of(options))
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
        values["secrets"] = {name: _shown(name, data) for name, data in _files(secrets).items()}
    if options.out:
        values["files"] = _written(Path(options.out), _files(secrets))
    _say(values, as_json=options.json)
    return 1 if any(row["key"] == "wrong" for row in found) else 0


def _disk(given: str, master: MasterSecret, *, insecure: bool) -> dict[str, str]:
    if not Path(given).exists():
        return {"disk": DiskId(given).uuid, "from": "UUID", "header": "not seen", "key": "not tried"}
    with tempfile.TemporaryDirectory(prefix="attested-rescue-") as folder:
        copy = copy_header(Path(given), Path(folder))
        row = {"disk": disk_id_of(copy), "from": given}
        try:
            header = judge_copy(copy)
        except DiskError as error:
            if not insecure:
                raise
            sys.stderr.write(f"attested: warning: {error.code}: {error.message}\n")
            return row | {"header": error.code, "key": "not tried"}
        key = derive_cluster(master, disks=(header.uuid,)).disks[header.uuid]
        good = "as it must be" + ("" if header.initialised else ", of a disk that never joined")
        return row | {"header": good, "key": _tried(copy, key)}


def _tried(copy: DiskCopy, key: DiskKey) -> str:
    try:
        require_key(SystemRunner(), copy, key)
    except AttestedError as error:
        if error.reason is Reason.DISK_KEY_WRONG:
            return "wrong"
        if error.reason in {Reason.COMMAND_MISSING, Reason.LUKS_TRUNCATED}:
            return f"not tried ({error.message})"
        raise
    return "opens the disk"


def _mount(options: argparse.Namespace) -> int:
    master = _master_of(options.master_secret)
    place = Path(options.at)
    if not place.is_dir() or any(place.iterdir()):
        raise SystemFault(f"expected an empty folder, got {place}", reason=Reason.FILE_UNUSABLE)
    runner: Runner = SystemRunner()
    with tempfile.TemporaryDirectory(prefix="attested-rescue-") as folder:
        copy = copy_header(Path(options.disk), Path(folder))
        uuid = disk_id_of(copy)
        mounted = mount_disk(runner, copy, derive_cluster(master, disks=(uuid,)).disks[uuid], place=place)
    values = {
        "disk": uuid,
        "mounted": f"{mounted.place}, read only",
        "PKI": f"{mounted.place}/kubernetes/pki",
        "etcd": f"{mounted.place}/var/lib/etcd",
        "afterwards": f"attested rescue unmount --uuid {uuid} --at {mounted.place}",
    }
    _say(values, as_json=options.json)
    return 0


def _unmount(options: argparse.Namespace) -> int:
    unmount_disk(SystemRunner(), place=Path(options.at), name=f"rescue-{DiskId(options.uuid).uuid}")
    return 0


def _master_of(name: str) -> MasterSecret:
    data = sys.stdin.buffer.read(_MAX_SECRET_BYTES + 1) if name == "-" else read_bytes(name, limit=_MAX_SECRET_BYTES)
    return import_master_secret(data)


def _values_of(options: argparse.Namespace) -> ClusterValues | None:
    if options.state:
        return parse_state(read_bytes(options.state, limit=_MAX_STATE_BYTES))
    if not options.measurement_salt:
        return None
    try:
        salt = bytes.fromhex(options.measurement_salt)
    except ValueError:
        salt = b""
    if len(salt) * 2 != _SALT_HEX:
        raise SystemFault(
            f"expected {_SALT_HEX} hex digits as --measurement-salt", reason=Reason.RESCUE_STATE_MALFORMED
        )
    return ClusterValues(measurement_salt=salt)


def _files(secrets: ClusterSecrets) -> dict[str, bytes]:
    named = {f"{uuid}.key": key.reveal() for uuid, key in secrets.disks.items()}
    return {
        **named,
        "measurement-secret": secrets.measurement_secret.reveal(),
        "ssh_ca": secrets.ssh_ca.reveal(),
    }


def _shown(name: str, data: bytes) -> str:
    return data.decode("ascii") if name == "ssh_ca" else data.hex()


def _written(folder: Path, files: dict[str, bytes]) -> list[str]:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SystemFault(f"cannot make {folder}: {error.strerror}", reason=Reason.FILE_UNUSABLE) from error
    for name, data in files.items():
        write_atomic(folder / name, data, mode=0o600)
    return [str(folder / name) for name in files]


def _say(values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(values, indent=2) + os.linesep)
        return
    for name, value in values.items():
        if isinstance(value, dict):
            rows = [f"{one}: {inner}" for one, inner in value.items()]
        elif isinstance(value, list):
            rows = [one if isinstance(one, str) else _row(one) for one in value]
        else:
            rows = [] if value is None else [value]
        for row in rows:
            sys.stdout.write(f"{name:<{_WIDTH}}{row}\n")


def _row(disk: dict[str, str]) -> str:
    return f"{disk['disk']}  header: {disk['header']}  key: {disk['key']}  ({disk['from']})"
