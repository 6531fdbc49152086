# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The init of this machine, in its order: a turn in the race → disk → keys → lock → playbook."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import make_directory, remove, write_atomic
from ..errors import AttestedError, KeyServiceError, SystemFault
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..keyservice.wrap import RestSealer
from ..reasons import Reason
from ..services.init_messages import Success
from ..services.init_policy import BroughtPolicy
from .claim import Claim, Contender
from .playbook import PlaybookOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ..keyservice.key_bundle import KeyBundle
    from ..keyservice.wrap import KeyStore
    from ..services.init_job import Teller
    from ..services.init_messages import InitOrder
    from ..tpm.client import Tpm
    from .claim import Race, Turn
    from .disk_setup import FoundersDisk
    from .playbook import Playbooks

STAGE = "Take the machine for its cluster"


class Keeping(Protocol):
    """Keeps the keys of a cluster (`keys.wrap.KeyStore`), with the TPM open only while it seals."""

    def write(self, bundle: KeyBundle, *, judged: Mapping[int, bytes], lock_register: int) -> None:
        """Seal ``bundle`` to the ``judged`` values and the one that the lock's register has now."""

    def opened(self) -> KeyBundle | None:
        """Return the opened copy of this boot, or None."""

    def files(self) -> tuple[Path, ...]:
        """Return where the keys lie, at rest and opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybookSettings:
    """What a founder builds with: the playbook and its inventory, the node's own name, a directory for its files."""

    playbook: Path
    inventory: Path
    node_name: str
    directory: Path = Path("/run/attested")


class MachineFounder:
    """Makes the cluster on this machine, for one request; a repetition goes on where the last one stood.

    Up to the lock everything is undone when it fails; from the lock on everything is repaired forward.
    """

    def __init__(
        self,
        settings: PlaybookSettings,
        *,
        race: Race,
        keeping: Keeping,
        playbooks: Playbooks,
        stop_others: Callable[[], None],
        disk: FoundersDisk | None = None,
    ) -> None:
        """Keep the collaborators; ``stop_others`` ends the join client once the lock is taken.

        ``disk``: of a machine whose site names one; what is kept lies on it.
        """
        self._settings = settings
        self._race = race
        self._keeping = keeping
        self._playbooks = playbooks
        self._stop_others = stop_others
        self._disk = disk

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], teller: Teller
    ) -> Success:
        """Verify the policy that came with the order, take the lock, then make the cluster.

        Raises what `BroughtPolicy.verified` raises, before anything is kept, RACE_LOST, INIT_REQUEST_DIFFERS,
        STATE_CHANGED (the lock is this request's, the keys were lost), what disk, keeping and playbook raise. A disk
        that was made stays as it is when the rest fails, under the id that the next request finds.
        """
        brought = _brought(order, bundle)
        mine = Claim(Contender.INIT, digest)
        before = {path for path in self._keeping.files() if path.exists()}
        try:
            with self._race.turn(mine) as turn:
                self._take(turn, bundle, judged=judged, teller=teller)
        except AttestedError:
            self._undo(mine, before)
            raise
        self._stop_others()
        with self._laid_out(brought) as variables:
            result = self._playbooks.run(self._playbook(order, variables), teller)
        if self._disk is not None:
            self._disk.settle()
        kubeconfig = result.get("kubeconfig")
        if not isinstance(kubeconfig, str):
            raise SystemFault("expected a kubeconfig of the playbook, got none", reason=Reason.PLAYBOOK_FAILED)
        return Success(
            kubeconfig=kubeconfig.encode(),
            cluster_id=bundle.cluster_id,
            policy_generation=brought.generation if brought else 0,
        )

    def _take(self, turn: Turn, bundle: KeyBundle, *, judged: Mapping[int, bytes], teller: Teller) -> None:
        if not turn.again:
            if self._disk is not None:
                teller.step(STAGE, "Open the state disk, which is formatted the first time")
                self._disk.open(bundle, report=partial(teller.step, STAGE))
            teller.step(STAGE, "Keep the keys")
            self._keeping.write(bundle, judged=judged, lock_register=DEFAULT_REGISTER)
        elif self._keeping.opened() != bundle:
            raise KeyServiceError(
                "expected an unlocked machine or one that holds these keys, it is locked and does not",
                reason=Reason.STATE_CHANGED,
                hint="Reboot the machine, then run init again.",
            )
        teller.step(STAGE, "Lock the machine to its cluster")
        turn.take()

    def _undo(self, mine: Claim, before: set[Path]) -> None:
        """Remove the keys that this try has brought, unless the lock is ours after all or nobody can say whose."""
        with suppress(AttestedError):
            if self._race.winner() != mine:
                for path in self._keeping.files():
                    if path not in before:
                        remove(path)

    @contextmanager
    def _laid_out(self, brought: BroughtPolicy | None) -> Iterator[Mapping[str, Any]]:
        """Give the playbook the policy as files, as long as it runs: a variable would be a template to Ansible."""
        if brought is None:
            yield {}
            return
        make_directory(self._settings.directory, mode=0o711)
        with tempfile.TemporaryDirectory(prefix="policy-", dir=self._settings.directory) as private:
            write_atomic(Path(private, "policy.yml"), brought.document().encode())
            write_atomic(Path(private, "objects.yml"), brought.objects().encode())
            yield {"attested_brought_policy": private}

    def _playbook(self, order: InitOrder, more: Mapping[str, Any]) -> PlaybookOrder:
        return PlaybookOrder(
            playbook=self._settings.playbook,
            inventory=self._settings.inventory,
            variables={
                "attested_node_name": self._settings.node_name,
                "attested_cluster_name": order.cluster_name,
                "attested_kubernetes_version": order.kubernetes_version,
                "attested_service_subnet": order.service_cidr,
                "attested_api_extra_sans": list(order.extra_sans),
                "attested_admin_request": order.admin_request.decode("ascii", "replace"),
                **more,
            },
        )


def _brought(order: InitOrder, bundle: KeyBundle) -> BroughtPolicy | None:
    """Return the policy of an order, good under the key that the key service will believe; None without one."""
    if not order.policy:
        return None
    return BroughtPolicy.verified(
        order.policy, order.policy_objects, public_key=bundle.policy_key, cluster_id=bundle.cluster_id
    )


class TpmKeeping:
    """The real keeping: ``store`` sealed by a TPM that is open for one write, so the lock finds it free.

    ``on_disk``: the store lies on the state disk, which keeps it instead.
    """

    def __init__(
        self, store: KeyStore, *, open_machine: Callable[[], AbstractContextManager[Tpm]], on_disk: bool = False
    ) -> None:
        """Keep ``store`` and how the TPM is opened."""
        self._store = store
        self._open_machine = open_machine
        self._on_disk = on_disk

    def write(self, bundle: KeyBundle, *, judged: Mapping[int, bytes], lock_register: int) -> None:
        """Seal ``bundle``."""
        with self._open_machine() as tpm:
            pcrs = {**judged, lock_register: tpm.pcr_read([lock_register])[lock_register]}
            self._store.write(bundle, RestSealer(tpm, on_disk=self._on_disk), pcrs=pcrs)

    def opened(self) -> KeyBundle | None:
        """Return the opened copy of this boot."""
        return self._store.opened()

    def files(self) -> tuple[Path, ...]:
        """Return where the keys lie."""
        return (self._store.paths.rest_file, self._store.paths.opened_file)
