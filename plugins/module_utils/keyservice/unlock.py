# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`attested-agent unlock`: decrypt the keys at each boot of a control plane, then lock the machine.

The unit runs before the kubelet and both services. States of one boot::

    closed ──unseal──▶ opened ──compare cluster id──▶ opened ──nodelock──▶ locked (marker written)

If the program is killed, the next run continues: the opened copy remains, and the lock is taken once in each boot. If
the boot has other register values, the keys stay closed and the program fails with STATE_CHANGED. Keys on a state disk
are readable only after a ticket or an admin has opened the disk. Until then systemd skips the unit, and the program
that opens the disk starts it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AttestedError, KeyServiceError
from ..evidence.node_lock import Acquisition, NodeLock, NodeLockPaths
from ..reasons import Reason
from ..tpm.client import open_tpm
from .key_bundle import KeyBundle, KeyPaths
from .wrap import KeyStore, RestSealer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .wrap import Sealer


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocked:
    """The opened keys of a control plane, and the lock that was taken."""

    bundle: KeyBundle
    acquisition: Acquisition


def unlock(store: KeyStore, *, sealer: Sealer, lock: NodeLock, cluster_id: bytes) -> Unlocked:
    """Open the keys and lock the machine to their cluster.

    1. The keys open, so this is the verified boot. KEYS_ABSENT, STATE_CHANGED, KEYS_DAMAGED
    2. They belong to this cluster. CLUSTER_ID_MISMATCH
    3. The lock is taken now, or was taken for the same cluster. NODELOCK_…
    """
    bundle = store.unlock(sealer)
    if bundle.cluster_id != cluster_id:
        raise KeyServiceError(
            f"expected the keys of cluster {cluster_id.hex()}, found those of {bundle.cluster_id.hex()}",
            reason=Reason.CLUSTER_ID_MISMATCH,
        )
    return Unlocked(bundle=bundle, acquisition=lock.acquire(cluster_id))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, or 1 with the error on standard error."""
    options = _parser().parse_args(argv)
    store = KeyStore(KeyPaths(rest=options.state_directory, opened=options.runtime_directory / "key-service"))
    try:
        with open_tpm(options.tcti) as tpm:
            done = unlock(
                store,
                sealer=RestSealer(tpm),
                lock=NodeLock(tpm, paths=_lock_paths(options)),
                cluster_id=options.cluster_id,
            )
    except AttestedError as error:
        sys.stderr.write(f"attested-agent unlock: {error}\n")
        return 1
    taken = "locked now" if done.acquisition.won else "locked already"
    sys.stdout.write(f"keys of cluster {options.cluster_id.hex()} open, machine {taken}\n")
    return 0


def _lock_paths(options: argparse.Namespace) -> NodeLockPaths:
    return NodeLockPaths(
        directory=options.runtime_directory,
        firmware_log=options.firmware_log,
        userspace_log=options.userspace_log,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attested-agent unlock",
        description="Open the keys of this control plane, then lock the machine to its cluster.",
    )
    parser.add_argument(
        "--cluster-id", type=bytes.fromhex, required=True, metavar="HEX", help="the cluster id, 64 hex digits"
    )
    parser.add_argument("--tcti", default="device:/dev/tpmrm0", help="where the TPM is (default: %(default)s)")
    for name in ("firmware", "userspace"):
        parser.add_argument(
            f"--{name}-log",
            type=Path,
            default=getattr(NodeLockPaths(), f"{name}_log"),
            metavar="FILE",
            help="an event log of this boot, which explains the lock's register (default: %(default)s)",
        )
    parser.add_argument(
        "--state-directory",
        type=Path,
        default=KeyPaths().rest,
        metavar="DIR",
        help="holds the encrypted keys (default: %(default)s)",
    )
    parser.add_argument(
        "--runtime-directory",
        type=Path,
        default=NodeLockPaths().directory,
        metavar="DIR",
        help="on tmpfs; holds the opened keys, the lock and its marker (default: %(default)s)",
    )
    return parser
