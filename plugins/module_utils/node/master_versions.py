# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rotation of the master secret on one machine (ADR 0042): read its versions, store new ones, change the disk key.

The module `state_disk_key` changes the disk key.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.command import SystemRunner
from ..core.files import make_directory, require_no_swap, require_tmpfs, write_atomic
from ..core.host import SystemClock
from ..disk.paths import StatePaths
from ..disk.state_disk import key_name_of
from ..disk.state_disk import run as change_disk
from ..errors import KeyServiceError
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..evidence.node_lock import NodeLock
from ..keyservice.key_bundle import KeyBundle
from ..keyservice.wrap import KeyStore, RestSealer
from ..reasons import Reason
from ..result import Result
from ..services.ticket_store import TicketStore
from ..tpm.client import open_tpm
from .answers import AnswerStore, decode
from .client import JoinTickets, lock_paths
from .config import load_node_config
from .journal import NodeJournal
from .renewal_record import DIRECTORY, alone
from .retry import ask_again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..core.command import Runner
    from ..core.host import Clock
    from ..keyservice.ring import NamedDiskKey

REKEY_DIRECTORY = Path("/run/attested/rekey")
ASK_SECONDS = 120.0
START_SECONDS = 60.0

_KEY_SERVICE = "attested-key-service.service"
_PAUSE_SECONDS = 0.5
_MINIMUM_BYTES = 0  # the disk is in use: it was large enough when it was made


