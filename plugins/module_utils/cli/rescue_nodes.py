# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested rescue verify|recover|rejoin`: call nodes of Constellation from a machine outside of the cluster."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.files import read_bytes
from ..core.host import SystemClock, SystemRandom
from ..errors import SystemFault
from ..keyservice.derive import DiskId
from ..reasons import Reason
from ..rescue.measurements import parse_measurements
from ..rescue.node import NodeDemands, Patience, recover_nodes
from ..rescue.values import check_cluster, derive_cluster
from ..tpm.client import open_tpm
from ..tpm.keys import load_attestation_key
from .rescue_output import add_secret, master_of, print_values, state_of, warn, written

if TYPE_CHECKING:
    import argparse

    from ..rescue.node import RejoinSecrets, SeenNode

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
