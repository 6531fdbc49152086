# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an init on this machine: turn in the race → disk → keys → lock → playbook."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..core.files import make_directory, remove, write_atomic
from ..errors import AttestedError, KeyServiceError, SystemFault
from ..evidence.eventlog.nodelock import DEFAULT_REGISTER
from ..keyservice.wrap import RestSealer
from ..reasons import Reason
from ..services.init_admin import BroughtPolicy
from ..services.init_messages import Success
from .claim import Claim, Contender
from .playbook import PlaybookOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ..keyservice.key_bundle import KeyBundle
    from ..keyservice.wrap import KeyStore
    from ..services.init_handler import JobReporter
    from ..services.init_messages import InitOrder
    from ..tpm.client import Tpm
    from .claim import Race, Turn
    from .playbook import Playbooks, PlaybookSettings
    from .state_disk import FoundersDisk

STAGE = "Take the machine for its cluster"


class Keeping(Protocol):
    """Stores the keys of a cluster (`keyservice.wrap.KeyStore`); the TPM is open only while it seals."""

    def write(self, bundle: KeyBundle, *, judged: Mapping[int, bytes], lock_register: int) -> None:
        """Seal ``bundle`` to the ``judged`` values and the present value of the lock's register."""

    def opened(self) -> KeyBundle | None:
        """Return the opened copy of this boot, or None."""

    def files(self) -> tuple[Path, ...]:
        """Return the paths of the keys, at rest and opened."""


class MachineFounder:
    """Makes the cluster on this machine for one request.

    A repeated request continues where the last one stopped. A failure before the lock is undone; a failure after the
    lock is repaired forward.
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
        """Store the collaborators; ``stop_others`` stops the join client once the lock is taken.

        ``disk`` is the state disk, if the site names one; the keys are stored on it.
        """
        self._settings = settings
        self._race = race
        self._keeping = keeping
        self._playbooks = playbooks
        self._stop_others = stop_others
        self._disk = disk

    def found(
        self, order: InitOrder, bundle: KeyBundle, *, digest: str, judged: Mapping[int, bytes], reporter: JobReporter
    ) -> Success:
        """Verify the policy that came with the order, take the lock, then make the cluster.

        Raises as `BroughtPolicy.verified` before anything is stored, RACE_LOST, INIT_REQUEST_DIFFERS, STATE_CHANGED
        (this request has the lock, but its keys were lost), and as disk, keeping and playbook. A formatted disk stays
        as it is after a failure; the next request finds its id.
        """
        brought = _brought(order, bundle)
        mine = Claim(Contender.INIT, digest)
        before = {path for path in self._keeping.files() if path.exists()}
        try:
            with self._race.turn(mine) as turn:
                self._take(turn, bundle, judged=judged, reporter=reporter)
        except AttestedError:
            self._undo(mine, before)
            raise
        self._stop_others()
        with self._laid_out(brought) as variables:
            result = self._playbooks.run(self._playbook(order, variables), reporter)
        if self._disk is not None:
            self._disk.settle()
        kubeconfig = result.get("kubeconfig")
        if not isinstance(kubeconfig, str):
            raise SystemFault("expected a kubeconfig from the playbook, got none", reason=Reason.PLAYBOOK_FAILED)
        return Success(
            kubeconfig=kubeconfig.encode(),
            cluster_id=bundle.cluster_id,
            policy_generation=brought.generation if brought else 0,
        )

    def _take(self, turn: Turn, bundle: KeyBundle, *, judged: Mapping[int, bytes], reporter: JobReporter) -> None:
        if not turn.again:
            if self._disk is not None:
                reporter.step(STAGE, "Open the state disk, which is formatted the first time")
                self._disk.open(bundle, report=partial(reporter.step, STAGE))
            reporter.step(STAGE, "Keep the keys")
            self._keeping.write(bundle, judged=judged, lock_register=DEFAULT_REGISTER)
        elif self._keeping.opened() != bundle:
            raise KeyServiceError(
                "expected an unlocked machine or one that holds these keys, it is locked and does not",
                reason=Reason.STATE_CHANGED,
                hint="Reboot the machine, then run init again.",
            )
        reporter.step(STAGE, "Lock the machine to its cluster")
        turn.take()

    def _undo(self, mine: Claim, before: set[Path]) -> None:
        """Remove the keys of this attempt, unless this request has the lock or the winner cannot be read."""
        with suppress(AttestedError):
            if self._race.winner() != mine:
                for path in self._keeping.files():
                    if path not in before:
                        remove(path)

    @contextmanager
    def _laid_out(self, brought: BroughtPolicy | None) -> Iterator[Mapping[str, Any]]:
        """Write the policy to files for the playbook's duration; Ansible would treat a variable as a template."""
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
    """Return the order's policy, verified with the policy key of ``bundle``; None if the order has no policy."""
    if not order.policy:
        return None
    return BroughtPolicy.verified(
        order.policy, order.policy_objects, public_key=bundle.policy_key, cluster_id=bundle.cluster_id
    )


class TpmKeeping:
    """Stores keys in ``store``, sealed by the TPM.

    The TPM is open only during a write, so that the lock can use it afterwards. ``on_disk``: the store is on the state
    disk, whose encryption protects it instead of the TPM.
    """

    def __init__(
        self, store: KeyStore, *, open_machine: Callable[[], AbstractContextManager[Tpm]], on_disk: bool = False
    ) -> None:
        """Store the collaborators; ``open_machine`` opens the TPM."""
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
        """Return the paths of the keys."""
        return (self._store.paths.rest_file, self._store.paths.opened_file)
