# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue`: derive keys from a master secret, and open a disk with them, without a cluster."""

from __future__ import annotations

import asyncio
import re
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import read_bytes
from ..core.host import SystemClock, SystemRandom
from ..errors import SystemFault
from ..keyservice.derive import DiskId
from ..reasons import Reason
from ..rescue.disk import copy_header, disk_id_of, find_disk, mount_disk, unmount_disk
from ..rescue.extract import ETCD, MANIFEST, PKI, SUMS, entries, extract_data, open_keyspace
from ..rescue.node import NodeDemands, Patience, parse_measurements, recover_nodes
from ..rescue.values import check_cluster, derive_cluster
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key
from .rescue_disks import (
    WRONG,
    add_secret,
    examine_disks,
    key_of,
    master_of,
    mounted_disk,
    print_values,
    secret_files,
    state_of,
    values_of,
    warn,
    written,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..core.command import Runner
    from ..rescue.node import RejoinSecrets, SeenNode


# `attested rescue verify|recover|rejoin`: call nodes of Constellation from a machine outside of the cluster.

_MAX_CONFIG_BYTES = 1 << 20
_KEY_NAME = re.compile(r"000b[0-9a-f]{64}")
_CLUSTER_ID = re.compile(r"[0-9a-f]{64}")
_VERIFY_PORT, _RECOVERY_PORT, _JOIN_PORT = 30081, 9999, 30090
_ANY_KEY = (
    "any attestation key is trusted: an attacker that knows the expected values, which are public, can pose as a node "
    "without a TPM"
)
_ANY_KEY_SECRET = f"{_ANY_KEY}, and receives your master secret"


def add_nodes(actions: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands verify, recover and rejoin to ``actions``."""
    verify = actions.add_parser("verify", parents=[common], help="verify a node by the expected measurements")
    _add_demands(verify, _VERIFY_PORT)
    member = verify.add_mutually_exclusive_group(required=True)
    member.add_argument("--state", metavar="FILE", help="constellation-state.yaml: the node must be of this cluster")
    member.add_argument("--cluster-id", metavar="HEX", help="the same with only the cluster id, 64 digits")
    member.add_argument(
        "--locked",
        action="store_true",
        help=f"the node waits for a key (port {_RECOVERY_PORT}) and is in no cluster yet; nothing is sent to it",
    )
    verify.set_defaults(run=_verify)
    recover = actions.add_parser("recover", parents=[common], help="send the master secret to nodes that wait for it")
    _add_demands(recover, _RECOVERY_PORT)
    add_secret(recover)
    recover.add_argument(
        "--state",
        metavar="FILE",
        help="constellation-state.yaml: the secret must be of this cluster, or nothing is sent",
    )
    recover.add_argument(
        "--watch",
        type=float,
        default=Patience().watch_seconds,
        metavar="SECONDS",
        help="how long to watch for another request, the only sign of a wrong secret (default: %(default)g)",
    )
    recover.set_defaults(run=_recover)
    _add_rejoin(actions, common)


def _add_rejoin(actions: Any, common: argparse.ArgumentParser) -> None:
    rejoin = actions.add_parser(
        "rejoin", parents=[common], help="ask a running cluster for a disk's key, with this machine's TPM as evidence"
    )
    rejoin.add_argument("--endpoint", required=True, metavar="HOST[:PORT]", help=f"a control plane (port {_JOIN_PORT})")
    rejoin.add_argument("--disk", required=True, metavar="UUID", help="the disk's LUKS UUID")
    rejoin.add_argument("--out", required=True, metavar="FOLDER", help="write the keys to this folder, with mode 0600")
    rejoin.add_argument("--state", metavar="FILE", help="constellation-state.yaml: the answer must be of this cluster")
    rejoin.add_argument("--tcti", default="device:/dev/tpmrm0", help="the address of the TPM (default: %(default)s)")
    rejoin.set_defaults(run=_rejoin)


def _add_demands(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--endpoint", required=True, metavar="HOST[:PORT]", help=f"the node (port {port})")
    parser.add_argument(
        "--measurements",
        required=True,
        metavar="FILE",
        help="constellation-conf.yaml, or join-config's attestationConfig",
    )
    known = parser.add_mutually_exclusive_group(required=True)
    known.add_argument(
        "--attestation-key",
        action="append",
        default=[],
        metavar="NAME",
        help="the key of a TPM of the cluster, as verify shows it (000b and 64 digits); repeatable",
    )
    known.add_argument(
        "--insecure-any-attestation-key", action="store_true", help="trust any key, as Constellation itself does"
    )


def _verify(options: argparse.Namespace) -> int:
    from ..rescue import client  # noqa: PLC0415 - loads grpc, which no other command needs

    demands = _demands(options)
    random = SystemRandom()
    if options.insecure_any_attestation_key:
        warn(_ANY_KEY)
    if options.locked:
        endpoint = _endpoint(options.endpoint, _RECOVERY_PORT)
        asked = client.look_at_locked_node(endpoint, demands, random=random, clock=SystemClock())
    else:
        endpoint = _endpoint(options.endpoint, _VERIFY_PORT)
        asked = client.verify_node(endpoint, demands, random=random)
    node = asyncio.run(asked)
    _warn_of(node)
    shown = node.pcrs if options.json else demands.measurements.expected
    registers = {f"PCR {index}": node.pcrs[index].hex() for index in sorted(shown)}
    print_values(
        {"node": endpoint, "verified": "yes", "attestation key": node.ak_name.hex(), **registers}, as_json=options.json
    )
    return 0


def _recover(options: argparse.Namespace) -> int:
    from ..rescue import client  # noqa: PLC0415 - loads grpc, which no other command needs

    demands = _demands(options)
    master = master_of(options.master_secret).require_first()
    if options.state:
        derive_cluster(master, values=state_of(options.state))
    if options.insecure_any_attestation_key:
        warn(_ANY_KEY_SECRET)
    endpoint = _endpoint(options.endpoint, _RECOVERY_PORT)
    clock, random = SystemClock(), SystemRandom()

    def report(node: SeenNode) -> None:
        _warn_of(node)
        if not options.json:
            print_values({"secret given to": f"the node with the attestation key {node.ak_name.hex()}"}, as_json=False)

    nodes = asyncio.run(
        recover_nodes(
            lambda given: client.recover_node(endpoint, master, demands, given=given, random=random, clock=clock),
            patience=Patience(watch_seconds=options.watch),
            clock=clock,
            sleep=asyncio.sleep,
            report=report,
        )
    )
    names = [node.ak_name.hex() for node in nodes]
    verdict = f"no node asked again within {options.watch:g} s"
    print_values({"nodes": names if options.json else str(len(names)), "asked again": verdict}, as_json=options.json)
    return 0


def _rejoin(options: argparse.Namespace) -> int:
    disk = DiskId(options.disk)
    secrets = _rejoined(options, disk)
    values: dict[str, Any] = {"disk": disk.uuid}
    if options.state:
        values["cluster id"] = check_cluster(secrets.measurement_secret, state_of(options.state)).hex()
    else:
        warn("the answering cluster is unknown, because no state file was given: try the key on the disk's header")
    files = {
        f"{disk.uuid}.key": secrets.disk_key.reveal(),
        "measurement-secret": secrets.measurement_secret.reveal(),
    }
    print_values({**values, "files": written(Path(options.out), files)}, as_json=options.json)
    return 0


def _rejoined(options: argparse.Namespace, disk: DiskId) -> RejoinSecrets:
    from ..rescue import client  # noqa: PLC0415 - loads grpc, which no other command needs

    endpoint = _endpoint(options.endpoint, _JOIN_PORT)
    with open_tpm(options.tcti) as tpm:
        call = partial(client.rejoin, endpoint, disk, tpm=tpm, ak=load_attestation_key(tpm))
        return asyncio.run(call(random=SystemRandom(), clock=SystemClock()))


def _demands(options: argparse.Namespace) -> NodeDemands:
    measurements = parse_measurements(read_bytes(options.measurements, limit=_MAX_CONFIG_BYTES))
    cluster = _cluster_id(options)
    if cluster:
        measurements = measurements.of_member(cluster)
    names = [_matched(name, _KEY_NAME, "the name of an attestation key") for name in options.attestation_key]
    return NodeDemands(
        measurements=measurements,
        attestation_keys=frozenset(names),
        insecure_any_attestation_key=options.insecure_any_attestation_key,
    )


def _cluster_id(options: argparse.Namespace) -> bytes:
    """Return the id of the cluster that a running node must be in, b"" for a node that waits for a key."""
    if not hasattr(options, "locked") or options.locked:
        return b""
    if options.cluster_id:
        return _matched(options.cluster_id, _CLUSTER_ID, "a cluster id")
    found = state_of(options.state).cluster_id
    if not found:
        raise SystemFault(f"expected a clusterID in {options.state}, got none", reason=Reason.RESCUE_FILE_MALFORMED)
    return found


def _matched(text: str, pattern: re.Pattern[str], what: str) -> bytes:
    if not pattern.fullmatch(text.lower()):
        raise SystemFault(f"expected {what} in hex digits, got {text[:80]!r}", reason=Reason.RESCUE_FILE_MALFORMED)
    return bytes.fromhex(text)


def _endpoint(given: str, port: int) -> str:
    bare = given.endswith("]") or ":" not in given
    return f"{given}:{port}" if bare else given


def _warn_of(node: SeenNode) -> None:
    for sentence in node.warnings:
        warn(f"{sentence} (the configuration sets this register to warn only)")


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