def inspect_versions(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions that the key service holds and runs with, and the version of the state disk."""
    name = load_node_config(params["node_config"]).name
    bundle, held = KeyStore().opened(), KeyStore().held()
    plane = None if bundle is None else {"names": list(bundle.ring.names), "taken": held == bundle.ring.names}
    device = params["device"]
    disk = None if device is None else key_name_of(device, StatePaths(mount_point=Path(params["mount_point"])))
    return {"node": name, "plane": plane, "disk": disk}


def take_versions(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Store the versions that were sealed to this control plane, and restart its key service with them."""
    config = load_node_config(params["node_config"])
    kept = AnswerStore().take(params["handle"])
    bundle = KeyBundle.from_bytes(kept.open(decode(params["sealed"], "sealed")))
    store, runner = KeyStore(), SystemRunner()
    require_same_cluster(store.opened(), bundle)
    if check_mode:
        return Result(changed=store.opened() != bundle or store.held() != bundle.ring.names)
    with open_tpm(config.tcti, timeout_seconds=params["tpm_timeout_seconds"]) as tpm:
        before = NodeLock(tpm, paths=lock_paths(config)).value_before_lock()
        sealer = RestSealer(tpm, on_disk=store.is_on_disk())
        written = store.write(bundle, sealer, pcrs={**kept.pcrs, DEFAULT_REGISTER: before})
    started = start_with(store, bundle.ring.names, runner=runner, clock=SystemClock())
    return Result(changed=written or started, values={"names": list(bundle.ring.names)})


def require_same_cluster(opened: KeyBundle | None, wanted: KeyBundle) -> None:
    """Check that ``wanted`` differs from the opened keys only in versions.

    Raises KEYS_ABSENT, CLUSTER_ID_MISMATCH.
    """
    if opened is None:
        raise KeyServiceError("expected the keys of a control plane, found none", reason=Reason.KEYS_ABSENT)
    if opened.cluster_id != wanted.cluster_id or opened.ring.carried != wanted.ring.carried:
        raise KeyServiceError(
            f"expected versions of the master secret of cluster {opened.cluster_id.hex()}, got another cluster's",
            reason=Reason.CLUSTER_ID_MISMATCH,
        )


def start_with(store: KeyStore, names: Sequence[str], *, runner: Runner, clock: Clock) -> bool:
    """Restart the key service unless it runs with these versions; return whether it was restarted.

    Raises KEY_SERVICE_UNREACHABLE if it does not run with them after `START_SECONDS`.
    """
    wanted = tuple(names)
    if store.held() == wanted:
        return False
    runner.run(["systemctl", "restart", _KEY_SERVICE], timeout_seconds=START_SECONDS)
    until = clock.monotonic() + START_SECONDS
    while store.held() != wanted:
        if clock.monotonic() > until:
            raise KeyServiceError(
                f"expected the key service to start with {', '.join(wanted)}, it did not in {START_SECONDS:.0f} s",
                reason=Reason.KEY_SERVICE_UNREACHABLE,
            )
        clock.sleep(_PAUSE_SECONDS)
    return True


def run_rekey(params: Mapping[str, Any], check_mode: bool) -> Result:
    """Change the key of this machine's state disk to the version ``name``, with the keys of a ticket."""
    device, name = params["device"], params["name"]
    if key_name_of(device, StatePaths(mount_point=Path(params["mount_point"]))) == name:
        return Result(values={"steps": []})
    if check_mode:
        return Result(changed=True, values={"steps": []})
    config = load_node_config(params["node_config"])
    uuid = NodeJournal(clock=SystemClock()).load().disk_id
    if not uuid:
        raise KeyServiceError(
            "expected the assigned id of this node's disk, found none", reason=Reason.STATE_DISK_CLOSED
        )
    with alone(DIRECTORY):
        tickets = JoinTickets(config, None, store=TicketStore(DIRECTORY), handle=None, itself=True)
        try:
            material = ask_again(
                lambda: tickets.material(disk_id=uuid),
                pause=tickets.pause,
                clock=SystemClock(),
                wait_seconds=ASK_SECONDS,
            )
            return rekey(material.secrets.disk_keys(), {**params, "uuid": uuid, "tcti": config.tcti})
        finally:
            tickets.discard()


def rekey(
    keys: Sequence[NamedDiskKey],
    params: Mapping[str, Any],
    *,
    directory: Path = REKEY_DIRECTORY,
    change: Callable[[Mapping[str, Any], bool], Result] = change_disk,
    require_memory: Callable[[Path], None] | None = None,
) -> Result:
    """Exchange the key of a disk with ``keys`` in another process.

    Raises MASTER_SECRET_UNKNOWN, and as ``change``. The keys are on tmpfs, readable only by root, as long as that
    process runs.
    """
    names = [one.name for one in keys]
    wanted = params["name"]
    if wanted not in names:
        raise KeyServiceError(
            f"expected a ticket with the disk's key under {wanted}, got those under {', '.join(names)}",
            reason=Reason.MASTER_SECRET_UNKNOWN,
        )
    with _key_files(keys, directory, require_memory or _in_memory) as files:
        former = [str(files[name]) for name in names if name != wanted]
        done = change(_job(params, key_file=files[wanted], former=former), False)  # noqa: FBT003  # a form
    return Result(changed=done.changed, values={"steps": done.values["steps"]})


def _job(params: Mapping[str, Any], *, key_file: Path, former: Sequence[str]) -> dict[str, Any]:
    paths = StatePaths()
    return {
        "device": params["device"],
        "uuid": params["uuid"],
        "state": "rekeyed",
        "key_file": str(key_file),
        "key_name": params["name"],
        "former_key_files": list(former),
        "volume": "",
        "erase": "",
        "minimum_bytes": _MINIMUM_BYTES,
        "mount_point": params["mount_point"],
        "directories": [],
        "memory": str(paths.memory),
        "journal": str(paths.journal),
        "tcti": params["tcti"],
        "tpm_timeout_seconds": params["tpm_timeout_seconds"],
    }


@contextmanager
def _key_files(
    keys: Sequence[NamedDiskKey], directory: Path, require_memory: Callable[[Path], None]
) -> Iterator[dict[str, Path]]:
    make_directory(directory, mode=0o700)
    try:
        require_memory(directory)
        files = {one.name: directory / f"key-{number}" for number, one in enumerate(keys)}
        for one in keys:
            write_atomic(files[one.name], one.key.reveal(), mode=0o600)
        yield files
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _in_memory(directory: Path) -> None:
    require_tmpfs(directory)
    require_no_swap()
